"""The tape: what it records, how it walks."""

import threading
from typing import Any

import numpy as np
import pytest
from gradients import constant, parameter, values
from singa import autograd, tensor
from singa import singa_wrap as wrap
from singa.autograd import Operator

pytestmark = pytest.mark.usefixtures("training")


class Double(Operator):
    """An operator as a user would write it."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return wrap.Binary(wrap.BinaryOp_kAdd, x, x)

    def backward(self, dy: Any) -> Any:
        return wrap.Binary(wrap.BinaryOp_kAdd, dy, dy)


# Recording.


def test_training_is_off_at_first_and_per_thread() -> None:
    seen = {}

    def other() -> None:
        seen["at first"] = autograd.training
        y = autograd.relu(parameter([1.0]))
        seen["recorded"] = not y.is_dummy()
        autograd.training = True
        seen["own"] = autograd.training

    thread = threading.Thread(target=other)
    autograd.training = False
    thread.start()
    thread.join()
    assert seen == {"at first": False, "recorded": False, "own": True}
    assert autograd.training is False


def test_without_training_nothing_is_recorded() -> None:
    autograd.training = False
    y = autograd.relu(parameter([1.0, -1.0]))
    assert y.is_dummy()
    assert list(autograd.backward(y, [1.0, 1.0])) == []


def test_no_grad_and_enable_grad_take_precedence_and_nest() -> None:
    w = parameter([1.0])
    with autograd.no_grad():
        assert not autograd.is_recording()
        assert autograd.training
        assert autograd.relu(w).is_dummy()
        with autograd.enable_grad():
            assert autograd.is_recording()
        assert not autograd.is_recording()
    assert autograd.is_recording()
    autograd.training = False
    with autograd.enable_grad():
        assert not autograd.relu(w).is_dummy()
    with pytest.raises(KeyError), autograd.enable_grad():
        raise KeyError
    assert not autograd.is_recording()


def test_no_grad_as_a_decorator_without_parentheses(training: None) -> None:
    @autograd.no_grad
    def recording() -> bool:
        return autograd.is_recording()

    assert recording.__name__ == "recording"
    assert (recording(), autograd.is_recording()) == (False, True)


def test_no_grad_as_a_decorator_of_a_recursive_function() -> None:
    @autograd.no_grad()
    def depth(n: int) -> bool:
        return autograd.is_recording() if n == 0 else depth(n - 1)

    assert depth(3) is False
    assert autograd.is_recording()


def test_arithmetic_is_recorded_towards_a_parameter() -> None:
    w, x = parameter([1.0, 2.0]), constant([3.0, 4.0])
    y = (w * x + 1.0 - x) / 2.0
    assert values(autograd.gradients(y, [1.0, 10.0]), w) == [[1.5, 20.0]]
    assert (x * x + 1.0).is_dummy()  # no gradient flows to it


def test_gradients_by_tensor() -> None:
    w, other = tensor.Tensor(data=[1.0, 2.0], stores_grad=True), tensor.Tensor(data=[1.0, 2.0])
    found = autograd.gradients(autograd.sum(w * w))
    assert w in found
    assert id(w) in found
    assert other not in found
    for got in (found[w], found[id(w)], found.get(w), found.get(id(w))):
        assert got.numpy().tolist() == [2.0, 4.0]
    assert found.get(other) is None
    assert found.get(other, 3) == 3
    with pytest.raises(KeyError):
        found[other]


def test_plain_arithmetic_keeps_no_history() -> None:
    average = constant([0.0])
    for _ in range(3):
        average = average * 0.9 + constant([1.0]) * 0.1
    assert average.is_dummy()


def test_functions_record_any_input_that_requires_a_gradient() -> None:
    x = constant([1.0, -2.0])
    dx = autograd.relu(x).creator.backward(constant([5.0, 5.0]).data)
    assert autograd.ctensor2numpy(dx).tolist() == [5.0, 0.0]
    frozen = tensor.Tensor(data=np.ones(2), requires_grad=False)
    assert autograd.relu(frozen).is_dummy()


def test_detach_cuts() -> None:
    w = parameter([2.0])
    y = w * (w * 3.0).detach()
    assert values(autograd.gradients(y), w) == [[6.0]]


def test_comparisons_are_constants() -> None:
    w = parameter([1.0, -1.0])
    y = w * (w > 0.0)
    assert values(autograd.gradients(y, [1.0, 1.0]), w) == [[1.0, 0.0]]
    with pytest.raises(TypeError, match="Less"):
        autograd.Less().backward(w.data)


# In-place updates.


def test_a_parameter_is_updated_in_place() -> None:
    w = parameter([1.0, 2.0])
    same, raw = w, w.data
    w += constant([1.0, 1.0])
    w *= 2.0
    w -= w * 0.5  # the right side is recorded, the update is in place
    assert w is same
    assert w.data is raw
    assert w.is_dummy()
    assert w.numpy().tolist() == [2.0, 3.0]


def test_in_place_on_a_computed_tensor_is_recorded() -> None:
    w, b = parameter([1.0, 2.0]), parameter([3.0, 4.0])
    y = w * 2.0
    y += b
    y *= 3.0
    assert values(autograd.gradients(y, [1.0, 1.0]), w, b) == [[6.0, 6.0], [3.0, 3.0]]


def test_a_running_total_of_losses_is_recorded() -> None:
    w, total = parameter([2.0]), tensor.zeros((1,))
    for factor in (1.0, 2.0):
        total += w * factor
    assert total.numpy().tolist() == [6.0]
    assert values(autograd.gradients(total), w) == [[3.0]]


def test_a_parameter_that_is_added_in_place_gets_its_gradient() -> None:
    x, w = constant([1.0, 2.0]), parameter([3.0, 4.0])
    same = x
    x += w
    x *= w
    assert same.numpy().tolist() == [1.0, 2.0]  # as a tensor that was computed
    assert values(autograd.gradients(x, [1.0, 1.0]), w) == [[1.0 + 2 * 3.0, 2.0 + 2 * 4.0]]
    with autograd.no_grad():
        same += w
    assert same.numpy().tolist() == [4.0, 6.0]


def test_writing_elements_of_a_computed_tensor_is_refused() -> None:
    y = parameter([1.0, 2.0]) * 2.0
    with pytest.raises(RuntimeError, match="setitem"):
        y[0] = 1.0


@pytest.mark.parametrize("key", [0, slice(1, 2), [1, 0], np.array([True, False])])
def test_elements_that_lead_to_a_parameter_are_not_written(key: Any) -> None:
    """The gradient would be lost."""
    w, x = parameter([1.0, 2.0]), constant([5.0, 6.0])
    for value in (w[0] * 3.0, w[0]):
        with pytest.raises(RuntimeError, match=r"\[setitem\].*lose that gradient"):
            x[key] = value
    with pytest.raises(RuntimeError, match="setitem"):
        x[0] += w[0]
    assert x.numpy().tolist() == [5.0, 6.0]
    x[key] = (w[0] * 3.0).detach()
    assert 3.0 in x.numpy().tolist()
    w[0] = w[1] * 4.0  # a parameter is updated at any time
    with autograd.no_grad():
        x[key] = w[0]
    assert 8.0 in x.numpy().tolist()


def test_a_tensor_that_trains_is_no_number() -> None:
    """Its gradient would be lost."""
    w, x = parameter([0.5]), constant([1.0, -1.0])
    for value in (w, w * 2.0):
        with pytest.raises(TypeError, match=r"\[LeakyRelu\] a must be a number.* no gradient"):
            autograd.leakyrelu(x, value)
    assert autograd.leakyrelu(x, w.detach()).numpy().tolist() == [1.0, -0.5]
    w.requires_grad = False
    assert autograd.leakyrelu(x, w).numpy().tolist() == [1.0, -0.5]


def test_backward_through_a_changed_tensor_is_refused() -> None:
    w, x = parameter([1.0, 2.0]), constant([3.0, 4.0])
    y = autograd.mul(w, x)
    y.creator.name = "scale"
    x += 1.0
    with pytest.raises(RuntimeError, match=r"\[scale\].*changed in place"):
        autograd.gradients(y, [1.0, 1.0])
    with pytest.raises(RuntimeError, match="changed in place"):
        y.creator.backward(constant([1.0, 1.0]).data)


def test_copy_data_leaves_what_the_tape_saved() -> None:
    """A recurrent state is overwritten before backward, as in SINGA's character network."""
    w, h = parameter([3.0]), constant([2.0])
    y = autograd.mul(w, h)
    h.copy_data(y)
    assert h.numpy().tolist() == [6.0]
    assert values(autograd.gradients(y, [1.0]), w) == [[2.0]]
    alias = h.copy()
    with autograd.no_grad():  # in place, because no operator has saved the new value
        h.copy_data(y * 2.0)
    assert alias.numpy().tolist() == h.numpy().tolist() == [12.0]


