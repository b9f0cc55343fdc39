"""Scaled dot-product attention beside PyTorch's; memory; dropout; replay."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, model, tensor
from trials import draws

Arrays = dict[str, np.ndarray]


def _tensor(array: np.ndarray, dtype: str = "float64", trained: bool = True) -> tensor.Tensor:
    t = tensor.from_numpy(array, dtype="bool" if array.dtype == bool else dtype)
    return tensor.Tensor(data=t.data, stores_grad=trained, requires_grad=trained)


def _inputs(
    rng: np.random.Generator,
    heads: tuple[int, int, int],
    lengths: tuple[int, int],
    features: tuple[int, int],
) -> Arrays:
    (batch, q_heads, kv_heads), (n, m), (d, e) = heads, lengths, features
    return {
        "q": rng.standard_normal((batch, q_heads, n, d)),
        "k": rng.standard_normal((batch, kv_heads, m, d)),
        "v": rng.standard_normal((batch, kv_heads, m, e)),
        "dy": rng.standard_normal((batch, q_heads, n, e)),
    }


def _rounded(arrays: Arrays, dtype: str) -> Arrays:
    """The values that tensors of this type hold."""
    return {
        name: tensor.from_numpy(a, dtype=dtype).as_type("float64").numpy()
        for name, a in arrays.items()
    }


def _ours(arrays: Arrays, dtype: str, **options: Any) -> list[np.ndarray]:
    """y, dq, dk, dv."""
    q, k, v = (_tensor(arrays[name], dtype) for name in "qkv")
    y = autograd.scaled_dot_product_attention(q, k, v, **options)
    assert y.dtype == q.dtype
    dy = _tensor(arrays["dy"], dtype, trained=False)
    gradients = autograd.gradients(y, dy)
    found = [y, *(gradients[t] for t in (q, k, v))]
    return [t.as_type("float64").numpy() for t in found]


def _theirs(torch: ModuleType, arrays: Arrays, **options: Any) -> list[np.ndarray]:
    q, k, v = (torch.tensor(arrays[name], requires_grad=True) for name in "qkv")
    if (mask := options.get("attn_mask")) is not None:
        options["attn_mask"] = torch.tensor(mask)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    y.backward(torch.tensor(arrays["dy"]))
    return [y.detach().numpy(), *(t.grad.numpy() for t in (q, k, v))]


def _compare(torch: ModuleType, arrays: Arrays, dtype: str, **options: Any) -> None:
    arrays = _rounded(arrays, dtype)
    theirs = _theirs(torch, arrays, **dict(options))
    if (mask := options.get("attn_mask")) is not None:
        options["attn_mask"] = _tensor(mask, trained=False)
    limit = {"float64": 1e-12, "float32": 4e-6, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    names = "y", "dq", "dk", "dv"
    for name, got, want in zip(names, _ours(arrays, dtype, **options), theirs, strict=True):
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        np.testing.assert_allclose(got, want, rtol=0, atol=limit * scale, err_msg=name)


pytestmark = pytest.mark.usefixtures("training")

_DTYPES = ("float64", "float32", "bfloat16", "float16")


@pytest.mark.parametrize("dtype", _DTYPES)
def test_is_pytorch(torch: ModuleType, dtype: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(draws(12)):
        kv_heads, group = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        n, m = (int(rng.choice([1, 3, 17, 64, 65, 100])) for _ in range(2))
        d, e = (int(rng.choice([1, 7, 16, 33, 64])) for _ in range(2))
        batch = int(rng.integers(1, 3))
        heads = batch, kv_heads * group, kv_heads
        options: dict[str, Any] = {"enable_gqa": True}
        if rng.integers(2):
            options["scale"] = float(rng.uniform(0.05, 0.4))
        match rng.integers(4):
            case 0:
                options["is_causal"] = True
            case 1:
                mask = rng.random((batch, 1, n, m)) < 0.8
                mask[..., 0] = True
                options["attn_mask"] = mask
            case 2:
                options["attn_mask"] = rng.standard_normal((heads[1], n, m))
        _compare(torch, _inputs(rng, heads, (n, m), (d, e)), dtype, **options)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_wide_heads(torch: ModuleType, dtype: str) -> None:
    rng = np.random.default_rng(2)
    arrays = _inputs(rng, (1, 1, 1), (70, 131), (256, 256))
    _compare(torch, arrays, dtype, is_causal=True)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_fully_masked_rows_are_zero(torch: ModuleType, dtype: str) -> None:
    rng = np.random.default_rng(3)
    arrays = _inputs(rng, (2, 2, 2), (6, 9), (8, 5))
    mask = rng.random((2, 1, 6, 9)) < 0.5
    mask[0, 0, 2] = mask[1, 0, 5] = False
    _compare(torch, arrays, dtype, attn_mask=mask)
    _compare(torch, arrays, dtype, attn_mask=np.where(mask, 0.0, -np.inf))
    y, dq, *_ = _ours(arrays, dtype, attn_mask=_tensor(mask, trained=False))
    assert not y[0, :, 2].any()
    assert not dq[0, :, 2].any()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("lengths", [(4, 7), (7, 4), (1, 9), (80, 150)])
def test_first_query_moves_the_diagonal(
    torch: ModuleType, dtype: str, lengths: tuple[int, int]
) -> None:
    """Lower right alignment is a first query of M - N; upper left is PyTorch's is_causal."""
    n, m = lengths
    arrays = _rounded(_inputs(np.random.default_rng(4), (2, 2, 1), lengths, (8, 8)), dtype)
    _compare(torch, arrays, dtype, is_causal=True, enable_gqa=True)
    mask = np.tril(np.ones((n, m), bool), m - n)
    causal = _ours(arrays, dtype, is_causal=True, first_query=m - n, enable_gqa=True)
    masked = _ours(arrays, dtype, attn_mask=_tensor(mask, trained=False), enable_gqa=True)
    limit = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 2e-2}[dtype]
    for a, b in zip(causal, masked, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * max(1, np.abs(b).max()))


