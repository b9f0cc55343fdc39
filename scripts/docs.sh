#!/usr/bin/env bash
# Builds the site into build/site, with warnings as errors. Tutorials are executed when their pages
# are read: all of them the first time, later those that changed. To read all again, remove
# build/doctrees. Graphviz (dot) and Doxygen are used where they are installed.
#
#   scripts/docs.sh [OPTION OF SPHINX-BUILD...]
#   scripts/docs.sh --external      # instead opens all links to other sites; executes no tutorial
set -euo pipefail
cd "$(dirname "$0")/.."

builder=html doctrees=build/doctrees site=build/site
if [[ ${1-} == --external ]]; then
  shift
  builder=linkcheck doctrees=build/linkcheck/doctrees site=build/linkcheck
  set -- -D nb_execution_mode=off "$@"
fi

scripts/install.sh docs torch # which a tutorial trains with
export OMP_NUM_THREADS=${OMP_NUM_THREADS-1} # tutorials run beside each other
.venv/bin/python -m sphinx --fail-on-warning --keep-going --jobs "${JOBS:-auto}" --quiet \
  -b $builder -d $doctrees "$@" docs $site 2> >(grep -v '^\[IPKernelApp\] WARNING' >&2)
if [[ $builder == html ]]; then
  echo "== the site is in build/site/index.html"
else
  echo "== all links work; build/linkcheck/output.txt lists them"
fi
