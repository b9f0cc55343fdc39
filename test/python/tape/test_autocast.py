"""Mixed precision: what is computed in 16 bits, and what stays float32."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import singa
from singa import autograd, layer, models, opt, tensor
from singa.tensor import Tensor


def _of(array: np.ndarray, trained: bool = False) -> Tensor:
    t = tensor.from_numpy(array.astype(np.float32))
    t.requires_grad = t.stores_grad = trained
    return t


def _bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounds to 8 bits of mantissa, halves to even."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize(
    "product",
    [
        autograd.matmul,
        tensor.mult,
        lambda x, w: x @ w,
        lambda x, w: tensor.tensordot(x, w, 1),
        lambda x, w: tensor.einsum("ij,jk->ik", x, w),
    ],
)
def test_products_round_their_operands(product: Callable[[Tensor, Tensor], Tensor]) -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((5, 7)), random.standard_normal((7, 3))
    with autograd.autocast("bfloat16"):
        y = product(_of(x), _of(w))
    assert y.dtype == tensor.bfloat16
    exact = _bfloat16(x).astype(np.float64) @ _bfloat16(w).astype(np.float64)
    np.testing.assert_allclose(y.numpy(), exact, rtol=2**-8, atol=1e-2)
    assert product(_of(x), _of(w)).dtype == tensor.float32


def test_gradients_of_parameters_are_float32() -> None:
    random = np.random.default_rng(1)
    x, w, b = _of(random.standard_normal((4, 6))), random.standard_normal((6, 3)), np.zeros(3)
    gradients = {}
    for lowered in (False, True):
        weight, bias = _of(w, trained=True), _of(b, trained=True)
        with autograd.enable_grad(), autograd.autocast(enabled=lowered):
            y = autograd.linear(x, weight, bias)
            loss = autograd.mse_loss(y, tensor.from_numpy(np.ones((4, 3), np.float32)))
        assert loss.dtype == tensor.float32
        found = {id(t): g for t, g in autograd.backward(loss)}
        gradients[lowered] = [found[id(weight)], found[id(bias)]]
    for rounded, exact in zip(gradients[True], gradients[False], strict=True):
        assert rounded.dtype == tensor.float32
        scale = np.abs(exact.numpy()).max()
        np.testing.assert_allclose(rounded.numpy(), exact.numpy(), rtol=0, atol=0.03 * scale)


def test_sums_of_two_types_give_each_its_own_gradient_type() -> None:
    a, b = _of(np.ones((2, 3))).as_type(tensor.bfloat16), _of(np.ones((3,)), trained=True)
    a.requires_grad = a.stores_grad = True
    for combine in (lambda: a + b, lambda: a - b, lambda: a * b, lambda: autograd.add_bias(a, b)):
        with autograd.enable_grad():
            y = combine()
        types = {id(t): g.dtype for t, g in autograd.backward(y, tensor.ones(y.shape))}
        assert types == {id(a): tensor.bfloat16, id(b): tensor.float32}


def test_the_context_nests_and_belongs_to_its_thread() -> None:
    x = _of(np.ones((2, 2)))

    def product() -> object:
        return autograd.matmul(x, x).dtype

    seen = []
    with autograd.autocast():
        with autograd.autocast(enabled=False):
            assert product() == tensor.float32
        assert product() == tensor.bfloat16
        thread = threading.Thread(target=lambda: seen.append(product()))
        thread.start()
        thread.join()
        with pytest.raises(KeyError), autograd.autocast(enabled=False):
            raise KeyError
        assert product() == tensor.bfloat16
    assert seen == [tensor.float32]
    assert product() == tensor.float32
    assert autograd.autocast()(product)() == tensor.bfloat16
    with autograd.autocast("float16"):
        assert product() == tensor.float16
    assert autograd.autocast("float16")(product)() == tensor.float16
    assert autograd.autocast("float16", enabled=False)(product)() == tensor.float32


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_other_types_are_refused(dtype: str) -> None:
    message = rf"\[autocast\] dtype must be bfloat16 or float16, got '{dtype}'"
    with pytest.raises(ValueError, match=message):
        autograd.autocast(dtype)


@pytest.mark.parametrize("lowered", ["bfloat16", "float16"])
def test_a_compiled_model_trains_like_float32(lowered: str) -> None:
    random = np.random.default_rng(2)
    x = _of(random.standard_normal((12, 4, 6, 6)))
    y = tensor.from_numpy((np.arange(12) % 3).astype(np.int32))
    losses: dict[str, list[float]] = {}
    for dtype in ("float32", lowered):
        singa.seed(3)
        net = models.Sequential(
            *(layer.Conv2d(16, 3, padding=1), layer.BatchNorm2d(), layer.ReLU()),
            *(layer.Conv2d(16, 3, padding=1), layer.ReLU(), layer.Flatten(), layer.Linear(3)),
        )
        scaler = opt.GradScaler(2.0**10) if dtype == "float16" else None
        net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9, scaler=scaler))
        net.compile([x], dtype=dtype)
        losses[dtype] = []
        for _ in range(8):
            out, loss = net(x, y)
            losses[dtype].append(float(loss.numpy().reshape(())))
        assert out.dtype == getattr(tensor, dtype)
        assert {value.dtype for value in net.get_states().values()} == {tensor.float32}
        net.eval()
        assert net(x).dtype == getattr(tensor, dtype)
    assert losses[lowered][-1] < 0.7 * losses[lowered][0]
    np.testing.assert_allclose(losses[lowered], losses["float32"], rtol=0.05)
    assert losses[lowered] != losses["float32"]
    with pytest.raises(ValueError, match=r"\[compile\] dtype .*float16, got 'float64'"):
        net.compile([x], dtype="float64")


def test_casts_and_their_gradients_keep_the_layout() -> None:
    array = np.random.default_rng(6).standard_normal((2, 20, 5, 7)).astype(np.float32)
    x = _of(array).to_blocked()
    x.requires_grad = x.stores_grad = True
    with autograd.enable_grad():
        y = autograd.cast(x, tensor.bfloat16)
    assert y.data.layout_name() == x.data.layout_name()
    ((_, dx),) = autograd.backward(y, y)
    assert (dx.dtype, dx.data.layout_name()) == (tensor.float32, x.data.layout_name())
    np.testing.assert_array_equal(dx.numpy(), _bfloat16(array))
    np.testing.assert_array_equal(y[:, 3:].as_type("float32").numpy(), _bfloat16(array)[:, 3:])


def test_networks_learn_in_bfloat16() -> None:
    random = np.random.default_rng(4)
    x = _of(random.standard_normal((8, 3, 32, 32)))
    y = tensor.from_numpy(np.arange(8, dtype=np.int32))
    singa.seed(5)
    net = models.create("resnet20_cifar")
    net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
    net.compile([x], dtype="bfloat16")
    losses = [float(net(x, y)[1].numpy().reshape(())) for _ in range(6)]
    assert losses[-1] < 0.5 * losses[0]