def test_a_view_of_a_saved_tensor_counts_as_the_tensor() -> None:
    w, x = parameter([1.0, 2.0]), constant([3.0, 4.0])
    y = autograd.mul(w, x)
    x[0] = 7.0
    with pytest.raises(RuntimeError, match="changed in place"):
        autograd.gradients(y, [1.0, 1.0])


def test_operators_that_keep_nothing_do_not_mind_changes() -> None:
    w, x = parameter([1.0, 2.0]), constant([3.0, 4.0])
    y = autograd.add(w, x)
    x += 1.0
    assert values(autograd.gradients(y, [1.0, 2.0]), w) == [[1.0, 2.0]]


# Users' operators.


def test_an_operator_in_a_few_lines() -> None:
    w = parameter([1.0, 2.0])
    (y,) = Double()(w)
    assert y.numpy().tolist() == [2.0, 4.0]
    assert values(autograd.gradients(y, [1.0, 3.0]), w) == [[2.0, 6.0]]


def test_what_a_users_operator_keeps_is_checked_and_let_go() -> None:
    w = parameter([1.0, 2.0])
    (y,) = Double()(w)
    w += 1.0
    with pytest.raises(RuntimeError, match=r"Double.*changed in place"):
        autograd.gradients(y, [1.0, 1.0])
    (y,) = Double()(w)
    assert hasattr(y.creator, "x")
    autograd.gradients(y, [1.0, 1.0])
    assert not hasattr(y.creator, "x")


