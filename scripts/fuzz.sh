#!/usr/bin/env bash
# Builds the preset PRESET and runs a Python program of this repository with it.
#
#   scripts/fuzz.sh PROGRAM [ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${PRESET:-release}

scripts/venv.sh .venv build run test
if [[ -f build/$preset/CMakeCache.txt ]]; then
  PATH="$PWD/.venv/bin:$PATH" cmake --build --preset "$preset" --target python_tree -- -j "${JOBS:-2}"
else
  scripts/test.sh build
fi
preload=
if [[ $preset == asan || $preset == ubsan ]]; then # as scripts/test.sh does
  for library in libasan libubsan libstdc++; do
    preload+=$(g++ -print-file-name=$library.so):
  done
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:allocator_may_return_null=1
fi
PYTHONPATH=$PWD/build/$preset/python LD_PRELOAD=$preload exec .venv/bin/python "$@"
