#!/usr/bin/env bash
# Builds the site into build/site, with warnings as errors. Tutorials are executed when their pages
# are read: all of them the first time, later those that changed. To read all again, remove
# build/doctrees. Graphviz (dot) and Doxygen are used where they are installed.
#
#   scripts/docs.sh [OPTION OF SPHINX-BUILD...]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh docs
export OMP_NUM_THREADS=${OMP_NUM_THREADS-1} # tutorials run beside each other
.venv/bin/python -m sphinx --fail-on-warning --keep-going --jobs "${JOBS:-auto}" --quiet \
  -b html -d build/doctrees "$@" docs build/site 2> >(grep -v '^\[IPKernelApp\] WARNING' >&2)
echo "== the site is in build/site/index.html"
