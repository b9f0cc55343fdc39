"""The pictures in the body of a request."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import Message


class UploadError(ValueError):
    """A body without pictures: a form that has no file, or is damaged, or another kind of content.

    status  that of the answer
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


#: Beginnings of types of content that hold no picture.
_OTHERS = ("application/json", "application/xml", "text/")
_HOW = "send the picture's bytes, or a form: curl -F image=@picture.jpg"


def pictures_in(content_type: str, encoding: str, body: bytes) -> list[tuple[str, bytes]]:
    """(name of the file, its bytes) of each picture: the files of a form, as `curl -F
    image=@cat.jpg` and browsers send them, or else the body itself, whose name is "".

    content_type, encoding  the headers Content-Type and Content-Encoding, "" without them

    Raises UploadError for a form without a file, with other fields, and for a damaged one; for an
    empty body, a compressed one, and for texts such as JSON.
    """
    kind = content_type.lower().strip()
    if encoding.lower().strip() not in ("", "identity"):
        raise UploadError(f"a body with Content-Encoding: {encoding} is not read", 415)
    if kind.startswith(_OTHERS):
        raise UploadError(f"a body of {content_type} is not read: {_HOW}", 415)
    if not body:
        raise UploadError(f"the body is empty: {_HOW}")
    if not kind.startswith("multipart/"):
        return [("", body)]
    found: list[tuple[str, bytes]] = []
    others: list[str] = []
    for head, content in _parts(_head(b"Content-Type: " + _bytes(content_type)), body):
        name = head.get_filename()
        if name is not None:
            found.append((name, content))
        else:
            field = head.get_param("name", header="Content-Disposition")
            others.append(field if isinstance(field, str) else "without a name")
    if not found:
        raise UploadError("the form has no file: send one with curl -F image=@picture.jpg")
    if others:
        raise UploadError(
            f"the form has a field that is no file: {others[0]}; options are in the address, as "
            "/predict?top=1"
        )
    return found


def _parts(form: Message, body: bytes) -> Iterator[tuple[Message, bytes]]:
    """(headers, content) of each part of a form with this header (RFC 2046, 5.1.1). Python's
    package email would look at each line of a picture, for seconds."""
    boundary = form.get_boundary()
    if not boundary:
        raise UploadError("the form is damaged: its Content-Type has no boundary")
    line = re.compile(rb"\r\n--" + re.escape(_bytes(boundary)) + rb"(--)?[ \t]*(?=\r\n|\Z)")
    body = b"\r\n" + body  # the first line may begin the body
    begin = None
    for found in line.finditer(body):
        if begin is not None:
            # Headers may be missing: then an empty line begins the part.
            end = body.find(b"\r\n\r\n", begin, found.start() + 4)
            if end < 0:
                raise UploadError(
                    "the form is damaged: a part has no empty line behind its headers"
                )
            yield _head(body[begin + 2 : end]), body[end + 4 : found.start()]
        if found[1]:
            return
        begin = found.end()
    raise UploadError("the form is damaged: it has no end")


def _bytes(header: str) -> bytes:
    return header.encode("latin-1", "replace")


def _head(text: bytes) -> Message:
    try:
        head = email.message_from_bytes(text + b"\r\n\r\n", policy=email.policy.HTTP)
        head.get_filename(), head.get_boundary()
    except Exception as error:  # the package raises anything for damaged headers
        raise UploadError(f"the form is damaged: {error}") from error
    return head
