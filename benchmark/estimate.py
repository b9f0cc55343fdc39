#!/usr/bin/env python3
"""Steps on 2 to 16 machines with slow links, beside what `launch --estimate` says of them.

    PYTHONPATH=build/release/python python benchmark/estimate.py step.json [--mbit 100]

Each machine is a rank in a network namespace of its own, whose link to a common bridge is limited
by a token bucket (tc's tbf). A rank does what the profile says, but sleeps where it says that
something is computed, so that some cores carry all machines. How much of the cores' time the ranks
take, and in how much of it the cores are idle, is printed, too.

Bandwidth and latency come from two machines, by an all-reduce of 4 bytes and one of 8 MB. Steps on
more machines are predicted with these two numbers alone. It needs root, `ip` and `tc`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from singa.launcher.estimate import simulation, step_profile
from singa.launcher.estimate.chain import Network, agreed, chain
from singa.launcher.estimate.step_profile import Compute, Gather, Start, StepProfile
from slow_link import enter, run

SMALL, LARGE = 4, 8_000_000  # bytes of the all-reduces that are fitted
ROUNDS = 20
DEVICE = "net"


class Switch:
    """Network namespaces, and a bridge that connects them."""

    def __init__(self, machines: int, mbit: float) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # closes it
        self.names = [f"singa{os.getpid()}n{i}" for i in range(machines)]
        self.bridge = f"sgb{os.getpid()}"
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "link", "set", self.bridge, "up")
            for i, name in enumerate(self.names):
                run("ip", "netns", "add", name)
                inside = ("ip", "netns", "exec", name)
                port = f"sgp{os.getpid()}n{i}"
                peer = ("peer", "name", DEVICE, "netns", name)
                run("ip", "link", "add", port, "type", "veth", *peer)
                run("ip", "link", "set", port, "master", self.bridge, "up")
                run(*inside, "ip", "address", "add", f"10.213.9.{i + 1}/24", "dev", DEVICE)
                for each in (DEVICE, "lo"):  # lo: a connection to the own address
                    run(*inside, "ip", "link", "set", each, "up")
                tbf = ("tbf", "rate", f"{mbit}mbit", "burst", "4kb", "latency", "50ms")
                run(*inside, "tc", "qdisc", "add", "dev", DEVICE, "root", *tbf)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the namespaces, and the devices with them."""
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False)


def seconds_of(communicator: Any, function: Callable[[], Any], rounds: int) -> float:
    """The shortest of the rounds' longest times of all ranks."""
    from singa import distributed

    found = []
    for _ in range(rounds):
        communicator.barrier()
        start = time.perf_counter()
        function()
        found.append(max(distributed.gather(time.perf_counter() - start)))
    return min(found)


