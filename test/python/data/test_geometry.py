"""Transforms of sizes, positions and colours, beside Pillow and torchvision."""

import itertools
import json

import numpy as np
import pytest
import torchvision_networks
from picture_folders import smooth
from PIL import Image
from singa import data
from singa.data import colour

PICTURE = smooth(0, 47, 61)
IMAGE = PICTURE.transpose(2, 0, 1)
SIZES = [(47, 61), (61, 47), (32, 32), (7, 90)]


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def vision(torch):
    return torchvision_networks.module(torch, "transforms")


def image_of(height, width):
    return np.ascontiguousarray(smooth(height, height, width).transpose(2, 0, 1))


def as_array(picture):
    array = np.asarray(picture)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [16, 80, (20, 30)])
@pytest.mark.parametrize("shape", SIZES)
def test_resize_is_torchvisions(vision, rng, shape, size, interpolation):
    image = image_of(*shape)
    mode = vision.InterpolationMode(interpolation)
    expected = vision.Resize(list(size) if isinstance(size, tuple) else size, mode)(
        Image.fromarray(image.transpose(1, 2, 0))
    )
    found = data.Resize(size, interpolation)(image[None], rng)
    np.testing.assert_array_equal(found[0], as_array(expected))


def test_resize_keeps_types(rng):
    image = IMAGE.astype(np.float32) / 255.0
    smaller = data.Resize((20, 30))(image[None], rng)
    assert smaller.dtype == np.float32
    levels = data.Resize((20, 30))(IMAGE[None], rng)
    assert np.abs(smaller * 255.0 - levels).max() < 1.5
    five = data.Resize((20, 30))(np.concatenate([IMAGE, IMAGE[:2]])[None], rng)
    np.testing.assert_array_equal(five[0, 3:], five[0, :2])
    assert five.dtype == np.uint8


@pytest.mark.parametrize("size", [10, 31, (46, 60), (70, 20), (48, 80)])
def test_center_crop_is_torchvisions(vision, rng, size):
    expected = vision.CenterCrop(size)(Image.fromarray(PICTURE))
    found = data.CenterCrop(size)(IMAGE[None], rng)
    np.testing.assert_array_equal(found[0], as_array(expected))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("angle", [-170.0, -12.5, 0.0, 33.3, 90.0])
def test_rotation_is_torchvisions(vision, rng, angle, interpolation):
    mode = vision.InterpolationMode(interpolation)
    expected = vision.functional.rotate(Image.fromarray(PICTURE), angle, mode, fill=[7, 7, 7])
    found = data.RandomRotation((angle, angle), interpolation, fill=7)(IMAGE[None], rng)
    np.testing.assert_array_equal(found[0], as_array(expected))


def test_rotations_are_drawn_from_the_range(rng):
    drawn = [data.RandomRotation(30).draw((5, 5), rng) for _ in range(200)]
    assert -30 <= min(drawn) < -25 < 25 < max(drawn) <= 30


def test_random_resized_crop_resizes_what_it_draws(vision, rng):
    crop = data.RandomResizedCrop((20, 24), interpolation="bicubic")
    for shape in SIZES:
        image = image_of(*shape)
        for seed in range(5):
            top, left, height, width = crop.draw(shape, np.random.default_rng(seed))
            found = crop(image[None], np.random.default_rng(seed))[0]
            expected = vision.functional.resized_crop(
                Image.fromarray(image.transpose(1, 2, 0)), top, left, height, width, (20, 24),
                vision.InterpolationMode.BICUBIC,
            )  # fmt: skip
            np.testing.assert_array_equal(found, as_array(expected))


def test_crops_have_the_areas_and_proportions_that_were_asked_for(rng):
    crop = data.RandomResizedCrop(8, (0.1, 0.25), (0.5, 2.0))
    parts = np.array([crop.draw((200, 300), rng) for _ in range(2000)])
    top, left, height, width = parts.T
    area, ratio = height * width / 60_000, width / height
    assert 0.097 < area.min() < 0.11 < 0.24 < area.max() < 0.253
    assert 0.49 < ratio.min() < 0.52 < 1.9 < ratio.max() < 2.03
    assert abs(np.log(ratio).mean()) < 0.05  # as likely tall as wide
    assert abs((top / (200 - height)).mean() - 0.5) < 0.03
    assert (top + height <= 200).all()
    assert (left + width <= 300).all()


