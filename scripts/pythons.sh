#!/usr/bin/env bash
# Prints this machine's CPython interpreters of version 3.11 and newer, one for each minor version,
# oldest first. Looks on PATH and among pyenv's versions.
set -euo pipefail
shopt -s nullglob

candidates=()
for minor in 11 12 13 14 15; do
  while read -r path; do candidates+=("$path"); done < <(type -ap "python3.$minor" || true)
done
candidates+=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3)

declare -A found
for python in "${candidates[@]}"; do
  # A pyenv shim may belong to a version that is not active, so run each one.
  version=$("$python" -c 'import sys, ensurepip
if sys.implementation.name == "cpython" and sys.version_info >= (3, 11):
    print("%d.%02d" % sys.version_info[:2])' 2>/dev/null) || continue
  [[ -n "$version" ]] && found[$version]=${found[$version]:-$python}
done
for version in $(printf '%s\n' "${!found[@]}" | sort); do
  echo "${found[$version]}"
done
