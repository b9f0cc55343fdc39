"""Answers requests over HTTP with the classes of pictures."""

from __future__ import annotations

import argparse
import errno
import hashlib
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from .._version import __version__
from ..data.pictures import require_pillow
from ..launcher.command_line import command_parser, positive
from ..serving import Batches, Limits, Service
from ..training import model_file
from ..training.picture_classifier import PictureClassifier
from ..training.program import (
    StopSignals,
    add_device_arguments,
    add_model_argument,
    at_least,
    choose_device,
    program,
    say,
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    defaults = Limits()
    parser = command_parser(
        "serve",
        "Answers requests over HTTP with the classes of pictures. POST /predict takes "
        "a picture, or a form with pictures: curl -F image=@cat.jpg localhost:8000/predict. "
        "GET /health says whether the service takes requests, /metrics has counts for Prometheus. "
        "SIGTERM and Ctrl-C let it answer the requests it has taken, then stop it.",
    )
    add_model_argument(parser)
    parser.add_argument("--host", default="127.0.0.1", help="[%(default)s: this machine alone]")
    parser.add_argument(
        "--port",
        type=at_least(0, int),
        default=8000,
        help="0: any free one, which is printed [%(default)s]",
    )
    parser.add_argument(
        "--batch",
        type=at_least(1, int),
        default=16,
        metavar="N",
        help="pictures computed at once, and in one request, at most [%(default)s]",
    )
    parser.add_argument(
        "--patience-ms",
        type=at_least(0, float),
        default=5.0,
        metavar="X",
        help="how long a picture waits for others to share its batch [%(default)s]",
    )
    parser.add_argument(
        "--waiting",
        type=at_least(1, int),
        default=defaults.requests,
        metavar="N",
        help="requests at once; more are answered with status 503 [%(default)s]",
    )
    parser.add_argument(
        "--connections",
        type=at_least(1, int),
        default=defaults.connections,
        metavar="N",
        help="open connections; more are closed [%(default)s]",
    )
    parser.add_argument(
        "--max-mb",
        type=positive,
        default=defaults.body / (1 << 20),
        metavar="X",
        help="size of a request; larger ones are answered with status 413 [%(default)s]",
    )
    parser.add_argument(
        "--max-megapixels",
        type=positive,
        default=defaults.pixels / 1e6,
        metavar="X",
        help="size of a picture; each million of pixels takes 10 to 20 MB while it is decoded "
        "[%(default)g]",
    )
    parser.add_argument(
        "--timeout",
        type=at_least(0.1, float),
        default=defaults.timeout_s,
        metavar="S",
        help="seconds within which a request has to arrive, and then to be answered [%(default)s]",
    )
    parser.add_argument(
        "--access-log",
        action="store_true",
        help="log all requests [those answered with an error]",
    )
    add_device_arguments(parser)
    return parser.parse_args(argv)


def serve(args: argparse.Namespace) -> int:
    """Answers until a signal comes; returns the exit status."""
    require_pillow("serve")
    from PIL import Image

    with StopSignals() as stop, warnings.catch_warnings():
        device = choose_device(args.device, args.threads)
        file = model_file.located(args.model)
        model = {"path": args.model, "sha256": _sha256(file)}
        classifier = PictureClassifier.load(file)
        for count in (1, args.batch):  # plans are made, and errors found, before the first request
            classifier.values([classifier.blank()] * count)
        body, pixels = int(args.max_mb * (1 << 20)), int(args.max_megapixels * 1e6)
        limits = Limits(body, args.waiting, args.connections, args.timeout, pixels)
        batches = Batches(
            classifier, args.batch, args.patience_ms / 1000, args.waiting * args.batch
        )
        try:
            address = args.host, args.port
            service = Service(address, batches, limits, model, args.access_log)
        except (OSError, OverflowError) as error:
            batches.close()
            why = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                why += "; give another --port, or 0 for a free one"
            raise OSError(f"--host {args.host} --port {args.port}: {why}") from error
        Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit, with a warning that is no line of a log
        warnings.showwarning = lambda text, *_, **__: service.say(f"note: {text}")
        threading.Thread(target=service.serve_forever, args=(0.05,), daemon=True).start()
        host = f"[{args.host}]" if ":" in args.host else args.host
        url = f"http://{host}:{service.server_port}"
        say(url)
        say(f"to ask it: curl -F image=@PICTURE {url}/predict")
        what = f"{len(classifier.class_names)} {classifier.task.key}, {device}"
        service.say(f"singa {__version__} serves {args.model}: {what}; sha256 {model['sha256']}")
        while not stop:
            time.sleep(0.05)
        try:
            service.say("told to stop: requests that were taken are answered")
            answered = service.stop()
        except KeyboardInterrupt:  # a second signal
            answered = False
        service.say("stopped" if answered else "stopped before all requests were answered")
    return 0 if answered else 1


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


main = program("serve", parse, serve)