def test_packed_projections_are_read_in_place() -> None:
    """q, k and v as views of (B, N, 3, H, D): the same values as copies, and no reorder."""
    rng = np.random.default_rng(5)
    packed = rng.standard_normal((2, 70, 3, 4, 16)).astype(np.float32)
    whole = tensor.from_numpy(packed)
    views = [
        tensor.Tensor(data=whole.data.SliceAxis(2, i, i + 1).Squeeze((2,)).Transpose((0, 2, 1, 3)))
        for i in range(3)
    ]
    assert not any(view.data.is_contiguous() for view in views)
    with singa.profile() as profile, autograd.no_grad():
        y = autograd.scaled_dot_product_attention(*views, is_causal=True)
    assert [record.op for record in profile.records] == ["AttentionForward"]
    assert profile.records[0].flops == 4 * 2 * 4 * 70 * 70 * 16
    copies = [
        tensor.from_numpy(np.ascontiguousarray(packed[:, :, i].swapaxes(1, 2))) for i in range(3)
    ]
    np.testing.assert_array_equal(
        y.numpy(), autograd.scaled_dot_product_attention(*copies, is_causal=True).numpy()
    )
    assert y.transpose((0, 2, 1, 3)).data.is_contiguous()


def _peak(length: int) -> int:
    """Most bytes in tensors and workspaces during forward and backward."""
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal((1, 2, length, 8)).astype(np.float32) for _ in range(4)]
    q, k, v = (_tensor(a, "float32") for a in arrays[:3])
    dy = _tensor(arrays[3], "float32", trained=False)
    before = singa.device_memory()["live"]
    q.device.ResetPeak()
    y = autograd.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    autograd.gradients(y, dy)
    return singa.device_memory()["peak"] - before


@pytest.mark.cpu("takes long on the emulated GPU")
def test_memory_grows_with_the_length() -> None:
    short, long = _peak(2048), _peak(4096)
    assert long < 2.2 * short
    assert short < 2048 * 2048  # a quarter of one head's scores


