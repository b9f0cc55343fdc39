#!/usr/bin/env python3
"""A web service that classifies pictures: threads decode them, one thread computes in batches.

    python serve.py runs/pets                    a run of `python -m singa train`, on port 8000
    curl --data-binary @cat.jpg localhost:8000   {"cat": 0.973, "dog": 0.027}

The service is the standard library's; any other one can use `Batches` in the same way.
"""

from __future__ import annotations

import argparse
import io
import json
import queue
import sys
import threading
import time
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from singa.data import BrokenPictureError
from singa.training.picture_classifier import PictureClassifier

LARGEST = 20 << 20  # bytes of a picture


class Batches:
    """Collects what threads ask for, and answers in batches.

    A batch begins with a picture that waits, and takes those that come within `patience_s` seconds,
    `most` at most. One thread computes, because a network computes one batch at a time, with all
    cores.
    """

    def __init__(
        self, classifier: PictureClassifier, most: int = 16, patience_s: float = 0.005
    ) -> None:
        self.classifier, self.most, self.patience_s = classifier, most, patience_s
        self.sizes: list[int] = []  # of the latest batches
        self._waiting: queue.Queue[tuple[Any, Future[Any]] | None] = queue.Queue(8 * most)
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def probabilities(self, picture: Any) -> dict[str, float]:
        """Probabilities of all classes for a decoded picture. Waits for the answer.

        Raises queue.Full if too many pictures wait.
        """
        answer: Future[Any] = Future()
        self._waiting.put((picture, answer), timeout=5)
        return dict(zip(self.classifier.class_names, answer.result(), strict=True))

    def close(self) -> None:
        """Answers what waits, and ends the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going and (first := self._waiting.get()) is not None:
            batch, end = [first], time.monotonic() + self.patience_s
            while len(batch) < self.most:
                try:
                    following = self._waiting.get(timeout=max(end - time.monotonic(), 0))
                except queue.Empty:
                    break
                if following is None:
                    going = False
                    break
                batch.append(following)
            try:
                rows = self.classifier.probabilities([picture for picture, _ in batch]).tolist()
                for (_, answer), row in zip(batch, rows, strict=True):
                    answer.set_result(row)
            except Exception as error:  # each request gets it; the service goes on
                for _, answer in batch:
                    answer.set_exception(error)
            self.sizes = [*self.sizes[-99:], len(batch)]


class Handler(BaseHTTPRequestHandler):
    """Answers POST with the probabilities of the picture in the body."""

    server: Service

    def do_POST(self) -> None:
        text = self.headers.get("Content-Length", "")
        length = int(text) if text.isdecimal() else 0
        if not 0 < length <= LARGEST:
            self._answer(413 if length else 411, {"error": "send a picture of 20 MB at most"})
            return
        try:
            body = io.BytesIO(self.rfile.read(length))
            picture = self.server.batches.classifier.read(body)  # in this request's own thread
            answer = self.server.batches.probabilities(picture)
        except BrokenPictureError as error:
            self._answer(400, {"error": error.reason})
        except queue.Full:
            self._answer(503, {"error": "too many requests"})
        else:
            best = sorted(answer.items(), key=lambda item: -item[1])
            self._answer(200, {name: round(value, 6) for name, value in best})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Service(ThreadingHTTPServer):
    """A thread for each request."""

    def __init__(self, address: tuple[str, int], batches: Batches) -> None:
        super().__init__(address, Handler)
        self.batches = batches


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="a run's folder, or its model.safetensors")
    parser.add_argument("--port", type=int, default=8000, help="[%(default)s]")
    parser.add_argument("--host", default="127.0.0.1", help="[%(default)s: this machine alone]")
    args = parser.parse_args()
    try:
        batches = Batches(PictureClassifier.load(args.model))
        service = Service((args.host, args.port), batches)
    except (OSError, ValueError) as error:
        print(f"serve.py: {error}", file=sys.stderr)
        return 1
    print(f"http://{args.host}:{service.server_port}", flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        print()
    service.server_close()
    batches.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
