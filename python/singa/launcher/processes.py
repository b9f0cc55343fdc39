"""The processes and the shared memory of a job, and their end.

All processes that a rank starts inherit SINGA_JOB, so /proc tells which belong to a job, also those
that have left its process groups or lost their parents.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Container
from pathlib import Path

_PROC = Path("/proc")
_SHARED_MEMORY = Path("/dev/shm")
#: Asks for Python stacks.
STACK_SIGNAL: int = signal.SIGRTMIN + 7
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def ended_by(status: int) -> str:
    """How a process ended, from the `returncode` of subprocess."""
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"


def exit_status(status: int) -> int:
    """The exit status of a shell for `returncode`: 128 and the number of the signal."""
    return status if status >= 0 else 128 - status


def processes_of(job: str) -> list[int]:
    """Ids of the processes that have the name of the job in SINGA_JOB, without this one."""
    entry = f"SINGA_JOB={job}".encode()
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return sorted(set(found) - {os.getpid()})


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, by SIGSTOP or a debugger."""
    try:
        state = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"


def show_stack_on_signal() -> None:
    """From now on this process prints its Python stacks when `ask_for_stack` asks for it, also
    while it is in a long call of C."""
    if signal.getsignal(STACK_SIGNAL) == signal.SIG_DFL:
        faulthandler.register(STACK_SIGNAL, file=2)


def ask_for_stack(pid: int) -> bool:
    """Has a process that has called `show_stack_on_signal` print its stacks to standard error.
    Returns whether it was asked; the signal would end another one."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        if not caught >> (STACK_SIGNAL - 1) & 1:
            return False
        os.kill(pid, STACK_SIGNAL)
    except (OSError, IndexError, ValueError):
        return False
    return True


def kill_job(job: str, seconds: float = 5.0) -> list[int]:
    """Kills all processes of a job by SIGKILL; returns those that are left after `seconds`."""
    return _kill_all(lambda: processes_of(job), seconds)


def _kill_all(find: Callable[[], list[int]], seconds: float) -> list[int]:
    end = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return left


class Adopted:
    """The processes that this one gets as children while a job runs: the job's, and those of
    its descendants whose parents have ended, also in sessions and environments of their own."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
        self._before = set(self._children_of_all().get(os.getpid(), ()))

    def kill(self, seconds: float = 5.0) -> list[int]:
        """Kills them and their descendants; returns those that are left after `seconds`."""
        return _kill_all(self._living, seconds)

    def reap(self, own: Container[int] = ()) -> None:
        """Has the system forget children that have ended, but for `own` ones, whose exit status
        somebody still asks for."""
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in own:
                    return
                os.waitpid(ended.si_pid, 0)

    def _living(self) -> list[int]:
        self.reap()
        children = self._children_of_all()
        found = [pid for pid in children.get(os.getpid(), ()) if pid not in self._before]
        for pid in found:
            found += children.get(pid, ())
        return found

    @staticmethod
    def _children_of_all() -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for folder in _PROC.glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
        return children


def remove_shared_memory(job: str) -> list[str]:
    """Removes segments of shared memory that have the name of the job in theirs; returns them."""
    removed = []
    for file in _SHARED_MEMORY.glob(f"*{job}*"):
        with contextlib.suppress(OSError):
            file.unlink()
            removed.append(file.name)
    return removed


def die_with(parent: int) -> None:
    """Has the kernel kill this process when the process `parent`, which started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the call
        os._exit(128 + signal.SIGKILL)


def open_standard_streams() -> None:
    """Flushes output, and opens standard streams that are closed: a pipe of a rank would get their
    descriptors."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    while nothing < 3:
        os.set_inheritable(nothing, True)
        nothing = os.dup(nothing)
    os.close(nothing)


class Guard:
    """A process that outlives a killed launcher and ends its job then.

    It waits at a pipe that the launcher holds. When the launcher is gone, however that happened, it
    kills the processes of the job that was watched last, and removes its shared memory.
    """

    def __init__(self) -> None:
        read, self._pipe = os.pipe()
        self.pid: int = os.fork()
        if self.pid == 0:
            try:
                os.close(self._pipe)
                _guard(read)
            finally:
                os._exit(0)
        os.close(read)

    def watch(self, job: str) -> None:
        """Names the job that now runs; "" for none."""
        with contextlib.suppress(BrokenPipeError):  # the guard was killed
            os.write(self._pipe, job.encode() + b"\n")

    def close(self) -> None:
        """Ends the guard, which ends the watched job."""
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _guard(pipe: int) -> None:
    os.setsid()  # signals to the launcher's group, such as Ctrl-C, do not come here
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # a reader of the launcher's output must not wait for the guard
        os.dup2(nothing, descriptor)
    text = b""
    while data := os.read(pipe, 4096):
        text += data
    job = text.decode().split("\n")[-2] if b"\n" in text else ""
    if job:
        kill_job(job)
        remove_shared_memory(job)
