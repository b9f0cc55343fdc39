"""Augmentation, compared with np.pad, slices and float64."""

import numpy as np
import pytest
from singa.data.transforms import (
    Compose,
    Cutout,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    standard_augmentation,
    to_float,
)

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def rng(seed=0):
    return np.random.default_rng(seed)


def batch(count=64, shape=(3, 8, 6), dtype=np.uint8):
    return rng(99).integers(1, 256, (count, *shape)).astype(dtype)


@pytest.mark.filterwarnings("ignore:.RandomCrop. pads")
@pytest.mark.parametrize("padding", [0, 1, 2, 4, 11])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_crop_is_a_window_of_the_padded_image(padding, dtype):
    images = batch(dtype=dtype)
    out = RandomCrop(padding)(images, rng())
    assert out.dtype == dtype
    padded = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    seen = set()
    for image, source in zip(out, padded, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(source, image.shape)[0]
        where = np.argwhere((windows == image).all((2, 3, 4)))
        assert len(where) >= 1
        seen.add(tuple(where[0]))
    assert len(seen) >= min((2 * padding + 1) ** 2 // 2, 15), "the places hardly vary"


def test_crops_as_torchvision_writes_them():
    assert RandomCrop(32, padding=4) == RandomCrop(padding=4, size=32)
    with pytest.raises(ValueError, match=r"write RandomCrop\(padding=4, size=32\) for torchvision"):
        RandomCrop(32, 4)
    with pytest.warns(
        UserWarning, match=r"shape \(8, 6\) by 12: write RandomCrop\(padding=0, size=12"
    ):
        RandomCrop(12)(batch(), rng())
    assert RandomCrop(2)(batch(), rng()).shape == batch().shape
    steps = [RandomCrop(2), RandomHorizontalFlip()]
    assert repr(Compose(steps)) == repr(Compose(*steps))


def test_crop_reaches_every_offset():
    image = np.arange(1, 82, dtype=np.uint8).reshape(1, 1, 9, 9)
    out = RandomCrop(1)(np.repeat(image, 300, 0), rng())
    assert {crop[0, 4, 4] for crop in out} == {31, 32, 33, 40, 41, 42, 49, 50, 51}


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_flip(p):
    images = batch(2000)
    out = RandomHorizontalFlip(p)(images, rng())
    flipped = (out == images[..., ::-1]).all((1, 2, 3))
    kept = (out == images).all((1, 2, 3))
    assert (flipped | kept).all()
    assert abs(flipped.sum() - 2000 * p) <= 4 * np.sqrt(2000 * p * (1 - p))


def test_normalize_equals_the_formula_in_float64():
    images = batch()
    out = Normalize(MEAN, STD)(images, rng())
    mean, std = np.array(MEAN)[:, None, None], np.array(STD)[:, None, None]
    assert out.dtype == np.float32
    # Two roundings of terms not larger than 1/std and mean/std.
    bound = 4 * np.finfo(np.float32).eps * (1 / std + mean / std)
    assert (abs(out - (images / 255.0 - mean) / std) <= bound).all()
    scaled = (images / 255.0).astype(np.float32)
    assert (abs(Normalize(MEAN, STD)(scaled) - (scaled - mean) / std) <= bound).all()


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_cutout_clears_one_square_centred_in_each_image(size):
    images = batch(200, (3, 12, 10)).astype(np.float32)
    out = Cutout(size, fill=-1.0)(images, rng())
    centres = set()
    for image, source in zip(out, images, strict=True):
        rows, columns = np.nonzero((image == -1).all(0))
        assert len(rows) > 0
        top, bottom, left, right = rows.min(), rows.max(), columns.min(), columns.max()
        expected = source.copy()
        expected[:, top : bottom + 1, left : right + 1] = -1
        np.testing.assert_array_equal(image, expected)
        assert bottom - top + 1 <= size
        assert right - left + 1 <= size
        if top > 0 and bottom < 11 and left > 0 and right < 9:
            assert (bottom - top, right - left) == (size - 1, size - 1)
        centres.add((top, left))
    assert len(centres) > 20 or size == 40


ALL = [
    RandomCrop(2),
    RandomHorizontalFlip(),
    Normalize(MEAN, STD),
    Cutout(3),
    standard_augmentation(MEAN, STD, cutout=4),
]


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_pure_and_driven_by_the_generator_alone(transform):
    images = batch()
    before = images.copy()
    images.flags.writeable = False
    first = transform(images, rng(5))
    np.testing.assert_array_equal(first, transform(images, rng(5)))
    np.testing.assert_array_equal(images, before)
    if not isinstance(transform, Normalize):
        assert (first != transform(images, rng(6))).any()
    assert len(transform(images[:0], rng())) == 0


def test_compose_passes_one_generator_through():
    images, generator = batch(), rng(3)
    expected = Normalize(MEAN, STD)(
        RandomHorizontalFlip(0.3)(RandomCrop(2)(images, generator), generator), generator
    )
    both = standard_augmentation(MEAN, STD, padding=2, flip=0.3)
    np.testing.assert_array_equal(both(images, rng(3)), expected)
    assert repr(both) == (
        "Compose(RandomCrop(padding=2, size=None, mask_fill=0), RandomHorizontalFlip(p=0.3), "
        "Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3)))"
    )


def test_to_float():
    images = batch()
    np.testing.assert_allclose(to_float(images), images / 255.0, rtol=2e-7)
    assert to_float(images.astype(np.float64)).dtype == np.float32


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandomCrop(-1), ValueError, "padding must not be negative, got -1"),
        (lambda: RandomHorizontalFlip(1.5), ValueError, "must lie in .0, 1., got 1.5"),
        (lambda: Normalize((0.5,), (0.1, 0.2)), ValueError, "one mean and std per channel"),
        (lambda: Normalize((), ()), ValueError, "one mean and std per channel"),
        (lambda: Normalize((0.5,), (0.0,)), ValueError, "std positive"),
        (lambda: Normalize((np.nan,), (1.0,)), ValueError, "finite"),
        (lambda: Cutout(0), ValueError, "size must be at least 1"),
        (lambda: Compose(3), TypeError, "3 cannot be called"),
        (lambda: RandomCrop()(batch()[0], rng()), ValueError, r"\(N, C, H, W\), got shape"),
        (lambda: Normalize((0.5,), (0.5,))(batch(), rng()), ValueError, r"1 channels, got images"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
