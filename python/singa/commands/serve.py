"""Answers requests over HTTP with the classes of pictures."""

from __future__ import annotations

import argparse
import errno
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np

from ..data.pictures import require_pillow
from ..launcher.command_line import command_parser, program_name
from ..serving import Batches, Limits, Service
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

PROG = program_name("serve")


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
        type=at_least(0, float),
        default=defaults.body / (1 << 20),
        metavar="X",
        help="size of a request; larger ones are answered with status 413 [%(default)s]",
    )
    parser.add_argument(
        "--timeout",
        type=at_least(0.1, float),
        default=defaults.timeout_s,
        metavar="S",
        help="seconds within which a request has to arrive, and then to be answered [%(default)s]",
    )
    add_device_arguments(parser)
    return parser.parse_args(argv)


def serve(args: argparse.Namespace) -> int:
    """Answers until a signal comes; returns the exit status."""
    require_pillow("serve")
    choose_device(args.device, args.threads)
    classifier = PictureClassifier.load(args.model)
    blank = np.zeros((classifier.channels, 64, 64), np.uint8)
    for count in (1, args.batch):  # plans are made, and errors are found, before the first request
        classifier.values([blank] * count)
    limits = Limits(int(args.max_mb * (1 << 20)), args.waiting, args.connections, args.timeout)
    waiting = args.waiting * args.batch
    with StopSignals() as stop:
        batches = Batches(classifier, args.batch, args.patience_ms / 1000, waiting)
        try:
            service = Service((args.host, args.port), batches, limits)
        except (OSError, OverflowError) as error:
            batches.close()
            why = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                why += "; give another --port, or 0 for a free one"
            raise OSError(f"--host {args.host} --port {args.port}: {why}") from error
        answering = threading.Thread(target=service.serve_forever, args=(0.05,), name="service")
        answering.start()
        host = f"[{args.host}]" if ":" in args.host else args.host
        address = f"http://{host}:{service.server_port}"
        say(address)
        say(f"to ask it: curl -F image=@PICTURE {address}/predict")
        while not stop:
            time.sleep(0.05)
        answered = service.stop()
        answering.join()
    if not answered:
        print(f"{PROG}: stopped before all requests were answered", file=sys.stderr)
    return 0 if answered else 1


main = program("serve", parse, serve)
