"""Functions whose arguments differ between SINGA and NumPy follow SINGA."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from singa import autograd, compat, tensor

pytestmark = pytest.mark.usefixtures("training")


def of(values: Any) -> tensor.Tensor:
    return tensor.from_numpy(np.asarray(values, np.float32))


def test_tile_repeats_from_the_first_axis() -> None:
    values = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    x = tensor.Tensor(data=values, stores_grad=True)
    for repeats, full in [(4, (4, 1)), ([4], (4, 1)), ([2, 3], (2, 3)), ([2, 1, 3], (2, 1, 3))]:
        y = autograd.tile(x, repeats)
        np.testing.assert_array_equal(y.numpy(), np.tile(values, full))
        gradient = autograd.gradients(y, np.ones(y.shape))[x]
        assert gradient.numpy().tolist() == [[np.prod(full)] * 3] * 2


def test_gather_wraps_negative_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "enabled", True)
    values = np.arange(12.0).reshape(4, 3)
    for indices in ([0, -1, -2], [-5, -8, 3], [[-1, -4], [-7, 4]]):
        y = autograd.gather(of(values), 0, indices)
        np.testing.assert_array_equal(y.numpy(), np.take(values, np.mod(indices, 4), 0))
    dx = autograd.gather(of(values), 1, [-4, -1]).creator.backward(tensor.ones((4, 2)).data)
    assert tensor.from_raw_tensor(dx).numpy().tolist() == [[0, 0, 2]] * 4
    monkeypatch.setattr(compat, "enabled", False)
    with pytest.raises(IndexError, match=r"\[Gather\] index 4 "):
        autograd.gather(of(values), 0, [4]).numpy()
    with pytest.raises(IndexError):
        of(values)[[-5]].numpy()


@pytest.mark.parametrize("axes", [[0, 4], [0], [3], [2, 0], [1, 1 - 2], [-1], [-3], [0, 2, -2]])
def test_unsqueeze_inserts_one_axis_after_the_other(axes: list[int]) -> None:
    shape = [2, 3, 4]
    for axis in axes:
        shape.insert(axis, 1)
    x = tensor.Tensor((2, 3, 4))
    y = autograd.unsqueeze(x, axes)
    assert y.shape == tuple(shape)
    assert y.creator.backward(y.data).shape() == (2, 3, 4)


def test_unsqueeze_by_a_number() -> None:
    x = tensor.Tensor((2, 3))
    shapes = [autograd.unsqueeze(x, axis).shape for axis in (0, 1, 2, -1, -2, -3)]
    assert shapes == [(1, 2, 3), (2, 1, 3), (2, 3, 1), (2, 3, 1), (2, 1, 3), (1, 2, 3)]
    assert autograd.unsqueeze(x).shape == (2, 3, 1)
    for axes in ([-5], [3, 0], [-1, -1]):
        with pytest.raises(ValueError, match=r"^\[[Uu]nsqueeze\] axis -?\d "):
            autograd.unsqueeze(x, axes)


def test_the_second_argument_of_dropout_is_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tensor.ones((4000,))
    assert set(autograd.dropout(x, 0.5).numpy().tolist()) == {0.0, 2.0}
    for seed in (0.1, 0.0, 1.0):
        with pytest.raises(ValueError, match=rf"\[Dropout\] seed .* write ratio={seed}"):
            autograd.dropout(x, seed)
    monkeypatch.setattr(compat, "enabled", True)
    y = autograd.dropout(x, 0.1)
    assert set(y.numpy().tolist()) == {0.0, 2.0}  # the ratio is still 0.5
    assert 0.4 < (y.numpy() == 0).mean() < 0.6
    again = autograd.dropout(x, 0.1)  # no seed either, so another mask
    assert (y.numpy() != again.numpy()).any()
    np.testing.assert_array_equal(autograd.dropout(x, 7).numpy(), autograd.dropout(x, 7.0).numpy())


def test_global_average_pooling_of_channels_last() -> None:
    values = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    for form in ("channel_last", "channels_last"):
        y = autograd.globalaveragepool(of(values), form)
        np.testing.assert_allclose(y.numpy(), values.mean((1, 2), keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match="data_format"):
        autograd.globalaveragepool(of(values), "channel_middle")


def test_a_depth_of_one_element() -> None:
    x = of([0, 2])
    for depth in (3, [3], np.array([3.0]), tensor.from_numpy(np.array([3]))):
        y = autograd.onehot(-1, x, depth, [0, 1])
        assert y.numpy().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_the_creator_of_a_result_without_gradient() -> None:
    """While the tape records, results have a creator, even if no gradient flows to them."""
    x = tensor.Tensor((3, 2))
    assert autograd.shape(x).creator.backward(tensor.ones((3, 2)).data) == [3, 2]
    constant = tensor.Tensor(data=np.ones((3, 2), np.float32), requires_grad=False)
    y = autograd.reshape(constant, (2, 3))
    assert isinstance(y.creator, autograd.Reshape)
    assert y.creator.backward(tensor.ones((2, 3)).data).shape() == (3, 2)
    assert (y.requires_grad, y.is_dummy(), y.creator.requires_grad) == (False, True, False)
    both = autograd.add(y, autograd.reshape(constant, (2, 3)))
    dx, _ = both.creator.backward(tensor.ones((2, 3)).data)
    assert dx.shape() == (2, 3)
    with pytest.raises(TypeError, match=r"\[Less\] has no gradient"):
        autograd.less(x, x).creator.backward(x.data)
    with pytest.raises(RuntimeError, match="saved nothing for backward: no input required"):
        autograd.sin(constant).creator.backward(constant.data)
    with autograd.no_grad():
        assert isinstance(autograd.reshape(x, (6,)).creator, autograd.Dummy)


def test_an_operator_applied_to_constants_twice() -> None:
    """Each call of an operator is an operator of its own."""
    first, second = tensor.Tensor((6,), requires_grad=False), tensor.Tensor((2, 3))
    second.requires_grad = False
    reshape = autograd.Reshape((3, 2))
    a, b = reshape(first)[0], reshape(second)[0]
    assert a.creator is reshape
    assert a.creator.backward(a.data).shape() == (6,)
    assert b.creator.backward(b.data).shape() == (2, 3)


def test_wrong_input_is_an_assertion_error_where_singa_asserts() -> None:
    line, square, cube = (tensor.Tensor((4,) * rank) for rank in (1, 2, 3))
    calls = [
        lambda: autograd.softmax_cross_entropy(square, cube),
        lambda: autograd.cross_entropy(square, cube),
        lambda: autograd.binary_cross_entropy(square, cube),
        lambda: autograd.mse_loss(square, cube),
        lambda: autograd.ranking_loss(square, line),
        lambda: autograd.add_bias(square, line, 3),
    ]
    for call in calls:
        for kind in (AssertionError, ValueError):
            with pytest.raises(kind, match=r"^\[\w+\] "):
                call()


def test_results_without_gradient_keep_no_history() -> None:
    average = tensor.Tensor((2,), requires_grad=False)
    creators = []
    for _ in range(3):
        average = autograd.add(average, tensor.Tensor((2,), requires_grad=False))
        creators.append(weakref.ref(average.creator))
    gc.collect()
    assert [creator() is None for creator in creators] == [True, True, False]
    assert average.creator.src == ()
