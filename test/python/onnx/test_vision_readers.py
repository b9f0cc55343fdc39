"""Readers of regions, unpooling, folding and Fourier transforms, beside onnx's reference and NumPy,
with gradients beside finite differences."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from singa import autograd, tensor

Array = np.ndarray[Any, Any]


def _model(op: str, arrays: list[Array], rank: int, opset: int, **attributes: Any) -> Any:
    names = "abcdef"[: len(arrays)]
    ends = [info(n, [None] * a.ndim, str(a.dtype)) for n, a in zip(names, arrays, strict=True)]
    kind = "int64" if op == "NonMaxSuppression" else str(arrays[0].dtype)
    nodes = [node(op, " ".join(names), "y", "it", **attributes)]
    return network(nodes, ends, [info("y", [None] * rank, kind)], opset=opset)


def _tensors(arrays: list[Array]) -> list[Any]:
    return [tensor.from_numpy(a, dtype=str(a.dtype)) for a in arrays]


def _run(op: str, arrays: list[Array], rank: int = 4, opset: int = 22, **attributes: Any) -> Array:
    net = singa.onnx.load(_model(op, arrays, rank, opset, **attributes))
    found: Array = net(*_tensors(arrays)).numpy()
    return found


def _reference(
    op: str, arrays: list[Array], rank: int = 4, opset: int = 22, **attributes: Any
) -> Any:
    from onnx.reference import ReferenceEvaluator

    model = _model(op, arrays, rank, opset, **attributes)
    feeds = dict(zip("abcdef", arrays, strict=False))
    return ReferenceEvaluator(model).run(None, feeds)[0]


def _has_gradient(
    op: str, arrays: list[Array], rank: int = 4, opset: int = 22, **attributes: Any
) -> bool:
    """Whether the gradient of the first input is that of finite differences."""
    net = singa.onnx.load(_model(op, arrays, rank, opset, **attributes))
    x, *others = _tensors(arrays)
    return bool(autograd.gradcheck(lambda t: net.forward(t, *others), x))


_BOXES = np.array([[0, 0, 3, 3], [-2, 1.5, 9, 8], [2, 2, 1, 1], [20, 20, 30, 30], [-1, 0, 9, 2]])


@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("positions", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions(mode: str, positions: str, samples: int) -> None:
    """Boxes inside, partly and wholly outside, and with corners in the wrong order."""
    x = np.random.default_rng(1).standard_normal((2, 3, 6, 7))
    arrays = [x, _BOXES, np.array([0, 1, 1, 0, 0])]
    named = {
        "mode": mode,
        "coordinate_transformation_mode": positions,
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": samples,
        "spatial_scale": 0.8,
    }
    for opset in (16, 22):
        found, wanted = (f("RoiAlign", arrays, opset=opset, **named) for f in (_run, _reference))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    small = [x[:, :1, :4, :3].copy(), *arrays[1:]]
    assert _has_gradient("RoiAlign", small, **named)


def test_regions_of_old_opsets_and_wrong_ones() -> None:
    """Version 10 does not shift by half a pixel. No boxes, and images that do not exist."""
    x, boxes = np.arange(16.0).reshape(1, 1, 4, 4), np.array([[0.0, 0, 2, 2]])
    images = np.array([0])
    shift = {"sampling_ratio": 1, "output_height": 1, "output_width": 1}
    assert _run("RoiAlign", [x, boxes, images], opset=10, **shift).item() == 5.0
    assert _run("RoiAlign", [x, boxes, images], opset=16, **shift).item() == 2.5
    assert _run("RoiAlign", [x, boxes[:0], images[:0]]).shape == (0, 1, 1, 1)
    for wrong in (-1, 1):
        with pytest.raises(IndexError, match=r"\[RoiAlign\] node 'it': X \(1, 1, 4, 4\), rois"):
            _run("RoiAlign", [x, boxes, np.array([wrong])])
    with pytest.raises(ValueError, match=r"\[RoiAlign\] node 'it'.*batch_indices \(2,\)"):
        _run("RoiAlign", [x, boxes, np.array([0, 0])])
    with pytest.raises(ValueError, match="not finite"):
        _run("RoiAlign", [x, np.full((1, 4), np.inf), images])


@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_that_overlap(centred: int) -> None:
    """Against onnx's reference, then equal scores, no boxes, no room, and wrong shapes."""
    random = np.random.default_rng(2)
    boxes = random.uniform(0.1, 1, (2, 9, 4)).astype(np.float32)
    scores = random.uniform(0, 1, (2, 3, 9)).astype(np.float32)
    limits = [np.array([4]), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    arrays, named = [boxes, scores, *limits], {"center_point_box": centred}
    found, wanted = (f("NonMaxSuppression", arrays, 2, 11, **named) for f in (_run, _reference))
    np.testing.assert_array_equal(found, wanted)
    same = [np.repeat(boxes[:1, :1], 3, 1), np.full((1, 1, 3), 0.5, np.float32), *limits]
    np.testing.assert_array_equal(_run("NonMaxSuppression", same, 2, **named), [[0, 0, 0]])
    none = [boxes[:, :0], scores[..., :0], *limits]
    assert _run("NonMaxSuppression", none, 2, **named).shape == (0, 3)
    assert _run("NonMaxSuppression", arrays[:2], 2, **named).shape == (0, 3)  # none are asked for
    with pytest.raises(ValueError, match=r"\[NonMaxSuppression\] node 'it': boxes \(2, 8, 4\)"):
        _run("NonMaxSuppression", [boxes[:, :8].copy(), *arrays[1:]], 2, **named)
    limits[1] = np.array([1.5], np.float32)
    with pytest.raises(ValueError, match=r"iou_threshold 1\.5"):
        _run("NonMaxSuppression", [boxes, scores, *limits], 2, **named)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_unpooling(axes: int) -> None:
    """The size of kernel, strides and pads, a larger one, repeated indices, and wrong ones."""
    random = np.random.default_rng(3)
    x = random.standard_normal((2, 3, *(2, 3, 2)[:axes]))
    named = {"kernel_shape": [2] * axes, "strides": [2] * axes}
    shape = (2, 3, *(4, 6, 4)[:axes])
    indices = random.permutation(int(np.prod(shape)))[: x.size].reshape(x.shape)
    larger = np.array([2, 3, *(5, 6, 7)[:axes]])
    for arrays in ([x, indices], [x, indices, larger]):
        found, wanted = (f("MaxUnpool", arrays, axes + 2, **named) for f in (_run, _reference))
        np.testing.assert_array_equal(found, wanted)
        assert _has_gradient("MaxUnpool", arrays, axes + 2, **named)
    found = _run("MaxUnpool", [x, indices * 0 + 7], axes + 2, **named)
    assert found.reshape(-1)[7] == x.reshape(-1)[-1]
    assert np.count_nonzero(found) == 1
    assert _has_gradient("MaxUnpool", [x, indices * 0 + 7], axes + 2, **named)
    assert _run("MaxUnpool", [x[:0], indices[:0]], axes + 2, **named).shape == (0, *shape[1:])
    for wrong in (-1, int(np.prod(shape))):
        with pytest.raises(IndexError, match=r"\[MaxUnpool\] node 'it': X \(2, 3.*indices from"):
            _run("MaxUnpool", [x, np.full_like(indices, wrong)], axes + 2, **named)
    with pytest.raises(ValueError, match="output_shape"):
        _run("MaxUnpool", [x, indices, np.array([2, 3, 1, 1, 1][: axes + 2])], axes + 2, **named)


@pytest.mark.parametrize("case", ["plain", "all", "one axis", "three axes"])
def test_folding(case: str) -> None:
    """Blocks that overlap, padding, dilations, and blocks that do not fit."""
    image, block, named = {
        "plain": ([5, 6], [3, 2], {}),
        "all": ([5, 6], [3, 2], {"strides": [1, 2], "pads": [1, 1, 0, 1], "dilations": [1, 2]}),
        "one axis": ([7], [3], {"strides": [2]}),
        "three axes": ([3, 4, 2], [2, 1, 2], {"pads": [1, 0, 0, 0, 1, 0]}),
    }[case]
    count = {"plain": 15, "all": 12, "one axis": 3, "three axes": 3 * 5 * 1}[case]
    x = np.random.default_rng(4).standard_normal((2, 2 * int(np.prod(block)), count))
    arrays, rank = [x, np.array(image), np.array(block)], len(image) + 2
    found, wanted = (f("Col2Im", arrays, rank, 18, **named) for f in (_run, _reference))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert _has_gradient("Col2Im", arrays, rank, 18, **named)
    assert _run("Col2Im", [x[:0], *arrays[1:]], rank, 18, **named).shape == (0, 2, *image)
    with pytest.raises(ValueError, match=r"\[Col2Im\] node 'it': input \(2, .*block_shape"):
        _run("Col2Im", [x[..., :-1].copy(), *arrays[1:]], rank, 18, **named)


@pytest.mark.parametrize("length", [1, 4, 5, 8, 9])
def test_fourier_transforms(length: int) -> None:
    """Forward, inverse and one-sided along a middle axis, cut and padded, beside NumPy."""
    x = np.random.default_rng(5).standard_normal((2, 5, 3, 2))
    real, z = x[..., :1].copy(), x[..., 0] + 1j * x[..., 1]
    size = np.array(length)
    for name, given, wanted in (
        ("forward", x, np.fft.fft(z, length, 1)),
        ("forward", real, np.fft.fft(real[..., 0], length, 1)),
        ("inverse", x, np.fft.ifft(z, length, 1)),
        ("half", real, np.fft.rfft(real[..., 0], length, 1)),
        ("half inverse", x, np.fft.irfft(z, length, 1)),
    ):
        named = {"inverse": int("inverse" in name), "onesided": int("half" in name)}
        old = _run("DFT", [given, size], opset=17, axis=1, **named)
        np.testing.assert_array_equal(
            _run("DFT", [given, size, np.array(-3)], opset=20, **named), old
        )
        parts = [wanted] if name == "half inverse" else [wanted.real, wanted.imag]
        np.testing.assert_allclose(old, np.stack(parts, -1), atol=1e-13)
        assert _has_gradient("DFT", [given, size], opset=17, axis=1, **named)


def test_fourier_transforms_that_do_not_exist() -> None:
    """The axis of the parts, no elements, and one side of complex numbers."""
    x = np.ones((2, 3, 2))
    length = np.array(3)
    for wrong, named in (
        ([x, length, np.array(2)], {}),
        ([x, np.array(0)], {}),
        ([x[:, :0], np.array(3)], {}),
        ([np.ones((2, 3, 3)), length], {}),
        ([x, length], {"onesided": 1}),
    ):
        with pytest.raises(ValueError, match=r"\[DFT\] node 'it': input \(2, "):
            _run("DFT", wrong, 3, 20, **named)
    assert _run("DFT", [x[:0], length], 3, 20).shape == (0, 3, 2)


def test_norms_of_windows_of_zeros() -> None:
    """The gradient of a norm is 0 at 0, also in the padding, and x / norm elsewhere."""
    x = np.zeros((1, 1, 1, 4), np.float64)
    x[..., 2:] = [[3.0, 4.0]]
    attributes = {"kernel_shape": [1, 2], "strides": [1, 2], "pads": [0, 2, 0, 0]}
    net = singa.onnx.load(_model("LpPool", [x], 4, 22, **attributes))
    (t,) = _tensors([x])
    t.stores_grad = True
    autograd.training = True
    y = net.forward(t)
    gradient = autograd.gradients(autograd.reduce_sum(y))[t]
    autograd.training = False
    np.testing.assert_array_equal(y.numpy(), [[[[0, 0, 5]]]])
    np.testing.assert_allclose(gradient.numpy(), [[[[0, 0, 0.6, 0.8]]]], rtol=1e-12)
