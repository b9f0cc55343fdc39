#!/usr/bin/env bash
# Builds dist/*.whl with pip's isolated build, like a user's `pip install .`. Checks the wheel's
# files, size and system requirements, and tries it in a fresh environment from Python and C++
# (examples/cpp with find_package).
#
#   scripts/wheel.sh [FILE]      FILE: checks this wheel and builds none
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh .venv build run dev
if [[ -n ${1-} ]]; then
  wheel=$1
else
  # A release supports all GPUs; CMAKE_ARGS may override this.
  export CMAKE_ARGS="-DSINGA_CUDA_ARCHITECTURES=all ${CMAKE_ARGS:-}"
  echo "== building the wheel"
  rm -rf dist
  mkdir -p build
  if ! CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} .venv/bin/python -m pip wheel --no-deps \
    --disable-pip-version-check --verbose --wheel-dir dist . >build/wheel.log 2>&1; then
    tail -n 60 build/wheel.log >&2
    exit 1
  fi
  wheel=$(echo dist/singa-*.whl)
fi

echo "== checking $wheel"
.venv/bin/python scripts/check_wheel.py "$wheel"
.venv/bin/abi3audit --strict --summary "$wheel"

echo "== trying it in a fresh environment"
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
.venv/bin/python -m venv "$try/venv"
"$try/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
(cd "$try" && "$try/venv/bin/python" -X dev -W error -c 'import singa; print("singa", singa.__version__)')
"$try/venv/bin/singa" --version
echo "== building and running examples/cpp against it"
package=$("$try/venv/bin/python" -m singa cmake-dir)
if ! {
  .venv/bin/cmake -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/.venv/bin/ninja" -Dsinga_DIR="$package" \
    -S examples/cpp -B "$try/cpp" && .venv/bin/cmake --build "$try/cpp"
} >"$try/cpp.log" 2>&1; then
  cat "$try/cpp.log" >&2
  exit 1
fi
.venv/bin/ctest --test-dir "$try/cpp" --verbose --no-tests=error | grep -E '^1: (step|plans)|tests passed'
