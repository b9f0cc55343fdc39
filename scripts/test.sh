#!/usr/bin/env bash
# Runs tests. `cpp` builds the preset PRESET and runs ctest. `python` runs pytest on that build with
# the default Python and with the newest other CPython from 3.11 on, if there is one, because the
# extension is one binary for all versions.
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
    # Sanitizers need the emulated GPU.
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
    # The sanitizers' libraries must be loaded before the interpreter, together with the C++
    # runtime, whose `throw` they intercept. Leaks are not checked, because the interpreter keeps
    # memory until it exits; the C++ tests check them. The system allocates each block, so that
    # accesses out of its bounds are found.
    preload=
    read -ra flags <<<"${PYTEST_FLAGS-}"
    if [[ $preset == asan ]]; then
      flags+=(-m "not slow")
      for library in libasan libubsan libstdc++; do
        preload+=$(g++ -print-file-name=$library.so):
      done
      # The C++ tests use all threads. Here one is much faster when other lanes keep a core busy.
      export OMP_NUM_THREADS=1
      export SINGA_ALLOCATOR=system ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
      export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    fi
    run() { # run <python of a venv> [its options]
      echo "== Python tests: $("$1" -V), from $build/python"
      PYTHONPATH=$PWD/$build/python LD_PRELOAD=$preload "$@" -m pytest "${flags[@]}"
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
    # Both run at the same time, each with its share of the cores. PyTorch's threads sleep while they
    # wait, as singa's do. The outputs are printed one after the other.
    PYTHON=$other scripts/venv.sh ".venv-$other_version" run test
    export OMP_WAIT_POLICY=passive
    if [[ -z ${OMP_NUM_THREADS-} ]]; then export OMP_NUM_THREADS=$((jobs > 1 ? jobs / 2 : 1)); fi
    # PyTorch may have no wheels for the other Python, which runs in development mode: no warnings
    # and no open files. Its memory debugging grows with each step, so test_memory would fail.
    (
      flags+=(--deselect test/python/test_memory.py)
      SINGA_REQUIRE_TORCH=0 run "$PWD/.venv-$other_version/bin/python" -X dev -W error
    ) >"$build/pytest.log" 2>&1 &
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