def test_one_operator_object_applied_twice_is_two_operators() -> None:
    op = Double("twice")
    w, v = parameter([1.0]), parameter([10.0])
    (a,), (b,) = op(w), op(v)
    assert a.creator is not b.creator
    assert values(autograd.gradients(a + b), w, v) == [[2.0], [2.0]]
    (c,) = op(w)  # also after backward
    assert values(autograd.gradients(c), w) == [[2.0]]


def test_several_outputs_of_which_some_are_not_used() -> None:
    seen = []

    class Parts(Operator):
        def forward(self, x: Any) -> Any:
            return x.SliceAxis(0, 0, 1), x.SliceAxis(0, 1, 3), x.SliceAxis(0, 3, 4)

        def backward(self, *dys: Any) -> Any:
            seen.extend(autograd.ctensor2numpy(dy).tolist() for dy in dys)
            return wrap.Concat(dys, 0)

    w = parameter([1.0, 2.0, 3.0, 4.0])
    first, _, last = Parts()(w)
    gradients = autograd.gradients(first * 5.0 + last)
    assert seen == [[5.0], [0.0, 0.0], [1.0]]
    assert values(gradients, w) == [[5.0, 0.0, 0.0, 1.0]]


def test_an_input_may_get_no_gradient() -> None:
    class Second(Operator):
        def forward(self, a: Any, b: Any) -> Any:
            return wrap.Binary(wrap.BinaryOp_kAdd, a, b)

        def backward(self, dy: Any) -> Any:
            return None, dy

    a, b = parameter([1.0]), parameter([2.0])
    gradients = autograd.gradients(Second()(a * 2.0, b)[0])
    assert gradients.tensors() == [b]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda dy: (dy, dy), "2 gradients for 1 inputs"),
        (lambda dy: dy.SliceAxis(0, 0, 1), r"shape \(1,\) for w of shape \(2,\)"),
    ],
)
def test_a_wrong_backward_is_named(result: Any, message: str) -> None:
    class Wrong(Operator):
        def forward(self, x: Any) -> Any:
            return x.Clone()

        def backward(self, dy: Any) -> Any:
            return result(dy)

    with pytest.raises(RuntimeError, match=rf"\[Wrong#\d+\].*{message}"):
        autograd.gradients(Wrong()(parameter([1.0, 2.0], name="w"))[0], [1.0, 1.0])


