"""Command line: `singa COMMAND`, or `python -m singa COMMAND`. `--help` describes the commands."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ._version import __version__
from .launcher.command_line import (
    CommandParser,
    at_least,
    positive,
    program_name,
)


def _doctor(arguments: argparse.Namespace) -> int:
    if arguments.kernels:
        from .report.kernels import check_kernels

        if arguments.device == "cuda":
            from . import device

            try:
                device.set_default_device(device.create_cuda_gpu())
            except RuntimeError as error:
                print(error, file=sys.stderr)
                return 1
        kernels = check_kernels(arguments.seconds, arguments.seed)
        print(kernels)
        return 1 if kernels.wrong else 0
    from .report.diagnostics import doctor

    report = doctor()
    print(report)
    return 1 if arguments.strict and report["problems"] else 0


def _refuse_doctor(parser: CommandParser, given: argparse.Namespace) -> None:
    """Exits with an error for options that would not be used."""
    if given.kernels:
        parser.refuse(given, "for doctor without --kernels", "strict")
    else:
        parser.refuse(given, "for --kernels", "device", "seconds", "seed")


def _env(arguments: argparse.Namespace) -> int:
    from .report.diagnostics import environment_list

    print(environment_list())
    return 0


def _reported(command: str, work: Callable[[argparse.Namespace], int]) -> Callable[..., int]:
    """The work of a command, whose errors take one line."""

    def run(arguments: argparse.Namespace) -> int:
        from .training.program import reporting_errors

        def mended() -> int:
            try:
                return work(arguments)
            except (ImportError, RuntimeError) as error:
                raise ValueError(error) from error

        return reporting_errors(program_name(command), mended)

    return run


def _on_network(program: str) -> Callable[[argparse.Namespace], int]:
    """The command of this name in `commands.networks`."""

    def work(arguments: argparse.Namespace) -> int:
        from .commands import networks

        return getattr(networks, program)(arguments)

    return _reported(program, work)


def _bench(arguments: argparse.Namespace) -> int:
    from .files.json_text import json_text
    from .raw.process import set_num_threads
    from .report import bench

    if arguments.threads is not None:
        set_num_threads(arguments.threads)
    figures = bench.bench(
        arguments.model,
        arguments.batch,
        arguments.steps,
        arguments.warmup,
        arguments.training,
        use_graph=arguments.graph,
        dtype=arguments.dtype,
        recompute="auto" if arguments.memory_limit else arguments.recompute or None,
        memory_limit=arguments.memory_limit,
    )
    print(json_text(figures) if arguments.json else bench.table(figures))
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from .files.replay_file import replay

    print(replay(arguments.file))
    return 0


def _input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """The name and shape of an input: name=1,3,224,224."""
    name, _, lengths = text.rpartition("=")
    try:
        shape = tuple(int(n) for n in lengths.split(",")) if lengths else ()
    except ValueError:
        shape = (-1,)
    if not name or min(shape, default=0) < 0:
        raise argparse.ArgumentTypeError(f"expected NAME=1,3,224,224, got {text!r}")
    return name, shape


def _onnx(arguments: argparse.Namespace) -> int:
    import numpy

    from .onnx import inspect, operators

    if arguments.operators:
        print(operators.table())
        return 0
    report = inspect.inspect(arguments.file, arguments.allow_symlinks)
    print(report)
    if arguments.check and not report.problems:
        shapes = dict(arguments.shape)
        arrays = dict(numpy.load(arguments.inputs)) if arguments.inputs else {}
        differences = inspect.compare(arguments.file, arguments.allow_symlinks, shapes, arrays)
        print("\nbeside ONNX Runtime:", *differences, sep="\n  ")
        return 1 if any(d.difference > arguments.tolerance for d in differences) else 0
    return 1 if report.problems else 0


def _refuse_bench(parser: CommandParser, given: argparse.Namespace) -> None:
    """Exits with an error for options that would not be used."""
    if not given.training:
        parser.refuse(given, "for --train", "recompute", "memory_limit")
    if given.recompute:
        parser.refuse(
            given, "not for --recompute: it chooses what is computed again", "memory_limit"
        )


def _refuse_onnx(parser: CommandParser, given: argparse.Namespace) -> None:
    """Exits with an error for options that would not be used."""
    if given.file is None and not given.operators:
        parser.error("FILE or --operators is required")
    if given.operators:
        parser.refuse(given, "not used by --operators", "file", "check", "allow_symlinks")
    if not given.check:
        parser.refuse(given, "for --check", "shape", "inputs", "tolerance")


def _run(own: Sequence[str], script_arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by `python SCRIPT ...`, so that the script sees a normal start."""
    from .launcher.interpreter import finding_singa, interpreter

    parsed = parser().parse_args(["run", *own])
    if parsed.device:
        os.environ["SINGA_DEVICE"] = parsed.device
    os.environ["SINGA_COMPAT"] = "1"
    if note := _numpy_note():
        print(note, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    command = [*interpreter(), parsed.script, *script_arguments]
    os.execve(command[0], command, finding_singa(os.environ))


def _numpy_note() -> str:
    """What this NumPy refuses of what SINGA's scripts do; empty if nothing."""
    import numpy as np

    if np.lib.NumpyVersion(np.__version__) < "2.4.0":
        return ""
    return (
        f"[run] NumPy {np.__version__} refuses '%f' % array, by which many of SINGA's scripts "
        "print losses. For those, install an older one: pip install 'numpy<2.4'"
    )


def _after_script(arguments: Sequence[str]) -> int:
    """The place of the first argument after the script: options before it are those of `run`."""
    end = 0
    while end < len(arguments) and arguments[end].startswith("-"):
        end += 2 if arguments[end] == "--device" else 1
    return end + 1


def _cmake_dir(arguments: argparse.Namespace) -> int:
    package = Path(__file__).resolve().parent
    for folder in sorted(package.glob("lib*/cmake/singa")):
        print(folder)
        return 0
    print(
        f"no CMake files in {package}: this singa runs from a build folder; install it with pip "
        "or `cmake --install`",
        file=sys.stderr,
    )
    return 1


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    top = CommandParser(prog=program_name(), description="Tools of singa.")
    top.add_argument("--version", action="version", version=f"singa {__version__}")
    commands = top.add_subparsers(required=True, metavar="command")
    for name, (_, does) in _PROGRAMS.items():
        commands.add_parser(name, help=does, add_help=False)

    doctor = commands.add_parser(
        "doctor", help="show what singa was built with and what it runs on"
    )
    doctor.add_argument(
        "--strict", action="store_true", help="exit with status 1 if there are problems"
    )
    doctor.add_argument(
        "--kernels",
        action="store_true",
        help="compare every implementation that this processor offers, oneDNN's among them, with "
        "plain code on drawn calls; exit with status 1 if one of them is wrong",
    )
    doctor.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="for --kernels; cuda: the first GPU, with cuDNN and cuBLASLt (default: %(default)s)",
    )
    doctor.add_argument(
        "--seconds", type=positive, default=20.0, help="for --kernels (default: %(default)s)"
    )
    doctor.add_argument(
        "--seed", type=at_least(0, int), default=0, help="of the calls that --kernels draws"
    )
    doctor.set_defaults(run=_doctor, refuse=partial(_refuse_doctor, doctor))

    env = commands.add_parser("env", help="list the environment variables that singa reads")
    env.set_defaults(run=_env)

    _add_networks(commands)
    _add_bench(commands)

    replay = commands.add_parser(
        "replay",
        help="repeat an operation that OPCHECK saved",
        description="Repeats a saved operation with its kernel and with the reference kernel, and "
        "compares the results. The exit status is 1 if they differ.",
    )
    replay.add_argument("file", type=Path, help="a file that OPCHECK wrote")
    replay.set_defaults(run=_reported("replay", _replay))

    onnx = commands.add_parser(
        "onnx",
        help="show what is in an ONNX file, and what singa cannot compute",
        description="Lists inputs, outputs, parameters and operators of an ONNX file. The exit "
        "status is 1 if singa cannot compute it.",
    )
    onnx.add_argument("file", type=Path, nargs="?", metavar="FILE", help="an ONNX file")
    onnx.add_argument(
        "--operators", action="store_true", help="list the operators that singa reads, and stop"
    )
    onnx.add_argument(
        "--check", action="store_true", help="compare the outputs with those of ONNX Runtime"
    )
    onnx.add_argument(
        "--shape",
        type=_input_shape,
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="with --check, the shape of an input; may be repeated",
    )
    onnx.add_argument(
        "--inputs", type=Path, metavar="NPZ", help="with --check, a file that has inputs by name"
    )
    onnx.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        metavar="X",
        help="with --check, the largest difference relative to the largest value [%(default)s]",
    )
    onnx.add_argument(
        "--allow-symlinks",
        action="store_true",
        help="external data may lie behind symbolic links",
    )
    onnx.set_defaults(run=_reported("onnx", _onnx), refuse=partial(_refuse_onnx, onnx))

    run = commands.add_parser(
        "run",
        help="run a script that was written for Apache SINGA",
        usage=f"{program_name('run')} [-h] [--device cpu] SCRIPT ...",
        description="Runs `python SCRIPT ...` in compatibility mode: where Apache SINGA and singa "
        "differ, SINGA's behaviour holds (docs/singa_compat.md). The same as SINGA_COMPAT=1.",
        allow_abbrev=False,
    )
    run.add_argument(
        "--device",
        choices=("cpu",),
        help="what create_cuda_gpu() and similar functions return; the same as SINGA_DEVICE",
    )
    run.add_argument(
        "script", metavar="SCRIPT", help="a Python file; the arguments after it are the script's"
    )

    cmake = commands.add_parser(
        "cmake-dir",
        help="print the folder of this installation's CMake files",
        description='For C++ programs: cmake -Dsinga_DIR="$(python -m singa cmake-dir)" ...',
    )
    cmake.set_defaults(run=_cmake_dir)
    return top


