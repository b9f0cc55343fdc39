"""What a file is that is not what it was taken for, by its first bytes."""

from __future__ import annotations

_KINDS = (
    (b"version https://git-lfs", "a pointer of Git LFS: git lfs pull fetches the file"),
    (b"PK\x03\x04", "a zip, as torch.save and .npz files are"),
    (b"\x80\x02", "a pickle, as torch.save wrote it once"),
    (b"\x89HDF\r\n\x1a\n", "HDF5, as Keras writes it"),
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"\x08", "perhaps ONNX, whose names must end in .onnx"),
)


def recognised(content: bytes) -> str:
    """What an error about the content of a file adds: "; it is a web page", or nothing."""
    start = content[:64].lstrip().lower()
    if not content.strip(b"\0"):
        return "; it is empty" if not content else "; it has only zeros"
    if content[8:9] == b"{":
        return ""  # .safetensors, of which something else is wrong
    what = next((what for begin, what in _KINDS if start.startswith(begin.lower())), "")
    return what and f"; it is {what}"