def test_a_crop_that_never_fits_is_the_middle(rng):
    crop = data.RandomResizedCrop(8)
    assert crop.draw((10, 400), rng) == (0, (400 - 13) // 2, 10, 13)
    assert crop.draw((400, 10), rng) == ((400 - 13) // 2, 0, 13, 10)


def test_random_crop_to_a_size(rng):
    crop = data.RandomCrop(2, (8, 10))
    numbers = np.arange(1, 1 + 20 * 30).reshape(1, 1, 20, 30)
    corners = set()
    for _ in range(300):
        part = crop(numbers, rng)[0, 0]
        assert part.shape == (8, 10)
        row, column = np.argwhere(part)[0]
        first = int(part[row, column]) - 1
        top, left = first // 30 - row, first % 30 - column
        corners |= {top}
        padded = np.pad(numbers[0, 0], 2)
        np.testing.assert_array_equal(part, padded[top + 2 : top + 10, left + 2 : left + 12])
    assert corners == set(range(-2, 15))
    small = crop(np.ones((1, 1, 3, 4), np.uint8), rng)
    assert (small.shape, small.sum()) == ((1, 1, 8, 10), 12)


def test_vertical_flip(rng):
    images = np.stack([IMAGE] * 40)
    found = data.RandomVerticalFlip()(images, rng)
    flipped = np.array([np.array_equal(image, IMAGE[:, ::-1]) for image in found])
    assert 10 < flipped.sum() < 30
    np.testing.assert_array_equal(found[~flipped], images[~flipped])


NAMES = {
    "shear_x": "ShearX", "shear_y": "ShearY", "translate_x": "TranslateX",
    "translate_y": "TranslateY", "rotate": "Rotate", "brightness": "Brightness", "color": "Color",
    "contrast": "Contrast", "sharpness": "Sharpness", "posterize": "Posterize",
    "solarize": "Solarize", "autocontrast": "AutoContrast", "equalize": "Equalize",
    "identity": "Identity",
}  # fmt: skip
STRENGTHS = {
    "rotate": 40.0,
    "translate_x": 9.7,
    "translate_y": 9.7,
    "posterize": 3,
    "solarize": 99.6,
}


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", NAMES)
def test_changes_are_torchvisions(vision, name, sign, grey):
    strength = STRENGTHS.get(name, 0.37)
    strength *= 1 if name in ("posterize", "solarize") else sign
    picture = Image.fromarray(PICTURE).convert("L" if grey else "RGB")
    expected = vision.autoaugment._apply_op(
        picture, NAMES[name], strength, vision.InterpolationMode.NEAREST, [5] * (1 if grey else 3)
    )
    found = colour.changed(as_array(picture), name, strength, fill=5)
    np.testing.assert_array_equal(found, as_array(expected))


@pytest.mark.parametrize("shape", SIZES)
def test_strengths_are_torchvisions(vision, shape):
    ours = [data.RandAugment().magnitudes(shape), data.TrivialAugment().magnitudes(shape)]
    theirs = [
        vision.RandAugment()._augmentation_space(31, shape),
        vision.TrivialAugmentWide()._augmentation_space(31),
    ]
    for own, other in zip(ours, theirs, strict=True):
        assert {NAMES[name] for name in own} == set(other)
        for name, (first, last, has_sign) in own.items():
            expected, is_signed = other[NAMES[name]]
            assert has_sign == is_signed
            levels = first + (last - first) * np.arange(31) / 30.0
            if name == "posterize":
                levels = np.round(levels)
            np.testing.assert_allclose(levels, np.broadcast_to(expected.numpy(), 31), atol=1e-5)


def test_drawn_changes(rng):
    drawn = [data.RandAugment(3, 20).draw((40, 50), rng) for _ in range(500)]
    assert {len(changes) for changes in drawn} == {3}
    flat = [change for changes in drawn for change in changes]
    assert {name for name, _ in flat} == set(NAMES)
    rotations = {round(magnitude, 9) for name, magnitude in flat if name == "rotate"}
    assert rotations == {-20.0, 20.0}
    levels = [
        m for _ in range(2000) for n, m in data.TrivialAugment().draw((9, 9), rng) if n == "rotate"
    ]
    assert {round(abs(level) / 4.5) for level in levels} == set(range(31))


@pytest.mark.parametrize(
    ("name", "factor"),
    [("brightness", 0.6), ("brightness", 1.7), ("contrast", 1.4), ("saturation", 0.2),
     ("saturation", 1.9), ("hue", 0.21), ("hue", -0.4)],
)  # fmt: skip
def test_colour_jitter_is_torchvisions(vision, rng, name, factor):
    adjust = getattr(vision.functional, f"adjust_{name}")
    expected = adjust(Image.fromarray(PICTURE), factor)
    found = data.ColorJitter(**{name: (factor, factor)})(IMAGE[None], rng)
    np.testing.assert_array_equal(found[0], as_array(expected))


def test_colour_jitter_draws_factors_and_orders(rng):
    jitter = data.ColorJitter(0.4, (0.5, 0.8), 0.0, 0.1)
    drawn = [jitter.draw((5, 5), rng) for _ in range(400)]
    orders = {tuple(name for name, _ in changes) for changes in drawn}
    assert orders == set(itertools.permutations(("brightness", "contrast", "hue")))
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.5, 0.8), "hue": (-0.1, 0.1)}
    for name, (low, high) in ranges.items():
        values = [value for changes in drawn for kind, value in changes if kind == name]
        assert low <= min(values) < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < max(values) <= high
    assert data.ColorJitter().draw((5, 5), rng) == []


MOVES = [
    data.Resize((20, 30)), data.Resize(30), data.CenterCrop(40), data.CenterCrop(70),
    data.RandomResizedCrop(24), data.RandomCrop(4), data.RandomCrop(0, 24), data.RandomRotation(40),
    data.RandomHorizontalFlip(), data.RandomVerticalFlip(), data.RandAugment(4),
    data.TrivialAugment(),
]  # fmt: skip


