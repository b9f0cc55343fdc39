# The two commands of the README, and the few around them. Everything longer than a line is in
# scripts/. Needs g++, make and Python >= 3.11; the rest comes from package indexes into .venv.
#
#   make train          install singa into .venv and train on the built-in images
#   make test           build with tests, run ctest and pytest
#   make fuzz           hostile files, calls and programs, for FUZZ_SECONDS (CONTRIBUTING.md)
#   make soak           train, kill, resume and infer, for SOAK_SECONDS
#   make lint format    check, or put right, the formatting and the types
#   make wheel          dist/*.whl
#   make clean          remove build/ and dist/ (.venv stays)
#
# PYTHON=python3.12 chooses the interpreter; PRESET=debug|asan|… what `make test` builds;
# TRAIN_FLAGS and PYTEST_FLAGS are handed on.

PYTHON ?= python3
PRESET ?= release
TRAIN_FLAGS ?= --quick --overwrite
PYTEST_FLAGS ?=
FUZZ_SECONDS ?= 120
SOAK_SECONDS ?= 1800
JOBS ?= $(shell nproc)
export PYTHON PRESET JOBS PYTEST_FLAGS

.PHONY: help train test test-cpp test-python fuzz soak lint format wheel clean
help:
	@sed -n '4,10s/^# *//p' Makefile

train:
	@scripts/install.sh train
	.venv/bin/python examples/cifar10/train.py $(TRAIN_FLAGS)

test: test-cpp test-python
test-cpp:
	@scripts/test.sh cpp
test-python: test-cpp
	@scripts/test.sh python

fuzz:
	@scripts/fuzz.sh test/fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_FLAGS)
soak:
	@scripts/fuzz.sh scripts/soak.py --seconds $(SOAK_SECONDS)

lint:
	@scripts/lint.sh check
format:
	@scripts/lint.sh fix

wheel:
	@scripts/wheel.sh

clean:
	rm -rf build dist
