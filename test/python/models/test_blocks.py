"""Blocks of mobile networks and of transformers."""

import sys

import numpy as np
import pytest
import singa
import torch_pairs
from singa import layer, models, opt, tensor
from singa.models import blocks, swin
from singa.models.unet import UNet


def draw(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def parameter(array):
    return tensor.Tensor(data=array, dtype=array.dtype.name, stores_grad=True)


def test_windows_of_a_shifted_image_see_their_own_region_only():
    """Pixels of a window that were apart before the shift do not see each other."""
    rows, columns, window, shift = 2, 3, 4, 2
    mask = swin._shift_mask(rows, columns, window, shift, shift)
    number = np.arange(rows * window * columns * window).reshape(rows * window, columns * window)
    moved = np.roll(number, (-shift, -shift), (0, 1))
    windows = moved.reshape(rows, window, columns, window).transpose(0, 2, 1, 3)
    pixels = windows.reshape(rows * columns, window * window)
    y, x = np.divmod(pixels, columns * window)
    far = np.abs(y[:, :, None] - y[:, None]) >= window
    far |= np.abs(x[:, :, None] - x[:, None]) >= window
    np.testing.assert_array_equal(mask[:, 0], np.where(far, -100, 0))


def test_rates_of_stochastic_depth_rise_linearly():
    rates = blocks.depth_rates(0.3, (1, 2, 1))
    assert [len(stage) for stage in rates] == [1, 2, 1]
    np.testing.assert_allclose([r for stage in rates for r in stage], [0, 0.1, 0.2, 0.3])
    assert blocks.depth_rates(0.3, (1,)) == [[0.0]]
    net = models.create("efficientnet_b0")
    found = [each.drop_prob for each in net.sublayers() if isinstance(each, layer.DropPath)]
    np.testing.assert_allclose(found, 0.2 * np.arange(16) / 16)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_convnext_block_reorders_nothing(dtype):
    """Images and rows of features are the same memory, in both directions of a recorded step."""
    net = models.create("convnext_cifar", drop_path=0.5)
    net.set_optimizer(opt.SGD(lr=0.01))
    x = tensor.from_numpy(draw((4, 3, 32, 32), dtype=np.float32))
    y = tensor.from_numpy(np.arange(4, dtype=np.int32))
    net.compile([x], is_train=True, use_graph=True, dtype=dtype)
    for _ in range(4):
        net(x, y)
    with singa.profile() as profile:
        net(x, y)
    records = [r for r in profile.records if r.layer.startswith("features.1.1")]
    made = {(r.op, r.implementation) for r in records}
    if ("ConvForward", "depthwise") not in made:
        pytest.skip("this CPU has no depthwise kernels")
    assert not [r for r in records if r.op == "Reorder"]
    conversions = {"core"} if dtype else set()
    assert {r.implementation for r in records if r.op == "Copy"} - conversions == {
        "core, as it lies"
    }


@pytest.mark.parametrize(
    ("channels", "expected"), [(32, 32), (3, 8), (18, 24), (20, 24), (12, 16), (144 // 4, 40)]
)
def test_make_divisible(channels, expected):
    assert blocks.make_divisible(channels) == expected


def test_constants_are_kept_for_recorded_steps():
    x = tensor.Tensor((2, 3))
    made = []

    def make(length):
        made.append(length)
        return np.arange(length)

    first = blocks.constant("test", x, make, 4)
    assert blocks.constant("test", x, make, 4) is first
    assert blocks.constant("test", x, make, 5) is not first
    assert made == [4, 5]
    np.testing.assert_array_equal(first.numpy(), np.arange(4))
    for length in range(300):
        blocks.constant("test", x, make, length)
    assert len(blocks._constants) <= 256


@pytest.mark.parametrize("shape", [(2, 3, 36, 52), (1, 3, 28, 28), (1, 3, 128, 32)])
def test_swin_pads_images_of_any_size(torch, shape):
    torch_pairs.torch_network("swin_tiny", 1)  # skips the test where torchvision is not installed
    theirs = sys.modules["torchvision"].models.swin_transformer.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [7, 7], stochastic_depth_prob=0.0, num_classes=5
    )
    x = draw(shape, dtype=np.float32)
    torch_pairs.randomise(torch, theirs, torch.from_numpy(x))
    net = swin.SwinTransformer((2, 2), 16, (2, 4), 5)
    net.compile([tensor.from_numpy(x)], is_train=False)
    net.load_torch(theirs.state_dict())
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(x)).numpy()
    got = net(tensor.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


def test_a_block_with_the_shortcut_in_its_norm_is_the_sum():
    made = blocks.InvertedResidual(16, 32, 16, activation=layer.ReLU6)
    x = tensor.from_numpy(draw((2, 16, 5, 5), dtype=np.float32))
    y = made(x)
    np.testing.assert_allclose(y.numpy(), made.block(x).numpy() + x.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: models.create("vit_tiny_16").compile([tensor.Tensor((1, 3, 30, 32))]),
            "patches of 16 x 16 do not divide images",
        ),
        (lambda: UNet().compile([tensor.Tensor((1, 3, 24, 32))]), "multiples of 16"),
        (
            lambda: models.create("gpt_small").compile([tensor.Tensor((1, 300), dtype="int32")]),
            "at most 256",
        ),
        (lambda: models.create("gpt_small", heads=5), "heads must divide width"),
    ],
)
def test_wrong_inputs(make, message):
    with pytest.raises(ValueError, match=message):
        make()
