"""MaskFolder: pictures for segmentation, with a mask of classes for each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..raw.check import distinct_texts, integer
from ..raw.words import counted
from .dataset import ItemLists
from .picture_cache import PictureCache
from .picture_list import Broken, below, leave_out_broken, some
from .pictures import BrokenPictureError, read_mask, read_picture

#: The largest grey value of 8 bits.
_WHITE = 255


class MaskFolder(ItemLists):
    """Pictures and their masks in two folders, which are decoded when they are asked for.

        cells = data.MaskFolder("cells", classes=("background", "cell"))
        image, mask = cells[0]                   # uint8 (3, H, W), int32 (H, W)

    path      a folder with the two folders
    images    the folder of pictures in it (default "images")
    masks     the folder of masks (default "masks"): pictures without loss, such as PNG, of the same
              names, whatever their suffixes; a mask's name may end in "_mask". `read_mask` says
              which numbers they hold
    classes   names of the classes; or None, the default: any numbers
    ignore    a number that is no class, which is allowed besides (default 255). Where it is not
              given, masks of two classes may be black and white, 0 and 255, read as 0 and 1
    cache     "memory", or a folder that keeps decoded pictures; None (the default): none
    on_error  "raise" (the default) or "skip", as for `ImageFolder`; a mask of another size than its
              picture, or with numbers that are no classes, counts as broken

    `DataLoader` moves images and masks alike: see `transforms`. A batch is (images float32
    (n, 3, H, W), masks int32 (n, H, W)).

    Attributes: `paths` and `mask_paths`, `classes`, `broken`, `name`.

    Raises FileNotFoundError if a folder is missing, has no pictures, or a picture has no mask,
    ValueError if it has two; ImportError without Pillow. Warns of masks without a picture.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> for name, mode in (("cells/images/1.png", "RGB"), ("cells/masks/1.png", "L")):
    ...     Path(name).parent.mkdir(parents=True)
    ...     Image.new(mode, (8, 6), 1 if mode == "L" else 0).save(name)
    ...
    >>> cells = data.MaskFolder("cells", classes=("background", "cell"))
    >>> image, mask = cells[0]
    >>> image.shape, mask.shape, int(mask.max())
    ((3, 6, 8), (6, 8), 1)
    """

    has_masks = True
    _lists = ("paths", "mask_paths")

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: str = "images",
        masks: str = "masks",
        *,
        classes: Sequence[str] | None = None,
        ignore: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        on_error: str = "raise",
    ) -> None:
        root = Path(path)
        for folder in (root / images, root / masks):
            if not folder.is_dir():
                raise FileNotFoundError(f"[MaskFolder] {folder} is no folder")
        self.name = root.resolve().name
        self.classes: tuple[str, ...] | None = None
        if classes is not None:
            self.classes = distinct_texts("MaskFolder", "classes", classes)
        #: Whether 255 was given as the number that is no class.
        self._ignores_white = ignore is not None
        self.ignore = integer("MaskFolder", "ignore", _WHITE if ignore is None else ignore)
        self._cache = None if cache is None else PictureCache(cache, repr((3, None)))
        paths = below(root / images)
        found: dict[str, Path] = {}
        for mask in below(root / masks):
            name = mask.relative_to(root / masks).with_suffix("").as_posix()
            name = name.removesuffix("_mask")
            if name in found:
                raise ValueError(f"[MaskFolder] two masks of one picture: {found[name]}, {mask}")
            found[name] = mask
        stems = [each.relative_to(root / images).with_suffix("").as_posix() for each in paths]
        if missing := [str(p) for p, stem in zip(paths, stems, strict=True) if stem not in found]:
            raise FileNotFoundError(
                f"[MaskFolder] {len(missing)} of {len(paths)} pictures have no mask of the same "
                f"name in {root / masks}: {some(missing)}"
            )
        if not paths:
            raise FileNotFoundError(f"[MaskFolder] no pictures in {root / images}")
        if alone := [mask for stem, mask in found.items() if stem not in set(stems)]:
            warnings.warn(
                f"[MaskFolder] not used: {counted(len(alone), 'mask')} without a picture of the "
                f"same name in {root / images}: {some(alone)}",
                stacklevel=3,
            )
        self.paths: tuple[Path, ...] = tuple(paths)
        self.mask_paths: tuple[Path, ...] = tuple(found[stem] for stem in stems)
        self.broken: Broken
        pairs = dict(zip(self.paths, self.mask_paths, strict=True))
        kept, self.broken = leave_out_broken(
            "MaskFolder", paths, lambda path: self._read(path, pairs[path]), on_error
        )
        self._keep(kept)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """A picture, uint8 (3, H, W), and its mask, int32 (H, W).

        Raises BrokenPictureError, FileNotFoundError, or IndexError outside the set.
        """
        return self._read(self.paths[index], self.mask_paths[index])

    def __repr__(self) -> str:
        return f"<MaskFolder {self.name}: {counted(len(self), 'picture')}>"

    def _groups(self) -> NDArray[np.integer]:
        return np.zeros(len(self), np.int32)

    def _read(self, path: Path, mask_path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        if self._cache is None:
            image = read_picture(path)
        else:
            image = self._cache.get(path, lambda: read_picture(path))
        mask = read_mask(mask_path)
        if mask.shape != image.shape[1:]:
            raise BrokenPictureError(
                "MaskFolder", mask_path, f"size {mask.shape}, and {path} has {image.shape[1:]}"
            )
        if self.classes is not None:
            mask = self._as_classes(mask, mask_path)
        return image, mask

    def _as_classes(self, mask: NDArray[np.int32], path: Path) -> NDArray[np.int32]:
        """The mask with classes; one of black and white alone has classes 0 and 1."""
        assert self.classes is not None
        is_white = mask == _WHITE
        if len(self.classes) == 2 and not self._ignores_white and is_white.any():
            if (is_white | (mask == 0)).all():
                return is_white.astype(np.int32)
            reason = "has 255 (white) beside other numbers than 0: ignore=255 leaves 255 out"
            raise BrokenPictureError("MaskFolder", path, reason)
        wrong = (mask < 0) | (mask >= len(self.classes))
        wrong &= mask != self.ignore
        if wrong.any():
            raise BrokenPictureError(
                "MaskFolder",
                path,
                f"has {mask[wrong][0]}, which is none of {len(self.classes)} classes",
            )
        return mask
