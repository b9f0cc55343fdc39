"""The pictures in a request's body."""

import email
import email.policy
import random
import re

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
        assert pictures_in(FORM, "", body) == [("1.png", first), ("2.png", second)]


def test_forms_are_read_as_the_package_email_reads_them():
    draw = random.Random(1)
    for _ in range(300):
        boundary = "".join(draw.choices("X-'+_./:=?a", k=draw.randrange(1, 6))) + "X"
        lines = b""
        for number in range(draw.randrange(1, 4)):
            content = b"".join(
                draw.choices([*PIECES, b"\r\n--", b"--" + boundary.encode()], k=draw.randrange(9))
            )
            if re.search(rf"(\A|[\r\n])--{re.escape(boundary)}".encode(), content):
                continue  # the package takes \r for the end of a line
            head = f'Content-Disposition: form-data; name="a"; filename="{number}.png"'
            lines += f"--{boundary}{draw.choice(['', '  '])}\r\n{head}\r\n\r\n".encode()
            lines += content + b"\r\n"
        if not lines:
            continue
        body = draw.choice([b"", b"before\r\n"]) + lines + f"--{boundary}--".encode()
        body += draw.choice([b"", b"\r\n", b"\r\nafter"])
        kind = f'multipart/form-data; boundary="{boundary}"'
        whole = b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body
        form = email.message_from_bytes(whole, policy=email.policy.HTTP)
        parts = [(part.get_filename(), part.get_payload(decode=True)) for part in form.iter_parts()]
        assert pictures_in(kind, "", body) == parts


@pytest.mark.parametrize("kind", ["", "image/png", "application/x-www-form-urlencoded"])
def test_any_other_body_is_the_picture(kind):
    for content in (b"x", b"--XX\r\n", b"\xff\r\n\0"):
        assert pictures_in(kind, "", content) == [("", content)]


def test_names():
    body = form(
        ('name="a"; filename="Käse (1).png"', b"x"),
        ('name="a"; filename=""', b""),
    )
    assert pictures_in(FORM, "", body) == [("Käse (1).png", b"x"), ("", b"")]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, form(('name="text"', b"no file"))),
        (FORM, b""),
        (FORM, b"no form"),
        (FORM, b"--XX--"),
        (FORM, form(('name="a"; filename="1.png"', b"x"))[:-6]),
        (FORM, form(('name="a"; filename="1.png"', b"x")).replace(b"\r\n\r\n", b"\r\n")),
        ("multipart/form-data", form(('name="a"; filename="1.png"', b"x"))),
        ("multipart/form-data; boundary=", b"--\r\n\r\n--"),
        ('multipart/mixed; boundary="', b"--"),
    ],
)
def test_forms_without_a_file(kind, body):
    with pytest.raises(UploadError, match="the form" if body else "the body is empty"):
        pictures_in(kind, "", body)


def test_fields_that_would_have_no_effect():
    body = form(('name="a"; filename="1.png"', b"x"), ('name="top"', b"1"))
    with pytest.raises(UploadError, match=r"no file: top; options are in the address, as .*top=1"):
        pictures_in(FORM, "", body)


@pytest.mark.parametrize(
    ("kind", "encoding", "message"),
    [
        ("application/json", "", "application/json is not read: send the picture's bytes"),
        ("Text/Plain; charset=utf-8", "", "a body of Text/Plain; charset=utf-8 is not read"),
        ("image/png", "gzip", "a body with Content-Encoding: gzip is not read"),
        (FORM, "BR", "a body with Content-Encoding: BR is not read"),
    ],
)
def test_other_kinds_of_content(kind, encoding, message):
    with pytest.raises(UploadError, match=message) as raised:
        pictures_in(kind, encoding, b"x")
    assert raised.value.status == 415


def test_damaged_forms_raise_nothing_else():
    draw = random.Random(0)
    whole = form(('name="a"; filename="1.png"', b"x"), ("name*=utf-8''b; filename*0=2", b"y"))
    for _ in range(500):
        kind, body = bytearray(FORM, "ascii"), bytearray(whole)
        for text in (kind, body):
            for _ in range(draw.randrange(4)):
                text[draw.randrange(len(text))] = draw.choice(b'\r\n"*;=:<>\0\xff')
        try:
            found = pictures_in("multipart/" + kind[10:].decode("latin-1"), "", bytes(body))
        except UploadError:
            continue
        assert all(isinstance(content, bytes) for _, content in found)
