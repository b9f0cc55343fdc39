"""Every operator at every opset in which it changed, with constants and inputs mixed, beside ONNX
Runtime."""

import collections
from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import onnx_grid
import onnx_nodes
from network_table import ALL_NETWORKS

pytestmark = pytest.mark.cpu("many calls; other tests compare devices")

#: Operators of which ONNX Runtime computes some otherwise than the onnx package's cases say.
_OF_CASES = {"Attention", "MaxUnpool", "Resize"}
#: Cases whose result is random.
_RANDOM = "node/test_training_dropout"


_Call = tuple[str, onnx_nodes.Call, list[Any]]
_Versions = set[tuple[str, int]]


def _outcomes(calls: Iterable[_Call]) -> dict[str, _Versions]:
    """The operators and versions of calls by outcome, of which none may be wrong."""
    found: dict[str, _Versions] = collections.defaultdict(set)
    wrong: list[str] = []
    for name, call, expected in calls:
        if name.startswith(_RANDOM):
            continue
        kind, why = onnx_nodes.beside_runtime(call, expected if call.op in _OF_CASES else None)
        found[kind].add((call.op, call.version))
        if kind == onnx_nodes.WRONG:
            wrong.append(f"{name} version {call.version}, constants {call.constants}: {why}")
    assert not wrong, "\n".join(wrong)
    return found


@pytest.mark.slow
def test_a_call_of_each_version_gives_what_onnx_runtime_gives() -> None:
    calls: dict[tuple[str, int], list[_Call]] = collections.defaultdict(list)
    for each in onnx_grid.calls():
        calls[each[1].op, each[1].version].append(each)
    # Another one of its calls for each, so that constants and inputs are mixed.
    found = _outcomes(group[i % len(group)] for i, group in enumerate(calls.values()))
    assert len(found[onnx_nodes.RIGHT]) >= 400


@pytest.mark.slow
@pytest.mark.skipif(not ALL_NETWORKS, reason="takes minutes: the lane `networks`")
def test_all_calls_give_what_onnx_runtime_gives() -> None:
    """None is wrong. Operators that singa refuses are those of optional values, of random numbers,
    and the statistics of batch norm; and Pad by wrapping."""
    found = _outcomes(onnx_grid.calls())
    right, refused = found[onnx_nodes.RIGHT], found[onnx_nodes.REFUSED]
    assert len({op for op, _ in right}) >= 170
    assert len(right) >= 480
    assert {op for op, _ in refused} <= {
        *("BatchNormalization", "Bernoulli", "Pad", "OptionalGetElement", "OptionalHasElement")
    }
