"""What a training step of a network costs: time and memory by layer, and reorders."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import device, opt, tensor
from ..graph.memory_plan import MemoryPlan
from ..model import Model
from ..report import network
from ..report.profiling import Record, profile, typical
from ..training.task import task_of

_RECORDED_AFTER = 3  # steps
#: Share of a step below which reorders are not worth a thought.
_LITTLE = 0.01


@dataclass
class StepCosts:
    """A training step, as it is replayed.

    batch     images in it
    network   its layers
    records   the operations, with median times
    profile   the operations of one step
    plan      the memory
    """

    batch: int
    network: network.Node
    records: list[Record]
    profile: list[Record]
    plan: MemoryPlan

    @property
    def ms(self) -> float:
        """Time of all operations in milliseconds."""
        return sum(record.ms for record in self.records)

    def reorders(self) -> list[tuple[Record, str]]:
        """The reorders, longest first, each with the operation that needed it."""
        found = []
        for record, after in itertools.zip_longest(self.records, self.records[1:]):
            if record.op == "Reorder":
                found.append((record, after.op if after is not None else ""))
        return sorted(found, key=lambda each: -each[0].ms)

    def advice(self) -> str:
        """What is to be gained by avoiding reorders."""
        found = self.reorders()
        if not found:
            return "No operation had to wait for another layout, so nothing is to be gained here."
        together = sum(record.ms for record, _ in found)
        share = together / self.ms if self.ms else 0.0
        text = f"They take {together:.2f} ms, {share * 100:.1f} % of the time in operations. "
        if share < _LITTLE:
            return text + "That is too little to do anything about it."
        (longest, needed_by), *_ = found
        where = f" in layer {longest.layer}" if longest.layer else ""
        return (
            f"{text}A network without them gains at most that. The longest, of {longest.ms:.2f} "
            f"ms, is for {needed_by}{where}: look whether another operation does the same in the "
            "layout of its neighbours. singa.explain(net, x, y) says why each was chosen."
        )


def step_costs(net: Model, shape: tuple[int, ...], classes: int, dtype: str) -> StepCosts:
    """Measures a training step on random images of `shape` (N, C, H, W). The parameters keep their
    values, running statistics do not.

    Raises NotImplementedError, RuntimeError, TypeError or ValueError if the model has no training
    step `net(images, targets)`, or none that is recorded.
    """
    random = np.random.default_rng(0)
    dev = device.get_default_device()
    images = tensor.from_numpy(random.standard_normal(shape, dtype=np.float32), dev)
    labels = tensor.from_numpy(task_of(net).drawn(random, shape[0], classes), dev)
    net.set_optimizer(opt.SGD(lr=0.0, momentum=0.9))
    net.compile([images], is_train=True, use_graph=True, dtype=dtype)
    step: Any = lambda: net(images, labels)  # noqa: E731
    for _ in range(_RECORDED_AFTER):
        step()
    records = typical(step)
    with profile() as one:
        step()
    return StepCosts(shape[0], network.trace(net), records, one.records, net.memory_plan())
