#!/usr/bin/env python3
"""Time of an all-reduce of 100 MB over a slow link, beside bytes over bandwidth.

    PYTHONPATH=build/release/python python benchmark/slow_link.py [--mbit 1000] [--delay 0]

Two ranks of this machine get network namespaces of their own, which a pair of veth devices with a
token bucket (tc's tbf) connects, so that they exchange data as two machines would. ranks.py trains
over such a link.

It needs root, `ip` and `tc`. With --delay, two tun devices and a small program that forwards and
delays packets take the place of the veth devices.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import multiprocessing
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import harness

BYTES = 100_000_000
ADDRESSES = ("10.213.7.1", "10.213.7.2")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001  # IFF_TUN | IFF_NO_PI
_PACKET = 16000  # bytes, so that Python keeps up


def run(*command: str) -> None:
    """Runs a command, which must succeed."""
    subprocess.run(command, check=True)


class Link:
    """Two network namespaces, a and b, and the devices that connect them."""

    def __init__(self, mbit: int, delay: float) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # closes it
        self.names = [f"singa{os.getpid()}{side}" for side in "ab"]
        self._forwarder: multiprocessing.process.BaseProcess | None = None
        self.devices = devices = [f"sg{os.getpid() % 100000}{side}" for side in "ab"]
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            if delay:
                context = multiprocessing.get_context("fork")
                ready = context.Event()
                arguments = (self.names, devices, mbit * 1e6 / 8, delay / 1e3, ready)
                self._forwarder = context.Process(target=forward, args=arguments, daemon=True)
                self._forwarder.start()
                ready.wait()
            else:
                one, other = devices
                run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
            for i, (name, device) in enumerate(zip(self.names, devices, strict=True)):
                if not delay:
                    run("ip", "link", "set", device, "netns", name)
                inside = ("ip", "netns", "exec", name)
                run(*inside, "ip", "address", "add", f"{ADDRESSES[i]}/24", "dev", device)
                for each in (device, "lo"):  # lo: a connection to the own address
                    run(*inside, "ip", "link", "set", each, "up")
                if not delay:
                    tbf = ("tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")
                    run(*inside, "tc", "qdisc", "add", "dev", device, "root", *tbf)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the namespaces, and the devices with them."""
        if self._forwarder is not None:
            self._forwarder.kill()
            self._forwarder.join()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def forward(names: list[str], devices: list[str], rate: float, delay: float, ready: Any) -> None:
    """Forwards packets between a tun device in each namespace, `rate` bytes a second, `delay`
    seconds later."""
    files = []
    for name, device in zip(names, devices, strict=True):
        enter(name)
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TUN_WITHOUT_HEADER))
        run("ip", "link", "set", device, "mtu", str(_PACKET), "txqueuelen", "100")
        files.append(file)
    ready.set()
    free = [0.0, 0.0]  # when the line of a direction is free again
    queues: list[deque[tuple[float, bytes]]] = [deque(), deque()]
    while True:
        now = time.monotonic()
        for side, queue in enumerate(queues):
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):  # a full queue loses packets, as lines do
                    os.write(files[1 - side], queue.popleft()[1])
        first = min([queue[0][0] for queue in queues if queue], default=now + 1)
        for file in select.select(files, [], [], max(first - time.monotonic(), 0))[0]:
            side = files.index(file)
            packet = os.read(file, _PACKET + 64)
            free[side] = max(free[side], time.monotonic()) + len(packet) / rate
            queues[side].append((free[side] + delay, packet))


def enter(name: str) -> None:
    """Has this process use a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{name}").open() as file:
        if libc.setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


def rank(arguments: argparse.Namespace) -> None:
    """What each rank does."""
    name, device = arguments.namespaces[int(os.environ["SINGA_RANK"])]
    enter(name)
    os.environ["SINGA_INTERFACE"] = device
    import singa
    from singa import distributed, singa_wrap

    singa.set_num_threads(1)
    communicator = distributed.communicator()
    wire = BYTES * 8 / (arguments.mbit * 1e6)
    for name, size in (("float32", 4), ("bfloat16", 2)):
        t = singa_wrap.Full((BYTES // size,), 1.0, None, getattr(singa.dtypes.DType, name))
        times = harness.seconds_of(
            lambda t=t: communicator.all_reduce([t], ["t"], 0.5), arguments.rounds
        )
        if distributed.is_main():
            best, worst = min(times), max(times)
            print(
                f"all-reduce of {BYTES / 1e6:.0f} MB of {name}: {best * 1e3:.0f} to "
                f"{worst * 1e3:.0f} ms, {best / wire:.3f} to {worst / wire:.3f} times bytes over "
                "bandwidth",
                flush=True,
            )


def main() -> int:
    """Makes the link, runs the ranks, and removes it."""
    parser = harness.parser(__doc__)
    parser.add_argument("--mbit", type=int, default=1000, help="Mbit/s of each way [1000]")
    parser.add_argument("--delay", type=float, default=0, help="ms of each way [0]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--namespaces", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.namespaces:
        rank(arguments)
        return 0
    link = Link(arguments.mbit, arguments.delay)
    try:
        launch = (sys.executable, "-m", "singa", "launch", "-n", "2", __file__)
        places = list(zip(link.names, link.devices, strict=True))
        own = ("--namespaces", json.dumps(places))
        environment = os.environ | {"SINGA_NODE_RANKS": "1", "OMP_WAIT_POLICY": "passive"}
        command = [*launch, *own, *sys.argv[1:]]
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        link.close()


if __name__ == "__main__":
    sys.exit(main())
