"""What training programs have in common: arguments, resumed settings, the device, signals, and
errors that take one line."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from .. import device, distributed
from ..launcher.command_line import at_least, error_text, program_name
from ..raw.process import get_num_threads, set_num_threads
from ..raw.words import counted
from . import checkpoint
from .totals import NonFiniteLossError

__all__ = [
    "StopSignals",
    "add_device_arguments",
    "add_model_argument",
    "add_run_arguments",
    "at_least",
    "choose_device",
    "parse_run",
    "program",
    "reporting_errors",
    "say",
    "warnings_as_notes",
]


def add_run_arguments(parser: argparse.ArgumentParser, out: str, saved_after: str) -> None:
    """Adds --out, --resume, --overwrite, --checkpoint-steps, --device and --threads.

    `out` describes the default folder, `saved_after` when a checkpoint is saved in any case.
    """
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"output folder [{out}]")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="continue from the checkpoint in --out"
    )
    again.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_argument(
        "--checkpoint-steps",
        type=at_least(0, int),
        default=0,
        metavar="N",
        help=f"also save a checkpoint every N steps; 0: only after {saved_after} [%(default)s]",
    )
    add_device_arguments(parser)


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --device and --threads, whose values `choose_device` takes.

    >>> import argparse
    >>> from singa.training import program
    >>> parser = argparse.ArgumentParser()
    >>> program.add_device_arguments(parser)
    >>> parser.parse_args(["--threads", "2"])
    Namespace(device='cpu', threads=2)
    """
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="[%(default)s]")
    parser.add_argument(
        "--threads",
        type=at_least(0, int),
        default=0,
        metavar="N",
        help="CPU threads; 0: OMP_NUM_THREADS, or all cores [0]",
    )


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Adds MODEL, what `singa.load` opens."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a run's folder, such as runs/pets, a file of Model.save, or an ONNX file",
    )


def parse_run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    settings: Collection[str],
    default_out: Callable[[argparse.Namespace], Path],
    *,
    more_epochs: bool = False,
) -> argparse.Namespace:
    """The arguments of a program with the options of `add_run_arguments`.

    `settings` names those that determine the weights. A resumed run gets them from the checkpoint,
    and exits with an error if others are given. They are in `args.settings`, for the progress of
    `checkpoint.save`; `args.checkpoint` is its path. A job that `singa launch` has started again
    resumes if there is a checkpoint. `args.given` has the names of the options in `argv`: a setting
    that comes from a checkpoint may be the default of the version that started the run.

    With `more_epochs` a resumed run may be given more `epochs` than before. `args.extended` then
    has, and the setting of this name, the numbers to which it was extended, one after another;
    `epochs` stays what it was at first.
    """
    args = parser.parse_args(argv)
    args.out = args.out or default_out(args)
    args.checkpoint = args.out / "checkpoint.safetensors"
    if distributed.environment().restart and args.checkpoint.exists():
        args.resume, args.overwrite = True, False
    if args.resume and not args.checkpoint.exists():
        parser.error(f"--resume: {args.out} holds no checkpoint")
    if args.resume:
        try:
            saved = checkpoint.read_progress(args.checkpoint)["settings"]
        except (OSError, ValueError, KeyError) as error:
            parser.error(f"--resume: {error}")
        parser.set_defaults(**saved)
        given = parser.parse_args(argv)
        if more_epochs:
            args.extended = _extended(parser, args.out, saved, given.epochs)
            given.epochs = saved["epochs"]
        for name in settings:
            value = saved.get(name, parser.get_default(name))  # older runs may lack a setting
            if getattr(given, name) != value:
                option = "--" + name.replace("_", "-")
                was = "not given" if value is None or value is False else value
                parser.error(
                    f"{option} was {was} when the run in {args.out} started, and stays so: "
                    f"leave out {option}"
                )
            setattr(args, name, value)
    elif args.checkpoint.exists() and not args.overwrite:
        parser.error(f"{args.out} has a run: use --resume, --overwrite, or another --out")
    if trouble := _trouble_with(args.out):
        parser.error(f"--out {args.out}: {trouble}")
    args.given = _given(parser, argv, args)
    args.settings = {name: getattr(args, name) for name in settings}
    if more_epochs:
        args.extended = getattr(args, "extended", [])
        args.settings |= {"extended": args.extended} if args.extended else {}
    return args


