"""Asks a network that `python -m singa train` has trained for pictures."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..data.picture_list import below
from ..data.pictures import BrokenPictureError
from ..files.json_text import json_text
from ..launcher.command_line import command_parser, error_text, program_name, share
from ..training.picture_classifier import PictureClassifier, Prediction
from ..training.program import (
    add_device_arguments,
    add_model_argument,
    at_least,
    choose_device,
    program,
    warnings_as_notes,
)
from ..training.task import Task

PROG = program_name("predict")
_BATCH = 32


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    parser = command_parser(
        "predict",
        "Prints the most probable classes of pictures, with their probabilities; of a "
        "network of `singa train --multilabel` the labels, of one of --regression the numbers. "
        "Pictures that cannot be read are named, and the exit status is 1.",
    )
    add_model_argument(parser)
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="a picture, or a folder: all pictures below it"
    )
    parser.add_argument(
        "--top",
        type=at_least(1, int),
        metavar="N",
        help="classes for each picture [3]; labels at most [all]",
    )
    parser.add_argument(
        "--threshold",
        type=share,
        metavar="X",
        help="labels with a larger probability are printed [0.5]",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each picture")
    add_device_arguments(parser)
    return parser.parse_args(argv)


def files(names: Sequence[str]) -> Iterator[str]:
    """Names of pictures, and of those below named folders. Raises FileNotFoundError for a folder
    without any."""
    for name in names:
        if os.path.isdir(name):
            found = below(Path(name))
            if not found:
                raise FileNotFoundError(f"{name} holds no pictures")
            yield from map(str, found)
        else:
            yield name


def predict(args: argparse.Namespace) -> int:
    """Prints predictions; returns the exit status."""
    choose_device(args.device, args.threads)
    classifier = PictureClassifier.load(args.model)
    key = classifier.task.key
    if args.threshold is not None and key != "labels":
        raise ValueError(f"--threshold is for labels, and the network of {args.model} has {key}")
    if args.top is not None and key == "numbers":
        raise ValueError(f"--top is for classes, and the network of {args.model} has numbers")
    top = 3 if args.top is None and key == "classes" else args.top
    with warnings_as_notes():
        return _answer(list(files(args.images)), classifier, top, args)


def _answer(
    names: Sequence[str], classifier: PictureClassifier, top: int | None, args: argparse.Namespace
) -> int:
    """Prints what the network says of pictures; returns 1 if some cannot be read, else 0."""
    width = max(len(name) for name in names)
    status = 0
    for start in range(0, len(names), _BATCH):
        read, pictures = [], []
        for name in names[start : start + _BATCH]:
            try:
                pictures.append(classifier.read(name))
                read.append(name)
            except (BrokenPictureError, FileNotFoundError) as error:
                print(f"{PROG}: {error_text(error)}", file=sys.stderr, flush=True)
                status = 1
        found = classifier.predict(pictures, top, args.threshold)
        for name, prediction in zip(read, found, strict=True):
            print(_line(name, prediction, width, classifier.task, args.json), flush=True)
    return status


def _line(name: str, prediction: Prediction, width: int, task: Task, as_json: bool) -> str:
    if as_json:
        return json_text({"file": name, task.key: task.rounded(prediction)}, ensure_ascii=False)
    figures = "  ".join(f"{label} {task.shown(value)}" for label, value in prediction)
    return f"{name:{width}}  {figures or 'no label'}"


main = program("predict", parse, predict)
