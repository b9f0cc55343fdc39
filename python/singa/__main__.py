"""Command line: python -m singa <command>; --help says what each does."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn


def _doctor(arguments: argparse.Namespace) -> int:
    from .diagnostics import doctor

    report = doctor()
    print(report)
    return 1 if arguments.strict and report["problems"] else 0


def _train(arguments: Sequence[str]) -> int:
    from .examples import cifar10

    return cifar10.main(arguments, prog="python -m singa train")


def _bench(arguments: argparse.Namespace) -> int:
    from . import bench
    from .process import set_num_threads

    try:
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
            recompute=arguments.recompute,
        )
    except (ValueError, MemoryError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(figures) if arguments.json else bench.table(figures))
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from .replay_file import replay

    try:
        print(replay(arguments.file))
    except (RuntimeError, ValueError, MemoryError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _run(own: Sequence[str], script_arguments: Sequence[str]) -> NoReturn:
    """Becomes `python SCRIPT ...`, so that everything is as it is there."""
    from . import compat

    parsed = parser().parse_args(["run", *own])
    if parsed.device:
        os.environ["SINGA_DEVICE"] = parsed.device
    compat.enable()
    home = str(Path(__file__).parents[1])
    if home == sys.path[0] and home not in sys.path[1:]:  # the working folder, by -m
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *flags, parsed.script, *script_arguments])


def _after_script(arguments: Sequence[str]) -> int:
    """Where the arguments of the script begin: `run` itself takes options before it only."""
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
        f"no CMake files in {package}: this singa runs from a build folder; use an installed one, "
        "or `cmake --install`",
        file=sys.stderr,
    )
    return 1


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    top = argparse.ArgumentParser(prog="python -m singa", description="singa's tools.")
    commands = top.add_subparsers(required=True, metavar="command")

    doctor = commands.add_parser("doctor", help="what singa was built with and runs on")
    doctor.add_argument("--strict", action="store_true", help="exit with 1 if there are problems")
    doctor.set_defaults(run=_doctor)

    # Its options are the script's own: main() hands them on as they are.
    commands.add_parser(
        "train", help="train a ResNet, VGG or LeNet on CIFAR-10 or a generated set", add_help=False
    )
    _add_bench(commands)

    replay = commands.add_parser(
        "replay",
        help="run the operation of a saved OPCHECK mismatch again",
        description="Runs the operation of a saved mismatch on its implementation and on the "
        "reference one, and says how they differ. Exit status 1 if they still do.",
    )
    replay.add_argument("file", type=Path, help="written when OPCHECK found the mismatch")
    replay.set_defaults(run=_replay)

    run = commands.add_parser(
        "run",
        help="run a script that was written for SINGA",
        usage="python -m singa run [-h] [--device cpu] SCRIPT ...",
        description="Runs a script as `python SCRIPT ...` does, with SINGA's way where it is not "
        "singa's own (docs/singa_compat.md), as SINGA_COMPAT=1 in the environment has it.",
        allow_abbrev=False,
    )
    run.add_argument(
        "--device",
        choices=("cpu",),
        help="what create_cuda_gpu() and the like give, as SINGA_DEVICE in the environment has it",
    )
    run.add_argument("script", metavar="SCRIPT", help="a Python file; what follows is its own")

    cmake = commands.add_parser(
        "cmake-dir",
        help="where find_package(singa) finds this installation",
        description='For C++ programs: cmake -Dsinga_DIR="$(python -m singa cmake-dir)" ...',
    )
    cmake.set_defaults(run=_cmake_dir)
    return top


def _add_bench(commands: Any) -> None:
    from . import models

    bench = commands.add_parser(
        "bench",
        help="time steps of a network, and count their memory, page faults and plans",
        description="Times steps of a network on random images. Memory is the peak above the level "
        "before the network was compiled; counts of the plan cache are those of the timed steps.",
        epilog=f"Networks: {', '.join(models.names())}.",
    )
    bench.add_argument(
        "--model",
        choices=models.names(),
        default="resnet20_cifar",
        metavar="NAME",
        help="[%(default)s]",
    )
    bench.add_argument(
        "--batch",
        type=_positive,
        default=0,
        metavar="N",
        help="images [128 small or 32 large ones]",
    )
    mode = bench.add_mutually_exclusive_group()
    mode.add_argument(
        "--train",
        action="store_true",
        dest="training",
        default=True,
        help="forward, backward and the optimizer [this]",
    )
    mode.add_argument("--inference", action="store_false", dest="training", help="forward alone")
    bench.add_argument(
        "--steps", type=_positive, default=20, metavar="N", help="timed [%(default)s]"
    )
    bench.add_argument(
        "--warmup", type=int, default=3, metavar="N", help="before them [%(default)s]"
    )
    bench.add_argument(
        "--threads", type=_positive, metavar="N", help="[all cores that may be used]"
    )
    bench.add_argument("--graph", action="store_true", help="compile with use_graph=True")
    bench.add_argument(
        "--recompute", action="store_true", help="compile with recompute=True: less memory"
    )
    bench.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="bfloat16: under autocast [%(default)s]",
    )
    bench.add_argument("--json", action="store_true", help="print a JSON object")
    bench.set_defaults(run=_bench)


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["train"]:
        return _train(arguments[1:])
    if arguments[:1] == ["run"]:
        after = 1 + _after_script(arguments[1:])
        _run(arguments[1:after], arguments[after:])
    parsed = parser().parse_args(arguments)
    return parsed.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
