"""Decoding of picture files of all kinds."""

import struct
import sys
import threading
import zlib

import numpy as np
import pytest
from picture_folders import smooth
from PIL import Image
from singa import data
from singa.data import BrokenPictureError, pictures, read_mask, read_picture

PICTURE = smooth(0)


def planes(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "tif", "gif", "tga", "jp2"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_modes_become_colours(tmp_path, suffix, mode):
    picture = Image.fromarray(PICTURE).convert(mode)
    if suffix == "jp2" and mode in "P1":
        picture = picture.convert("L")
    if suffix == "gif" or (suffix == "ppm" and mode == "P"):
        picture = picture.convert("P" if suffix == "gif" else "RGB")
    picture.save(tmp_path / f"a.{suffix}")
    found = read_picture(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(found, planes(picture))
    assert found.dtype == np.uint8
    grey = read_picture(tmp_path / f"a.{suffix}", channels=1)
    np.testing.assert_array_equal(grey[0], np.asarray(picture.convert("L")))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_has_pillows_values(tmp_path, mode):
    Image.fromarray(PICTURE).convert(mode).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as picture:
        assert picture.mode == mode
        np.testing.assert_array_equal(read_picture(tmp_path / "a.jpg"), planes(picture))


@pytest.mark.parametrize(
    ("suffix", "dtype"), [("png", np.uint16), ("tif", np.uint16), ("tif", np.int32)]
)
def test_16_bits_are_scaled(tmp_path, suffix, dtype):
    levels = np.linspace(0, 65535, 24 * 32).reshape(24, 32).astype(dtype)
    Image.fromarray(levels).save(tmp_path / f"a.{suffix}")
    expected = np.round(levels / 65535.0 * 255.0)
    np.testing.assert_array_equal(
        read_picture(tmp_path / f"a.{suffix}"), np.broadcast_to(expected, (3, 24, 32))
    )


def png_16(path, levels):
    """Writes levels (H, W, channels) of 16 bits, which Pillow does not."""
    height, width, channels = levels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels)
    content = b"\x89PNG\r\n\x1a\n"
    for name, part in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ):
        content += struct.pack(">I", len(part)) + name + part
        content += struct.pack(">I", zlib.crc32(name + part))
    path.write_bytes(content)


@pytest.fixture
def no_warning_before(monkeypatch):
    monkeypatch.setattr(pictures, "_has_warned", threading.Event())


@pytest.mark.usefixtures("no_warning_before")
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("bits", "factor"), [(8, 256), (12, 16), (14, 4)])
def test_16_bits_of_which_few_are_used(tmp_path, channels, bits, factor):
    """The pixels are those of 16 bits, and one warning says that they are dark."""
    most = 2**bits - 1
    levels = np.full((4, 5, channels), most - 1 if channels == 1 else most, np.uint16)
    levels[..., channels - 1 + channels % 2 :] = 65535  # what is not transparent
    for name in ("a.png", "b.png"):
        png_16(tmp_path / name, levels)
    said = rf"a\.png: no level is above {levels[0, 0, 0]}, and white is 65535.* If {most} is white"
    with pytest.warns(UserWarning, match=f"{said}, multiply the levels by {factor} "):
        found = read_picture(tmp_path / "a.png")
    read_picture(tmp_path / "b.png")  # a warning would be an error
    dark = levels[0, 0, 0] / 65535 * 255
    assert found.max() == (round(dark) if channels == 1 else int(dark))


@pytest.mark.usefixtures("no_warning_before")
def test_32_bits_with_levels_of_8(tmp_path):
    Image.fromarray(np.full((2, 2), 255, np.int32)).save(tmp_path / "a.tif")
    with pytest.warns(UserWarning, match=r"a\.tif: no level is above 255, .* by 256 and save"):
        assert read_picture(tmp_path / "a.tif").max() == 1


@pytest.mark.usefixtures("no_warning_before")
def test_16_bits_of_which_nothing_is_said(tmp_path):
    """Light ones, black ones, and 16 bits of three colours together."""
    for value in (0, 1 << 14):
        png_16(tmp_path / "a.png", np.full((2, 2, 1), value))
        assert read_picture(tmp_path / "a.png").max() == round(value / 65535 * 255)
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 58, 0, 0, 54, 40, 1, 1, 1, 16, 0, 4, 0, 0, 0, 0)
    (tmp_path / "a.bmp").write_bytes(head + struct.pack("<HH", 1 << 10, 0))
    assert read_picture(tmp_path / "a.bmp").max() == 8


