#!/usr/bin/env python3
"""Checks that training on several ranks gives the bits of one process that accumulates.

    PYTHONPATH=build/release/python python scripts/rank_bits.py --data FOLDER [--steps 50]

ResNet-20 (option --model) is trained on images of CIFAR-10 from FOLDER, executed and recorded:

- on each number of ranks W, beside one process with `accumulate=W` and the same shards,
- the same with two calls for each update of a rank, beside `accumulate=2·W`,
- with dropout and four virtual ranks, on 1, 2 and 4 ranks.

All parameters, running statistics and states of the optimizer of every rank are compared. --mpiexec
starts the ranks by that command instead of `singa launch`. With SINGA_NODE_RANKS=n every n ranks
exchange data with the others as if on a machine of their own. It prints a line for each job. The
exit status is 1 if bits differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from singa import data, distributed, layer, models, opt, seed, set_num_threads, tensor
from singa.graph import GraphWarning

#: The hash of each state.
Hashes = dict[str, str]


@dataclass(frozen=True)
class Job:
    """What to train.

    ranks   number of ranks; 0: one process accumulates all shards
    shards  number of shards of an update
    graph   whether steps are recorded
    """

    ranks: int
    shards: int
    graph: bool
    dropout: bool
    model: str
    steps: int
    batch: int
    data: str
    out: str


def build(name: str, dropout: bool) -> Any:
    """The network; with `dropout` its classes are predicted from features of which a part is 0."""
    net = models.create(name, num_classes=10)
    if dropout:
        net.fc = layer.Sequential(layer.Dropout(0.3), net.fc)
    return net


def hashes(net: Any) -> Hashes:
    """The hash of each parameter, running statistic and state of the optimizer."""
    arrays = {name: value.numpy() for name, value in net.get_states().items()}
    for slot, values in net.optimizer.get_states().items():
        if isinstance(values, dict):
            arrays |= {f"{slot}/{name}": value.numpy() for name, value in values.items()}
    return {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in arrays.items()}


def train(job: Job) -> Hashes:
    """Trains one rank of a job."""
    warnings.simplefilter("error", GraphWarning)  # a step that cannot be recorded
    set_num_threads(1)
    seed(3)
    shards, batch = job.shards, job.batch
    inner = opt.SGD(lr=0.05, momentum=0.9, weight_decay=5e-4)
    optimizer: Any
    if job.ranks:
        optimizer = opt.DistOpt(inner, virtual_ranks=shards)
        rank, world = optimizer.global_rank, optimizer.world_size
        if world != job.ranks:
            raise RuntimeError(f"{world} ranks were started instead of {job.ranks}")
    else:
        inner.accumulate, rank, world = shards, 0, 1
        optimizer = inner
    net = build(job.model, job.dropout)
    net.set_optimizer(optimizer)
    images = data.load_cifar10(job.data)
    loader = data.DataLoader(
        images, batch * shards, shuffle=True, seed=1, drop_last=True, num_workers=0
    )
    example = np.zeros((batch, *images.images.shape[1:]), np.float32)
    net.compile([tensor.from_numpy(example)], use_graph=job.graph)
    mine = range(rank * shards // world, (rank + 1) * shards // world)
    step = 0
    while step < job.steps:
        for pixels, labels in loader:
            for shard in mine:
                x, y = pixels[shard::shards], labels[shard::shards]
                net(tensor.from_numpy(x), tensor.from_numpy(y))
            step += 1
            if step == job.steps:
                break
    return hashes(net)


def differing(one: Hashes, other: Hashes) -> list[str]:
    """The names of the states that are not equal."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


class Jobs:
    """Runs jobs and compares them."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        self.folder = folder
        self.failed = False

    def run(self, ranks: int, shards: int, graph: bool, dropout: bool = False) -> list[Hashes]:
        """The hashes of each rank; with `ranks` 0, of one process that accumulates."""
        given = self.arguments
        images, out = str(given.data.resolve()), str(self.folder)
        job = Job(
            ranks, shards, graph, dropout, given.model, given.steps, given.batch_size, images, out
        )
        for old in self.folder.iterdir():
            old.unlink()
        start = [] if not ranks else [sys.executable, "-m", "singa", "launch", "-n", str(ranks)]
        if ranks and given.mpiexec:
            start = [*shlex.split(given.mpiexec), "-n", str(ranks), sys.executable]
        command = [*(start or [sys.executable]), __file__, "--job", json.dumps(asdict(job))]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"a job failed:\n{ended.stdout}{ended.stderr}")
        found = [json.loads(path.read_text()) for path in sorted(self.folder.iterdir())]
        if len(found) != max(ranks, 1):
            raise RuntimeError(f"{len(found)} of {ranks} ranks have left results")
        return found

    def compare(self, what: str, ranks: int, shards: int, want: Hashes, **options: bool) -> None:
        """Runs a job and prints whether all its ranks have the hashes `want`."""
        names = {n for found in self.run(ranks, shards, **options) for n in differing(found, want)}
        verdict = f"{len(want)} tensors equal"
        if names:
            self.failed = True
            verdict = f"{len(names)} of {len(want)} DIFFER: {', '.join(sorted(names)[:4])}"
        how = "recorded" if options["graph"] else "executed"
        print(f"{how}  {ranks} ranks  {what:<30} {verdict}", flush=True)


def check(arguments: argparse.Namespace, folder: Path) -> bool:
    """Runs all jobs. Returns whether all bits are equal."""
    jobs = Jobs(arguments, folder)
    for graph in (False, True):
        for ranks in arguments.ranks:
            for calls in (1, 2):
                shards = ranks * calls
                (want,) = jobs.run(0, shards, graph)
                jobs.compare(f"beside accumulate={shards}", ranks, shards, want, graph=graph)
        (want,) = jobs.run(1, 4, graph, dropout=True)
        for ranks in (2, 4):
            jobs.compare("of 4 virtual ones, dropout", ranks, 4, want, graph=graph, dropout=True)
    return not jobs.failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with images of CIFAR-10")
    parser.add_argument("--model", default="resnet20_cifar", help="[resnet20_cifar]")
    parser.add_argument("--steps", type=int, default=50, help="updates [50]")
    parser.add_argument("--batch-size", type=int, default=8, help="images of a shard [8]")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4], help="[1 2 3 4]")
    parser.add_argument("--mpiexec", default="", metavar="COMMAND", help="[singa launch]")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        job = Job(**arguments.job)
        found = json.dumps(train(job))
        (Path(job.out) / f"{distributed.rank()}.json").write_text(found)
        return 0
    if arguments.data is None:
        parser.error("--data is missing")
    with tempfile.TemporaryDirectory() as folder:
        return 0 if check(arguments, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
