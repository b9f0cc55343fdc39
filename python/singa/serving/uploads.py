"""The pictures in the body of a request."""

from __future__ import annotations

import email
import email.policy


class UploadError(ValueError):
    """A form that has no file, or is damaged."""


def pictures_in(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """(name of the file, its bytes) of each picture: the files of a form, as `curl -F
    image=@cat.jpg` and browsers send them, or else the body itself, whose name is "".

    Raises UploadError for a form without a file, and for a damaged one.
    """
    if not content_type.lower().startswith("multipart/"):
        return [("", body)]
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    found = []
    try:
        form = email.message_from_bytes(head + body, policy=email.policy.HTTP)
        for part in form.iter_parts() if form.is_multipart() else ():
            name, content = part.get_filename(), part.get_payload(decode=True)
            if name is not None and isinstance(content, bytes):
                found.append((name, content))
    except Exception as error:  # the package raises anything for damaged headers
        raise UploadError(f"the form is damaged: {error}") from error
    if not found:
        raise UploadError("the form has no file: send one with curl -F image=@picture.jpg")
    return found