def test_inputs_have_to_be_tensors() -> None:
    with pytest.raises(TypeError, match=r"Double.*ndarray"):
        Double()(np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="no forward"):
        Operator()(parameter([1.0]))


# Backward.


def test_a_tensor_used_twice_gets_the_sum() -> None:
    w = parameter([3.0])
    y = w * w + autograd.mul(w, w) + w
    assert values(autograd.gradients(y), w) == [[13.0]]


def test_a_diamond() -> None:
    w = parameter([2.0])
    a = w * w
    y = autograd.add(autograd.mul(a, a), a)  # w⁴ + w²
    assert values(autograd.gradients(y), w) == [[36.0]]


def test_gradients_come_when_they_are_complete() -> None:
    first, last = parameter([2.0], name="first"), parameter([3.0], name="last")
    y = (first * 5.0) * last
    order = []
    for p, gradient in autograd.backward(y):
        order.append(p.name)
        p -= gradient  # backward does not need p any more
    assert order == ["last", "first"]
    assert first.numpy().tolist() == [-13.0]
    assert last.numpy().tolist() == [-7.0]


def test_each_gradient_has_memory_of_its_own() -> None:
    a, b = parameter([1.0]), parameter([2.0])
    dy = constant([5.0])
    gradients = autograd.gradients(autograd.add(a, b), dy)
    gradients[a] *= 2.0
    assert values(gradients, a, b) == [[10.0], [5.0]]
    assert dy.numpy().tolist() == [5.0]


def test_gradients_by_tensor_or_id() -> None:
    w = parameter([1.0])
    gradients = autograd.gradients(w * 4.0)
    assert gradients[id(w)] is gradients[w]
    assert list(gradients) == [id(w)]
    with pytest.raises(KeyError):
        gradients[parameter([1.0])]


def test_intermediate_results_can_store_their_gradient() -> None:
    w = parameter([3.0])
    h = w * 2.0
    h.stores_grad = True
    y = h * h
    assert values(autograd.gradients(y), h, w) == [[12.0], [24.0]]


def test_the_result_itself_can_store_its_gradient() -> None:
    w = parameter([3.0])
    assert values(autograd.gradients(w, 2.0), w) == [[2.0]]


def test_frozen_parameters_cost_no_work() -> None:
    asked = []

    class Product(Operator):
        def forward(self, a: Any, b: Any) -> Any:
            self.a, self.b = a, b
            return wrap.Binary(wrap.BinaryOp_kMul, a, b)

        def backward(self, dy: Any) -> Any:
            asked.append((self._need(0), self._need(1)))
            return tuple(wrap.Binary(wrap.BinaryOp_kMul, dy, t) for t in (self.b, self.a))

    x, w = constant([2.0]), parameter([3.0])
    frozen = tensor.Tensor(data=np.ones(1), requires_grad=False)
    autograd.gradients(Product()(x, w)[0])
    autograd.gradients(Product()(w, frozen)[0])
    assert asked == [(False, True), (True, False)]
    y = Product()(Product()(x, constant([1.0]))[0], w)[0]  # no stored gradient below the inner one
    autograd.gradients(y)
    assert asked[2:] == [(False, True)]


def test_dy_of_any_kind() -> None:
    w = parameter([[1.0, 2.0]])
    for dy in (3.0, [[3.0, 3.0]], np.full((1, 2), 3.0), constant([[3.0, 3.0]])):
        assert values(autograd.gradients(w * 1.0, dy), w) == [[[3.0, 3.0]]]