def test_gradients_under_dropout_are_slopes() -> None:
    """With one seed for all calls, dropout is a constant."""
    rng = np.random.default_rng(7)
    arrays = _inputs(rng, (2, 4, 2), (5, 9), (6, 3))

    def attend(q: tensor.Tensor, k: tensor.Tensor, v: tensor.Tensor) -> tensor.Tensor:
        q.device.SetRandSeed(9)
        return autograd.scaled_dot_product_attention(
            q, k, v, dropout_p=0.4, is_causal=True, first_query=3, enable_gqa=True
        )

    assert autograd.gradcheck(attend, [_tensor(arrays[name]) for name in "qkv"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_drops_that_part(dtype: str) -> None:
    rng = np.random.default_rng(8)
    q, k = (_tensor(rng.standard_normal((2, 3, 64, 8)), dtype) for _ in range(2))
    v = _tensor(np.broadcast_to(np.eye(64), (2, 3, 64, 64)).copy(), dtype)
    whole = autograd.scaled_dot_product_attention(q, k, v)
    kept = autograd.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    again = autograd.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    weights, found = (t.as_type("float32").numpy() for t in (whole, kept))
    dropped = found == 0
    assert abs(dropped.mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / dropped.size)
    np.testing.assert_allclose(found[~dropped], weights[~dropped] / 0.7, rtol=2**-6)
    assert (dropped != (again.as_type("float32").numpy() == 0)).any()
    with autograd.no_grad():
        autograd.training = False
        plain = autograd.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    np.testing.assert_array_equal(plain.as_type("float32").numpy(), weights)


def test_reference_agrees_with_what_runs() -> None:
    rng = np.random.default_rng(9)
    ops = ["AttentionForward", "AttentionBackward"]
    with singa.opcheck(ops=ops) as check:
        for dtype in ("float32", "bfloat16"):
            for _ in range(draws(6)):
                n, m = (int(rng.integers(1, 150)) for _ in range(2))
                arrays = _inputs(rng, (2, 4, 2), (n, m), (int(rng.integers(1, 70)), 24))
                options: dict[str, Any] = {"is_causal": bool(rng.integers(2)), "enable_gqa": True}
                if rng.integers(2):
                    mask = rng.random((n, m)) < 0.7
                    options["attn_mask"] = _tensor(mask, trained=False)
                _ours(arrays, dtype, dropout_p=0.2, **options)
    assert [check.stats()[op]["checked"] for op in ops] == [2 * draws(6)] * 2


def test_autocast_converts_the_operands() -> None:
    rng = np.random.default_rng(10)
    arrays = _inputs(rng, (1, 2, 2), (9, 9), (8, 8))
    q, k, v = (_tensor(arrays[name], "float32") for name in "qkv")
    with autograd.autocast("bfloat16"):
        y = autograd.scaled_dot_product_attention(q, k, v)
    assert y.dtype == tensor.bfloat16
    gradients = autograd.gradients(y, _tensor(arrays["dy"], "bfloat16", trained=False))
    assert gradients[q].dtype == tensor.float32
    want = _ours(_rounded(arrays, "bfloat16"), "bfloat16")
    np.testing.assert_array_equal(y.as_type("float64").numpy(), want[0])
    np.testing.assert_array_equal(gradients[q].as_type("float64").numpy(), want[1])


class Attend(model.Model):
    """One operator, with dropout, as a model."""

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return autograd.scaled_dot_product_attention(x, x, x, dropout_p=0.25)

    def train_one_batch(self, x: tensor.Tensor) -> tuple[tensor.Tensor, ...]:
        y = self.forward(x)
        return y, autograd.gradients(y, y)[x]


def test_replay_draws_anew_and_backward_follows() -> None:
    """Steps draw other weights each time, and backward the same as forward, replayed or not."""
    rng = np.random.default_rng(11)
    x = _tensor(rng.standard_normal((1, 2, 20, 8)), "float32")
    results = []
    for use_graph in (False, True):
        net = Attend()
        net.compile([x], is_train=True, use_graph=use_graph)
        x.device.SetRandSeed(3)
        results.append([[t.numpy() for t in net(x)] for _ in range(6)])
    for executed, replayed in zip(*results, strict=True):
        for a, b in zip(executed, replayed, strict=True):
            np.testing.assert_array_equal(a, b)
    assert (results[1][4][0] != results[1][5][0]).any()


@pytest.mark.parametrize("dtype", _DTYPES)
def test_gradient_of_a_bias_is_pytorchs(torch: ModuleType, dtype: str) -> None:
    rng = np.random.default_rng(12)
    for _ in range(draws(12)):
        kv_heads, group, batch = (int(rng.integers(1, 4)) for _ in range(3))
        lengths = int(rng.choice([1, 3, 49, 80])), int(rng.choice([1, 5, 49, 130]))
        heads = batch, kv_heads * group, kv_heads
        arrays = _rounded(_inputs(rng, heads, lengths, (8, 5)), dtype)
        full = np.array((batch, kv_heads * group, *lengths))
        shape = np.where(rng.random(4) < 0.4, 1, full)
        if shape[0] == 1 and rng.integers(2):
            shape = shape[1:]
        bias = rng.standard_normal(shape).astype(np.float32).astype(np.float64)
        if bias.ndim == 4 and shape[3] > 1:
            bias[..., -1] = -np.inf
        causal = bool(rng.integers(2)) and lengths[0] <= lengths[1]

        ours = [_tensor(arrays[name], dtype) for name in "qkv"]
        ours.append(_tensor(bias, "float64" if dtype == "float64" else "float32"))
        y = autograd.scaled_dot_product_attention(*ours, is_causal=causal, enable_gqa=True)
        gradients = autograd.gradients(y, _tensor(arrays["dy"], dtype, trained=False))

        theirs = [torch.tensor(arrays[name], requires_grad=True) for name in "qkv"]
        theirs.append(torch.tensor(bias, requires_grad=True))
        mask = theirs[3]
        if causal:  # PyTorch takes one of both
            mask = mask + torch.tensor(np.triu(np.full(lengths, -np.inf), 1))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            torch.nn.functional.scaled_dot_product_attention(
                *theirs[:3], mask, enable_gqa=True
            ).backward(torch.tensor(arrays["dy"]))
        assert gradients[ours[3]].shape == bias.shape
        assert gradients[ours[3]].dtype == ours[3].dtype
        limit = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 4e-2, "float16": 6e-3}[dtype]
        for mine, other in zip(ours, theirs, strict=True):
            want = other.grad.numpy()
            scale = max(1.0, float(np.abs(want).max(initial=0.0)))
            got = gradients[mine].as_type("float64").numpy()
            np.testing.assert_allclose(got, want, rtol=0, atol=limit * scale)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("length", [49, 70])
def test_masks_of_windows_repeat_along_the_batch(
    torch: ModuleType, dtype: str, length: int
) -> None:
    """As torchvision's Swin has it: the scores of all images get the masks of their windows."""
    rng = np.random.default_rng(18)
    images, windows, heads = 3, 4, 2
    lengths = (length, length)
    arrays = _rounded(_inputs(rng, (images * windows, heads, heads), lengths, (8, 5)), dtype)
    bias = rng.standard_normal((windows, heads, *lengths)).astype(np.float32).astype(np.float64)
    bias[1, :, 3] = -np.inf  # queries without keys
    ours = [_tensor(arrays[name], dtype) for name in "qkv"]
    ours.append(_tensor(bias, "float64" if dtype == "float64" else "float32"))
    y = autograd.scaled_dot_product_attention(*ours)
    gradients = autograd.gradients(y, _tensor(arrays["dy"], dtype, trained=False))
    theirs = [torch.tensor(arrays[name], requires_grad=True) for name in "qkv"]
    theirs.append(torch.tensor(bias, requires_grad=True))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wanted = torch.nn.functional.scaled_dot_product_attention(
            *theirs[:3], theirs[3].repeat(images, 1, 1, 1)
        )
        wanted.backward(torch.tensor(arrays["dy"]))
    limit = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 4e-2}[dtype]
    pairs = [
        (y, wanted.detach()),
        *((gradients[a], b.grad) for a, b in zip(ours, theirs, strict=True)),
    ]
    for mine, other in pairs:
        want = other.numpy()
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        np.testing.assert_allclose(
            mine.as_type("float64").numpy(), want, rtol=0, atol=limit * scale
        )


