#!/usr/bin/env bash
# Prints the CPython interpreters, 3.11 and up, that this machine has, one of each minor version,
# oldest first: on PATH, in /usr/local, and pyenv's.
set -euo pipefail
shopt -s nullglob

candidates=()
for minor in 11 12 13 14 15; do
  while read -r path; do candidates+=("$path"); done < <(type -ap "python3.$minor" || true)
done
candidates+=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3)

declare -A found
for python in "${candidates[@]}"; do
  # A pyenv shim may be there for a version that is not switched on, so each one is asked.
  version=$("$python" -c 'import sys, ensurepip
if sys.implementation.name == "cpython" and sys.version_info >= (3, 11):
    print("%d.%02d" % sys.version_info[:2])' 2>/dev/null) || continue
  [[ -n "$version" ]] && found[$version]=${found[$version]:-$python}
done
for version in $(printf '%s\n' "${!found[@]}" | sort); do
  echo "${found[$version]}"
done
