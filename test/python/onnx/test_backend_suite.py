"""The test cases of the onnx package: those in `passing.txt` pass, all others are refused.

After a change that makes more of them pass: python test/python/onnx/test_backend_suite.py
"""

import collections
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import onnx_suite

_LIST = Path(__file__).with_name("passing.txt")


def _outcomes() -> dict[str, tuple[str, str]]:
    return {name: onnx_suite.outcome(case) for name, case in onnx_suite.cases().items()}


@pytest.mark.slow
def test_exactly_the_listed_cases_pass_and_the_others_are_refused() -> None:
    """No case gives a wrong number. A refusal names the node, its operator and its version."""
    outcomes = _outcomes()
    wrong = {name: why for name, (kind, why) in outcomes.items() if kind == onnx_suite.WRONG}
    assert wrong == {}
    passed = {name for name, (kind, _) in outcomes.items() if kind == onnx_suite.PASSED}
    listed = set(_LIST.read_text().split())
    assert (sorted(passed - listed), sorted(listed - passed)) == ([], [])
    for name, (kind, why) in outcomes.items():
        if kind == onnx_suite.REFUSED:
            assert "node '" in why, (name, why)
            assert " version " in why, (name, why)


if __name__ == "__main__":
    found = _outcomes()
    passing = [name for name, (kind, _) in found.items() if kind == onnx_suite.PASSED]
    _LIST.write_text("\n".join(passing) + "\n")
    print(collections.Counter((name.split("/")[0], kind) for name, (kind, _) in found.items()))
