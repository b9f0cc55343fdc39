#!/usr/bin/env bash
# Builds the preset PRESET (default release) and runs its tests.
#
#   scripts/test.sh build [TARGETS]  builds everything, or these targets
#   scripts/test.sh cpp [FLAGS]      runs the C++ tests of that build, with flags of ctest
#   scripts/test.sh python [FLAGS]   runs the Python tests on that build, with PYTEST_FLAGS
#   scripts/test.sh quick            preset debug, without CUDA and without slow tests: first the
#                                    tests of what changed, then all others
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${PRESET:-release}
jobs=${JOBS:-$(nproc)}
venv=$PWD/.venv
export PATH="$venv/bin:$PATH" VIRTUAL_ENV=$venv
# Programs that run at the same time, or beside PyTorch, would spin on each other's cores.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

configure() { # configure OPTION...
  local gtest
  gtest=$(CMAKE=.venv/bin/cmake scripts/gtest.sh build/gtest)
  mkdir -p build
  echo "== configuring build/$preset"
  if ! cmake --preset "$preset" ${gtest:+"-DCMAKE_PREFIX_PATH=$PWD/$gtest"} "$@" \
    >"build/configure-$preset.log" 2>&1; then
    cat "build/configure-$preset.log" >&2
    exit 1
  fi
}

build() { # build TARGET...: builds these targets, or everything
  cmake --build --preset "$preset" ${1:+--target "$@"} -- -j "$jobs"
}

pytests() { # pytests FLAG...
  PYTHONPATH=$PWD/build/$preset/python LD_PRELOAD=${preload-} python -m pytest "$@"
}

case "${1-}" in
  build)
    scripts/venv.sh .venv build run test
    cuda=${SINGA_CUDA:-auto}
    # Sanitizers need the emulated GPU.
    if [[ -z ${SINGA_CUDA-} && $preset != *san ]] && command -v nvcc >/dev/null; then
      python scripts/cuda_headers.py
      cuda=on
    fi
    configure -DSINGA_CUDA=$cuda -DSINGA_EMULATED_GPU="${SINGA_EMULATED_GPU:-ON}"
    sed -n '/^-- singa /,/^-- Configuring/{/Configuring/!s/^-- //p}' "build/configure-$preset.log"
    echo "== building on $jobs cores"
    build "${@:2}"
    ;;
  cpp)
    echo "== C++ tests"
    ctest --preset "$preset" -j "$jobs" "${@:2}"
    ;;
  python)
    # The sanitizers' libraries must be loaded before the interpreter, together with the C++
    # runtime, whose `throw` they intercept. Leaks are not checked, because the interpreter keeps
    # memory until it exits; the C++ tests check them. The system allocates each block, so that
    # accesses out of its bounds are found.
    read -ra flags <<<"${PYTEST_FLAGS-}"
    if [[ $preset == asan || $preset == ubsan ]]; then
      preload=
      for library in libasan libubsan libstdc++; do
        preload+=$(g++ -print-file-name=$library.so):
      done
      export SINGA_ALLOCATOR=system ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
      export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    fi
    echo "== Python tests: $(python -V), from build/$preset/python"
    pytests "${flags[@]}" "${@:2}"
    ;;
  quick)
    preset=debug
    export GTEST_FILTER='-*.Slow*' # names of C++ tests that take long without optimisation
    scripts/venv.sh .venv build
    scripts/venv.sh .venv run test & # what tests import is installed while singa is compiled
    requirements=$!
    configure -DSINGA_CUDA=off -DSINGA_EMULATED_GPU=OFF
    echo "== building the library and the Python package on $jobs cores"
    build singa_wrap python_tree
    wait "$requirements"
    read -ra flags <<<"-q --no-header ${PYTEST_FLAGS-}"
    mapfile -t first < <(python scripts/changed_tests.py python)
    echo "== Python tests of what changed: ${first[*]}"
    pytests "${flags[@]}" -m "not slow" "${first[@]}" || [[ $? == 5 ]] # 5: only slow tests there
    mapfile -t programs < <(python scripts/changed_tests.py cpp)
    if [[ ${#programs[@]} -gt 0 ]]; then
      echo "== C++ tests of what changed: ${programs[*]}"
      build "${programs[@]/%/_test}"
      ctest --preset "$preset" -j "$jobs" -R "^($(IFS='|' && echo "${programs[*]}"))\$"
    fi
    echo "== all C++ tests"
    build
    ctest --preset "$preset" -j "$jobs"
    echo "== all Python tests"
    pytests "${flags[@]}" -m "not slow" "${first[@]/#/--ignore=}"
    ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
