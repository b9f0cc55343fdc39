"""Phases by SINGA's names. Its messages configure layers in C++, which singa does not have."""

kTrain = 4  # noqa: N816 (the names in SINGA)
kEval = 8  # noqa: N816
