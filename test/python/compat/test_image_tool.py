"""image_tool, with images whose pixels encode their positions."""

import random
import re

import numpy as np
import pytest
from singa import image_tool
from singa.image_tool import ImageTool

Image = pytest.importorskip("PIL.Image")

WIDTH, HEIGHT = 9, 6


@pytest.fixture
def img():
    """Red is the column, green the row, blue is 7."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[..., 0] = np.arange(WIDTH)
    pixels[..., 1] = np.arange(HEIGHT)[:, None]
    pixels[..., 2] = 7
    return Image.fromarray(pixels)


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)


def pixels(img):
    return np.asarray(img).astype(int)


def corner(img):
    return tuple(pixels(img)[0, 0, :2])


@pytest.mark.parametrize("grayscale", [False, True])
@pytest.mark.parametrize(("dtype", "name"), [(np.uint16, "a.png"), (np.int32, "a.tiff")])
def test_load_img_keeps_the_levels_of_16_bits(tmp_path, dtype, name, grayscale):
    levels = np.arange(256, dtype=np.int64).reshape(16, 16)
    Image.fromarray((257 * levels).astype(dtype)).save(tmp_path / name)
    found = pixels(image_tool.load_img(tmp_path / name, grayscale))
    np.testing.assert_array_equal(found if grayscale else found[..., 1], levels)


def test_load_img(tmp_path, img):
    img.save(tmp_path / "a.png")
    np.testing.assert_array_equal(pixels(image_tool.load_img(tmp_path / "a.png")), pixels(img))
    img.convert("RGBA").save(tmp_path / "b.png")
    assert image_tool.load_img(str(tmp_path / "b.png")).mode == "RGB"
    grey = image_tool.load_img(tmp_path / "a.png", grayscale=True)
    assert (grey.mode, grey.size) == ("L", (WIDTH, HEIGHT))
    with pytest.raises(FileNotFoundError):
        image_tool.load_img(tmp_path / "c.png")
    (tmp_path / "d.png").write_bytes(b"no image")
    with pytest.raises(OSError, match=r"d\.png"):
        image_tool.load_img(tmp_path / "d.png")


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tiff", "webp"])
def test_a_broken_picture_is_an_error_that_names_its_file(tmp_path, suffix):
    path = tmp_path / f"broken.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    whole = path.read_bytes()
    for length in (10, 60, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(OSError, match=re.escape(str(path))):
            image_tool.load_img(path)


def test_other_errors_of_pillow_name_the_file(tmp_path, img, monkeypatch):
    img.save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 8)
    with pytest.raises(OSError, match=r"a\.png.*decompression bomb"):
        image_tool.load_img(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("position", "expected"),
    [("left_top", (0, 0)), ("left_bottom", (0, 2)), ("right_top", (5, 0)),
     ("right_bottom", (5, 2)), ("center", (2, 1))],
)  # fmt: skip
def test_crop(img, position, expected):
    part = image_tool.crop(img, (4, 4), position)
    assert part.size == (4, 4)
    assert corner(part) == expected


@pytest.mark.parametrize(
    ("position", "turned", "expected"),
    [("left", False, 0), ("center", False, 1), ("right", False, 3), ("top", True, 0),
     ("middle", True, 1), ("bottom", True, 3)],
)  # fmt: skip
def test_crop_and_resize(img, position, turned, expected):
    source = img.transpose(Image.Transpose.TRANSPOSE) if turned else img
    same = image_tool.crop_and_resize(source, (6, 6), position)
    np.testing.assert_array_equal(pixels(same)[0, 0, 0], expected)
    assert image_tool.crop_and_resize(source, (3, 5), position).size == (3, 5)


def test_resize_keeps_proportions(img):
    assert image_tool.resize(img, 12).size == (18, 12)
    assert image_tool.scale(img, 4).size == (6, 4)
    assert image_tool.resize(img.transpose(Image.Transpose.TRANSPOSE), 12).size == (12, 18)
    assert image_tool.resize(img, (5, 4)).size == (5, 4)


def test_flips_and_rotation(img):
    np.testing.assert_array_equal(pixels(image_tool.flip(img)), pixels(img)[:, ::-1])
    np.testing.assert_array_equal(pixels(image_tool.flip_down(img)), pixels(img)[::-1])
    np.testing.assert_array_equal(pixels(image_tool.rotate(img, 180)), pixels(img)[::-1, ::-1])
    assert image_tool.rotate(img, 30).size == img.size


def test_color_cast_shifts_each_channel_by_one_amount():
    grey = Image.new("RGB", (4, 4), (100, 100, 100))
    shifts = set()
    for _ in range(40):
        result = pixels(image_tool.color_cast(grey, 5)) - 100
        assert (result == result[0, 0]).all()
        shifts.update(result[0, 0])
    assert shifts == set(range(-5, 6))
    white = pixels(image_tool.color_cast(Image.new("RGB", (2, 2), (255, 0, 128)), 100))
    assert (white >= 0).all()
    assert image_tool.color_cast(Image.new("L", (2, 2), 9), 3).mode == "L"
    np.testing.assert_array_equal(pixels(image_tool.color_cast(grey, 0)), pixels(grey))


def test_enhance(img):
    np.testing.assert_array_equal(pixels(image_tool.enhance(img, 0.0)), pixels(img))
    big = img.resize((90, 60))
    assert (pixels(image_tool.enhance(big, 0.5)) != pixels(big)).any()


def test_get_list_sample():
    for _ in range(20):
        sample = image_tool.get_list_sample(range(10), 4)
        assert sample == sorted(set(sample))
    assert image_tool.get_list_sample("abc", 3) == ["a", "b", "c"]


def test_chain(tmp_path, img):
    img.save(tmp_path / "a.png")
    tool = ImageTool()
    result = tool.load(tmp_path / "a.png").resize_by_range((12, 14)).random_crop((10, 8)).flip()
    assert result is tool
    assert [image.size for image in tool.get()] == [(10, 8)]
    assert tool.num_augmentation() == 1
    tool.load(tmp_path / "a.png").crop5((4, 4), 5).flip(2)
    assert len(tool.get()) == tool.num_augmentation() == 10
    tool.load(tmp_path / "a.png")
    assert len(tool.get()) == tool.num_augmentation() == 1


def test_inplace_false_returns_the_new_images_only(img):
    tool = ImageTool().append(img).append_list([img])
    assert len(tool.flip(2, inplace=False)) == 4
    assert tool.get() == [img, img]
    assert tool.num_augmentation() == 1


def test_cases(img):
    tool = ImageTool().set([img])
    assert [x.size[1] for x in tool.resize_by_list([6, 12, 18], 3, inplace=False)] == [6, 12, 18]
    assert [x.size[1] for x in tool.scale_by_list([12], 1, inplace=False)] == [12]
    assert {tool.scale_by_range((6, 9), inplace=False)[0].size[1] for _ in range(40)} == {6, 7, 8}
    assert len(tool.rotate_by_list([0, 90, 180], 2, inplace=False)) == 2
    assert len(tool.rotate_by_range((-10, 10), inplace=False)) == 1
    corners = [corner(x) for x in tool.crop5((4, 4), 5, inplace=False)]
    assert corners == [(0, 0), (0, 2), (5, 0), (5, 2), (2, 1)]
    assert [corner(x)[0] for x in tool.crop3((6, 6), 3, inplace=False)] == [0, 1, 3]
    eight = tool.crop8((6, 6), 8, inplace=False)
    assert [corner(x)[0] for x in eight] == [0, 0, 3, 3, 1, 0, 1, 3]
    places = {corner(tool.random_crop((4, 4), inplace=False)[0]) for _ in range(400)}
    assert places == {(x, y) for x in range(6) for y in range(3)}
    assert tool.random_crop_resize((5, 4), inplace=False)[0].size == (5, 4)
    narrow = ImageTool().set([Image.new("RGB", (200, 2))])
    assert narrow.random_crop_resize((4, 4), inplace=False)[0].size == (4, 4)
    mirrored = [pixels(tool.flip(inplace=False)[0])[0, 0, 0] for _ in range(100)]
    assert set(mirrored) == {0, WIDTH - 1}
    assert [corner(x)[1] for x in tool.flip_down(2, inplace=False)] == [0, HEIGHT - 1]
    assert tool.color_cast(3, inplace=False)[0].size == img.size
    assert tool.enhance(inplace=False)[0].size == img.size


def test_the_seed_repeats(img):
    def run():
        random.seed(5)
        tool = ImageTool().set([img.resize((40, 30))])
        tool.random_crop_resize((20, 20)).flip().color_cast().enhance().rotate_by_range((-9, 9))
        return pixels(tool.get()[0])

    np.testing.assert_array_equal(run(), run())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, i: image_tool.crop(i, (10, 2), "center"), r"\[crop\] the patch 10 x 2 .* 9 x 6"),
        (lambda t, i: image_tool.crop(i, (0, 2), "center"), "patch 0 x 2"),
        (lambda t, i: image_tool.crop(i, (2, 2), "middle"), "position must be 'left_top'"),
        (lambda t, i: image_tool.crop_and_resize(i, (2, 2), "up"), "position must be 'left'"),
        (lambda t, i: image_tool.resize(i, 0), "small_size must be positive"),
        (lambda t, i: image_tool.color_cast(i, -1), "offset must not be negative"),
        (lambda t, i: t.random_crop((9, 7)), r"\[random_crop\] the patch 9 x 7"),
        (lambda t, i: t.flip(3), r"\[flip\] num_case must be from 1 to 2, got 3"),
        (lambda t, i: t.crop5((2, 2), 0), r"\[crop5\] num_case must be from 1 to 5, got 0"),
        (lambda t, i: t.resize_by_range((3, 3)), "num_case must be from 1 to 0"),
    ],
)
def test_refusals(img, call, message):
    tool = ImageTool().set([img])
    with pytest.raises(ValueError, match=message):
        call(tool, img)
    assert tool.get() == [img]


def test_without_pillow_the_error_says_what_to_install(monkeypatch, img):
    monkeypatch.setitem(__import__("sys").modules, "PIL.ImageOps", None)
    with pytest.raises(ImportError, match="needs Pillow: pip install"):
        image_tool.flip(img)


def test_resize_to_height_and_width(img):
    tool = ImageTool().set([img])
    assert [x.size for x in tool.resize_by_hw_list([(4, 8), (5, 3)], 2, inplace=False)] == [
        (8, 4),
        (3, 5),
    ]
    for _ in range(20):
        (changed,) = tool.resize_by_hw_range(((2, 10), (4, 13)), inplace=False)
        assert changed.size[1] in (2, 3)
        assert changed.size[0] in (10, 11, 12)
    assert tool.resize_by_hw_list([(4, 8)]) is tool
    assert tool.get()[0].size == (8, 4)
    with pytest.raises(ValueError, match=r"\[resize_by_hw_list\] num_case must be from 1 to 1"):
        tool.resize_by_hw_list([(4, 8)], 2)
    with pytest.raises(ValueError, match=r"\[resize_by_hw_range\] the range from \(4, 4\)"):
        tool.resize_by_hw_range(((4, 4), (4, 8)))
    assert image_tool.get_list_sample(l=[1, 2, 3], sample_size=3) == [1, 2, 3]


def test_resize_by_hw(img):
    assert image_tool.resize_by_hw(img, (4, 7)).size == (7, 4)
