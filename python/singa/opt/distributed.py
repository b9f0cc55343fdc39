"""Data parallel training: the name, until it is there."""

from __future__ import annotations

from typing import Any


class DistOpt:
    """SINGA's data-parallel optimizer. Not there yet: making one raises NotImplementedError."""

    def __init__(
        self,
        opt: Any = None,
        nccl_id: Any = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        buffSize: int = 4194304,
    ) -> None:
        raise NotImplementedError(
            "[DistOpt] this version trains in one process; use the inner optimizer, such as "
            "opt.SGD, by itself"
        )
