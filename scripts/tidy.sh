#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy on the sources of the library, or on FILE...
#
#   scripts/tidy.sh [FILE...]        needs a configured build folder: PRESET=debug by default
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/${PRESET:-debug}

scripts/venv.sh .venv build run
.venv/bin/python -m pip install --quiet --disable-pip-version-check clang-tidy
[[ -e $build/compile_commands.json ]] || .venv/bin/cmake --preset "${PRESET:-debug}" >/dev/null
# GCC's omp.h is always present, since GCC compiles the sources. Link only this header, because
# clang has its own versions of the others.
mkdir -p build/tidy
ln -sf "$(g++ -print-file-name=include/omp.h)" build/tidy/omp.h

files=("$@")
[[ ${#files[@]} -gt 0 ]] || mapfile -t files < <(git ls-files 'src/*.cc')
printf '%s\0' "${files[@]}" | xargs -0 -n 4 -P "${JOBS:-$(nproc)}" \
  .venv/bin/clang-tidy -p "$build" --quiet --extra-arg="-isystem$PWD/build/tidy"
