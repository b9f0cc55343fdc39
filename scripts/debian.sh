#!/usr/bin/env bash
# Tries a wheel in a Debian of its own (scripts/system.sh), which has no network, no compiler and
# nothing of this machine: installs it with pip into a bare environment, trains
# (scripts/first_step.py), and runs tests. Needs root. QEMU runs a wheel for aarch64 on other machines.
#
#   scripts/debian.sh WHEEL SUITE [PYTHON [TEST...]]
#
# SUITE      a release that debootstrap knows, such as bookworm or sid
# PYTHON     an interpreter of this machine, which the system gets instead of its own; it lies in a
#            folder of its own, as pyenv's do, and was built for the glibc of SUITE or an older one.
#            "" for the system's own
# TEST       a file or folder of test/python, or an option of pytest
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -lt 2 ]]; then
  sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
wheel=$1 suite=$2 python=${3-} tests=("${@:4}")
case $wheel in
  *_aarch64.whl) machine=aarch64 architecture=arm64 ;;
  *) machine=x86_64 architecture=amd64 ;;
esac

scripts/venv.sh .venv build
root=$(scripts/system.sh make "$suite" "$architecture")

folder=
interpreter=/usr/bin/python3
if [[ -n $python ]]; then
  folder=$("$python" -c 'import sys; print(sys.base_prefix)')
  if [[ $folder == /usr ]]; then
    echo "error: $python has no folder of its own" >&2
    exit 1
  fi
  interpreter=$folder/bin/python3
fi
inside() { # inside COMMAND...
  scripts/system.sh run "$root" "$folder" "$@"
}

version=$(inside "$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
glibc=$(inside "$interpreter" -c 'import os; print(os.confstr("CS_GNU_LIBC_VERSION"))')
echo "== trying $wheel in Debian $suite for $machine: $glibc, $interpreter $version"
rm -rf "$root/try"
mkdir -p "$root/try/packages"
cp "$wheel" scripts/first_step.py "$root/try"
.venv/bin/python scripts/requirements.py run >"$root/try/needed.txt"
if [[ ${#tests[@]} -gt 0 ]]; then
  .venv/bin/python scripts/requirements.py test | grep -E '^(hypothesis|ml_dtypes|pytest)\b' \
    >>"$root/try/needed.txt"
  mkdir "$root/try/source"
  cp -r --parents pyproject.toml test/{ops,python} "$root/try/source"
fi
platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do
  platforms+=(--platform "${tag}_$machine")
done
.venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
  --python-version "$version" "${platforms[@]}" --dest "$root/try/packages" \
  --requirement "$root/try/needed.txt"
inside bash -euc '
cd /try
"$1" -m venv venv
venv/bin/pip install --quiet --no-index --find-links packages singa-*.whl
venv/bin/python -W error first_step.py
venv/bin/singa --version
[[ $# -gt 1 ]] || exit 0
venv/bin/pip install --quiet --no-index --find-links packages --requirement needed.txt
cd source
../venv/bin/python -m pytest -q -p no:cacheprovider "${@:2}"
' bash "$interpreter" "${tests[@]}"
