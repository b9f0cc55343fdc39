"""Data parallel training: the names, until it is there."""

from __future__ import annotations

from typing import Any, NoReturn

from ..tensor import Tensor


class DistOpt:
    """SINGA's data-parallel optimizer. Not there yet: making one raises NotImplementedError, as its
    methods do. The inner optimizer, such as opt.SGD, trains in one process.

    Its methods average gradients over the processes: by all-reduce (`fused` ones gather small
    tensors in one message; `half` ones send float16), or of the largest entries alone (`spars`).
    """

    def __init__(
        self,
        opt: Any = None,
        nccl_id: Any = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        buffSize: int = 4194304,
    ) -> None:
        _not_there()

    def update(self, param: Tensor, grad: Tensor) -> None:
        _not_there()

    def all_reduce(self, tensor: Tensor) -> None:
        _not_there()

    def fused_all_reduce(self, tensor: Tensor, send: bool = True) -> None:
        _not_there()

    def all_reduce_half(self, tensor: Tensor) -> None:
        _not_there()

    def fused_all_reduce_half(self, tensor: Tensor, send: bool = True) -> None:
        _not_there()

    def sparsification(
        self, tensor: Tensor, accumulation: Tensor | None, spars: float, topK: bool
    ) -> None:
        _not_there()

    def fused_sparsification(
        self, tensor: Tensor, accumulation: Tensor | None, spars: float, topK: bool
    ) -> None:
        _not_there()

    def wait(self) -> None:
        _not_there()

    def backward_and_update(self, loss: Tensor, threshold: int = 2097152) -> None:
        _not_there()

    def backward_and_update_half(
        self,
        loss: Tensor,
        threshold: int = 2097152,
        clipping: bool = False,
        clip_Value: float = 100,
    ) -> None:
        _not_there()

    def backward_and_partial_update(self, loss: Tensor, threshold: int = 2097152) -> None:
        _not_there()

    def backward_and_sparse_update(
        self,
        loss: Tensor,
        threshold: int = 2097152,
        spars: float = 0.05,
        topK: bool = False,
        corr: bool = True,
    ) -> None:
        _not_there()


def _not_there() -> NoReturn:
    raise NotImplementedError(
        "[DistOpt] this version trains in one process; use the inner optimizer, such as opt.SGD, "
        "by itself"
    )
