#!/usr/bin/env bash
# The tests: `cpp` builds the preset in PRESET and runs ctest; `python` runs pytest on what was built,
# under the default Python and, when there is another CPython of 3.11 or newer, under the newest such
# one too: the extension is one binary for all of them.
#
#   scripts/test.sh cpp|python
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${PRESET:-release}
jobs=${JOBS:-$(nproc)}
build=build/$preset
venv=$PWD/.venv
export PATH="$venv/bin:$PATH" VIRTUAL_ENV=$venv

case "${1-}" in
  cpp)
    scripts/venv.sh .venv build run test
    gtest=$(CMAKE=.venv/bin/cmake scripts/gtest.sh build/gtest)
    cuda=auto
    # Sanitizers see the backend on an emulated GPU only.
    if command -v nvcc >/dev/null && [[ $preset != *san ]]; then
      "$venv/bin/python" scripts/cuda_headers.py
      cuda=on
    fi
    mkdir -p build
    echo "== configuring $build"
    if ! cmake --preset "$preset" -DSINGA_CUDA=$cuda ${gtest:+"-DCMAKE_PREFIX_PATH=$PWD/$gtest"} \
      >build/configure.log 2>&1; then
      cat build/configure.log >&2
      exit 1
    fi
    sed -n '/^-- singa /,/^-- Configuring/{/Configuring/!s/^-- //p}' build/configure.log
    echo "== building on $jobs cores"
    cmake --build --preset "$preset" -- -j "$jobs"
    echo "== C++ tests"
    ctest --preset "$preset" -j "$jobs"
    ;;
  python)
    # Sanitizers live in libraries that have to be in the process before the interpreter is, and
    # before them the C++ runtime, whose `throw` they watch. The interpreter's own memory, which it
    # keeps until the end, would count as leaks; the C++ tests look for ours. Blocks come one by one
    # from the system, so that each has its own bounds.
    preload=
    read -ra flags <<<"${PYTEST_FLAGS-}"
    if [[ $preset == asan ]]; then
      flags+=(-m "not slow")
      for library in libasan libubsan libstdc++; do
        preload+=$(g++ -print-file-name=$library.so):
      done
      export SINGA_ALLOCATOR=system ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
      export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    fi
    run() { # run <python of a venv>
      echo "== Python tests: $("$1" -V), from $build/python"
      PYTHONPATH=$PWD/$build/python LD_PRELOAD=$preload "$1" -m pytest "${flags[@]}"
    }
    default=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for python in $(scripts/pythons.sh); do
      version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
      [[ $version == "$default" ]] || other=$python other_version=$version
    done
    if [[ -z ${other-} || ${SINGA_ONE_PYTHON-0} == 1 ]]; then
      run "$venv/bin/python"
      [[ -n ${other-} ]] || echo "== no other CPython found: the extension was tried under this one"
      exit
    fi
    # Most of the time pytest keeps one core busy, so the two run at once, and their threads sleep
    # where they wait for each other. The output of one comes after that of the other.
    PYTHON=$other scripts/venv.sh ".venv-$other_version" run test
    export OMP_WAIT_POLICY=passive
    # The oracle has wheels for the default Python alone.
    SINGA_REQUIRE_TORCH=0 run "$PWD/.venv-$other_version/bin/python" >"$build/pytest.log" 2>&1 &
    failed=0
    run "$venv/bin/python" || failed=1
    wait $! || failed=1
    cat "$build/pytest.log"
    exit $failed
    ;;
  *)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
