#!/usr/bin/env bash
# Creates or updates a virtual environment with groups of requirements from pyproject.toml (see
# requirements.py). Does nothing if they are already installed.
#
#   scripts/venv.sh DIR GROUP...        PYTHON=python3.12 chooses the interpreter of a new one
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

case "${1-}" in
  "" | -h | --help)
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    [[ -n "${1-}" ]] && exit 0 || exit 2
    ;;
esac
dir=$1
shift
python=${PYTHON:-python3}

# Requirements from earlier calls stay installed: several commands share an environment.
stamp="$dir/.singa-requirements"
find_missing() { # find_missing GROUP...: sets `missing`
  local wanted line
  mapfile -t wanted < <("$dir/bin/python" "$here/requirements.py" "$@")
  missing=()
  for line in "${wanted[@]}"; do
    grep -qxF -- "$line" "$stamp" 2>/dev/null || missing+=("$line")
  done
}

if [[ -x "$dir/bin/python" ]]; then
  find_missing "$@"
  [[ ${#missing[@]} -gt 0 ]] || exit 0 # also while another call installs something else
fi

# Serialise builds that use the same environment.
exec 9>"${TMPDIR:-/tmp}/singa-venv-$(printf %s "$dir" | cksum | cut -d' ' -f1).lock"
flock 9

apt_install() {
  if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "error: $1; please install $2" >&2
    exit 1
  fi
  echo "== installing $2 ($1)"
  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$2" >/dev/null
}

if [[ ! -x "$dir/bin/python" ]]; then
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "error: singa needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1)." \
      "Choose another with PYTHON=..." >&2
    exit 1
  }
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    apt_install "Python's venv module is missing" "python$version-venv"
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    apt_install "Python's C headers are missing" "python$version-dev"
  echo "== making $dir ($("$python" -V))"
  "$python" -m venv "$dir"
fi

find_missing "$@"
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "== installing into $dir: ${missing[*]%%;*}"
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "${missing[@]}"
  printf '%s\n' "${missing[@]}" >>"$stamp"
fi
