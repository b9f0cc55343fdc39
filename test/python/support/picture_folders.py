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