def _add_networks(commands: Any) -> None:
    """The commands that look at one network."""
    summary = commands.add_parser(
        "summary",
        help="list the layers of a network, with their outputs and parameters",
        description="Prints the layers of a network in at most 80 columns.",
    )
    plot = commands.add_parser(
        "plot",
        help="draw a network: shapes, parameters, times and implementations of its layers",
        description="Writes a picture of a network as SVG. Times are those of inference on this "
        "machine.",
    )
    for name, parser in (("summary", summary), ("plot", plot)):
        parser.add_argument(
            "model",
            metavar="MODEL",
            help="a name such as resnet50, a .onnx file, a file of Model.save such as pets.singa, "
            "or a run's folder such as runs/pets",
        )
        parser.add_argument(
            "--batch",
            type=at_least(1, int),
            metavar="N",
            help="inputs at once [1, or those of the file]",
        )
        parser.set_defaults(run=_on_network(name))
    plot.add_argument(
        "--out", type=Path, metavar="FILE", help="the picture, such as net.svg [MODEL.svg]"
    )
    plot.add_argument(
        "--threads", type=at_least(1, int), metavar="N", help="threads [all cores of the process]"
    )


def _add_bench(commands: Any) -> None:
    from . import models

    bench = commands.add_parser(
        "bench",
        help="measure time, memory, page faults and plans of a network's steps",
        description="Times steps of a network on random images. Memory is the peak, minus what was "
        "in use before the network was compiled. Plans are counted during the timed steps.",
        epilog=f"Networks: {', '.join(models.names())}.",
    )
    bench.add_argument(
        "--model",
        choices=models.names(),
        default="resnet20_cifar",
        metavar="NAME",
        help="network, see below [%(default)s]",
    )
    bench.add_argument(
        "--batch",
        type=at_least(1, int),
        default=0,
        metavar="N",
        help="images per step [128, or 32 large ones]",
    )
    mode = bench.add_mutually_exclusive_group()
    mode.add_argument(
        "--train",
        action="store_true",
        dest="training",
        default=True,
        help="time forward, backward and update [default]",
    )
    mode.add_argument(
        "--inference", action="store_false", dest="training", help="time forward alone"
    )
    bench.add_argument(
        "--steps", type=at_least(1, int), default=20, metavar="N", help="timed steps [%(default)s]"
    )
    bench.add_argument(
        "--warmup",
        type=at_least(0, int),
        default=3,
        metavar="N",
        help="steps before the timed ones [%(default)s]",
    )
    bench.add_argument(
        "--threads", type=at_least(1, int), metavar="N", help="threads [all cores of the process]"
    )
    bench.add_argument("--graph", action="store_true", help="compile with use_graph=True")
    bench.add_argument(
        "--recompute", action="store_true", help="compile with recompute=True, which saves memory"
    )
    bench.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help='with --graph: compile with recompute="auto" and this limit, such as "1.5 GiB"',
    )
    bench.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="bfloat16 runs under autocast [%(default)s]",
    )
    bench.add_argument("--json", action="store_true", help="print a JSON object, not a table")
    bench.set_defaults(run=_reported("bench", _bench), refuse=partial(_refuse_bench, bench))


