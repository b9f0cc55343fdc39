"""HTTP in front of `Batches`, by the standard library's server."""

from __future__ import annotations

import contextlib
import io
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from ..data.pictures import BrokenPictureError, picture_size
from ..files.json_text import json_text
from ..raw.process import get_num_threads
from .batches import Batches, BusyError, PictureSizeError
from .uploads import UploadError, pictures_in

#: For how long a client that goes on sending is listened to after a refusal, in seconds. It would
#: not get the answer if the connection were closed at once.
_LINGER_S = 2.0
_JSON, _PROMETHEUS = "application/json", "text/plain; version=0.0.4; charset=utf-8"
#: The methods of each path.
_METHODS = {
    "/": ("GET", "HEAD", "POST"),
    "/predict": ("POST",),
    "/health": ("GET", "HEAD"),
    "/metrics": ("GET", "HEAD"),
}


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    body         bytes of a request's body (default 20 MiB)
    requests     requests for predictions at once; more are refused with 503 (default 64)
    connections  open connections; more are closed at once (default 256)
    timeout_s    seconds within which a request has to arrive, and then to be answered (default 30)
    pixels       of a picture; decoding takes 10 to 20 bytes for each (default 64 million)

    >>> from singa import serving
    >>> serving.Limits(body=1 << 20).requests
    64
    """

    body: int = 20 << 20
    requests: int = 64
    connections: int = 256
    timeout_s: float = 30.0
    pixels: int = 64_000_000


class _RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Arriving(io.RawIOBase):
    """What a connection receives until a point in time, `end`. A time limit of the socket would
    begin anew with each byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.end = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "singa", ""

    def setup(self) -> None:
        super().setup()
        self._arriving = _Arriving(self.connection)
        self.rfile = io.BufferedReader(self._arriving)
        self._unread = False  # whether a body has not been read
        self._started = time.monotonic()
        self.requestline = ""

    def handle_one_request(self) -> None:
        self._arriving.end = time.monotonic() + self.server.limits.timeout_s
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def parse_request(self) -> bool:
        self._started = time.monotonic()  # a connection may have been idle before
        return super().parse_request()

    def handle_expect_100(self) -> bool:
        self._unread = True
        try:
            self._length()
        except _RefusedError as error:  # before the body is sent
            self._count(error.status)
            self._refuse(error)
            return False
        return super().handle_expect_100()

    def do_GET(self) -> None:
        # What follows the head of a request is the next one only if the body has been read.
        lengths = self.headers.get_all("Content-Length", [])
        self._unread = any(each != "0" for each in lengths) or "Transfer-Encoding" in self.headers
        try:
            path = self._path()
        except _RefusedError as error:
            self._refuse(error)
            return
        if path == "/health":
            stops = self.server.stopping
            self._send(503 if stops else 200, {"status": "stopping" if stops else "ok"})
        elif path == "/metrics":
            self._write(200, self.server.metrics(), _PROMETHEUS)
        else:
            self._send(200, self.server.about())

    do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self._unread = True
        try:
            self._path()
            self._length()
            with self.server.admitted():
                status, value = self._answer()
                self._count(status)
                self._send(status, value)
        except _RefusedError as error:
            self._count(error.status)
            self._refuse(error)

    def _path(self) -> str:
        """The path, which has the request's method."""
        path = urlsplit(self.path).path
        if path not in _METHODS:
            raise _RefusedError(
                404, f"there is no {path}: POST /predict, GET /, /health or /metrics"
            )
        if self.command not in _METHODS[path]:
            what = f"{self.command} {path}: use {' or '.join(_METHODS[path])}"
            if path == "/predict":
                what += ", as curl -F image=@picture.jpg .../predict does"
            raise _RefusedError(405, what)
        return path

    def _count(self, status: int) -> None:
        self.server.batches.counters.request(status, time.monotonic() - self._started)

    def _answer(self) -> tuple[int, Any]:
        """The status and the answer. Raises _RefusedError before the body was read."""
        try:
            return 200, {"predictions": self._predictions()}
        except _RefusedError as error:
            if self._unread:
                raise
            return error.status, {"error": str(error)}

    def _predictions(self) -> list[dict[str, Any]]:
        top, threshold = self._options(parse_qs(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        end = time.monotonic() + self.server.limits.timeout_s
        name = ""
        try:
            kind = self.headers.get("Content-Type", "")
            files = pictures_in(kind, self.headers.get("Content-Encoding", ""), body)
            if len(files) > self.server.batches.most:
                most = self.server.batches.most
                raise _RefusedError(413, f"{len(files)} pictures: at most {most} at once")
            pictures = []
            for each, content in files:
                name = each or "the body"
                pictures.append(self._decoded(name, content))
            found = self.server.batches.predict(pictures, max(end - time.monotonic(), 0))
        except BrokenPictureError as error:
            hint = "; curl -d changes bytes, --data-binary and -F do not" if self._is_text() else ""
            raise _RefusedError(400, f"{name}: {error.reason}{hint}") from None
        except UploadError as error:
            raise _RefusedError(error.status, str(error)) from None
        except PictureSizeError as error:
            raise _RefusedError(400, str(error)) from None
        except BusyError as error:
            raise _RefusedError(503, str(error)) from None
        except _RefusedError:
            raise
        except Exception as error:
            self.server.say(f"{type(error).__name__}: {error}")
            why = f"the network failed with {type(error).__name__}; the log has the message"
            raise _RefusedError(500, why) from error
        classifier = self.server.batches.classifier
        names, task = classifier.class_names, classifier.task
        rows = [np.array([values[name] for name in names]) for values in found]
        return [
            {"file": each, task.key: task.rounded(task.answer(names, row, top, threshold))}
            for (each, _), row in zip(files, rows, strict=True)
        ]

    def _decoded(self, name: str, content: bytes) -> NDArray[np.uint8]:
        width, height = picture_size(content)
        if width * height > (most := self.server.limits.pixels):
            raise _RefusedError(413, f"{name} has {width} x {height} pixels: at most {most}")
        with self.server.decoding:
            return self.server.batches.classifier.read(content)

    def _is_text(self) -> bool:
        """Whether the body is said to be a form in one line, as curl and urllib do by default."""
        kind: str = self.headers.get("Content-Type", "")
        return kind.lower().startswith("application/x-www-form-urlencoded")

    def _options(self, query: dict[str, list[str]]) -> tuple[int | None, float | None]:
        """The options ?top=N and ?threshold=X that the network's task has; None by default."""
        key = self.server.batches.classifier.task.key
        known = {"classes": ["top"], "labels": ["top", "threshold"], "numbers": []}[key]
        top = threshold = None
        try:
            if query.keys() - set(known) or any(len(each) > 1 for each in query.values()):
                raise ValueError
            if "top" in query:
                asked = query["top"][-1]
                top = int(asked[:9]) if asked.isdecimal() else 0
            if "threshold" in query:
                threshold = float(query["threshold"][-1])
            if (top is not None and top < 1) or not 0 <= (threshold or 0) <= 1:
                raise ValueError
        except ValueError:
            options = {"top": "?top=N, with N of 1 or more", "threshold": "?threshold=X, 0 to 1"}
            what = " and ".join(options[each] for each in known)
            are = "options are" if len(known) > 1 else "only option is"
            raise _RefusedError(
                400, f"the {are} {what}" if known else "there are no options"
            ) from None
        return top, threshold

    def _length(self) -> int:
        """The length of the body."""
        given = self.headers.get_all("Content-Length", [])
        if len(given) != 1 or not given[0].isdecimal() or "Transfer-Encoding" in self.headers:
            raise _RefusedError(411, "expected a header Content-Length: N, and no chunks")
        most = self.server.limits.body
        if len(given[0]) > 18 or int(given[0]) > most:
            raise _RefusedError(413, f"the body has {given[0][:18]} bytes: at most {most}")
        return int(given[0])

    def _body(self) -> bytes:
        length = self._length()
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            limit = self.server.limits.timeout_s
            raise _RefusedError(408, f"the request did not arrive within {limit:g} s") from None
        if len(body) < length:
            raise _RefusedError(400, f"the body ends after {len(body)} of {length} bytes")
        self._unread = False
        return body

    def _refuse(self, error: _RefusedError) -> None:
        """Answers with an error."""
        self._send(error.status, {"error": str(error)})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._unread = True  # what follows is not known
        self._refuse(_RefusedError(code, message or self.responses[code][0]))

    def _send(self, status: int, value: Any) -> None:
        reason = value.get("error", "")
        self._write(status, json_text(value, ensure_ascii=False) + "\n", _JSON, reason)

    def _write(self, status: int, text: str, kind: str, reason: str = "") -> None:
        """Answers, and closes a connection on which a body may still arrive."""
        self._log(status, reason)  # also if the client has gone
        content = text.encode("utf-8", "replace")
        self.close_connection = self.close_connection or self._unread
        self.connection.settimeout(self.server.limits.timeout_s)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 405:
            self.send_header("Allow", ", ".join(_METHODS[urlsplit(self.path).path]))
        if status == 503:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        if self._unread:
            self._linger()

    def _log(self, status: int, reason: str) -> None:
        if status < 400 and not self.server.access_log:
            return
        took = time.monotonic() - self._started
        text = f'{self.client_address[0]} "{self.requestline}" {status} {took * 1000:.1f} ms'
        self.server.say(f"{text} {reason}".rstrip())

    def _linger(self) -> None:
        """Reads on for a while, since the client would not get the answer to a request that it is
        still sending if the connection were closed at once."""
        self._arriving.end = time.monotonic() + _LINGER_S
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(1 << 16):
                pass

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Service(ThreadingHTTPServer):
    """Answers HTTP with the classes of pictures: POST /predict, GET /health, /metrics and /. Each
    connection has a thread, which decodes its pictures; `batches` computes.

    address     (host, port); port 0 is any free one, which `server_port` tells
    batches     what computes; `stop` closes it
    limits      see `Limits` (default: its defaults)
    model       what GET / and the metrics say of the network, such as its file (default: nothing)
    access_log  whether the log has all requests, and not only those that are answered with an error

    `serve_forever` answers until another thread calls `stop`. Raises OSError if the address cannot
    be used. docs/serving.md describes requests and answers.

    >>> from singa import serving
    >>> import json, threading, urllib.request
    >>> from singa.training.picture_classifier import PictureClassifier
    >>> net = models.create("lenet", num_classes=2)
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> classifier = PictureClassifier(net, ("cat", "dog"), data.Normalize([0.5], [0.25]))
    >>> service = serving.Service(("127.0.0.1", 0), serving.Batches(classifier))
    >>> threading.Thread(target=service.serve_forever).start()
    >>> with urllib.request.urlopen(f"http://127.0.0.1:{service.server_port}/health") as answer:
    ...     print(json.load(answer))
    {'status': 'ok'}
    >>> service.stop()
    True
    """

    daemon_threads = True  # an idle connection does not keep the process alive
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        batches: Batches,
        limits: Limits | None = None,
        model: Mapping[str, str] | None = None,
        access_log: bool = False,
    ) -> None:
        self.batches = batches
        self.limits = Limits() if limits is None else limits
        self.model = {} if model is None else dict(model)
        self.access_log = access_log
        #: Pictures that are decoded at the same time: each needs memory for all of its pixels.
        self.decoding = threading.BoundedSemaphore(get_num_threads())
        self.stopping = False
        self._changed = threading.Condition()
        self._requests = self._connections = 0
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request among those that are answered. Refuses it if there are too many."""
        with self._changed:
            if self.stopping:
                raise _RefusedError(503, "the service stops")
            if self._requests >= self.limits.requests:
                raise _RefusedError(503, f"{self._requests} requests are being answered already")
            self._requests += 1
        try:
            yield
        finally:
            with self._changed:
                self._requests -= 1
                self._changed.notify_all()

    def stop(self) -> bool:
        """Takes no new requests, answers those that were taken, for `timeout_s` at most, and ends
        `serve_forever`, which runs in another thread. Returns whether all were answered."""
        with self._changed:
            self.stopping = True  # new connections are answered with 503 until the end
            answered = self._changed.wait_for(lambda: not self._requests, self.limits.timeout_s)
        self.shutdown()
        self.server_close()
        if answered:
            self.batches.close()
        return answered

    def metrics(self) -> str:
        """What was counted, in Prometheus' text format."""
        gauges = {
            "singa_waiting_pictures": self.batches.waiting,
            "singa_requests_in_progress": self._requests,
            "singa_open_connections": self._connections,
        }
        return self.batches.counters.text(gauges, self.model)

    def about(self) -> dict[str, Any]:
        """What GET / says."""
        classifier = self.batches.classifier
        return {
            "model": self.model,
            "singa": __version__,
            classifier.task.key: list(classifier.class_names),
            "task": classifier.task.kind,
            "channels": classifier.channels,
            "limits": {**asdict(self.limits), "pictures": self.batches.most},
            "ask": "curl -F image=@picture.jpg .../predict",
        }

    def say(self, text: str) -> None:
        """Writes a line to the log, which is standard error."""
        line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
        # In one piece, so that lines of several threads do not mix.
        sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n")
        sys.stderr.flush()

    # Of the standard library's server.

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._changed:
            if self._connections >= self.limits.connections:
                self.batches.counters.refused_connection()
                return False
            self._connections += 1
        return True

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except BaseException:  # there was no thread for it
            self._closed_one()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._closed_one()

    def _closed_one(self) -> None:
        with self._changed:
            self._connections -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        self.say(f"{client_address[0]}: {type(error).__name__}: {error}")
