"""`singa summary` and `singa plot`: networks by name, and those in files."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import models
from ..launcher.command_line import nearest
from ..model import Model
from ..raw.process import set_num_threads
from ..tensor import Tensor, float32, int32
from ..training import model_file
from ..training.program import say


def open_network(name: str, batch: int | None = None) -> Model:
    """A compiled network in inference mode, for `batch` inputs (default: 1, or those of the file).

    name  one of models.names(), with random weights; or a file of Model.save, the folder of a run
          of `python -m singa train`, or an ONNX file

    Raises FileNotFoundError if it is neither, ValueError if the file is damaged or the network does
    not take a batch of this length, ImportError where an ONNX file needs the package onnx.
    """
    if not Path(name).exists():
        if models.canonical_name(name) is None:
            raise FileNotFoundError(
                f"{name} is neither a file nor a network: there are {', '.join(models.names())}"
                f"{nearest(name, models.names())}"
            )
        made = models.create(name)
        shape = (batch or 1, *made.image_shape)
        made.compile([Tensor(shape, dtype=int32 if len(shape) == 2 else float32)], is_train=False)
        return made
    net = model_file.load(name)
    inputs = net._examples("summary")
    if batch is not None:
        inputs = [Tensor((batch, *x.shape[1:]), x.device, x.dtype) for x in inputs]
    net.compile(inputs, is_train=False)
    return net


def summary(arguments: argparse.Namespace) -> int:
    """Prints the layers of a network; returns the exit status."""
    open_network(arguments.model, arguments.batch).summary()
    return 0


def plot(arguments: argparse.Namespace) -> int:
    """Writes the picture of a network; returns the exit status."""
    if arguments.threads is not None:
        set_num_threads(arguments.threads)
    net = open_network(arguments.model, arguments.batch)
    out = arguments.out or Path(f"{Path(arguments.model).stem or 'network'}.svg")
    net.plot(out)
    say(f"the picture is in {out}")
    return 0
