"""A step of a job on any number of machines, simulated from the recorded step of one rank.

All machines are alike, and all ranks compute as long as the recorded one. Ranks of one machine add
up their gradients through memory, which is counted as if it took no time.
"""

from __future__ import annotations

from dataclasses import dataclass

from .chain import AllReduce, Network, agreed, all_gather, chain, shared_memory
from .step_profile import Compute, Event, Gather, Start, StepProfile

#: In one step the machines drift apart; the later ones last equally long.
_STEPS = 3


@dataclass(frozen=True)
class Estimate:
    """A simulated step.

    ranks     how many there are
    step      seconds of a step
    compute   seconds of it without the other ranks
    exchange  seconds of its exchanges, if there was nothing else
    memory    bytes of memory of a machine, at most
    """

    ranks: int
    step: float
    compute: float
    exchange: float
    memory: int

    @property
    def hidden(self) -> float:
        """The part of the exchange that no rank waits for."""
        return 1 - (self.step - self.compute) / self.exchange if self.exchange else 1.0

    @property
    def efficiency(self) -> float:
        """Images a second of a rank, as a part of those of a rank alone."""
        return self.compute / self.step


def estimate(
    profile: StepProfile,
    ranks: int,
    network: Network,
    per_machine: int = 1,
    all_reduce: AllReduce = chain,
) -> Estimate:
    """A step of `ranks` ranks, `per_machine` on each machine, which exchange data by `all_reduce`.

    Raises ValueError for fewer than two machines.
    """
    machines = -(-ranks // per_machine)
    if machines < 2:
        raise ValueError(
            f"[estimate] {ranks} ranks, {per_machine} on a machine, exchange nothing over a network"
        )
    step = _seconds(profile.events, machines, network, per_machine, all_reduce)
    alone = profile.without_compute()
    exchange = _seconds(alone, machines, network, per_machine, all_reduce)
    memory = per_machine * profile.memory + shared_memory(ranks, per_machine)
    return Estimate(ranks, step, profile.compute, exchange, memory)


def _seconds(
    events: tuple[Event, ...],
    machines: int,
    network: Network,
    per_machine: int,
    all_reduce: AllReduce,
) -> float:
    """Seconds of a step, after those in which the machines drift apart."""
    clocks = [0.0] * machines  # of what computes
    free = [0.0] * machines  # when the thread that communicates has nothing to do
    ends = [0.0]
    for _ in range(_STEPS):
        sums: list[list[float]] = []
        waited = 0
        for event in events:
            if isinstance(event, Compute):
                clocks = [clock + event.seconds for clock in clocks]
            elif isinstance(event, Start):
                begins = agreed(_later(clocks, free), event.text, network)
                free = all_reduce(begins, event.bytes, network)
                sums.append(free)
            elif isinstance(event, Gather):
                begins = agreed(_later(clocks, free), 0, network)
                clocks = free = all_gather(begins, per_machine * event.bytes, network)
            else:
                clocks = _later(clocks, sums[waited])
                waited += 1
        ends.append(max(clocks))
    return ends[-1] - ends[-2]


def _later(one: list[float], other: list[float]) -> list[float]:
    return [max(a, b) for a, b in zip(one, other, strict=True)]