def _given(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, args: argparse.Namespace
) -> set[str]:
    """The names of the options in `argv`, whatever their values are."""
    nothing = object()  # which a parser does not replace by defaults
    parsed = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(vars(args), nothing)))
    return {name for name, value in vars(parsed).items() if value is not nothing}


def _trouble_with(folder: Path) -> str:
    """Why no file can be written to a folder, which may not exist yet; empty if one can."""
    place = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not place.is_dir():
        return f"{place} is no folder"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written to"


def _extended(
    parser: argparse.ArgumentParser, out: Path, saved: dict[str, Any], epochs: int
) -> list[int]:
    """The numbers of epochs to which a run was extended, and now to `epochs`. Exits with an error
    for fewer than before; those of the beginning mean that nothing was given."""
    extended = [int(number) for number in saved.get("extended", [])]
    last = [saved["epochs"], *extended][-1]
    if epochs in (last, saved["epochs"]):
        return extended
    if epochs < last:
        parser.error(f"--epochs: the run in {out} has {last}, and can only get more")
    return [*extended, epochs]


def choose_device(name: str, threads: int) -> str:
    """Sets the default device, "cpu" or "cuda", and the number of threads, unless it is 0. Returns
    a description. Raises OSError if there is no GPU."""
    if threads:
        set_num_threads(threads)
    if name == "cpu":
        device.set_default_device(None)
        return counted(get_num_threads(), "thread")
    gpu = distributed.local_rank()
    try:
        device.set_default_device(
            device.create_cuda_gpu_on(gpu) if gpu else device.create_cuda_gpu()
        )
    except RuntimeError as error:
        raise OSError(f"--device cuda: {error}") from None
    return device.device_query(gpu)


class StopSignals:
    """Notes the first Ctrl-C or SIGTERM, so that a program can save a checkpoint and stop. The
    second one stops at once. It is true from then on, and `status` is the exit status.

    As a context manager it restores the handlers of before. Outside of the main thread, where
    Python handles no signals, it notes none.
    """

    def __init__(self) -> None:
        self._number = 0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # None: it is not Python's
                signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self._number = self._number or number
        signal.signal(number, signal.default_int_handler)

    def __bool__(self) -> bool:
        return bool(self._number)

    def anywhere(self) -> bool:
        """Whether any rank has got a signal. All ranks call it at the same place, since signals
        come to each at another step."""
        if distributed.any_rank(self) and not self._number:
            self._note(signal.SIGTERM, None)
        return bool(self)

    @property
    def status(self) -> int:
        """128 and the number of the signal, or 0."""
        return self._number and 128 + self._number


def say(*words: object) -> None:
    """Prints on rank 0."""
    if distributed.is_main():
        print(*words, flush=True)


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Prints warnings of the block as lines on standard error, on rank 0, without a place in the
    code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _print_note
        yield


def _print_note(message: Warning | str, *_: object, **__: object) -> None:
    if distributed.is_main():
        print(f"note: {message}", file=sys.stderr, flush=True)


def program(
    command: str,
    parse: Callable[[Sequence[str] | None], argparse.Namespace],
    work: Callable[[argparse.Namespace], int],
) -> Callable[..., int]:
    """The function of arguments that runs a command of `python -m singa`, and returns the exit
    status."""

    def main(argv: Sequence[str] | None = None) -> int:
        return reporting_errors(program_name(command), lambda: work(parse(argv)))

    return main


def reporting_errors(prog: str, program: Callable[[], int]) -> int:
    """Runs `program` and returns its exit status. Errors of files and arguments take one line. The
    other ranks are told of them."""
    try:
        status = program()
        print(end="", flush=True)  # a reader that has gone is noticed here, not at Python's end
        return status
    except BrokenPipeError:  # head, for example, has read enough
        distributed.abort("its output has no reader")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        distributed.abort("it was interrupted")
        print(f"\n{prog}: stopped at once; files that it wrote before are whole", file=sys.stderr)
        return 128 + signal.SIGINT
    except ImportError as error:
        if error.name is not None:  # Python's own, not one that says what to install
            raise
        print(f"{prog}: {error}", file=sys.stderr, flush=True)
        distributed.abort(f"ImportError: {error}")
        return 1
    except (OSError, ValueError, MemoryError) as error:
        text = error_text(error)
        if isinstance(error, NonFiniteLossError):
            text = text.replace("a lower learning rate", "a lower --lr")
        print(f"{prog}: {text}", file=sys.stderr, flush=True)
        distributed.abort(f"{type(error).__name__}: {error}")
        return 1
