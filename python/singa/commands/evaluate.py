"""How well a trained network answers: the test pictures of its run, or others.

    python -m singa evaluate runs/pets               the pictures that the run held out
    python -m singa evaluate runs/pets --data new    a folder for each class, or a CSV file
    python -m singa evaluate pets.singa --data new   a file of Model.save
    python -m singa evaluate pets_int8.onnx --data runs/pets      those that this run held out

Prints the accuracy, the loss (cross-entropy), precision, recall and F1 of each class, and the
commonest mistakes. Classes are recognised by their names. Of a network with several labels: mean
average precision, F1, and the share of pictures all of whose labels are right. Of one that predicts
numbers: mean absolute error and R2, in the units of its training data.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import data
from ..data.picture_list import some
from ..files.json_text import json_text
from ..launcher.command_line import command_parser
from ..raw.words import counted
from ..training import checkpoint
from ..training.picture_classifier import PictureClassifier
from ..training.program import (
    add_device_arguments,
    add_model_argument,
    choose_device,
    program,
    warnings_as_notes,
)
from . import predictions
from .picture_sets import columns_of


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    parser = command_parser("evaluate", __doc__, "[options] MODEL")
    add_model_argument(parser)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="a folder or CSV file, or the run whose test data are meant [the run itself]",
    )
    parser.add_argument(
        "--columns",
        metavar="FILE,LABEL",
        help="columns of the CSV file with files and classes, if it has others [by usual names]",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_device_arguments(parser)
    args = parser.parse_args(argv)
    if args.columns and args.data is None:
        parser.error("--columns is for the CSV file of --data")
    return args


def evaluate(args: argparse.Namespace) -> int:
    """Prints the figures; returns the exit status."""
    choose_device(args.device, args.threads)
    classifier = PictureClassifier.load(args.model)
    outcome = predictions.ask(classifier, _pictures(args, classifier))
    print(json_text(outcome.figures()) if args.json else outcome.text())
    return 0


def _pictures(args: argparse.Namespace, classifier: PictureClassifier) -> Any:
    run = Path(args.model) if args.data is None else args.data
    path = run / "checkpoint.safetensors"
    if not path.exists() and args.data is not None:
        with warnings_as_notes():
            found = data.ImageFolder(
                args.data,
                columns=columns_of(args.columns),
                classes=classifier.class_names,
                task=classifier.task.kind,
                channels=classifier.channels,
                on_error="skip",
            )
            if found.held_out is None or not found.held_out.any():
                return found
            others, held_out = found.split()
            warnings.warn(
                f"the {counted(len(held_out), 'picture')} that a column of {args.data} holds out; "
                f"not used: {len(others)} of the training",
                stacklevel=1,
            )
            return held_out
    if args.columns:
        raise ValueError(f"--columns is for a CSV file, and {run} is a run")
    if not path.exists():
        raise FileNotFoundError(
            f"{run} is no folder of a run, which says what its test data are: give --data, which "
            "may be a run"
        )
    settings = checkpoint.read_progress(path).get("settings") or {}
    # What it says of the data is no part of a JSON object.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        sets = predictions.sets_of(settings)
    task, own = sets.task, classifier.task
    if (task.kind, sets.classes) != (own.kind, classifier.class_names):
        raise ValueError(
            f"the data of {run} have the {task.key} {some(sets.classes)}, and {args.model} has the "
            f"{own.key} {some(classifier.class_names)}"
        )
    return sets.test


main = program("evaluate", parse, evaluate)
