"""Matrix products, losses and recurrent layers, compared with PyTorch over 200 random geometries of
each family. `random_geometry` has the method."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from device_under_test import ON_GPU
from random_geometry import Bound, Bounds, Families, Trial, gradients, products, run
from singa import autograd, tensor
from singa import singa_wrap as wrap

family = Families()


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch)


# Matrix products.


@family
def linear(t: Trial) -> None:
    batch, width, out = t.batch(), t.channels(40), t.channels(40)
    transposed, bias = t.chance(), t.chance()
    t.facts.update(x=(batch, width), out=out, transposed=transposed, bias=bias)
    inputs = [
        t.input((batch, width)),
        t.input((out, width) if transposed else (width, out)),
        *([t.input((out,))] if bias else []),
    ]

    def oracle(x: Any, w: Any, b: Any = None) -> Any:
        return t.torch.nn.functional.linear(x, w if transposed else w.T, b)

    def ours(x: Any, w: Any, b: Any = None) -> Any:
        return autograd.linear(x, w, b, transposed)

    t.check(ours, oracle, inputs, products())


@family
def gemm(t: Trial) -> None:
    m, k, n = (0 if t.chance(0.03) else t.integer(1, 20) for _ in range(3))
    trans_a, trans_b = t.chance(), t.chance()
    alpha, beta = (t.pick(1.0, 0.5, -2.0, t.real(-1, 1)) for _ in range(2))
    c_shape = t.pick(None, (m, n), (n,), (1, n), (m, 1), (1,), ())
    t.facts.update(
        m=m, k=k, n=n, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta, c=c_shape
    )
    inputs = [
        t.input((k, m) if trans_a else (m, k)),
        t.input((n, k) if trans_b else (k, n)),
        *([] if c_shape is None else [t.input(c_shape)]),
    ]

    def formula(alpha: float, beta: float, a: Any, b: Any, c: Any = None) -> Any:
        y = alpha * ((a.T if trans_a else a) @ (b.T if trans_b else b))
        return y if c is None else y + beta * c

    def ours(a: Any, b: Any, c: Any = None) -> Any:
        return autograd.gemm(a, b, c, alpha, beta, trans_a, trans_b)

    t.check(
        ours,
        lambda *xs: formula(alpha, beta, *xs),
        inputs,
        products(m + k + n, lambda *xs: formula(abs(alpha), abs(beta), *xs), partial_sums=True),
    )


@family
def matmul(t: Trial) -> None:
    m, k, n = (0 if t.chance(0.02) else t.integer(1, 12) for _ in range(3))
    batch = t.integers(t.integer(0, 2), 1, 4)

    def some(batch: list[int]) -> list[int]:
        """Removes some axes, or makes their length 1."""
        batch = batch[t.integer(0, len(batch)) :]
        return [1 if t.chance(0.3) else size for size in batch]

    a, b = [*some(batch), m, k], [*some(batch), k, n]
    if t.chance(0.1):
        a = [k]
    if t.chance(0.1):
        b = [k]
    t.facts.update(a=a, b=b)
    inputs = [t.input(a), t.input(b)]
    t.check(autograd.matmul, t.torch.matmul, inputs, products(partial_sums=True))


# Losses.


def _loss_bound(magnitudes: Callable[..., tuple[Any, list[Any]]]) -> Bound:
    """Bound of means: 8·√K times the absolute values of the terms, and 8 for each gradient."""

    def bound(trial: Trial, oracle: Any, xs: list[Any], dys: list[Any]) -> Bounds:
        points = [x.detach() for x in xs]
        y, dx = magnitudes(*points)
        return [8 * max(1, points[0].numel()) ** 0.5 * y], [
            8 * dys[0].abs() * slope for slope in dx
        ]

    return bound


@family
def softmax_cross_entropy(t: Trial) -> None:
    torch = t.torch
    batch, classes, smoothing = t.integer(1, 8), t.integer(1, 20), t.pick(0.0, 0.0, 0.1, 0.3)
    kind = t.pick("int32", "int64", "uint8", "float32", "one per row", "probabilities")
    t.facts.update(x=(batch, classes), kind=kind, smoothing=smoothing)
    numbers = t.random.integers(0, classes, batch)
    if kind == "probabilities":
        target = t.input((batch, classes), values=t.random.dirichlet(np.ones(classes), batch))
        ours_t, t_values = tensor.Tensor(data=target.raw), torch.tensor(target.values)
    else:
        shaped = numbers.reshape(-1, 1) if kind == "one per row" else numbers
        dtype = "int32" if kind == "one per row" else kind
        ours_t = tensor.from_numpy(shaped.astype(dtype), dtype=dtype)
        t_values = torch.nn.functional.one_hot(torch.tensor(numbers), classes).double()
    mixed = (1 - smoothing) * t_values + smoothing / classes

    def magnitudes(x: Any) -> tuple[Any, list[Any]]:
        p = x.softmax(1)
        reach = 1 + classes**0.5 + 2 * (x.amax(1, keepdim=True) - x.amin(1, keepdim=True))
        size = (mixed * (p.log().abs() + reach)).sum(1).mean(0, keepdim=True)
        kept = p * (reach + t.coarse / 8) + mixed
        kept = kept + t.tiny
        return size, [kept * mixed.sum(1, keepdim=True).clamp(min=1) / batch]

    reach = t.pick(2.0, 20.0)
    t.check(
        lambda x: autograd.softmax_cross_entropy(x, ours_t, smoothing),
        lambda x: -(mixed * x.log_softmax(1)).sum(1).mean(0, keepdim=True),
        [t.input((batch, classes), -reach, reach)],
        _loss_bound(magnitudes),
    )


@family
def elementwise_losses(t: Trial) -> None:
    """mse, bce, cross-entropy of probabilities, ranking."""
    torch = t.torch
    kind = t.pick("mse", "bce", "cross", "ranking")
    shape = (t.integer(1, 6), *t.integers(t.integer(0, 3) if kind == "mse" else 1, 1, 7))
    t.facts.update(kind=kind, x=shape)
    if kind == "ranking":
        inputs = [t.input(shape), t.input(shape)]
        t.check(
            lambda a, b: autograd.ranking_loss(a, b, 0.3),
            lambda a, b: torch.clip(0.3 - (a - b), min=0).mean().reshape(1),
            inputs,
            _loss_bound(
                lambda a, b: (
                    (0.3 + a.abs() + b.abs()).mean().reshape(1),
                    [torch.ones_like(a) / a.numel()] * 2,
                )
            ),
        )
        return
    target = t.input(shape, 0 if kind != "mse" else -1, 1)
    values, batch = torch.tensor(target.values), shape[0]
    ours = {
        "mse": autograd.mse_loss,
        "bce": autograd.binary_cross_entropy,
        "cross": autograd.cross_entropy,
    }[kind]

    def oracle(x: Any) -> Any:
        if kind == "mse":
            return torch.nn.functional.mse_loss(x, values).reshape(1)
        if kind == "bce":
            loss = torch.nn.functional.binary_cross_entropy(x, values, reduction="sum")
            return loss.reshape(1) / batch
        return -(values * x.log()).sum().reshape(1) / batch

    def magnitudes(x: Any) -> tuple[Any, list[Any]]:
        if kind == "mse":
            size = x.abs() + values.abs()
            return (size * size).mean().reshape(1), [2 * size / x.numel()]
        size, slope = values * x.log().abs(), values / x
        if kind == "bce":  # 1 - x has the error eps / 2, and its logarithm eps / (1 - x)
            size = size + (1 - values) * ((1 - x).log().abs() + 1 / (1 - x))
            slope = slope + (x + values) / (x * (1 - x)) * (1 + 1 / (1 - x))
        return size.sum().reshape(1) / batch, [slope / batch]

    x = t.input(shape, *((-1, 1) if kind == "mse" else (0.05, 0.95)))
    t.check(lambda x: ours(x, tensor.Tensor(data=target.raw)), oracle, [x], _loss_bound(magnitudes))


# Recurrent layers.

_MODES = {
    "relu": wrap.RnnMode_kRelu,
    "tanh": wrap.RnnMode_kTanh,
    "lstm": wrap.RnnMode_kLstm,
    "gru": wrap.RnnMode_kGru,
}


@family
def recurrent(t: Trial) -> None:
    torch = t.torch
    mode = t.pick(*_MODES)
    layers, both, bias = t.integer(1, 2), t.chance(0.4), t.chance(0.8)
    steps, batch, width, hidden = t.integer(1, 5), t.integer(1, 4), t.channels(9), t.channels(9)
    lengths = t.torch.tensor(t.integers(batch, 1, steps)) if t.chance(0.4) else None
    t.facts.update(
        mode=mode, x=(steps, batch, width), hidden=hidden, layers=layers, both=both, bias=bias,
        lengths=lengths,
    )  # fmt: skip
    kinds = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    kwargs = {} if mode in kinds else {"nonlinearity": mode}
    network = kinds.get(mode, torch.nn.RNN)(
        width, hidden, layers, bias=bias, bidirectional=both, dtype=torch.float64, **kwargs
    )
    states = layers * (1 + both)
    x = t.input((steps, batch, width))
    handle = wrap.RnnHandle(x.raw, hidden, _MODES[mode], layers, bias, 0.0, both)
    # Absolute values in rows of the recurrent matrices sum to at most 1, so errors do not grow with
    # steps.
    inputs = [
        x,
        t.input((states, batch, hidden)),
        t.input((states, batch, hidden)),
        t.input((handle.weights_size,), -1 / hidden, 1 / hidden),
    ]

    def oracle(x: Any, hx: Any, cx: Any, flat: Any) -> Any:
        weights, at = {}, 0
        names = [name for name, _ in network.named_parameters()]
        for name in [n for n in names if "weight" in n] + [n for n in names if "bias" in n]:
            shape = network.get_parameter(name).shape
            weights[name] = flat[at : at + shape.numel()].reshape(shape)
            at += shape.numel()
        state = (hx, cx) if mode == "lstm" else hx
        if lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, state = torch.func.functional_call(network, weights, (x, state))
        if lengths is not None:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=steps)
        return (y, *state) if mode == "lstm" else (y, state)

    def bound(trial: Trial, oracle: Any, xs: list[Any], dys: list[Any]) -> Bounds:
        """Bound by norms: each of the S steps of each layer adds the error of a sum of K terms of
        size up to M (on a GPU also that of rounding its state to 16 bits), and passes the error of
        its input on."""
        points = [x.detach().requires_grad_() for x in xs]
        ys = oracle(*points)
        found = gradients(torch, ys, points, [dy.sign() for dy in dys])
        size = max(1.0, *(float(v.detach().abs().max()) for v in (*ys, *points)))
        each = 8 * (width + 2 * hidden + 2) ** 0.5 + (trial.coarse if ON_GPU else 0.0)
        units = each * 4 * layers * (1 + both) * steps * size
        slopes = max(1.0, *(float(v.abs().max()) for v in found))
        return [torch.full_like(y, units) for y in ys], [
            torch.full_like(x, units * slopes * batch) for x in xs
        ]

    more = [] if lengths is None else [lengths.int().numpy()]
    t.check(lambda *xs: autograd.rnn(handle, *xs, *more), oracle, inputs, bound)
