"""Folders of small pictures that tests write: of all kinds, and odd files between them."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"blue": (40, 60, 220), "green": (30, 200, 60), "red": (220, 40, 30)}


def smooth(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    """An uneven picture uint8 (height, width, 3), on which interpolation has something to do."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def coloured(name: str, seed: int, height: int = 20, width: int = 28) -> Image.Image:
    """A picture that is mostly of the colour `name`."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(-30, 31, (height, width, 3))
    return Image.fromarray(np.clip(noise + COLOURS[name], 0, 255).astype(np.uint8))


def write_colours(root: Path, count: int = 8, names: tuple[str, ...] = tuple(COLOURS)) -> Path:
    """A folder for each colour with `count` pictures of different sizes, PNG and JPEG."""
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture = coloured(name, number, 20 + number % 3, 28 - number % 5)
            picture.save(root / name / f"{number}.{'png' if number % 2 else 'jpg'}")
    return root


def add_odd_files(root: Path, folder: str = "red") -> list[str]:
    """Adds files that are no pictures, and broken ones, whose names it returns."""
    (root / "notes.txt").write_text("not a picture")
    (root / ".hidden").mkdir()
    coloured("red", 0).save(root / ".hidden" / "0.png")
    coloured("red", 0).save(root / "stray.png")
    (root / folder / "Thumbs.db").write_bytes(b"thumbs")
    (root / folder / "._0.jpg").write_bytes(b"resource fork")
    (root / folder / "page.jpg").write_text("<html></html>")
    (root / folder / "empty.png").write_bytes(b"")
    whole = root / folder / "cut.jpg"
    Image.fromarray(smooth(1, 200, 300)).save(whole)
    whole.write_bytes(whole.read_bytes()[:900])
    return ["cut.jpg", "empty.png", "page.jpg"]


def write_labels(root: Path, count: int = 60) -> list[set[str]]:
    """Pictures with up to three stripes of colours, and labels.csv with their names in lists, such
    as red|blue. Returns the labels of each picture."""
    root.mkdir(parents=True)
    rng, labels, lines = np.random.default_rng(1), [], ["file,labels"]
    for number in range(count):
        pixels = rng.integers(90, 130, (24, 24, 3)).astype(np.uint8)
        names = [name for bit, name in enumerate(COLOURS) if (number % 8) >> bit & 1]
        for place, name in enumerate(names):
            pixels[8 * place : 8 * place + 8] = COLOURS[name]
        Image.fromarray(pixels).save(root / f"{number}.png")
        labels.append(set(names))
        lines.append(f"{number}.png,{'|'.join(names)}")
    (root / "labels.csv").write_text("\n".join(lines))
    return labels


def write_numbers(root: Path, count: int = 60) -> np.ndarray:
    """Pictures whose red is even from 30 to 220, and labels.csv with a column temperature, 1000
    and ten times the red, and one depth, minus the green. Returns the numbers (count, 2)."""
    root.mkdir(parents=True)
    rng, numbers, lines = np.random.default_rng(2), [], ["file,temperature,depth"]
    for number in range(count):
        red, green = rng.integers(30, 221, 2).tolist()
        pixels = np.clip(rng.normal((red, green, 120), 6, (24, 24, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.png")
        numbers.append((1000 + 10 * red, -green))
        lines.append(f"{number}.png,{1000 + 10 * red},{-green}.0")
    (root / "labels.csv").write_text("\n".join(lines))
    return np.array(numbers, np.float64)
