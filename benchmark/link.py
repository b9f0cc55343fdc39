"""A slow link between two network namespaces, for the ranks of ranks.py."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

ADDRESSES = ("10.213.7.1", "10.213.7.2")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def _run(*command: str) -> None:
    """Runs a command, which must succeed."""
    subprocess.run(command, check=True)


class Link:
    """Two network namespaces, whose `names` it has, and a pair of veth `devices` between them, each
    with a token bucket (tc's tbf): processes in them exchange data as two machines would.

    Needs root, `ip` and `tc`.
    """

    def __init__(self, mbit: int) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # closes it
        self.names = [f"singa{os.getpid()}{side}" for side in "ab"]
        self.devices = [f"sg{os.getpid() % 100000}{side}" for side in "ab"]
        try:
            for name in self.names:
                _run("ip", "netns", "add", name)
            one, other = self.devices
            _run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
            for name, device, address in zip(self.names, self.devices, ADDRESSES, strict=True):
                _run("ip", "link", "set", device, "netns", name)
                inside = ("ip", "netns", "exec", name)
                _run(*inside, "ip", "address", "add", f"{address}/24", "dev", device)
                for each in (device, "lo"):  # lo: a connection to the own address
                    _run(*inside, "ip", "link", "set", each, "up")
                tbf = ("tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")
                _run(*inside, "tc", "qdisc", "add", "dev", device, "root", *tbf)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the namespaces, and the devices with them."""
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def enter(name: str) -> None:
    """Has this process use a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{name}").open() as file:
        if libc.setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