def test_32_bits_beyond_16_are_refused(tmp_path):
    Image.fromarray(np.full((2, 2), 70000, np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(BrokenPictureError, match=r"a\.tif: levels from 70000 to 70000"):
        read_picture(tmp_path / "a.tif")


def test_float_pixels_are_refused(tmp_path):
    Image.fromarray(np.ones((2, 2), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(BrokenPictureError, match="float pixels"):
        read_picture(tmp_path / "a.tif")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparent_pixels_are_blended_with_white(tmp_path, mode):
    alpha = np.arange(24 * 32).reshape(24, 32) % 256
    picture = Image.fromarray(np.dstack([PICTURE, alpha.astype(np.uint8)]))
    if mode == "LA":
        picture = picture.convert("LA")
    if mode == "PA":
        picture = picture.convert("RGB").convert("P")
        picture.info["transparency"] = int(np.bincount(np.asarray(picture).ravel()).argmax())
    picture.save(tmp_path / "a.png")
    shown = np.asarray(picture.convert("RGBA")).astype(float)
    weight = shown[..., 3:] / 255.0
    expected = shown[..., :3] * weight + 255.0 * (1.0 - weight)
    found = read_picture(tmp_path / "a.png").transpose(1, 2, 0)
    assert np.abs(found - expected).max() <= 1.0
    if mode == "PA":
        assert (weight == 0).any()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    picture = Image.fromarray(PICTURE)
    exif = picture.getexif()
    exif[0x112] = orientation
    picture.save(tmp_path / "a.png", exif=exif)
    turned = {
        1: PICTURE, 2: PICTURE[:, ::-1], 3: PICTURE[::-1, ::-1], 4: PICTURE[::-1],
        5: PICTURE.swapaxes(0, 1), 6: PICTURE.swapaxes(0, 1)[:, ::-1],
        7: PICTURE[::-1, ::-1].swapaxes(0, 1), 8: PICTURE.swapaxes(0, 1)[::-1],
    }  # fmt: skip
    found = read_picture(tmp_path / "a.png")
    np.testing.assert_array_equal(found.transpose(1, 2, 0), turned[orientation])


def test_the_first_image_of_an_animation_counts(tmp_path):
    first, second = (Image.fromarray(smooth(seed)).convert("P") for seed in (0, 1))
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    np.testing.assert_array_equal(read_picture(tmp_path / "a.gif"), planes(first))


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_shorter_side_reduces_long_ones_alone(tmp_path, suffix):
    picture = Image.fromarray(smooth(0, 400, 300))
    picture.save(tmp_path / f"a.{suffix}", **({"quality": 95} if suffix == "jpg" else {}))
    found = read_picture(tmp_path / f"a.{suffix}", shorter_side=60)
    assert found.shape == (3, 80, 60)
    expected = planes(picture.resize((60, 80), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(found - expected).mean() < 2.0
    whole = read_picture(tmp_path / f"a.{suffix}", shorter_side=300)
    assert whole.shape == (3, 400, 300)


def test_broken_files_are_named(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(smooth(0, 100, 100)).save(path)
    content = path.read_bytes()
    cases = {b"": "not a picture", b"<html>": "not a picture", content[:700]: "runcated"}
    for broken, reason in cases.items():
        path.write_bytes(broken)
        with pytest.raises(BrokenPictureError, match=r"\[read_picture\] .*a\.jpg: ") as caught:
            read_picture(path)
        assert reason in caught.value.reason
    with pytest.raises(FileNotFoundError, match=r"no\.png"):
        read_picture(tmp_path / "no.png")


def test_formats_that_are_not_read_are_said(tmp_path):
    (tmp_path / "a.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(BrokenPictureError, match=r"a\.HEIC: \.heic is not read: convert it to PNG"):
        read_picture(tmp_path / "a.HEIC")


def test_a_program_in_a_picture_is_not_run(tmp_path):
    """EPS is PostScript, for which Pillow would start Ghostscript."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(BrokenPictureError, match="not a picture"):
        read_picture(tmp_path / "a.png")


@pytest.mark.parametrize("mode", ["L", "P", "1", "I;16"])
def test_masks_keep_their_numbers(tmp_path, mode):
    classes = np.arange(24 * 32).reshape(24, 32) % (2 if mode == "1" else 7)
    if mode == "1":
        picture = Image.fromarray(classes.astype(bool))
    elif mode == "I;16":
        classes = classes * 300
        picture = Image.fromarray(classes.astype(np.uint16))
    else:
        picture = Image.fromarray(classes.astype(np.uint8))
        if mode == "P":
            picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255] * 3)
    picture.save(tmp_path / "a.png")
    found = read_mask(tmp_path / "a.png")
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, classes)


def test_a_mask_of_colours_is_refused(tmp_path):
    Image.fromarray(PICTURE).save(tmp_path / "a.png")
    with pytest.raises(BrokenPictureError, match=r"a\.png: a mask must be grey"):
        read_mask(tmp_path / "a.png")


def test_a_mask_in_jpeg_is_refused(tmp_path):
    """Its numbers are not those that were saved, at the edges of classes above all."""
    mask = np.kron(np.arange(6).reshape(2, 3), np.ones((5, 5), int)) * 40
    Image.fromarray(mask.astype(np.uint8)).save(tmp_path / "a.jpg")
    with pytest.raises(BrokenPictureError, match=r"a\.jpg: a mask must be a picture without loss"):
        read_mask(tmp_path / "a.jpg")


def test_without_pillow(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    Image.fromarray(PICTURE).save(tmp_path / "a" / "0.png")
    for name in [name for name in sys.modules if name.partition(".")[0] == "PIL"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"\[ImageFolder\] needs Pillow: pip install pillow"):
        data.ImageFolder(tmp_path)
    with pytest.raises(ImportError, match=r"\[transforms\] needs Pillow"):
        data.Resize(5)(PICTURE.transpose(2, 0, 1)[None], np.random.default_rng(0))
    crop = data.CenterCrop(9)(PICTURE.transpose(2, 0, 1)[None], np.random.default_rng(0))
    assert crop.shape == (1, 3, 9, 9)
