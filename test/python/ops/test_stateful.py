"""Operators that the table cannot have: they draw random numbers, depend on the training flag, or
have state."""

from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, tensor
from singa import singa_wrap as wrap

pytestmark = pytest.mark.usefixtures("training")


def _parameter(values: Any, dtype: str = "float64") -> tensor.Tensor:
    return tensor.Tensor(data=np.asarray(values), dtype=dtype, stores_grad=True)


# Dropout.


def test_dropout_zeroes_and_scales() -> None:
    singa.seed(3)
    threads = singa.get_num_threads()
    singa.set_num_threads(3)
    try:
        x = _parameter(np.ones(100_000), "float32")
        y = autograd.dropout(x, ratio=0.3)
        dx = autograd.gradients(y, np.full(100_000, 2.0))[x].numpy()
    finally:
        singa.set_num_threads(threads)
    kept = y.numpy() != 0
    np.testing.assert_allclose(y.numpy()[kept], 1 / 0.7, rtol=1e-6)
    assert kept.mean() == pytest.approx(0.7, abs=4 * (0.21 / 100_000) ** 0.5)
    np.testing.assert_array_equal(dx, 2 * y.numpy())


def test_dropout_with_a_seed_repeats_and_leaves_the_sequence_alone() -> None:
    x = _parameter(np.ones(200))
    singa.seed(5)
    expected = autograd.dropout(x).numpy()
    singa.seed(5)
    seeded = autograd.dropout(x, seed=9).numpy()
    np.testing.assert_array_equal(autograd.dropout(x).numpy(), expected)
    np.testing.assert_array_equal(autograd.dropout(x, seed=9).numpy(), seeded)


def test_dropout_is_nothing_in_evaluation() -> None:
    autograd.training = False
    x = _parameter([1.0, 2.0])
    with autograd.enable_grad():
        y = autograd.dropout(x, ratio=0.9)
    assert y.numpy().tolist() == [1.0, 2.0]
    assert autograd.gradients(y, [3.0, 4.0])[x].numpy().tolist() == [3.0, 4.0]


@pytest.mark.parametrize("ratio", [1.0, -0.1, float("nan")])
def test_wrong_ratios(ratio: float) -> None:
    with pytest.raises(ValueError, match="ratio"):
        autograd.dropout(_parameter([1.0]), ratio=ratio)


# Batch norm.


