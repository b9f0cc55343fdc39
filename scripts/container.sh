#!/usr/bin/env bash
# Builds the image of the guide's Dockerfile (docs/guides/containers.md) from a wheel, in a Debian of
# its own (scripts/system.sh) in place of the image that FROM names, then starts its service, asks it
# and stops it (scripts/ask_service.py). Needs root; no Docker.
#
#   scripts/container.sh WHEEL SUITE
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -ne 2 ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
wheel=$1 suite=$2

scripts/venv.sh .venv build
root=$(scripts/system.sh make "$suite" "$(dpkg --print-architecture)")
inside() {
  scripts/system.sh run "$root" "" "$@"
}

echo "== building the image of docs/guides/containers.md in Debian $suite"
rm -rf "$root"/{app,context,image}
mkdir -p "$root"/{context,image/packages}
cp "$wheel" "$root/context"
cp scripts/{ask_service,dockerfile}.py "$root/image"
sed -n '/^```dockerfile$/,/^```$/{/^```/d;p}' docs/guides/containers.md >"$root/context/Dockerfile"
version=$(inside python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
.venv/bin/python scripts/requirements.py run images >"$root/image/needed.txt"
.venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
  --python-version "$version" --platform "manylinux_2_28_$(uname -m)" \
  --platform "manylinux_2_27_$(uname -m)" --platform "manylinux2014_$(uname -m)" \
  --dest "$root/image/packages" --requirement "$root/image/needed.txt"
inside bash -euc '
cd /context
python3 -m venv /image/venv
export PATH=/image/venv/bin:$PATH PIP_NO_INDEX=1 PIP_FIND_LINKS=/image/packages PIP_QUIET=1
python /image/dockerfile.py Dockerfile build >/image/build.sh
python /image/dockerfile.py Dockerfile start >/image/start.sh
python /image/dockerfile.py Dockerfile health >/image/health.sh
# The run that the Dockerfile copies.
pip install singa-*.whl pillow
python /image/ask_service.py pictures pets
singa train --data pets --model lenet --size 16 --epochs 4 --threads 1
pip uninstall --yes singa pillow
bash -eux /image/build.sh
python -W error /image/ask_service.py ask /image/start.sh /image/health.sh pets/red/0.png
'
