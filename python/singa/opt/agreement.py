"""What all ranks of a `DistOpt` have to agree upon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import distributed, singa_wrap
from ..raw.check import integer
from ..tensor import Tensor
from .buckets import Pair


def checked_virtual_ranks(wanted: int | None, ranks: int, calls: int) -> int:
    """The number of shards of an update, for an optimizer that makes `calls` calls for each. None:
    as many as these ranks make. Raises ValueError for a number that does not fit."""
    if wanted is None:
        return ranks * calls
    shards = integer("DistOpt", "virtual_ranks", wanted, 1)
    if shards % ranks:
        raise ValueError(
            f"[DistOpt] virtual_ranks must be a multiple of the {ranks} ranks, got {shards}"
        )
    if calls > 1 and shards != ranks * calls:
        raise ValueError(
            f"[DistOpt] {shards} virtual_ranks need accumulate={shards // ranks} on {ranks} "
            f"ranks, got {calls}; leave accumulate out"
        )
    return shards


def check_gpu(promises_bits: bool, divides_state: bool) -> None:
    """Raises ValueError for settings of a DistOpt that do not go with a model on a GPU."""
    if promises_bits and not singa_wrap.IsDeterministic():
        raise ValueError(
            "[DistOpt] virtual_ranks promise bits that do not depend on the number of ranks, "
            "which set_deterministic(False) gives up; leave one of them out"
        )
    if divides_state:
        raise ValueError("[DistOpt] shard_state is for models on the CPU; leave it out")


def start_from_rank_0(
    communicator: Any,
    device: Any,
    settings: str,
    states: Mapping[str, Tensor],
    optimizer_states: Mapping[str, Any],
    *,
    with_slots: bool,
) -> None:
    """Gives all ranks the states, the optimizer's slots if `with_slots`, and the random state of
    rank 0. All raise RuntimeError if settings or the optimizer's numbers differ."""
    sent = dict(states)
    numbers = []
    for slot, value in optimizer_states.items():
        if not isinstance(value, dict):
            numbers.append(f"{slot} {value}\n")
        elif with_slots:
            for name, kept in value.items():
                if isinstance(kept, Tensor):
                    sent[f"{slot}/{name}"] = kept
                else:
                    numbers.append(f"{slot}/{name} {kept}\n")
    communicator.check(settings + "".join(sorted(numbers)))
    names = sorted(sent)  # states that were loaded from a file may lie in any order
    communicator.broadcast([sent[name].data for name in names], 0, names)
    random = np.array(device.random_state(), np.uint64).view(np.int64)
    shared = singa_wrap.from_buffer(random, True)
    communicator.broadcast([shared], 0, ["random state"])
    both = np.array(singa_wrap.Exporter(shared)).view(np.uint64)
    device.set_random_state([int(number) for number in both])


def share_refused_plans(communicator: Any) -> None:
    """Refuses the plans that spot checks of other ranks have refused, so that all take the same
    ones. Ranks tell each other in each collective whether there are any."""
    if not communicator.refusals_differ():
        return
    own = [(plan.call, plan.plan, plan.reason) for plan in singa_wrap.GetRefusedPlans()]
    for plans in distributed.gather(own):
        for call, plan, reason in plans:
            singa_wrap.RefusePlan(call, plan, reason)


def check_equal_parameters(shards: Sequence[Sequence[list[Pair]]]) -> None:
    """Raises RuntimeError unless the buckets of all calls for an update have equal parameters."""
    first, *others = [[[id(p) for p, _ in b] for b in shard] for shard in shards]
    if any([shard != first for shard in others]):
        raise RuntimeError("[DistOpt] the calls for an update train different parameters")