#: Commands with options and a --help of their own: their function, and what it does.
_PROGRAMS = {
    "train": (
        "commands.train.main",
        "train a network on a folder of pictures, CIFAR, MNIST or generated images",
    ),
    "evaluate": ("commands.evaluate.main", "say how well a trained network classifies pictures"),
    "predict": ("commands.predict.main", "classify pictures with a network that train has trained"),
    "export": ("commands.export.main", "write a trained network as an ONNX file"),
    "quantize": (
        "commands.export.quantize",
        "write a trained network with layers of int8 as an ONNX file",
    ),
    "serve": ("commands.serve.main", "answer requests over HTTP with the classes of pictures"),
    "report": ("commands.report.main", "write a page on a run of train, to look at and to show"),
    "compare": ("commands.compare.main", "write a page that shows runs of train side by side"),
    "advise": ("commands.advise.main", "say what would make a network's steps quicker or smaller"),
    "launch": ("launcher.command.main", "train on several processes, here or on several machines"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    `arguments` defaults to sys.argv[1:]. Raises SystemExit for --help and for wrong arguments.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):  # names of files may be no text
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    if arguments and arguments[0] in _PROGRAMS:
        module, _, program = _PROGRAMS[arguments[0]][0].rpartition(".")
        return getattr(importlib.import_module(f"singa.{module}"), program)(arguments[1:])
    if arguments[:1] == ["run"]:
        after = 1 + _after_script(arguments[1:])
        _run(arguments[1:after], arguments[after:])
    parsed = parser().parse_args(arguments)
    if hasattr(parsed, "refuse"):
        parsed.refuse(parsed)
    return parsed.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
