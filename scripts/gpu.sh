#!/usr/bin/env bash
# Builds singa with CUDA, runs the tests on the GPU and compares speed with PyTorch. Needs nvcc,
# cmake, ninja, g++, a Python with PyTorch, and a folder of wheels, but no network: `fetch` fills
# the folder on a machine that has one.
#
#   scripts/gpu.sh fetch              downloads the wheels that a build needs into .wheels (50 MiB)
#   scripts/gpu.sh [build] [test] [kernels] [sanitize] [bench] [-- OPTIONS]     all by default
#
# A wheel of singa among the wheels is taken as it is, and nothing is built (nor are C++ tests run).
# sanitize needs the CUDA toolkit's compute-sanitizer on PATH. OPTIONS are passed to gpu.py.
# PYTHON=python3            an interpreter with PyTorch
# TARGET=3.12               the Python version that fetch downloads wheels for
# WHEELS=.wheels            the folder of wheels
# BUILD=build/gpu           the build folder
# RESULTS=build/gpu/results the results; existing ones are not measured again
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
wheels=${WHEELS:-.wheels}
out=$(realpath -m "${BUILD:-build/gpu}")
results=$(realpath -m "${RESULTS:-$out/results}")
site=$out/site

fetch() {
  local target=${TARGET:-3.12}
  local platforms=()
  for glibc in 2_28 2_27 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
  platforms+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64)
  mapfile -t needed < <("$python" scripts/requirements.py build)
  local without=()
  for line in "${needed[@]}"; do
    # The target machine has these.
    [[ $line == cmake* || $line == ninja* || $line == scikit-build-core* || $line == nvidia-* ]] ||
      without+=("${line%%;*}")
  done
  "$python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: --no-deps \
    --python-version "$target" --implementation cp --abi "cp${target/./}" --abi abi3 --abi none \
    "${platforms[@]}" -d "$wheels" "${without[@]}" onednn-cpu-gomp
  if command -v apt-get >/dev/null; then # GoogleTest, for the C++ tests
    (cd "$wheels" && apt-get -qq download libgtest-dev && dpkg-deb -x libgtest-dev*.deb gtest &&
      rm libgtest-dev*.deb)
  fi
  du -sh "$wheels"
}

