#!/usr/bin/env bash
# Tries a wheel in a Debian of its own, which has no network, no compiler and nothing of this machine:
# installs it with pip into a bare environment and trains (scripts/first_step.py). Needs root.
#
#   scripts/debian.sh WHEEL SUITE [PYTHON]
#
# SUITE      a release that debootstrap knows, such as bookworm or sid
# PYTHON     an interpreter of this machine, which the system gets instead of its own; it lies in a
#            folder of its own, as pyenv's do, and was built for the glibc of SUITE or an older one
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -lt 2 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
wheel=$1 suite=$2 python=${3-}

scripts/venv.sh .venv build
command -v debootstrap >/dev/null ||
  { apt-get -qq update && apt-get -qq install -y debootstrap >/dev/null; }
root=$PWD/build/debian/$suite
if [[ ! -e $root/made ]]; then
  echo "== making a system: Debian $suite"
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3-venv "$suite" "$root" >"$root.log" 2>&1 ||
    { tail -n 30 "$root.log" >&2 && exit 1; }
  touch "$root/made"
fi

folder=
interpreter=/usr/bin/python3
if [[ -n $python ]]; then
  folder=$("$python" -c 'import sys; print(sys.base_prefix)')
  if [[ $folder == /usr ]]; then
    echo "error: $python has no folder of its own" >&2
    exit 1
  fi
  interpreter=$folder/bin/python3
  mkdir -p "$root$folder"
fi

# The script in the new system. Mounts end with its namespace.
in_system='
root=$1 folder=$2
shift 2
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
[[ -z $folder ]] || mount --bind -o ro "$folder" "$root$folder"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 "$@"
'
inside() { # inside COMMAND...
  unshare --mount --pid --net --fork --kill-child bash -euc "$in_system" bash "$root" "$folder" "$@"
}

version=$(inside "$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
glibc=$(inside "$interpreter" -c 'import os; print(os.confstr("CS_GNU_LIBC_VERSION"))')
echo "== trying $wheel in Debian $suite: $glibc, $interpreter $version"
rm -rf "$root/try"
mkdir -p "$root/try/packages"
cp "$wheel" scripts/first_step.py "$root/try"
mapfile -t needed < <(.venv/bin/python scripts/requirements.py run)
platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do
  platforms+=(--platform "${tag}_$(uname -m)")
done
.venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
  --python-version "$version" "${platforms[@]}" --dest "$root/try/packages" "${needed[@]}"
inside bash -euc '
cd /try
"$1" -m venv venv
venv/bin/pip install --quiet --no-index --find-links packages singa-*.whl
venv/bin/python -W error first_step.py
venv/bin/singa --version
' bash "$interpreter"