@pytest.mark.parametrize("transform", MOVES, ids=repr)
def test_masks_move_with_images(transform):
    """An image whose channels are its mask: what moves as nearest neighbours stays equal to it, and
    the rest lies on the same side of a smooth edge."""
    rows, columns = np.mgrid[:50, :60]
    mask = ((rows - 20) ** 2 + (columns - 35) ** 2 < 200).astype(np.int32)
    image = np.stack([mask * 200] * 3).astype(np.uint8)
    agree, count = 0, 0
    for seed in range(20):
        images, masks = data.Compose(transform).with_masks(
            image[None], mask[None], np.random.default_rng(seed)
        )
        alone = transform(image[None], np.random.default_rng(seed))
        np.testing.assert_array_equal(images, alone)
        assert masks.shape == (1, *images.shape[2:])
        assert masks.dtype == np.int32
        assert set(np.unique(masks)) <= {0, 1}
        if not isinstance(transform, data.RandAugment | data.TrivialAugment):
            agree += int(((images[0, 0] > 100) == (masks[0] == 1)).sum())
            count += masks.size
    assert agree >= 0.99 * count


def test_a_mask_is_filled_where_the_image_is_padded(rng):
    image, mask = np.ones((1, 3, 10, 10), np.uint8), np.ones((1, 10, 10), np.int32)
    for transform in (
        data.RandomCrop(0, 12, mask_fill=255),
        data.CenterCrop(12, mask_fill=255),
        data.RandomRotation((45, 45), mask_fill=255),
    ):
        images, masks = transform.with_masks(image, mask, rng)
        np.testing.assert_array_equal(masks == 255, images[:, 0] == 0)
        assert (masks == 255).any()


def test_batches_draw_for_each_image():
    images = np.stack([IMAGE] * 6)
    for transform in (data.RandomResizedCrop(16), data.RandomRotation(60), data.TrivialAugment()):
        found = transform(images, np.random.default_rng(2))
        assert len({image.tobytes() for image in found}) > 3
        assert found.dtype == np.uint8
        assert transform(images[:0], np.random.default_rng(2)).shape == (0, *found.shape[1:])
        np.testing.assert_array_equal(images[0], IMAGE)


def test_random_erasing():
    images = np.ones((500, 2, 40, 50), np.float32)
    found = data.RandomErasing(0.6, (0.1, 0.3), (0.5, 2.0), value=7.0)(
        images, np.random.default_rng(0)
    )
    erased = (found == 7.0).all(1)
    assert ((found == 7.0).any(1) == erased).all()
    share = erased.mean((1, 2))
    assert abs((share > 0).mean() - 0.6) < 0.07
    assert 0.09 < share[share > 0].min() < 0.12
    assert 0.27 < share.max() < 0.31
    for one in erased[share > 0]:
        rows, columns = np.flatnonzero(one.any(1)), np.flatnonzero(one.any(0))
        assert one.sum() == len(rows) * len(columns)  # a full rectangle
        assert 0.45 < len(rows) / len(columns) < 2.2
    noise = data.RandomErasing(1.0, value="random")(images, np.random.default_rng(0))
    values = noise[noise != 1.0]
    assert abs(values.mean()) < 0.05
    assert abs(values.std() - 1.0) < 0.05
    assert images.min() == 1.0


def test_descriptions_of_transforms():
    transform = data.Compose(
        *MOVES, data.ColorJitter(0.2, (0.5, 1.5)), data.Normalize((0.5,) * 3, (0.2,) * 3),
        data.RandomErasing(value="random"), data.Compose(data.Cutout(3)),
    )  # fmt: skip
    described = json.loads(json.dumps(data.describe_transform(transform)))
    again = data.build_transform(described)
    assert again.transforms == (*transform.transforms[:-1], data.Cutout(3))
    with pytest.raises(TypeError, match=r"no transform of singa\.data"):
        data.describe_transform(data.Compose(data.Resize(3), lambda images, rng: images))
    for wrong in ([{"name": "system", "arguments": {}}], [{"name": "Resize"}], [5], 7,
                  [{"name": "Resize", "arguments": {"side": 3}}],
                  [{"name": "Resize", "arguments": {"size": 0}}]):  # fmt: skip
        with pytest.raises(ValueError, match=r"\[build_transform\] not a description"):
            data.build_transform(wrong)


def test_evaluation_is_torchvisions_preset(vision, torch):
    expected = vision.Compose([
        vision.Resize(37), vision.CenterCrop(32), vision.ToTensor(),
        vision.Normalize(data.IMAGENET_MEAN, data.IMAGENET_STD),
    ])(Image.fromarray(PICTURE))  # fmt: skip
    transform = data.evaluation_transform(32, data.IMAGENET_MEAN, data.IMAGENET_STD)
    np.testing.assert_allclose(
        transform(IMAGE[None], np.random.default_rng(0))[0], expected.numpy(), atol=1e-6
    )