def test_wrong_arguments() -> None:
    w = parameter([1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(2,\).*one element"):
        autograd.backward(w * 2.0)
    with pytest.raises(ValueError, match=r"\(1,\).*\(2,\)"):
        autograd.backward(w * 2.0, np.ones(1))
    with pytest.raises(TypeError, match="float"):
        autograd.backward(1.0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not computed on the tape"):
        w.creator.backward(w.data)


def test_tensor_backward_adds_to_grad() -> None:
    w = parameter([2.0])
    for _ in range(2):
        (w * w).backward()
    assert w.grad is not None
    assert w.grad.numpy().tolist() == [8.0]


def test_a_long_chain() -> None:
    w = parameter([1.0])
    y = w
    for _ in range(20_000):
        y = y + 1.0
    assert values(autograd.gradients(y), w) == [[1.0]]
    for _ in range(20_000):
        y = y + 1.0
    del y  # an equally deep tape without backward


def test_infer_dependency_counts_uses() -> None:
    w = parameter([1.0])
    a = w * 2.0
    y = autograd.mul(a, a)
    operators, outputs = autograd.infer_dependency(y.creator)
    assert operators[a.creator] == 2
    assert operators[w.creator] == 1
    assert outputs[a.creator, 0] == 2


# gradcheck and the rest.


def test_gradcheck_finds_a_wrong_gradient() -> None:
    class Wrong(Double):
        def backward(self, dy: Any) -> Any:
            return dy

    with pytest.raises(autograd.GradientError, match="input 0"):
        autograd.gradcheck(lambda x: Wrong()(x)[0], constant([1.0, 2.0]))
    assert autograd.gradcheck(lambda x: Double()(x)[0], constant([1.0, 2.0]))


def test_gradcheck_takes_several_inputs_and_outputs() -> None:
    index = tensor.from_numpy(np.array([0, 1, 0], np.int32))
    w = constant([[1.0, 2.0], [3.0, 4.0]])
    assert autograd.gradcheck(lambda i, w: (autograd.embedding(i, w), w * w), [index, w])
    with pytest.raises(ValueError, match="float"):
        autograd.gradcheck(lambda i: i, [index])


def test_broadcast_helpers() -> None:
    assert autograd.axis_helper((2, 3, 4), (3, 1)) == (0, 2)
    raw = constant(np.ones((2, 3, 4))).data
    assert autograd.back_broadcast((2, 3, 4), (3, 1), raw).shape() == (3, 1)
    assert autograd.back_broadcast((2, 3, 4), (2, 3, 4), raw) is raw


def test_threads_infer_while_this_one_trains() -> None:
    w = parameter(np.eye(8))
    x = constant(np.arange(64.0).reshape(8, 8))
    wrong: list[Any] = []

    def infer() -> None:
        for _ in range(50):
            y = autograd.relu(autograd.add(x, w.detach()))
            if not y.is_dummy():
                wrong.append(y)

    threads = [threading.Thread(target=infer) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        y = autograd.reduce_sum(autograd.mul(x, w), None, 0)
        assert values(autograd.gradients(y), w) == [x.numpy().tolist()]
    for thread in threads:
        thread.join()
    assert wrong == []


def test_learning() -> None:
    """Gradient descent on a least-squares problem reaches the closed-form solution."""
    random = np.random.default_rng(0)
    A, b = random.standard_normal((20, 3)), random.standard_normal((20, 1))
    x, t = (tensor.Tensor(data=array, dtype="float64") for array in (A, b))
    w = tensor.Tensor((3, 1), dtype="float64", stores_grad=True)
    for _ in range(400):
        error = (x @ w) - t
        loss = autograd.reduce_mean(error * error)
        for p, gradient in autograd.backward(loss):
            p -= 0.2 * gradient
    np.testing.assert_allclose(w.numpy(), np.linalg.lstsq(A, b, rcond=None)[0], atol=1e-10)
