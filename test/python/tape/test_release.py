"""What the tape keeps for backward, and when it lets go."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gradients import constant, parameter, values
from singa import autograd, tensor
from singa import singa_wrap as wrap
from singa.autograd import Operator

pytestmark = pytest.mark.usefixtures("training")


def test_no_second_walk_unless_retained() -> None:
    w = parameter([2.0])
    y = w * w
    assert values(autograd.gradients(y, retain_graph=True), w) == [[4.0]]
    assert values(autograd.gradients(y), w) == [[4.0]]
    with pytest.raises(RuntimeError, match="retain_graph"):
        autograd.gradients(y)
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.creator.backward(y.data)


class Keeping(Operator):
    """x², of which it keeps what backward needs as `kept` says."""

    def __init__(self, kept: str) -> None:
        super().__init__()
        self.how = kept

    def forward(self, x: Any) -> Any:
        if self.how == "save":
            self.save(x)
        elif self.how == "attribute":
            self.x = x
        elif self.how == "inside":
            self.parts = {"x": [x, (x, 2.0)]}
        else:
            self.wrapped = tensor.from_raw_tensor(x)
            self.save(None, x)
        return wrap.Binary(wrap.BinaryOp_kMul, x, x)

    def backward(self, dy: Any) -> Any:
        if self.how == "save":
            (x,) = self.load()
        elif self.how == "attribute":
            x = self.x
        elif self.how == "inside":
            x = self.parts["x"][1][0]
        else:
            x = self.wrapped.data
            assert self.load()[1].shape() == x.shape()
        return wrap.Unary(wrap.UnaryOp_kMulScalar, wrap.Binary(wrap.BinaryOp_kMul, dy, x), 2.0)


@pytest.mark.parametrize("kept", ["save", "attribute", "inside", "wrapped"])
def test_what_a_users_operator_keeps(kept: str) -> None:
    w = parameter([3.0])
    y = Keeping(kept)(w)[0]
    assert values(autograd.gradients(y, retain_graph=True), w) == [[6.0]]
    w += 1.0  # after a walk that retains; it kept the values
    assert values(autograd.gradients(y), w) == [[6.0]]
    y = Keeping(kept)(w)[0]
    w += 1.0
    with pytest.raises(RuntimeError, match="changed in place"):
        autograd.gradients(y)


def test_a_retained_walk_keeps_the_values_of_parameters() -> None:
    """Parameters are updated while it goes on and after it; the gradients stay those of y."""
    w, v = parameter([[1.0, 2.0], [3.0, 4.0]]), parameter([[1.0], [-2.0]])
    x = constant([[1.0, 1.0]])
    y = autograd.matmul(autograd.matmul(x, w.transpose()), v)  # a view of w is kept
    y = y * autograd.mul(v, v)
    dy = np.ones((2, 1), np.float32)
    expected = None
    for _ in range(3):
        found = {}
        for p, g in autograd.backward(y, dy, retain_graph=True):
            found[id(p)] = g.numpy().tolist()
            p -= g
        expected = expected or found
        assert found == expected
    assert len(expected) == 2
    assert expected[id(w)] == [[5.0, 5.0], [-10.0, -10.0]]
    assert {id(p): g.numpy().tolist() for p, g in autograd.backward(y, dy)} == expected
    with pytest.raises(RuntimeError, match="retain_graph"):
        autograd.gradients(y, dy)


def test_a_retained_walk_does_not_hide_other_changes() -> None:
    w, x = parameter([1.0, 2.0]), constant([3.0, 4.0])
    y = autograd.mul(w, x)
    autograd.gradients(y, [1.0, 1.0], retain_graph=True)
    x += 1.0
    with pytest.raises(RuntimeError, match="changed in place"):
        autograd.gradients(y, [1.0, 1.0])


def test_two_losses_share_a_trunk() -> None:
    w = parameter([2.0])
    trunk = (w * w) * 3.0
    first, second = trunk * trunk, autograd.exp(trunk * 0.0)
    assert values(autograd.gradients(first), w) == [[288.0]]
    trunk_op = trunk.creator
    assert values(autograd.gradients(second), w) == [[0.0]]
    assert trunk_op.src == ()  # nobody is left who could walk over it


def test_a_dead_branch_does_not_hold_the_trunk() -> None:
    w = parameter([2.0])
    trunk = w * w
    autograd.exp(trunk)  # dropped at once
    autograd.gradients(trunk * 2.0)
    assert trunk.creator.src == ()


def test_a_cycle_over_the_tape_is_collected_and_leaves_the_trunk() -> None:
    w = parameter([2.0])
    trunk = w * w
    branch = autograd.exp(trunk)
    branch.creator.result = branch  # type: ignore[attr-defined]
    collected = weakref.ref(branch)
    del branch
    gc.collect()
    assert collected() is None
    autograd.gradients(trunk * 2.0)
    assert trunk.creator.src == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda op, x: type(x)._wrap(x.data),
        lambda op, x: type(x)._wrap(x.data, True, None, 0, 1),
        lambda op, x: op._inputs((x,)),
        lambda op, x: op._inputs([x], True),
        lambda op, x: op._results(int, x.data, True, True),
        lambda op, x: op._results(None, x.data, True, True),
        lambda op, x: op._results(type(x), x.data, True),
        lambda op, x: op.save(x),
        lambda op, x: wrap.Versions([x.data]),
        lambda op, x: wrap.Versions((x,)),
        lambda op, x: type(autograd.exp(x).creator)(x),
        lambda op, x: op(x, 1.0),
    ],
)
def test_the_tape_refuses_other_objects(call: Callable[[Any, Any], object]) -> None:
    with pytest.raises(TypeError):
        call(Keeping("save"), parameter([1.0]))


def test_the_tape_refuses_a_creator_that_is_no_operator() -> None:
    x = parameter([1.0])
    x.creator = "an operator"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="Operator"):
        autograd.add(x, x)


def test_the_tape_refuses_a_tensor_without_data() -> None:
    x = parameter([1.0])
    del x.data
    with pytest.raises(AttributeError, match="deleted"):
        autograd.add(x, x)


def test_a_graph_is_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        w = parameter([2.0])
        h = w * w
        y = autograd.exp(h)
        refs = [weakref.ref(h), weakref.ref(y), weakref.ref(h.creator), weakref.ref(y.creator)]
        list(autograd.backward(y))
        del h, y
        assert [ref() for ref in refs] == [None] * 4
        y = autograd.exp(w * w)  # never walked
        ref = weakref.ref(y.creator)
        del y
        assert ref() is None
        w_ref = weakref.ref(w)
        w.creator  # noqa: B018 (makes its Dummy)
        del w
        assert w_ref() is None
    finally:
        gc.enable()


def test_saved_tensors_go_as_the_walk_goes() -> None:
    alive: list[Any] = []

    class Keep(Operator):
        def forward(self, x: Any) -> Any:
            self.own = x.Clone()
            alive.append(weakref.ref(self.own))
            return x.Clone()

        def backward(self, dy: Any) -> Any:
            return dy.Clone()

    ws = [parameter([float(i)]) for i in range(3)]
    y = ws[0] * 1.0
    for w in ws:
        y = Keep()(autograd.add(y, w))[0]
    counts = [sum(ref() is not None for ref in alive) for _ in autograd.backward(y)]
    assert counts == [2, 1, 0]


def test_inference_keeps_nothing() -> None:
    autograd.training = False
    x = constant(np.zeros((64, 1024)))
    before = tensor.zeros((1,)).device.memory().live
    y = x
    for _ in range(4):
        y = autograd.exp(y)
    assert tensor.zeros((1,)).device.memory().live - before <= 2 * x.memsize() + 4096
