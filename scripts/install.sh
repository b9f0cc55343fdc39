#!/usr/bin/env bash
# Installs singa and its extras into .venv, as `pip install .[EXTRA...]` does, but with the build
# packages kept in .venv and the objects in build/, so that a second time is quick.
#
#   scripts/install.sh [EXTRA...]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh .venv build run "$@"

# Nothing to do when no source is newer than what was installed last.
stamp=.venv/.singa-installed
if [[ -e $stamp ]] && [[ -z $(find CMakeLists.txt pyproject.toml cmake include src python \
  -newer "$stamp" -type f -not -name '*.pyc' -print -quit) ]]; then
  echo "== singa is installed in .venv and up to date"
  exit 0
fi

echo "== building and installing singa into .venv (C++ on ${JOBS:-$(nproc)} cores; minutes the first time)"
start=$(mktemp)
mkdir -p build
: >build/install.log
# pip is silent for minutes: where somebody watches, show which step the compiler is at.
watcher=
stop_watching() {
  [[ -n $watcher ]] || return 0
  kill "$watcher" 2>/dev/null || true
  watcher=
  echo
}
trap stop_watching EXIT
if [[ -t 1 ]]; then
  while sleep 2; do
    step=$(grep -oE '\[[0-9]+/[0-9]+\]' build/install.log | tail -n 1) && printf '\r   %s ' "$step"
  done &
  watcher=$!
fi
if ! CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} PATH="$PWD/.venv/bin:$PATH" \
  .venv/bin/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps \
  --force-reinstall --verbose --config-settings=build-dir=build/install . >>build/install.log 2>&1; then
  stop_watching
  grep -E -A5 'error|Error|FAILED' build/install.log | head -60 >&2
  echo "error: the build failed; all of its output is in build/install.log" >&2
  exit 1
fi
stop_watching
touch -r "$start" "$stamp"
rm -f "$start"
tail -n 1 build/install.log
