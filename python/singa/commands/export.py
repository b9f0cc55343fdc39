"""`singa export` and `singa quantize`: ONNX files of trained networks."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import onnx
from .._version import __version__
from ..data import describe_transform
from ..files.atomic import atomic_write
from ..files.json_text import json_text
from ..launcher.command_line import command_parser, program_name
from ..model import Model
from ..onnx.save import argument_names
from ..raw.words import counted
from ..tensor import from_numpy
from ..training import checkpoint, model_file
from ..training.picture_classifier import PictureClassifier
from ..training.program import (
    add_device_arguments,
    add_model_argument,
    at_least,
    choose_device,
    program,
    say,
    warnings_as_notes,
)
from ..training.task import task_of
from . import predictions
from .predict import files

_BATCH = 32
_FORMAT = "singa onnx"  # of the description


def parse(command: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of "export" or "quantize"."""
    quantizes = command == "quantize"
    parser = command_parser(
        command,
        "Writes a trained network as an ONNX file"
        + (" with layers of int8" if quantizes else "")
        + ". Names of classes, the task and the transform of pictures are in its metadata, and, "
        "with the size of pictures, in a JSON file beside it. `singa predict` and `singa serve` "
        "read the ONNX file.",
    )
    add_model_argument(parser)
    if quantizes:
        parser.set_defaults(int8=True)
    else:
        parser.add_argument("--onnx", action="store_true", required=True, help="the format")
        parser.add_argument("--int8", action="store_true", help="quantise it: layers of int8")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the ONNX file [MODEL.onnx, MODEL_int8.onnx when quantised]",
    )
    calibration = parser.add_argument_group("quantised networks")
    calibration.add_argument(
        "--samples",
        action="append",
        metavar="PATH",
        help="pictures by which ranges of values are measured, or folders of pictures; may be "
        "repeated [training pictures of the run]",
    )
    calibration.add_argument(
        "--count",
        type=at_least(1, int),
        default=256,
        metavar="N",
        help="so many of them at most [%(default)s]",
    )
    calibration.add_argument(
        "--tolerance",
        type=at_least(0, float),
        default=0.1,
        metavar="X",
        help="largest change of the outputs, relative to their size; beyond it, layers stay in "
        "float [%(default)s]",
    )
    add_device_arguments(parser)
    args = parser.parse_args(argv)
    for name in ("samples", "count", "tolerance"):
        if not args.int8 and getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name} is for --int8")
    return args


def export(args: argparse.Namespace) -> int:
    """Writes the ONNX file and the JSON file; returns the exit status."""
    choose_device(args.device, args.threads)
    net = model_file.load(args.model)
    path = args.out or Path(_stem(args.model) + ("_int8" if args.int8 else "") + ".onnx")
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"--out {path}: the name must end in .onnx")
    if Path(args.model).resolve() == path.resolve():
        raise ValueError(f"--out {path} is the network itself")
    _check_description(path.with_suffix(".json"))
    with warnings_as_notes():
        if args.int8:
            _quantize(net, path, args)
        else:
            _write(net, path)
    description = _description(path)
    text = json_text(description, indent=1, ensure_ascii=False)
    with atomic_write(path.with_suffix(".json")) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # names of classes may be no text
    say(f"the network is in {path}, its description in {path.with_suffix('.json')}")
    (output, *others) = description["outputs"]
    is_list = not others and len(output["shape"] or ()) == 2
    if description["class_names"] and description["transform"] and is_list:
        say(f"to use it: {program_name('predict')} {path} PICTURE...")
    return 0


def _check_description(path: Path) -> None:
    """Raises ValueError for another JSON file, such as one of labels, which would be replaced."""
    with contextlib.suppress(OSError):
        if f'"{_FORMAT}"' not in path.read_text("utf-8", "replace"):
            raise ValueError(
                f"{path} is no description of a network, and would be replaced: give another --out"
            )


def _stem(model: str) -> str:
    path = Path(model)
    return path.resolve().name if path.is_dir() else path.stem


def _write(net: Model, path: Path) -> None:
    inputs = net._examples("export")
    names = argument_names(net, len(inputs))
    batch = {name: {0: "batch"} for name in names}
    try:
        onnx.save(net, path, inputs, dynamic_axes=batch)
    except onnx.ExportError:
        onnx.save(net, path, inputs)
        say(f"note: the file takes batches of {inputs[0].shape[0]} only")


def _quantize(net: Model, path: Path, args: argparse.Namespace) -> None:
    classifier = PictureClassifier(net)
    found = _samples(classifier, args)
    batches = [found[i : i + _BATCH] for i in range(0, len(found), _BATCH)]
    quantized = net.quantize([from_numpy(each) for each in batches], path, tolerance=args.tolerance)
    say(
        f"{counted(len(found), 'picture')} measured; the outputs change by {quantized.error:.2%} "
        "of their size"
    )


def _samples(classifier: PictureClassifier, args: argparse.Namespace) -> NDArray[np.float32]:
    """The inputs by which ranges are measured."""
    if args.samples:
        names = list(files(args.samples))
        return np.concatenate(
            [classifier.inputs([classifier.read(names[i])]) for i in _spread(names, args.count)]
        )
    try:
        folder = Path(args.model)
        folder = folder if folder.is_dir() else folder.parent
        settings = checkpoint.read_progress(folder / "checkpoint.safetensors")["settings"]
        pictures = predictions.sets_of(settings).train
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"the training pictures are not known ({error}): give some with --samples FOLDER"
        ) from error
    chosen = [pictures[i][0] for i in _spread(pictures, args.count)]
    return np.concatenate([classifier.inputs([picture]) for picture in chosen])


def _spread(pictures: Any, count: int) -> list[int]:
    """Numbers of `count` pictures, from all of the list, which may be in the order of classes."""
    count = min(count, len(pictures))
    return [i * len(pictures) // count for i in range(count)]


def _description(path: Path) -> dict[str, Any]:
    """What a program without singa needs to know of an ONNX file."""
    net = onnx.load(path)
    types = net._graph.types

    def values(names: Sequence[str]) -> list[dict[str, Any]]:
        found = ((name, types.get(name)) for name in names)
        return [
            {"name": name, "type": value and value.type, "shape": value and value.shape}
            for name, value in found
        ]

    inputs = values(net.input_names)
    shape = inputs[0]["shape"] or ()
    return {
        "format": _FORMAT,
        "version": 1,
        "singa": __version__,
        "file": path.name,
        "inputs": inputs,
        "outputs": values(net.output_names),
        "size": list(shape[2:]) if len(shape) == 4 else None,
        "class_names": net.class_names,
        "task": task_of(net).described(),
        "transform": None if net.transform is None else describe_transform(net.transform),
    }


main = program("export", functools.partial(parse, "export"), export)
quantize = program("quantize", functools.partial(parse, "quantize"), export)
