"""Controls a worker process: starts it, sends it inputs, and limits their time and memory."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds that an input may take: of CPU time, and of wall-clock time.
COMPUTING, WAITING = 10.0, 90.0
#: Seconds that a worker may take to start.
_STARTING = 300.0
#: A worker is replaced when it has this many resident bytes, or has run this many inputs.
_RESIDENT, _INPUTS = 2 << 30, 3000


@dataclass
class Outcome:
    finding: str  # "" if nothing is wrong
    novelty: str
    note: str = ""

    @property
    def key(self) -> str:
        """Equal for findings that count as the same."""
        return re.sub(r"0x[0-9a-f]+|-?\d[\d.e+-]*|'[^']*'|/\S+", "#", self.finding)[:90]


class Worker:
    """Runs inputs of one target in a process, which it replaces when needed."""

    def __init__(self, target: str, computing: float = COMPUTING) -> None:
        self.target, self._computing = target, computing
        self._folder = tempfile.mkdtemp(prefix=f"singa-fuzz-{target}-")
        self._errors = Path(self._folder) / "stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self.format, self.seeds = "", list[bytes]()
        self._start()

    def run(self, data: bytes) -> Outcome:
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(struct.pack("<q", len(data)) + data)
            process.stdin.flush()
            answer = self._answer(self._computing, WAITING)
        except BrokenPipeError:
            answer = None
        self._inputs += 1
        if answer is None:
            note = Path(self._folder, "note")
            return Outcome(self._ending(), "", note.read_text() if note.exists() else "")
        if answer["resident"] > _RESIDENT or self._inputs >= _INPUTS:
            self._stop()
        return Outcome(answer["finding"], answer["novelty"], answer["note"])

    def close(self) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> None:
        self._inputs = 0
        # Workers share the cores of a machine, so waiting threads must not spin.
        environment = os.environ | {"OMP_WAIT_POLICY": "passive", "PYTHONFAULTHANDLER": "1"}
        environment.setdefault("OMP_NUM_THREADS", "2")
        if path := environment.get("PYTHONPATH"):  # the worker starts elsewhere
            environment["PYTHONPATH"] = os.pathsep.join(
                map(os.path.abspath, path.split(os.pathsep))
            )
        script = str(Path(__file__).with_name("worker.py"))
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, script, self.target],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                cwd=self._folder, env=environment,
            )  # fmt: skip
        answer = self._answer(_STARTING, _STARTING)
        if answer is None:
            raise RuntimeError(f"the worker of {self.target} does not start: {self._ending()}")
        self.format = answer["format"]
        self.seeds = [bytes.fromhex(seed) for seed in answer["seeds"]]

    def _answer(self, computing: float, waiting: float) -> dict[str, Any] | None:
        """A line from the worker; None if it died or took too long, which `_slow` tells apart."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        self._slow = ""
        line, began, spent = b"", time.monotonic(), self._spent()
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.5)
            if ready:
                piece = os.read(process.stdout.fileno(), 1 << 20)
                line += piece
                if line.endswith(b"\n"):
                    return json.loads(line)
                if not piece:
                    return None
            elif self._spent() - spent > computing:
                self._slow = f"hang: more than {computing:g} s of computing"
                return None
            elif time.monotonic() - began > waiting:
                self._slow = f"hang: no end after {waiting:g} s"
                return None

    def _spent(self) -> float:
        """CPU seconds that the process has used so far."""
        assert self._process is not None
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def _ending(self) -> str:
        """How the process ended. Ends it if it still runs."""
        process = self._process
        assert process is not None
        if self._slow:
            self._stop()
            return self._slow
        try:
            status = process.wait(30)
        except subprocess.TimeoutExpired:
            self._stop()
            return "hang: the worker neither answers nor ends"
        self._stop()
        said = self._errors.read_text(errors="replace").splitlines()
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        frames = [line.rpartition(" in ")[2] for line in said if line.startswith("  File ")]
        last = next((line for line in reversed(said) if line and not line.startswith(" ")), "")
        where = f" in {' < '.join(frames[:2])}" if frames else f": {last[:120]}"
        report = [line.strip() for line in said if "runtime error" in line or "ERROR: " in line]
        return f"crash: {name}{where} {report[:1] or ''}"

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream:
                    stream.close()
            except BrokenPipeError:
                pass
        self._process = None
