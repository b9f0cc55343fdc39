"""Command line: python -m singa <command>; --help says what each does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def _doctor(arguments: argparse.Namespace) -> int:
    from .diagnostics import doctor

    report = doctor()
    print(report)
    return 1 if arguments.strict and report["problems"] else 0


def _replay(arguments: argparse.Namespace) -> int:
    from . import singa_wrap

    try:
        print(singa_wrap.ReplayFile(str(arguments.file)))
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


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

    replay = commands.add_parser(
        "replay",
        help="run the operation of a saved OPCHECK mismatch again",
        description="Runs the operation of a saved mismatch on its implementation and on the "
        "reference one, and says how they differ. Exit status 1 if they still do.",
    )
    replay.add_argument("file", type=Path, help="written when OPCHECK found the mismatch")
    replay.set_defaults(run=_replay)

    cmake = commands.add_parser(
        "cmake-dir",
        help="where find_package(singa) finds this installation",
        description='For C++ programs: cmake -Dsinga_DIR="$(python -m singa cmake-dir)" ...',
    )
    cmake.set_defaults(run=_cmake_dir)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parsed = parser().parse_args(arguments)
    return parsed.run(parsed)


if __name__ == "__main__":
    sys.exit(main())
