"""The pictures in a request's body."""

import random

import pytest
from singa.serving.uploads import UploadError, pictures_in

FORM = "multipart/form-data; boundary=XX"


def form(*parts):
    body = b""
    for head, content in parts:
        body += b"--XX\r\nContent-Disposition: form-data; " + head.encode()
        body += b"\r\nContent-Type: image/png\r\n\r\n" + content + b"\r\n"
    return body + b"--XX--\r\n"


#: Parts of contents that a parser of texts might change.
PIECES = [b"\r", b"\n", b"\r\n", b"\0", b"--", b"\xff", b"\x85", b"\x0c", b"From a", b" "]


def test_contents_are_not_changed():
    draw = random.Random(0)
    for _ in range(300):
        first = b"".join(draw.choices(PIECES, k=draw.randrange(9)))
        second = draw.randbytes(draw.randrange(99))
        body = form(('name="a"; filename="1.png"', first), ('name="b"; filename="2.png"', second))
        assert pictures_in(FORM, body) == [("1.png", first), ("2.png", second)]


@pytest.mark.parametrize("kind", ["", "image/png", "application/x-www-form-urlencoded"])
def test_any_other_body_is_the_picture(kind):
    for content in (b"", b"--XX\r\n", b"\xff\r\n\0"):
        assert pictures_in(kind, content) == [("", content)]


def test_names_and_other_fields():
    body = form(
        ('name="text"', b"no file"),
        ('name="a"; filename="Käse (1).png"', b"x"),
        ('name="a"; filename=""', b""),
    )
    assert pictures_in(FORM, body) == [("Käse (1).png", b"x"), ("", b"")]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, form(('name="text"', b"no file"))),
        (FORM, b""),
        (FORM, b"no form"),
        (FORM, b"--XX--"),
        ("multipart/form-data", form(('name="a"; filename="1.png"', b"x"))),
        ("multipart/form-data; boundary=", b"--\r\n\r\n--"),
        ('multipart/mixed; boundary="', b"--"),
    ],
)
def test_forms_without_a_file(kind, body):
    with pytest.raises(UploadError, match="the form"):
        pictures_in(kind, body)


def test_damaged_forms_raise_nothing_else():
    draw = random.Random(0)
    whole = form(('name="a"; filename="1.png"', b"x"), ("name*=utf-8''b; filename*0=2", b"y"))
    for _ in range(500):
        kind, body = bytearray(FORM, "ascii"), bytearray(whole)
        for text in (kind, body):
            for _ in range(draw.randrange(4)):
                text[draw.randrange(len(text))] = draw.choice(b'\r\n"*;=:<>\0\xff')
        try:
            found = pictures_in("multipart/" + kind[10:].decode("latin-1"), bytes(body))
        except UploadError:
            continue
        assert all(isinstance(content, bytes) for _, content in found)
