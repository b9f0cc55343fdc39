#!/usr/bin/env bash
# Cross-compiles a wheel for aarch64 into dist/aarch64, without oneDNN, and tries it in a Debian of
# that processor, which QEMU emulates: training, and tests of operators. Needs Debian and root.
#
#   scripts/aarch64.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1
jobs=${JOBS:-$(nproc)}

logged() { # logged FILE COMMAND...: shows the end of the output of a command that fails
  if ! "${@:2}" >"$1" 2>&1; then
    tail -n 60 "$1" >&2
    exit 1
  fi
}

command -v aarch64-linux-gnu-g++ qemu-aarch64-static >/dev/null ||
  { apt-get -qq update && apt-get -qq install -y g++-aarch64-linux-gnu qemu-user-static; }
scripts/venv.sh .venv build run dev
export PATH=$PWD/.venv/bin:$PATH VIRTUAL_ENV=$PWD/.venv
packages=build/packages-aarch64
if [[ ! -d $packages ]]; then
  openblas=$(python scripts/requirements.py build | grep openblas)
  python -m pip install --quiet --target "$packages" --no-deps --only-binary=:all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 "$openblas"
fi

echo "== compiling on $jobs cores"
# The headers of this interpreter serve as well: the limited API is the same on both processors.
logged build/configure-aarch64.log cmake --preset aarch64 \
  -DSINGA_MANYLINUX=2_28 "-DSINGA_GOMP=$(scripts/older_gomp.sh aarch64)" \
  "-DPython_INCLUDE_DIR=$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')"
rm -rf build/wheel-aarch64
CMAKE_BUILD_PARALLEL_LEVEL=$jobs _PYTHON_HOST_PLATFORM=linux-aarch64 logged build/wheel-aarch64.log \
  python -m pip wheel --no-build-isolation --no-deps --verbose \
  --config-settings=build-dir=build/aarch64 --wheel-dir build/wheel-aarch64 .
rm -rf dist/aarch64
logged build/auditwheel.log auditwheel repair --wheel-dir dist/aarch64 build/wheel-aarch64/singa-*.whl
wheel=$(echo dist/aarch64/singa-*.whl)
python scripts/check_wheel.py "$wheel" --manylinux
abi3audit --strict --summary "$wheel"
scripts/debian.sh "$wheel" bookworm "" -m "not slow" \
  test/python/ops/test_{operators,searching,sorting}.py test/python/tape
ls -l "$wheel"
