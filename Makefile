# What one does in a clone; scripts/ has everything longer than a line. Needs g++, make and Python >=
# 3.11. Everything else is installed from package indexes into .venv.
#
#   make train          install singa into .venv and train on the built-in images
#   make quick          build for debugging, test first what changed, then the rest but for slow tests
#   make test           build with tests, run ctest and pytest
#   make fuzz           try hostile files, calls and programs, for FUZZ_SECONDS (CONTRIBUTING.md)
#   make soak           train, kill, resume and infer, for SOAK_SECONDS
#   make faults         jobs of several ranks in which one fails, FAULTS times
#   make lint           check formatting, lint and types; make format fixes what tools can fix
#   make docs           build the site, with executed tutorials: build/site/index.html
#   make linkcheck      open all links from the site to others; needs a network
#   make wheel          build and check dist/: source distribution and wheel
#   make clean          remove build/ and dist/ (.venv stays)
#
# PYTHON=python3.12 chooses the interpreter, and PRESET=debug|asan|… the preset that `make test`
# builds. TRAIN_FLAGS and PYTEST_FLAGS are passed to train.py and pytest.

PYTHON ?= python3
PRESET ?= release
TRAIN_FLAGS ?= --quick --overwrite
PYTEST_FLAGS ?=
FUZZ_SECONDS ?= 120
SOAK_SECONDS ?= 1800
FAULTS ?= 100
JOBS ?= $(shell nproc)
export PYTHON PRESET JOBS PYTEST_FLAGS

.PHONY: help train quick build test test-cpp test-python fuzz soak faults lint format docs linkcheck wheel clean
help:
	@sed -n '4,15s/^# *//p' Makefile

train:
	@scripts/install.sh train
	.venv/bin/python examples/cifar10/train.py $(TRAIN_FLAGS)

quick:
	@scripts/test.sh quick
build:
	@scripts/test.sh build
test: test-cpp test-python
test-cpp: build
	@scripts/test.sh cpp
test-python: build
	@scripts/test.sh python

fuzz:
	@scripts/fuzz.sh test/fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_FLAGS)
soak:
	@scripts/fuzz.sh scripts/soak.py --seconds $(SOAK_SECONDS)
faults:
	@scripts/fuzz.sh scripts/faults.py --count $(FAULTS)

lint:
	@scripts/lint.sh check
format:
	@scripts/lint.sh fix

docs:
	@scripts/docs.sh
linkcheck:
	@scripts/docs.sh --external

wheel:
	@scripts/wheel.sh

clean:
	rm -rf build dist