prepare() {
  if [[ -d $wheels && ! -d $site ]]; then
    echo "== unpacking the wheels of $wheels"
    "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
      --no-compile --target "$site" "$wheels"/*.whl
  fi
  export PYTHONPATH=$site PATH=$site/bin:$PATH
  # Use PyTorch's cuDNN, cuBLAS and NCCL.
  SINGA_NVIDIA_PATH=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  export SINGA_NVIDIA_PATH
}

build() {
  if [[ -d $site/singa ]]; then
    echo "== taking the singa of $wheels, and no C++ tests"
    return
  fi
  command -v nvcc >/dev/null || [[ -n ${CUDACXX-} ]] || {
    echo "error: nvcc was not found; put the CUDA toolkit 13 on PATH or set CUDACXX, or add a" \
      "CUDA wheel of singa (make wheel)" >&2
    exit 1
  }
  echo "== building $out"
  local tests=ON
  [[ -d $wheels/gtest/usr ]] || "${CMAKE:-cmake}" --find-package -DNAME=GTest -DCOMPILER_ID=GNU \
    -DLANGUAGE=CXX -DMODE=EXIST >/dev/null 2>&1 || tests=OFF
  [[ $tests == ON ]] || echo "   (no GoogleTest: without the C++ tests)"
  "${CMAKE:-cmake}" -S . -B "$out" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSINGA_CUDA=on \
    -DSINGA_CUDA_ARCHITECTURES="${ARCHITECTURES:-native}" -DSINGA_BOOTSTRAP=OFF \
    -DSINGA_TESTS=$tests -DCMAKE_PREFIX_PATH="$PWD/$wheels/gtest/usr" -DPython_EXECUTABLE="$(command -v "$python")" >"$out.configure.log" ||
    { cat "$out.configure.log"; exit 1; }
  "${CMAKE:-cmake}" --build "$out"
}

gpu() {
  PYTHONPATH=$out/python:$site "$python" - <<'PYTHON'
import sys
try:
    from singa import device

    device.create_cuda_gpu()
except ImportError as error:
    sys.exit(f"singa is not built here ({error}): scripts/gpu.sh build")
except RuntimeError as error:
    sys.exit(f"no GPU found: {error}")
PYTHON
}

on_gpu() { # on_gpu COMMAND...
  env PYTHONPATH="$out/python:$site" SINGA_TEST_DEVICE=cuda SINGA_REQUIRE_GPU=1 "$@"
}

run_tests() {
  local failed=0
  echo "== tests"
  [[ ! -d $out/test/cpp ]] || ctest --test-dir "$out" --output-on-failure -j 4 || failed=1
  local workers=() # of pytest-xdist, which share the GPU: 3 minutes instead of 20
  "$python" -c 'import xdist' 2>/dev/null && workers=(-p no:benchmark -n "$(($(nproc) < 12 ? $(nproc) : 12))")
  on_gpu OMP_NUM_THREADS=1 "$python" -m pytest -q "${workers[@]}" test/python || failed=1
  echo "== ranks on GPUs"
  # These fork, so they must not use CUDA before: tests run without a GPU of their own.
  local shared=0
  [[ $(nvidia-smi --list-gpus | wc -l) -ge 4 ]] || shared=1
  SINGA_TEST_SHARED_GPU=$shared PYTHONPATH=$out/python:$site "$python" -m pytest -q -rs \
    test/python/distributed/test_gpu_ranks.py || failed=1
  return "$failed"
}

kernels() {
  echo "== every engine of cuDNN and algorithm of cuBLASLt"
  PYTHONPATH=$out/python:$site "$python" -m singa doctor --kernels --device cuda --seconds 120
}

sanitize() {
  if ! command -v compute-sanitizer >/dev/null; then
    echo "== without compute-sanitizer, which is not on PATH"
    return
  fi
  local failed=0
  # The tool slows down each launch, so these are tests of many kernels with small shapes. Races are
  # possible in kernels with shared memory: reductions, products and batch normalisation.
  echo "== compute-sanitizer: memory"
  on_gpu compute-sanitizer --tool memcheck --error-exitcode 1 "$python" -m pytest -q \
    test/python/device test/python/ops/test_operators.py test/python/ops/test_stateful.py || failed=1
  echo "== compute-sanitizer: races"
  on_gpu compute-sanitizer --tool racecheck --error-exitcode 1 "$python" -m pytest -q \
    test/python/device/test_training.py test/python/ops/test_stateful.py || failed=1
  return "$failed"
}

bench() {
  echo "== beside PyTorch"
  PYTHONPATH=$out/python:$site "$python" benchmark/gpu.py --profile --out "$results" "$@"
}

steps=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    fetch) fetch && exit ;;
    build | test | kernels | sanitize | bench) steps+=("$1") ;;
    *)
      sed -n '2,16s/^# \{0,1\}//p' "$0"
      exit 2
      ;;
  esac
  shift
done
[[ ${1-} != -- ]] || shift
[[ ${#steps[@]} -gt 0 ]] || steps=(build test kernels sanitize bench)
mkdir -p "$out"
prepare
failed=0
for step in "${steps[@]}"; do
  case $step in
    build) build ;;
    test) { gpu && run_tests; } || failed=1 ;; # the benchmark runs even if tests fail
    kernels) { gpu && kernels; } || failed=1 ;;
    sanitize) { gpu && sanitize; } || failed=1 ;;
    bench) { gpu && bench "$@"; } || failed=1 ;;
  esac
done
exit "$failed"
