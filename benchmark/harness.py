"""Alternating measurements in child processes.

A side is a command that prints a JSON object as its last line of output, such as a script that
starts itself (`command`, `main`). Sides run in turn (A B A B ...), each in a new process, so that
none inherits memory, threads or clock speed from another. The result of a side is the minimum over
its processes of the median over their steps. `singa.bench` measures inside a process.

A comparison takes minutes to hours, so each run is written to a file when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# torch_models.py lies with the tests, which use it, too.
sys.path.append(
    str(Path(__file__).resolve().parents[1] / "test" / "python" / "support" / "pytorch")
)


def cpu_name() -> str:
    """Model name of the processor and its vector instruction sets."""
    name, flags = platform.processor() or "unknown", set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    except OSError:
        pass
    wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if flag in flags]
    return f"{name} ({' '.join(wide)})"


class FailedError(RuntimeError):
    """A side failed."""


def run_child(
    command: list[str], environment: dict[str, str] | None = None, limit: float | None = None
) -> dict:
    """Runs one side once. Raises FailedError, with the end of its output, if it fails or takes
    longer than `limit` seconds. Kills all of its processes in that case."""
    with subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group that includes compilers that it starts
    ) as child:
        try:
            output, errors = child.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise FailedError(f"took more than {limit:.0f} s") from None
            raise
    lines = output.strip().splitlines()
    if child.returncode != 0 or not lines:
        code = child.returncode  # of a process that a signal ended: its number, negative
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed ({code})"
        raise FailedError(f"{' '.join(command)} {how}:\n{output[-2000:]}{errors[-4000:]}")
    return json.loads(lines[-1])


def save(file: Path, content: object) -> None:
    """Writes a JSON file, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".tmp")
    partial.write_text(json.dumps(content, indent=1))
    partial.replace(file)


class Side(NamedTuple):
    """A command, its environment variables, and its time limit in seconds."""

    command: list[str]
    environment: dict[str, str] | None = None
    limit: float | None = None


def alternate(
    sides: dict[str, Side],
    rounds: int,
    note: Callable[[str], None] = lambda text: None,
    kept: Path | None = None,
) -> dict[str, dict]:
    """Runs the sides in turn, `rounds` times. Returns each side's run with the smallest median.

    kept: a file for all runs, {side: [run, ...]}; runs that are in it are not repeated. A side with
    a limit may fail: it is stored as {"failed": reason} and missing in the result.
    """
    runs: dict[str, list[dict]] = {}
    if kept and kept.exists():
        runs = json.loads(kept.read_text())
    for number in range(rounds):
        for name, side in sides.items():
            done = runs.setdefault(name, [])
            if len(done) > number or any("failed" in run for run in done):
                continue
            try:
                run = run_child(*side)
                note(f"round {number + 1}/{rounds} {name}: {run['ms']:.2f} ms")
            except FailedError as error:
                if side.limit is None:
                    raise
                run = {"failed": str(error)}
                note(f"round {number + 1}/{rounds} {name}: {error}")
            done.append(run)
            if kept:
                save(kept, runs)
    return best_runs({name: runs[name] for name in sides})


def seconds_of(call: Callable[[], object], calls: int, warmup: int = 1) -> list[float]:
    """The duration of each of several calls, after `warmup` calls that are not timed."""
    for _ in range(warmup):
        call()
    laps = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        laps.append(time.perf_counter() - start)
    return laps


def command(script: str, interpreter: str = sys.executable, **given: object) -> list[str]:
    """The command of a child process of a script, for `main`."""
    return [interpreter, script, "--child", json.dumps(given, default=str)]


def main(whole: Callable[[], int | None], child: Callable[[argparse.Namespace], object]) -> None:
    """Runs a script and exits. In a process that `command` has started it calls `child` with what
    was given there, and prints the result, if there is one; otherwise it calls `whole`."""
    if sys.argv[1:2] != ["--child"]:
        sys.exit(whole())
    result = child(argparse.Namespace(**json.loads(sys.argv[2])))
    if result is not None:
        print(json.dumps(result))


def best_runs(runs: dict[str, list[dict]]) -> dict[str, dict]:
    """The run with the smallest median, and all medians, of each side that did not fail."""
    return {
        name: {**min(results, key=lambda run: run["ms"]), "runs_ms": [r["ms"] for r in results]}
        for name, results in runs.items()
        if results and not any("failed" in run for run in results)
    }


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser of which --help prints a script's docstring as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def steps_parser(
    description: str | None, models: Sequence[str], warmup: int
) -> argparse.ArgumentParser:
    """A parser with the options that benchmarks of training steps have in common."""
    options = parser(description)

    def number(name: str, default: int, text: str | None = None) -> None:
        options.add_argument(name, type=int, default=default, help=text)

    options.add_argument(
        "--models", nargs="+", default=models, metavar="NAME", help="names of singa.models, or all"
    )
    options.add_argument(
        "--batches",
        nargs="+",
        type=int,
        default=[0],
        metavar="N",
        help="batch sizes; 0: 32 large or 128 small images [0]",
    )
    number("--threads", 2)
    number("--steps", 5, "measured steps per process")
    number("--warmup", warmup, "steps before them, at least 1")
    number("--rounds", 2, "processes of each side")
    options.add_argument(
        "--out", type=Path, help="folder for a JSON file per case; runs in it are not repeated"
    )
    return options


def known_models(
    parser: argparse.ArgumentParser, given: Sequence[str], groups: Mapping[str, Sequence[str]]
) -> list[str]:
    """The given networks, with names of `groups` expanded. Exits with an error for a network that
    singa does not have."""
    from singa import models

    names = [name for one in given for name in groups.get(one, (one,))]
    if unknown := set(names) - set(models.names()):
        known = ", ".join([*groups, *models.names()])
        parser.error(f"unknown model {sorted(unknown)}; there are {known}")
    return names


def torch_step(
    model: Any, x: Any, y: Any, called: Any = None, mixed: Any = None
) -> Callable[[], Any]:
    """A training step of PyTorch: forward, backward and SGD with singa.bench's hyperparameters.

    called: what wraps the model, such as torch.compile's result. mixed: a context of autocast.
    """
    import torch

    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True
    )
    loss_of = torch.nn.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with mixed or contextlib.nullcontext():
            out = (model if called is None else called)(x)
            # The classes of tokens are the last axis of the scores, those of images axis 1.
            loss = loss_of(out.flatten(0, 1), y.flatten()) if x.ndim == 2 else loss_of(out, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def table(rows: list[dict[str, str]]) -> str:
    """Rows as a Markdown table."""
    if not rows:
        return ""
    names = list(rows[0])
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in names}
    lines = [
        "| " + " | ".join(name.ljust(widths[name]) for name in names) + " |",
        "|" + "|".join("-" * (widths[name] + 2) for name in names) + "|",
    ]
    lines += [
        "| " + " | ".join(str(row[name]).ljust(widths[name]) for name in names) + " |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit("harness.py is a module; run step.py")
