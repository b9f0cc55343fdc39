#!/usr/bin/env bash
# Measures line coverage of the C++ library by the C++ and Python tests. The report is
# build/coverage/report/index.html.
set -euo pipefail
cd "$(dirname "$0")/.."

export PRESET=coverage
# Threads update the same counters, which makes two of them much slower than one. Branches that only
# several threads take are missed; OMP_NUM_THREADS=2 counts them.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
scripts/venv.sh .venv build run test
.venv/bin/python -m pip install --quiet --disable-pip-version-check gcovr
find build/coverage -name '*.gcda' -delete 2>/dev/null || true
scripts/test.sh build
scripts/test.sh cpp
scripts/test.sh python
mkdir -p build/coverage/report
.venv/bin/gcovr --root . --filter 'include/' --filter 'src/' --exclude 'src/api/' \
  --object-directory build/coverage --exclude-throw-branches --gcov-ignore-parse-errors \
  --html-details build/coverage/report/index.html --print-summary