def play(communicator: Any, profile: StepProfile, steps: int) -> float:
    """Seconds of a step of the profile, with sleeps in place of computations."""
    from singa import distributed, singa_wrap

    def raw(size: int) -> Any:
        return singa_wrap.Full((max(size // 4, 1),), 1.0, None, singa_wrap.kFloat32)

    starts = [event for event in profile.events if isinstance(event, Start)]
    gathered = {event: raw(event.bytes) for event in profile.events if isinstance(event, Gather)}
    buckets = [
        # A name as long as the descriptions of the bucket's tensors.
        singa_wrap.Reduction(communicator, [raw(e.bytes)], [str(i) + "-" * e.text], 1, 1.0)
        for i, e in enumerate(starts)
    ]

    def step() -> None:
        coming, clock = iter(buckets), time.perf_counter()
        for event in profile.events:
            if isinstance(event, Compute):
                time.sleep(max(0.0, clock + event.seconds - time.perf_counter()))
            elif isinstance(event, Start):
                next(coming).Start()
            elif isinstance(event, Gather):
                communicator.all_gather(gathered[event])
            else:
                buckets[event.bucket].Wait()
            clock = time.perf_counter()

    step()
    step()
    communicator.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return max(distributed.gather((time.perf_counter() - start) / steps))


def idle_part(before: list[int], after: list[int]) -> float:
    """The part of the time of all cores in which they had nothing to do."""
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return (spent[3] + spent[4]) / sum(spent[:8])


def processor_times() -> list[int]:
    """user, nice, system, idle, iowait, ... of the whole machine so far."""
    return [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def rank(arguments: argparse.Namespace) -> None:
    """What each machine does. Rank 0 prints the figures as JSON."""
    enter(arguments.namespaces[int(os.environ["SINGA_RANK"])])
    os.environ["SINGA_INTERFACE"] = DEVICE
    import singa
    from singa import distributed, singa_wrap

    singa.set_num_threads(1)
    communicator = distributed.communicator()
    found: dict[str, float] = {}
    if communicator.world_size == 2:
        for name, size, rounds in (("small", SMALL, 5 * ROUNDS), ("large", LARGE, ROUNDS // 2)):
            t = singa_wrap.Full((size // 4,), 1.0, None, singa_wrap.kFloat32)
            reduce = lambda t=t: communicator.all_reduce([t], ["t"])  # noqa: E731
            found[name] = seconds_of(communicator, reduce, rounds)
    before, began, own = processor_times(), time.perf_counter(), time.process_time()
    found["step"] = play(communicator, step_profile.read(arguments.profile), arguments.steps)
    seconds = (time.perf_counter() - began) * (os.cpu_count() or 1)
    found["busy"] = sum(distributed.gather(time.process_time() - own)) / seconds
    found["idle"] = idle_part(before, processor_times())
    if distributed.is_main():
        print(json.dumps(found), flush=True)


def fitted(small: float, large: float) -> Network:
    """The network on which all-reduces between two machines take so many seconds."""
    network = Network(2 * LARGE / large, small / 4)
    for _ in range(50):
        of_small, of_large = (
            max(chain(agreed([0.0, 0.0], 0, network), size, network)) for size in (SMALL, LARGE)
        )
        latency = network.latency * small / of_small
        network = Network(network.bandwidth * of_large / large, latency)
    return network


def measured(arguments: argparse.Namespace, machines: int) -> dict[str, float]:
    """The figures of a job on so many machines."""
    switch = Switch(machines, arguments.mbit)
    try:
        variables = os.environ | {"SINGA_NODE_RANKS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "singa", "launch", "-n", str(machines), __file__]
        command += ["--namespaces", json.dumps(switch.names), *sys.argv[1:]]
        done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.removeprefix("[0] "))
    finally:
        switch.close()


def main() -> int:
    """Measures and predicts steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("profile", type=Path, help="a step that `launch --estimate` has recorded")
    add("--mbit", type=float, default=100, help="Mbit/s that a machine sends [%(default)g]")
    add("--steps", type=int, default=5, help="steps that are timed [%(default)d]")
    add("--machines", type=int, nargs="+", default=[2, 4, 8, 16], help="[2 4 8 16]")
    add("--namespaces", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.namespaces:
        rank(arguments)
        return 0
    profile = step_profile.read(arguments.profile)
    network = None
    for machines in [2, *(count for count in arguments.machines if count != 2)]:
        figures = measured(arguments, machines)
        if network is None:
            network = fitted(figures["small"], figures["large"])
            print(
                f"{profile.title}, {profile.gradients / 1e6:.1f} MB of gradients; two machines: "
                f"{network.bandwidth * 8e-6:.1f} Mbit/s, {network.latency * 1e3:.3f} ms"
            )
        predicted = simulation.estimate(profile, machines, network).step
        print(
            f"{machines:3} machines: a step takes {figures['step'] * 1e3:7.1f} ms, predicted "
            f"{predicted * 1e3:7.1f} ms ({100 * (predicted / figures['step'] - 1):+.1f} %); the "
            f"ranks take {100 * figures['busy']:.0f} % of the cores' time, "
            f"{100 * figures['idle']:.0f} % is idle",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
