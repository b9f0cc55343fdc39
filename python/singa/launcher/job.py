"""One start of all processes of a job, until the last one has ended."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .output import Lines
from .processes import (
    Adopted,
    ask_for_stack,
    die_with,
    ended_by,
    exit_status,
    is_stopped,
    kill_job,
    remove_shared_memory,
)

#: Signals that the launcher passes on. Those of a terminal go to all processes of a rank.
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_FORWARDED = (*_OF_TERMINAL, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (*_OF_TERMINAL, signal.SIGTERM)
_CHUNK = 1 << 16
_INPUT = object()  # stands for standard input in the selector
_FOR_STACKS = 0.5  # seconds to print them


def say(text: str) -> None:
    """Prints a line of the launcher's own to standard error."""
    with contextlib.suppress(OSError):
        os.write(2, f"singa launch: {text}\n".encode())


@dataclass(frozen=True)
class Member:
    """A process to start.

    title      name in messages, such as "rank 1"
    command    program and arguments
    variables  its environment
    prefix     text before each line of its output
    cores      CPUs that it may use; empty: all
    inherits   whether it gets the launcher's open files, such as MPI's connection to its daemon
    starts     number of ranks that it starts, whose launchers report their ends in its output
    told_by    how signals reach these launchers: "signal", "input" or "SIGUSR2"
    log        file to which its output is appended, too
    """

    title: str
    command: Sequence[str]
    variables: Mapping[str, str]
    prefix: str = ""
    cores: Sequence[int] = ()
    inherits: bool = False
    starts: int = 0
    told_by: str = "signal"
    log: Path | None = None


#: A line by which the launcher of a rank reports the failure of this rank.
_REPORT = re.compile(
    rb"singa launch: rank \d+ \(process \d+\) "
    rb"(?:ended with exit status (\d+)|was killed by (SIG\w+)) first, "
)
#: The same for a rank that has ended with exit status 0. Users do not see it.
_GOOD_END = re.compile(rb"singa launch: (rank \d+) has done its work$")


def say_good_end(title: str) -> None:
    """Tells the launcher that has started the ranks on all machines that this one has ended with
    exit status 0."""
    say(f"{title} has done its work")


@dataclass
class Outcome:
    """What a job came to.

    status     exit status: 0, or that of the process that failed first
    requested  whether a signal to the launcher ended the job
    """

    status: int = 0
    requested: bool = False


@dataclass
class _Running:
    member: Member
    process: subprocess.Popen[bytes]
    lines: dict[int, Lines] = field(default_factory=dict)  # by descriptor
    killed: bool = False  # by the launcher
    stopped: float = 0.0  # seconds for which the launcher has seen it stopped

    @property
    def alive(self) -> bool:
        return self.process.returncode is None


