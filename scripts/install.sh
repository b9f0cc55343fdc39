#!/usr/bin/env bash
# Installs singa and its extras into .venv like `pip install .[EXTRA...]`, but keeps the build
# packages in .venv and the objects in build/, so that the next run is fast. The tests' presets
# release and ci use the same objects. The wheel stays in build/wheel.
#
#   scripts/install.sh [EXTRA...]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh .venv build
# What singa needs when it runs is installed while singa is configured and compiled.
scripts/venv.sh .venv run "$@" &
requirements=$!
build=build/release
[[ ${PRESET-} != ci ]] || build=build/ci

# Nothing to do if no source is newer than the installed package.
stamp=.venv/.singa-installed
if [[ -e $stamp ]] && [[ -z $(find CMakeLists.txt pyproject.toml cmake include src python \
  -newer "$stamp" -type f -not -name '*.pyc' -print -quit) ]]; then
  wait "$requirements"
  echo "== singa is installed in .venv and up to date"
  exit 0
fi

echo "== building and installing singa into .venv (C++ on ${JOBS:-$(nproc)} cores; minutes the first time)"
start=$(mktemp)
mkdir -p build
: >build/install.log
# pip is silent for minutes, so show the number of the build step on a terminal.
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
rm -rf build/wheel
if ! {
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} PATH="$PWD/.venv/bin:$PATH" \
    .venv/bin/python -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
    --verbose --config-settings=build-dir="$build" --wheel-dir build/wheel . &&
    wait "$requirements" &&
    .venv/bin/python -m pip install --disable-pip-version-check --no-deps --force-reinstall \
      build/wheel/singa-*.whl
} >>build/install.log 2>&1; then
  stop_watching
  grep -E -A5 'error|Error|FAILED' build/install.log | head -60 >&2
  echo "error: the build failed; all of its output is in build/install.log" >&2
  exit 1
fi
stop_watching
touch -r "$start" "$stamp"
rm -f "$start"
tail -n 1 build/install.log
# nvcc without the headers of NVIDIA's libraries: nobody looks for that in the log.
sed -n 's/^.*--   CUDA       no: /== built without CUDA: /p' build/install.log