def test_a_bias_alone_gets_its_gradient() -> None:
    """The same as with all gradients, and no others are computed."""
    arrays = _inputs(np.random.default_rng(13), (2, 3, 3), (9, 70), (4, 4))
    bias = np.random.default_rng(14).standard_normal((3, 9, 70))
    found = []
    for trained in (True, False):
        q, k, v = (_tensor(arrays[name], "float32", trained) for name in "qkv")
        added = _tensor(bias, "float32")
        y = autograd.scaled_dot_product_attention(q, k, v, added)
        gradients = autograd.gradients(y, _tensor(arrays["dy"], "float32", trained=False))
        assert len(gradients) == (4 if trained else 1)
        found.append(gradients[added].numpy())
    np.testing.assert_array_equal(*found)


def test_gradients_of_a_bias_under_dropout_are_slopes() -> None:
    arrays = _inputs(np.random.default_rng(15), (2, 2, 1), (5, 9), (6, 3))
    bias = np.random.default_rng(16).standard_normal((2, 1, 5, 9))

    def attend(*operands: tensor.Tensor) -> tensor.Tensor:
        operands[0].device.SetRandSeed(9)
        return autograd.scaled_dot_product_attention(*operands, dropout_p=0.4, enable_gqa=True)

    assert autograd.gradcheck(attend, [_tensor(a) for a in (*(arrays[n] for n in "qkv"), bias)])