class Job:
    """Starts the members, passes on their output and signals, and ends all when one fails.

    name     the job's name, which is in the members' SINGA_JOB; "" if others have the same job
    linger   seconds that the others get, after a failure, to report it by themselves
    grace    seconds between SIGTERM and SIGKILL
    timeout  seconds after which a member that is stopped, and for which no other one waits, has
             failed; None: never
    told_by  how the launcher's own signals come: "signal"; "input": as numbers in its standard
             input; "SIGUSR2": this stands for SIGTERM

    After a failure, processes that are stopped are killed at once, since they cannot end otherwise.
    When the last member has ended, so have all processes that it started, and no shared memory
    named after the job is left. Without a name the memory is left to those who know the others.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        linger: float = 2.0,
        grace: float = 5.0,
        timeout: float | None = None,
        *,
        told_by: str = "signal",
    ) -> None:
        self.name = name
        self.linger = linger
        self.grace = grace
        self.timeout = timeout
        self._told_by = told_by
        self._members = members
        self._running: list[_Running] = []
        self._selector = selectors.DefaultSelector()
        self._signals = 0  # ending ones, to the launcher
        self._failed_at: float | None = None
        self._terminated = False
        self._good_ends: set[bytes] = set()
        self._began = self._looked = time.monotonic()
        self._output_error: OSError | None = None
        self._logs: list[int] = []  # descriptors
        self._asked = False  # the others to show their stacks
        self.outcome: Outcome = Outcome()

    def run(self) -> Outcome:
        """Runs the job to its end. Raises OSError if a program cannot be started or output cannot
        be written; the others have ended then, too."""
        self._adopted = Adopted()
        with self._noting_signals():
            try:
                for member in self._members:
                    self._start(member)
                while any(running.alive for running in self._running):
                    self._wait()
                    self._reap()
                    self._look_for_stopped()
                    self._end_others()
                self._adopted.kill()
                if self.name:
                    kill_job(self.name)
                self._drain()
                self._check_good_ends()
            finally:
                self._kill_all()
                self._adopted.kill()
                if self.name:
                    remove_shared_memory(self.name)
                self._selector.close()
                for log in self._logs:
                    os.close(log)
        if self._output_error is not None:
            raise self._output_error
        return self.outcome

    def _start(self, member: Member) -> None:
        parent = os.getpid()

        def in_child() -> None:
            die_with(parent)
            if member.cores:
                os.sched_setaffinity(0, member.cores)

        process = subprocess.Popen(
            member.command,
            env=dict(member.variables),
            stdin=subprocess.PIPE if member.told_by == "input" else subprocess.DEVNULL,
            close_fds=not member.inherits,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=in_child,
        )
        running = _Running(member, process)
        self._running.append(running)
        copy = self._log(member)
        for stream, target in ((process.stdout, 1), (process.stderr, 2)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            lines = Lines(member.prefix, target, self._look if member.starts else None, copy)
            self._selector.register(stream, selectors.EVENT_READ, lines)

    def _log(self, member: Member) -> Callable[[bytes], object] | None:
        """Appends to the member's log; a full disk costs the log, and not the training."""
        if member.log is None:
            return None
        log = os.open(member.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._logs.append(log)

        def append(data: bytes) -> None:
            if log not in self._logs:
                return
            try:
                while data:
                    data = data[os.write(log, data) :]
            except OSError as error:
                self._logs.remove(log)
                os.close(log)
                say(f"the log of {member.title} ends here: {error}")

        return append

    def _look(self, line: bytes) -> bool:
        """Notes the first failure and the good ends that launchers on other machines report.
        Returns whether the line is for this launcher alone."""
        if good := _GOOD_END.search(line):
            self._good_ends.add(good[1])
            return True
        if self._failed_at is None and (report := _REPORT.search(line)):
            self._failed_at = time.monotonic()
            self.outcome.status = int(report[1] or 128 + signal.Signals[report[2].decode()])
        return False

    def _check_good_ends(self) -> None:
        """An MPI may end with 0 though it has killed ranks, because one ended before the others."""
        expected = sum(member.starts for member in self._members)
        if self.outcome.status or self.outcome.requested or len(self._good_ends) >= expected:
            return
        self.outcome.status = 1
        command = Path(self._members[0].command[0]).name
        say(
            f"{command} ended with exit status 0, but only {len(self._good_ends)} of {expected} "
            "ranks did"
        )

    @contextlib.contextmanager
    def _noting_signals(self) -> Iterator[None]:
        """Signals wake `_wait`, which reads their numbers from a pipe."""
        read, write = os.pipe()
        for end in (read, write):
            os.set_blocking(end, False)
        # A signal that is ignored, as by nohup, stays ignored. SIGCHLD must not be: the system then
        # keeps no exit status.
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGCHLD, signal.SIGTSTP, *_FORWARDED)
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
        }
        wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._selector.register(read, selectors.EVENT_READ, None)
        if self._told_by == "input":
            with contextlib.suppress(PermissionError):  # a file, such as /dev/null, tells nothing
                self._selector.register(0, selectors.EVENT_READ, _INPUT)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
            os.close(read)
            os.close(write)

    def _wait(self) -> None:
        """Waits for output, signals or a deadline, and handles the first two."""
        # A second at most, in case another thread has taken the signal of a process that ended.
        timeout = 1.0
        if (deadline := self._deadline()) is not None:
            timeout = min(timeout, max(0.02, deadline - time.monotonic()))
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                for number in os.read(key.fd, _CHUNK):
                    self._handle(signal.Signals(number))
            elif key.data is _INPUT:
                self._read_input()
            else:
                self._pass_on(key)

    def _read_input(self) -> None:
        text = os.read(0, _CHUNK)
        if not text:
            self._selector.unregister(0)
        for word in text.split():
            if (number := int(word)) in _FORWARDED:
                self._handle(signal.Signals(number))

    def _pass_on(self, key: selectors.SelectorKey) -> bool:
        """Reads output once; returns whether there may be more."""
        try:
            data = os.read(key.fd, _CHUNK)
        except BlockingIOError:
            return False
        try:
            key.data.feed(data) if data else key.data.end()
        except OSError as error:
            self._note_output_error(error)
        if not data:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        return bool(data)

    def _note_output_error(self, error: OSError) -> None:
        """Nobody reads the output any more, which is a failure, unless the job ends anyway: then
        its ranks still write their checkpoints."""
        if self._failed_at is None and not self.outcome.requested:
            self._failed_at = time.monotonic()
            self._output_error = error

    def _drain(self) -> None:
        """Passes on what is left in the pipes."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Lines):
                while self._pass_on(key):
                    pass
                with contextlib.suppress(OSError):
                    key.data.end()

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGTSTP:  # Ctrl-Z stops the job and the launcher
            self._send(signal.SIGSTOP, group=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._send(signal.SIGCONT, group=True)
        elif number in _FORWARDED:
            if number == signal.SIGUSR2 and self._told_by == "SIGUSR2":
                number = signal.SIGTERM
            if number in _ENDING:
                self._signals += 1
                self.outcome.requested = True
            if self._signals > 2:
                self._send(signal.SIGKILL, group=True)
                return
            for running in self._running:
                if not self._tell(running, number):
                    self._signal(running, number, group=number in _OF_TERMINAL)

    def _tell(self, running: _Running, number: int) -> bool:
        """Sends a signal to the launchers of ranks by a command that would end them at once if it
        got the signal itself. Returns whether it is such a command."""
        if running.process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended
                running.process.stdin.write(b"%d\n" % number)
                running.process.stdin.flush()
        elif running.member.told_by == "SIGUSR2" and number in (*_ENDING, signal.SIGUSR2):
            if number == signal.SIGUSR2:
                say("this MPI passes SIGUSR2 on as SIGTERM, so it was left out; SIGUSR1 goes on")
            else:
                self._signal(running, signal.SIGUSR2, group=False)
        else:
            return False
        return True

    def _send(self, number: int, *, group: bool) -> None:
        for running in self._running:
            self._signal(running, number, group)

    def _signal(self, running: _Running, number: int, group: bool) -> None:
        if running.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(running.process.pid, number)

    def _reap(self) -> None:
        """Notes which processes have ended, and whether one is the first that failed."""
        alive = [running for running in self._running if running.alive]
        self._adopted.reap({running.process.pid for running in alive})
        failed = [running for running in alive if running.process.poll()]
        # Of those that ended together, one that was killed is the likelier cause.
        failed.sort(key=lambda running: running.process.returncode > 0)
        for running in failed:
            status = running.process.returncode
            how = ended_by(status)
            if self._failed_at is None:
                self._failed_at = time.monotonic()
                self.outcome.status = exit_status(status)
                if self.outcome.requested:
                    continue
                after = self._failed_at - self._began
                say(f"{self._named(running)} {how} first, {after:.1f} s after the start")
                self._report_others()
                continue
            if not self.outcome.requested:
                by = " by the launcher" if running.killed and status < 0 else ""
                say(f"{self._named(running)} {how}{by}")

    def _named(self, running: _Running) -> str:
        return f"{running.member.title} (process {running.process.pid})"

    def _report_others(self) -> None:
        """Reports what the first failure may come from."""
        for running in self._running:
            if running.process.returncode == 0:
                say(f"{self._named(running)} had ended with exit status 0 before")
            if running.alive and is_stopped(running.process.pid):
                say(f"{self._named(running)} is stopped, it will be killed")

    def _look_for_stopped(self) -> None:
        """Notes the failure of a member that is stopped after others have ended well. Before, they
        wait for it and report it."""
        now = time.monotonic()
        # More than that between two looks, and the launcher itself was stopped.
        passed, self._looked = min(now - self._looked, 2.0), now
        unawaited = not self.name or any(each.process.returncode == 0 for each in self._running)
        if self.timeout is None or not unawaited or self._failed_at is not None:
            return
        for running in self._running:
            if not (running.alive and is_stopped(running.process.pid)):
                running.stopped = 0.0
                continue
            running.stopped += passed
            if running.stopped >= self.timeout and not self.outcome.requested:
                self._failed_at = now
                self.outcome.status = 1
                say(f"{self._named(running)} has been stopped for {running.stopped:.1f} s")
                return

    def _deadline(self) -> float | None:
        """When `_end_others` has something to do."""
        if self._failed_at is None or self.outcome.requested:
            return None
        seconds = self.linger + (self.grace if self._terminated else 0.0)
        return self._failed_at + seconds + (_FOR_STACKS if self._asked else 0.0)

    def _ask_for_stacks(self) -> bool:
        """Has those that still run print their Python stacks; returns whether some do."""
        shown = False
        for running in self._running:
            if running.alive and ask_for_stack(running.process.pid):
                say(f"{self._named(running)} still runs; its Python stack:")
                shown = True
        return shown

    def _end_others(self) -> None:
        """After a failure: kills what is stopped, then has the others end."""
        if self.outcome.requested:
            # What is stopped does not see the signal. Nobody waits for it when the others are gone.
            if all(is_stopped(running.process.pid) for running in self._running if running.alive):
                self._send(signal.SIGKILL, group=True)
            return
        deadline = self._deadline()
        if deadline is None:
            return
        for running in self._running:
            if running.alive and is_stopped(running.process.pid):
                running.killed = True
                self._signal(running, signal.SIGKILL, group=True)
        if time.monotonic() < deadline:
            return
        if not self._asked:
            self._asked = True
            if self._ask_for_stacks():
                return
        for running in self._running:
            running.killed = running.killed or running.alive
            self._signal(running, signal.SIGKILL if self._terminated else signal.SIGTERM, True)
        self._terminated = True

    def _kill_all(self) -> None:
        """Kills and reaps what still runs, after an error of the launcher itself."""
        if any(running.alive for running in self._running):
            self._send(signal.SIGKILL, group=True)
            if self.name:
                kill_job(self.name)
        for running in self._running:
            running.process.wait()
            for stream in (running.process.stdin, running.process.stdout, running.process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
