"""The test cases of the onnx package: those in `passing.txt` pass, those in `refused.txt` are
refused for the reason beside their name, and there are no others.

After a change that makes more of them pass: python test/python/onnx/test_backend_suite.py
"""

import collections
import functools
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import onnx_suite

_PASSING = Path(__file__).with_name("passing.txt")
_REFUSED = Path(__file__).with_name("refused.txt")


@functools.cache
def _outcomes() -> dict[str, tuple[str, str]]:
    return {name: onnx_suite.outcome(case) for name, case in onnx_suite.cases().items()}


def _of(kind: str) -> dict[str, str]:
    return {name: why for name, (found, why) in _outcomes().items() if found == kind}


@pytest.mark.slow
def test_exactly_the_listed_cases_pass_and_the_others_are_refused() -> None:
    """No case gives a wrong number. A refusal names the node, its operator and its version."""
    assert _of(onnx_suite.WRONG) == {}
    assert sorted(_of(onnx_suite.PASSED)) == _PASSING.read_text().split()
    refused = _of(onnx_suite.REFUSED)
    lines = [line.split("  ", 1) for line in _REFUSED.read_text().splitlines()]
    assert refused == {name: why for name, why in lines}
    for name, why in refused.items():
        assert "node '" in why, (name, why)
        assert " version " in why, (name, why)


def test_the_lists_reach_the_goal() -> None:
    """Of the node cases at least 1,800 pass, and of the others all but ten."""
    passing = collections.Counter(name.split("/")[0] for name in _PASSING.read_text().split())
    refused = collections.Counter(line.split("/")[0] for line in _REFUSED.read_text().splitlines())
    assert passing["node"] >= 1800
    assert sum(refused.values()) - refused["node"] <= 10


if __name__ == "__main__":
    passing, refused = _of(onnx_suite.PASSED), _of(onnx_suite.REFUSED)
    _PASSING.write_text("".join(f"{name}\n" for name in passing))
    _REFUSED.write_text("".join(f"{name}  {why}\n" for name, why in refused.items()))
    kinds = [(name.split("/")[0], kind) for name, (kind, _) in _outcomes().items()]
    print(collections.Counter(kinds))
    print(_of(onnx_suite.WRONG))