@pytest.mark.cpu("takes long on the emulated GPU")
def test_memory_of_a_shared_bias_is_not_that_of_all_images() -> None:
    """64 heads of 512 x 512 scores share a bias: their sums take a part of the scores' memory."""
    rng = np.random.default_rng(17)
    arrays = _inputs(rng, (16, 4, 4), (512, 512), (8, 8))
    q, k, v = (_tensor(arrays[name], "float32") for name in "qkv")
    bias = _tensor(rng.standard_normal((512, 512)), "float32")
    dy = _tensor(arrays["dy"], "float32", trained=False)
    before = singa.device_memory()["live"]
    q.device.ResetPeak()
    y = autograd.scaled_dot_product_attention(q, k, v, bias)
    autograd.gradients(y, dy)
    peak = singa.device_memory()["peak"] - before
    assert peak < 64 * 512 * 512 * 4 // 3


def test_explain_names_the_kernel() -> None:
    q = _tensor(np.zeros((1, 1, 4, 8)), "float32")
    entry = singa.explain(autograd.scaled_dot_product_attention, q, q, q)[0]
    assert entry["op"] == "AttentionForward"
    assert entry["implementation"] in ("cpu", "cuda")
    wide = singa.explain(
        autograd.scaled_dot_product_attention, *[q.as_type("float64") for _ in range(3)]
    )[-1]
    assert wide["implementation"] in ("reference", "cuda")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale": math.inf}, ValueError, "scale must be finite"),
        ({"scale": math.nan}, ValueError, "scale is NaN"),
        ({"dropout_p": 1.0}, ValueError, r"dropout_p must lie in \[0, 1\)"),
        ({"first_query": 0.5}, ValueError, "first_query must be a whole number"),
        ({"attn_mask": tensor.Tensor((3, 9))}, ValueError, "AttentionForward"),
        (
            {"attn_mask": tensor.Tensor((3, 4), dtype=tensor.int32)},
            TypeError,
            "mask must be bool or of a float type",
        ),
        ({"enable_gqa": False}, ValueError, "enable_gqa=True"),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    q, k = tensor.Tensor((1, 4, 3, 8)), tensor.Tensor((1, 2, 4, 8))
    with pytest.raises(error, match=message):
        autograd.scaled_dot_product_attention(q, k, k, **{"enable_gqa": True, **options})
