"""Errors about files that are something else."""

import pytest
import singa
from singa.files.beginnings import recognised

KINDS = [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "a pointer of Git LFS"),
    (b"PK\x03\x04" + b"x" * 99, "a zip, as torch.save"),
    (b"\x80\x02}q\x00.", "a pickle"),
    (b"\x89HDF\r\n\x1a\n" + b"x" * 99, "HDF5"),
    (b"\n <!DOCTYPE html><title>404</title>", "a web page"),
    (b"<html>404</html>", "a web page"),
    (b"", "empty"),
    (b"\0" * 999, "has only zeros"),
]


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
@pytest.mark.parametrize(("content", "what"), KINDS, ids=[what for _, what in KINDS])
def test_they_are_named(tmp_path, content, what, suffix):
    if suffix == "onnx":
        pytest.importorskip("onnx")
    file = tmp_path / f"net.{suffix}"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"net\.{suffix}: .*; it (is )?{what}"):
        singa.load(file)


def test_an_onnx_file_with_another_name():
    assert recognised(b"\x08\x0a\x12\x05singa") == (
        "; it is perhaps ONNX, whose names must end in .onnx"
    )


def test_others_are_not_guessed():
    assert recognised(b"\x88\x01\0\0\0\0\0\0" + b'{"a":') == ""
    assert recognised(b"hello world") == ""
