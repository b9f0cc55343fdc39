#!/usr/bin/env bash
# Checks formatting, lint and types of all files in git. `check` reports problems. `fix` fixes those
# that tools can fix. `hook`, for pre-commit, is `check` without its slow part.
#
#   scripts/lint.sh check|fix|hook
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1-}
case "$mode" in
  check | hook) ruff_format=(--check --diff) ruff_check=() gersemi=(--check) ;;
  fix) ruff_format=() ruff_check=(--fix) gersemi=(--in-place) ;;
  *)
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

scripts/venv.sh .venv run dev
export PATH="$PWD/.venv/bin:$PATH"
failed=0
run() {
  echo "== $1"
  shift
  "$@" || failed=1
}

# shellcheck disable=SC2317  # called through run
# Prints only the names of the files, since clang-format's own output is a page for each.
format_cpp() {
  local file bad=0
  for file in "${cpp[@]}"; do
    clang-format --style=file "$file" | cmp -s - "$file" && continue
    if [[ $mode == fix ]]; then
      clang-format --style=file -i "$file"
    else
      echo "$file: clang-format would change it" >&2
      bad=1
    fi
  done
  return "$bad"
}

mapfile -t python < <(git ls-files -co --exclude-standard -- '*.py' '*.pyi')
mapfile -t cpp < <(git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.cu')
mapfile -t cmake < <(git ls-files -co --exclude-standard -- '*.cmake' 'CMakeLists.txt' '*/CMakeLists.txt')
run "ruff format" ruff format --quiet "${ruff_format[@]}" -- "${python[@]}"
run "ruff check" ruff check --quiet "${ruff_check[@]}" -- "${python[@]}"
run "clang-format" format_cpp
run "gersemi" gersemi --no-warn-about-unknown-commands "${gersemi[@]}" "${cmake[@]}"
run "workflows" check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
run "zizmor" zizmor --offline --quiet --no-progress --min-severity medium .github
if [[ $mode != hook ]]; then
  run "mypy" env MYPYPATH=python mypy
  run "mypy of a user's program" env MYPYPATH=python mypy --strict --no-warn-return-any \
    --follow-imports=silent test/python/support/interface/typed_program.py
  run "import-linter" env PYTHONPATH=python lint-imports --no-cache --no-logo
fi
exit $failed