def _batchnorm(momentum: float, x: tensor.Tensor, *state: tensor.Tensor) -> tensor.Tensor:
    return autograd.batchnorm_2d(wrap.BatchNormHandle(momentum, x.data), x, *state)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("residual", "relu"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shared", [True, False])
def test_batchnorm_in_one_go_is_batchnorm_add_and_relu(
    training: bool, residual: bool, relu: bool, shared: bool
) -> None:
    """The same bits, also if the residual is x itself, whose gradient is then a sum."""
    random = np.random.default_rng(1)
    values = [random.standard_normal((4, 3, 5, 2)) for _ in range(3)]
    scale, bias = random.uniform(0.5, 1.5, 3), random.standard_normal(3)
    autograd.training = training

    def run(fused: bool) -> list[np.ndarray]:
        x, z, s, b = map(_parameter, (*values[:2], scale, bias))
        z = x if shared else z
        mean, var = (tensor.from_numpy(np.full(3, v), dtype="float64") for v in (0.5, 2.0))
        handle = wrap.BatchNormHandle(0.3, x.data)
        with autograd.enable_grad():
            if fused:
                arguments = {"add": z if residual else None, "relu": relu}
                y = autograd.batchnorm_2d(handle, x, s, b, mean, var, **arguments)
            else:
                y = autograd.batchnorm_2d(handle, x, s, b, mean, var)
                y = autograd.add(y, z) if residual else y
                y = autograd.relu(y) if relu else y
        gradients = autograd.gradients(y, values[2])
        wanted = [x, s, b, *([z] if residual and not shared else [])]
        return [t.numpy() for t in (y, mean, var, *(gradients[t] for t in wanted))]

    for got, truth in zip(run(True), run(False), strict=True):
        np.testing.assert_array_equal(got, truth)


def test_batchnorm_gives_nobody_the_gradient_of_another() -> None:
    """Without relu the residual's gradient is dy itself. Adding to it must not change dy."""
    x, z, one, zero = map(_parameter, (np.eye(4), np.ones((4, 4)), np.ones(4), np.zeros(4)))
    mean, var = tensor.zeros((4,), dtype="float64"), tensor.ones((4,), dtype="float64")
    autograd.training = True
    y = autograd.batchnorm_2d(
        wrap.BatchNormHandle(0.1, x.data), x, one, zero, mean, var, autograd.add(z, z)
    )
    dy = tensor.from_numpy(np.full((4, 4), 3.0), dtype="float64")
    gradients = autograd.gradients(y, dy)
    np.testing.assert_array_equal(gradients[z].numpy(), np.full((4, 4), 6.0))
    np.testing.assert_array_equal(dy.numpy(), np.full((4, 4), 3.0))


def test_batchnorm_refuses_a_residual_of_another_shape() -> None:
    x, z, one, zero = map(_parameter, (np.eye(4), np.ones((4, 1)), np.ones(4), np.zeros(4)))
    with pytest.raises(ValueError, match=r"add must have the shape of x \(4, 4\), got \(4, 1\)"):
        autograd.batchnorm_2d(wrap.BatchNormHandle(0.1, x.data), x, one, zero, zero, one, z)


def test_batchnorm_through_statistics_that_moved_on_is_refused() -> None:
    x, one, zero = _parameter(np.eye(4)), _parameter(np.ones(4)), _parameter(np.zeros(4))
    mean, var = tensor.zeros((4,), dtype="float64"), tensor.ones((4,), dtype="float64")
    autograd.training = False
    with autograd.enable_grad():
        y = _batchnorm(0.1, x, one, zero, mean, var)
    autograd.training = True
    _batchnorm(0.1, x, one, zero, mean, var)
    with pytest.raises(RuntimeError, match="changed in place"):
        autograd.gradients(y, np.ones((4, 4)))


# Recurrent layers.

_SEQ, _BATCH, _INPUT, _HIDDEN = 4, 3, 5, 2


def test_rnn_in_singas_form_returns_the_last_step() -> None:
    random = np.random.default_rng(3)
    x = _parameter(random.standard_normal((_SEQ, _BATCH, _INPUT)))
    state = _parameter(np.zeros((1, _BATCH, _HIDDEN)))
    handle = wrap.RnnHandle(x.data, _HIDDEN, wrap.RnnMode_kLstm)
    W = _parameter(random.standard_normal(handle.weights_size))
    (whole,) = autograd._RNN(handle, return_sequences=True)(x, state, state.clone(), W)
    (last,) = autograd._RNN(handle)(x, state, state.clone(), W)
    np.testing.assert_array_equal(last.numpy(), whole.numpy()[-1])

    dy = random.standard_normal(last.shape)
    full = np.zeros(whole.shape)
    full[-1] = dy
    of_last, of_whole = autograd.gradients(last, dy), autograd.gradients(whole, full)
    np.testing.assert_array_equal(of_last[W].numpy(), of_whole[W].numpy())

    lengths = np.array([4, 1, 3], np.int32)
    (masked,) = autograd._RNN(handle, use_mask=True, seq_lengths=lengths)(
        x, state, state.clone(), W
    )
    for i, length in enumerate(lengths):
        np.testing.assert_allclose(
            masked.numpy()[i], whole.numpy()[length - 1, i], rtol=1e-12, atol=1e-14
        )
    dx = autograd.gradients(masked, dy)[x].numpy()
    for i, length in enumerate(lengths):
        assert np.abs(dx[:length, i]).min() > 0
        assert not dx[length:, i].any()
    with pytest.raises(ValueError, match="seq_lengths"):
        autograd._RNN(handle, use_mask=True)
