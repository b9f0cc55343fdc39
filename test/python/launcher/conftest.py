"""Jobs that are started as a program, and what they leave behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from singa.launcher.environment import FOREIGN, Environment


class Jobs:
    """Starts `python -m singa launch`. All processes of its jobs have a variable of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = f"{folder.name}-{os.getpid()}"
        self.launchers = []
        own = {*FOREIGN, *Environment(job="-").variables()}
        self.variables = {k: v for k, v in os.environ.items() if k not in own}
        self.variables |= {"TEST_OF_LAUNCHER": self.mark, "OMP_NUM_THREADS": "1"}

    def script(self, text):
        """The path of a script with this text."""
        path = self.folder / "script.py"
        path.write_text(text)
        return str(path)

    def start(self, *arguments, **options):
        """Starts a job; returns its process."""
        process = subprocess.Popen(
            [sys.executable, "-m", "singa", "launch", *map(str, arguments)],
            env=self.variables,
            cwd=self.folder,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        self.launchers.append(process.pid)
        return process

    def run(self, *arguments):
        """(exit status, output, errors) of a job."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    def left(self):
        """Command lines of the processes that are left, and names of shared memory."""
        mark = f"TEST_OF_LAUNCHER={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        marks = [f"-{pid}-" for pid in self.launchers]
        names = os.listdir("/dev/shm")
        return found, sorted(name for name in names if any(mark in name for mark in marks))


@pytest.fixture
def jobs(tmp_path):
    """Jobs that must leave nothing behind."""
    made = Jobs(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and children inherit
    yield made
    signal.signal(signal.SIGHUP, before)
    assert made.left() == ([], [])
