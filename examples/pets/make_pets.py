#!/usr/bin/env python3
"""Draws a folder of pictures as people have them: many sizes and formats, and files that are odd.

python make_pets.py pets           pets/cat/000.png, pets/dog/001.jpg, ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

Box = tuple[float, float, float, float]


def cat(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, ...]) -> None:
    """A round head with pointed ears."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    draw.ellipse((left, top + 0.25 * height, right, bottom), colour)
    for side in (left + 0.05 * width, right - 0.45 * width):
        ear = ((side, top + 0.5 * height), (side + 0.2 * width, top))
        draw.polygon((*ear, (side + 0.4 * width, top + 0.5 * height)), colour)


def dog(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, ...]) -> None:
    """A tall head with hanging ears."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    draw.ellipse((left + 0.2 * width, top, right - 0.2 * width, bottom), colour)
    darker = tuple(channel // 3 for channel in colour)
    for side in (left, right - 0.28 * width):
        draw.ellipse((side, top + 0.1 * height, side + 0.28 * width, top + 0.8 * height), darker)


def fish(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, ...]) -> None:
    """A long body with a tail."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    draw.ellipse((left, top + 0.25 * height, right - 0.25 * width, bottom - 0.25 * height), colour)
    middle = (top + bottom) / 2
    tail = ((right, top + 0.2 * height), (right, bottom - 0.2 * height))
    draw.polygon(((right - 0.4 * width, middle), *tail), colour)


PETS: dict[str, Callable[[ImageDraw.ImageDraw, Box, tuple[int, ...]], None]] = {
    "cat": cat,
    "dog": dog,
    "fish": fish,
}


def picture(name: str, rng: np.random.Generator) -> Image.Image:
    """A pet of random size, place and colour on uneven ground."""
    width, height = (int(side) for side in rng.integers(48, 120, 2))
    ground = Image.fromarray(rng.integers(120, 256, (4, 4, 3)).astype(np.uint8))
    image = ground.resize((width, height), Image.Resampling.BICUBIC)
    size = rng.uniform(0.6, 0.85) * min(width, height)
    left, top = rng.uniform(0, width - size), rng.uniform(0, height - size)
    colour = tuple(int(channel) for channel in rng.integers(0, 110, 3))
    PETS[name](ImageDraw.Draw(image), (left, top, left + size, top + size), colour)
    return image


def save(image: Image.Image, stem: Path, kind: int) -> None:
    """Saves a picture as one of ten kinds of files."""
    if kind == 0:
        image.convert("P", palette=Image.Palette.ADAPTIVE).save(f"{stem}.gif")
    elif kind == 1:
        image.convert("L").save(f"{stem}.png")
    elif kind == 2:
        levels = np.asarray(image.convert("L")).astype(np.uint16) * 257
        Image.fromarray(levels).save(f"{stem}.tif")  # 16 bits
    elif kind == 3:
        image.putalpha(255)
        image.save(f"{stem}.png")
    elif kind == 4:
        image.convert("CMYK").save(f"{stem}.jpg")
    elif kind == 5:  # as a camera that lay on its side stores it
        exif = Image.Exif()
        exif[0x112] = 6
        image.transpose(Image.Transpose.ROTATE_90).save(f"{stem}.jpeg", exif=exif)
    elif kind == 6:
        image.convert("P").save(f"{stem}.PNG")
    else:
        image.save(f"{stem}.jpg", quality=90)


def make(folder: Path, count: int, seed: int) -> None:
    """Draws `count` pictures of each pet, and adds files that are broken or no pictures."""
    rng = np.random.default_rng(seed)
    for name in PETS:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            save(picture(name, rng), folder / name / f"{number:03}", number % 10)
    picture("cat", rng).save(folder / "cat" / "cut off.jpg")
    whole = (folder / "cat" / "cut off.jpg").read_bytes()
    (folder / "cat" / "cut off.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "empty.png").write_bytes(b"")
    (folder / "dog" / "page.jpg").write_text("<html>not found</html>")
    (folder / "fish" / ".DS_Store").write_bytes(b"\0")
    (folder / "fish" / "notes.txt").write_text("from the holidays")
    (folder / "readme.md").write_text("# Pets")
    picture("fish", rng).save(folder / "cover.png")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder that does not exist")
    parser.add_argument("--count", type=int, default=100, help="of each pet [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="[%(default)s]")
    args = parser.parse_args()
    if args.folder.exists():
        parser.error(f"{args.folder} exists")
    make(args.folder, args.count, args.seed)
    print(f"{len(PETS) * args.count} pictures, and odd files, in {args.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
