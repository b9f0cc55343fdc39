"""Fuzzing: `make fuzz`, or `python test/fuzz [TARGET ...] --seconds 60 --seed 1`.

Each input runs in a worker process. Findings are crashes, hangs, unbounded memory, undeclared
exceptions, and results that differ. Each finding is minimised, written below --out, and printed
with the command that runs it again. Every run starts with the inputs in corpus/; add a finding
there when its defect is fixed. Exit status 1 if anything was found.

  python test/fuzz npz --input FILE      runs one input, such as a finding
  python test/fuzz npz --keep FILE NAME  adds a finding to the corpus

PYTHONPATH chooses the build of singa. The inputs of a target depend on the seed and on the novelty
of the inputs before them, not on time.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import os
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import formats
import mutate
import protobuf
from pool import Outcome, Worker
from targets import TARGETS

CORPUS = Path(__file__).resolve().parent / "corpus"
FORMATS: dict[str, formats.Change] = {
    "bytes": mutate.change_bytes,
    "zip": formats.change_zip,
    "safetensors": formats.change_safetensors,
    "json": formats.change_json_file,
    "pickle": formats.change_pickle,
    "gzip": formats.change_gzip,
    "protobuf": protobuf.change_protobuf,
}
_POOL = 400
#: Larger inputs are stored compressed.
_PLAIN = 2048


def read_input(path: Path) -> bytes:
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def write_input(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(data, preset=9)
    large = len(data) > _PLAIN and len(packed) < len(data)
    path = folder / (f"{name}.xz" if large else name)
    path.write_bytes(packed if large else data)
    return path


class Fuzzer:
    """Runs one target: its corpus, then new inputs for some seconds."""

    def __init__(self, target: str, worker: Worker, seed: int, out: Path) -> None:
        self.target, self.worker, self.out = target, worker, out
        self.random = Random(f"{seed} {target}")
        self.found: dict[str, tuple[int, Outcome, Path]] = {}
        self.tried = 0
        self.pool: list[bytes] = []
        self._seen: set[str] = set()

    def corpus(self) -> None:
        for path in sorted((CORPUS / self.target).glob("*")):
            data = read_input(path)
            if not self.attempt(data, path):
                self.pool.append(data)
        for data in self.worker.seeds:
            if not self.attempt(data, None):
                self.pool.append(data)

    def fuzz(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.attempt(self.new_input(), None)

    def new_input(self) -> bytes:
        random = self.random
        if self.worker.format == "draws" and (not self.pool or random.random() < 0.4):
            return random.randbytes(random.choice((8, 24, 64, 160, 400)))
        # Half of the time one of the newest inputs, which more often lead to novel ones.
        latest = self.pool[-20:] if random.random() < 0.5 else self.pool
        data = random.choice(latest) if latest else b""
        change = FORMATS.get(self.worker.format, mutate.change_bytes)
        for _ in range(random.choice((1, 1, 2))):
            data = change(random, data, self.pool)
        return data[: 2 * formats.LONGEST]

    def attempt(self, data: bytes, path: Path | None) -> bool:
        """Runs an input. Returns True for a finding, and reports it if it is a new one."""
        outcome = self.worker.run(data)
        self.tried += 1
        if not outcome.finding:
            if outcome.novelty not in self._seen:
                self._seen.add(outcome.novelty)
                self.pool.append(data)
                del self.pool[:-_POOL]
            return False
        times, first, where = self.found.get(outcome.key, (0, outcome, Path()))
        if not times:
            if path is None:
                data, outcome = self._cut_down(data, outcome)
                where = write_input(self.out / self.target, _digest(data), data)
            else:
                where = path
            first = outcome
            self._tell(first, where)
        self.found[outcome.key] = (times + 1, first, where)
        return True

    def _cut_down(self, data: bytes, outcome: Outcome) -> tuple[bytes, Outcome]:
        """The smallest input with the same finding, after searching for half a minute."""
        end = time.monotonic() + (5.0 if "hang" in outcome.finding else 30.0)
        for way in mutate.smaller(data):
            if time.monotonic() > end:
                break
            tried = way(data)
            if tried is None or tried == data:
                continue
            now = self.worker.run(tried)
            if now.finding and now.key == outcome.key:
                data, outcome = tried, now
        return data, outcome

    def _tell(self, outcome: Outcome, path: Path) -> None:
        print(f"\n{self.target}: {outcome.finding}")
        if outcome.note:
            print(f"    {outcome.note}")
        print(f"    {_command(self.target, path)}", flush=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _command(target: str, path: Path) -> str:
    where = os.path.relpath(path)
    here = os.path.relpath(Path(__file__).parent)
    prefix = f"PYTHONPATH={os.environ['PYTHONPATH']} " if "PYTHONPATH" in os.environ else ""
    return f"{prefix}python {here} {target} --input {where}"


def one_input(target: str, path: Path) -> int:
    with Worker(target) as worker:
        outcome = worker.run(read_input(path))
    print(outcome.finding or f"nothing wrong: {outcome.novelty}")
    if outcome.note:
        print(outcome.note)
    return 1 if outcome.finding else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python test/fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="[%(default)s]")
    parser.add_argument("--input", type=Path, help="run only this input")
    parser.add_argument("--keep", nargs=2, metavar=("FILE", "NAME"), help="add it to the corpus")
    options = parser.parse_args()
    wanted = options.targets or list(TARGETS)
    if unknown := {name for name in wanted if name not in TARGETS and ":" not in name}:
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}")
    if (options.input or options.keep) and len(options.targets) != 1:
        parser.error("--input and --keep are about one target")
    if options.input:
        return one_input(wanted[0], options.input)
    if options.keep:
        path, name = options.keep
        print(write_input(CORPUS / wanted[0], name, read_input(Path(path))))
        return 0
    found = 0
    for target in wanted:
        began = time.monotonic()
        with Worker(target) as worker:
            fuzzer = Fuzzer(target, worker, options.seed, options.out)
            fuzzer.corpus()
            fuzzer.fuzz(options.seconds / len(wanted))
        seconds = time.monotonic() - began
        print(f"{target}: {fuzzer.tried} inputs in {seconds:.0f} s, {len(fuzzer.found)} findings")
        for times, outcome, _ in fuzzer.found.values():
            print(f"    {times} x {outcome.finding[:110]}")
        found += len(fuzzer.found)
    print(f"fuzz: {found} findings" if found else "fuzz: good")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
