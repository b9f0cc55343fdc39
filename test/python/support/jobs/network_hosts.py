"""Machines for tests of jobs on several ones: namespaces of this machine, each with a network, a
name, processes and shared memory of its own, and a cable between them. The folder `bin` has an
`ssh`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# Users who may not make namespaces otherwise make one of users first.
_USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
_ENTER_USER = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
_KINDS = ["--net", "--uts", "--pid", "--mount"]
_UNSHARE = ["unshare", *_KINDS, "--fork", "--kill-child", "--mount-proc"]

#: A machine does not see the processes of others, so a thread outside starts the command there,
#: with this program's standard streams. When this program ends, so do the streams.
_SSH = """#!{python} -I
import json, os, socket, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    del words[0]
asked = json.dumps([words[0], " ".join(words[1:]), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as door:
    door.connect({door!r})
    socket.send_fds(door, [len(asked).to_bytes(4, "big")], [0, 1, 2])
    door.sendall(asked)
    for stream in range(3):
        os.close(stream)
    os._exit((door.recv(1) or bytes([255]))[0])
"""


def missing() -> str:
    """Why there can be no such machines here; "" if they can."""
    for program in ("unshare", "nsenter", "ip"):
        if not shutil.which(program):
            return f"{program} is missing"
    tried = subprocess.run(
        [*_UNSHARE, *_USER, "ip", "link", "set", "lo", "up"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip() if tried.returncode else ""


class Hosts:
    """Machines a and b. `addresses` are theirs.

    folder      gets `bin/ssh`
    variables   names of variables that ssh passes on: those of a login
    """

    def __init__(self, folder: Path, variables: tuple[str, ...] = ("HOME", "PATH")) -> None:
        self.addresses = ["10.213.8.1", "10.213.8.2"]
        self._keepers: list[subprocess.Popen[str]] = []
        self._first: list[str] = []  # the process 1 of each machine, by its number here
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._variables = variables
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / "door"))
        self._door.listen()
        ssh = self.bin / "ssh"
        ssh.write_text(_SSH.format(python=sys.executable, door=str(folder / "door")))
        ssh.chmod(0o755)
        threading.Thread(target=self._open, daemon=True).start()
        try:
            for name in "ab":
                self._start(name)
            self._connect()
        except BaseException:
            self.close()
            raise

    def _start(self, name: str) -> None:
        inside = [*_UNSHARE, *_USER]
        if self._first and _USER:  # the namespaces of networks belong to one of users
            inside = ["nsenter", "-t", self._first[0], *_ENTER_USER, "--", *_UNSHARE]
        steps = [f"hostname {name}", "mount -t tmpfs none /dev/shm", "mount -t sysfs none /sys"]
        # For what programs leave under their numbers, which are the same on each machine.
        steps += ["mount -t tmpfs none /var/tmp"]
        steps += ["ip link set lo up", "echo up", "exec sleep infinity"]
        command = [*inside, "sh", "-c", " && ".join(steps)]
        keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._keepers.append(keeper)
        assert keeper.stdout is not None
        if keeper.stdout.readline() != "up\n":
            raise RuntimeError(f"machine {name} was not made")
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
        self._first.append(children.read_text().strip())

    def _connect(self) -> None:
        """Two machines get the ends of a cable."""
        # Outside of the first machine's processes, where the other one's number is known.
        outside = ["nsenter", "-t", self._first[0], *_ENTER_USER, "--net", "--"]
        cable = ["type", "veth", "peer", "name", "net", "netns", self._first[1]]
        subprocess.run([*outside, "ip", "link", "add", "net", *cable], check=True)
        for i, address in enumerate(self.addresses):
            self.run(i, "ip", "address", "add", f"{address}/24", "dev", "net")
            self.run(i, "ip", "link", "set", "net", "up")
        # The second end counts as down for up to a second. Until then UCX does not take it.
        up = "while ! grep -q up /sys/class/net/net/operstate; do sleep 0.01; done"
        for i in range(len(self.addresses)):
            self.run(i, "timeout", "10", "sh", "-c", up)

    def command(self, host: int, *command: str) -> list[str]:
        """What runs a command on a machine."""
        return ["nsenter", "-t", self._first[host], *_ENTER_USER, *_KINDS, "--", *command]

    def run(self, host: int, *command: str) -> None:
        """Runs a command on a machine. It must succeed."""
        subprocess.run(self.command(host, *command), check=True)

    def cut(self, host: int, again: bool = False) -> None:
        """Takes a machine's link down, or up again."""
        self.run(host, "ip", "link", "set", "net", "up" if again else "down")

    def _open(self) -> None:
        """Starts what `ssh` asks for, until the door is closed."""
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._door.accept()
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one:
            head, streams, _, _ = socket.recv_fds(one, 4, 3)
            address, command, given = json.loads(one.recv(int.from_bytes(head), socket.MSG_WAITALL))
            inside = self.command(self.addresses.index(address), "sh", "-c", command)
            process = subprocess.Popen(
                inside,
                env={name: given[name] for name in self._variables if name in given},
                **dict(zip(("stdin", "stdout", "stderr"), streams, strict=True)),
            )
            for stream in streams:
                os.close(stream)
            status = process.wait()
            with contextlib.suppress(OSError):
                one.sendall(bytes([status if status >= 0 else 128 - status]))

    def left(self, seconds: float = 5.0) -> list[str]:
        """Commands of the processes that still run on the machines after so many seconds."""
        end = time.monotonic() + seconds
        while (found := self._processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _processes(self) -> list[str]:
        spaces = {os.readlink(f"/proc/{first}/ns/pid") for first in self._first}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if folder.name not in self._first and os.readlink(folder / "ns/pid") in spaces:
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return sorted(filter(None, found))  # without those that have ended

    def close(self) -> None:
        """Ends the machines, and with them all that runs there."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for keeper in self._keepers:
            keeper.kill()
            keeper.communicate()
