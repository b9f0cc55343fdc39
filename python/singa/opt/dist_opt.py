"""Data parallel training: an optimizer that adds up the gradients of all ranks.

    model.set_optimizer(opt.DistOpt(opt.SGD(lr=0.1, momentum=0.9)))

Every rank runs the same program on its own part of each batch. The engine is C++
(singa/distributed/communicator.h); this module says what goes through it, and when.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from .. import autograd, distributed, singa_wrap
from ..distributed.ranks import abort_by
from ..layer import late
from ..layer.parameters import each_once
from ..raw.check import integer, number
from ..tape.batch_statistics import BatchStatistics, collected_in
from ..tape.elements import as_raw
from ..tape.step_recording import host_call, host_called, is_recording_step
from ..tape.tensor import wrap
from ..tensor import DType, Tensor
from . import agreement
from .algorithms import SGD
from .buckets import Pair, dense, full_buckets, parts_of, with_gradients
from .collectives import Collectives, update_statistics
from .compression import (
    Residuals,
    clip_values,
    is_finite,
    overflow_like,
    sum_of_halves,
    sum_of_largest,
    without_scale,
)
from .counting import counted_copy, of_sum, scale_to_mean
from .hyperparameter import settings_of
from .optimizer import Optimizer
from .parameter_keys import members_of_groups
from .sharding import Owners, joined_states

if TYPE_CHECKING:
    from ..model import Model

_STREAMS = 0x9E3779B97F4A7C15  # the distance between the seeds of two virtual ranks
_DRAWS = 2**40  # positions of the random sequence that each update has, however many it uses


class DistOpt(Collectives):
    """Trains one model on many processes: each call adds up the gradients of all ranks, and every
    rank makes the same update.

    opt            the optimizer that makes the updates (default SGD()). With `accumulate=n`, a rank
                   makes n calls for each update.
    nccl_id        an NcclIdHolder: the ranks are the processes on this machine that have it. By
                   default the ranks are those of `singa launch`, or this process alone.
    local_rank     with nccl_id: this process's rank
    world_size     with nccl_id: the number of ranks
    buffSize       the most elements of one message to the other ranks; results do not depend on it
    virtual_ranks  V: the batch of an update is split into V shards, whatever the number of ranks W.
                   A rank makes V / W calls for each update, for shards r·V/W to (r+1)·V/W - 1.
                   Results have the same bits for every W that divides V, so SyncBatchNorm needs
                   V = W. Default: W · accumulate.
    shard_state    ZeRO-1: each parameter has one rank that updates it and keeps its state, so the
                   state of `opt` takes 1 / W of the memory, unless one parameter is larger than
                   that. The others get the new parameters. Same bits; on the CPU only. Default
                   False.

    The gradient of an update is the mean over all shards, weighted by their targets where the loss
    counts these (see `Optimizer`), added in their order with the arithmetic of `accumulate=V` in
    one process, so it has the same bits. Batch norms see one shard each; their running statistics
    are those of all shards, in the same order. Random numbers of shard v come from a stream of its
    own. At the first step of a model all ranks get parameters and all states of rank 0.

    A rank that fails, ends, stops, or does something else than the others, makes all ranks raise
    RuntimeError; see Communicator. `get_states` and `set_states` are those of `opt`, with the
    residuals of compression. Other attributes, such as `lr`, are those of `opt` too.

    >>> optimizer = opt.DistOpt(opt.SGD(lr=0.1))
    >>> optimizer.world_size  # without a launcher, this process is the only rank
    1
    """

    opt: Optimizer
    not_settings: ClassVar[tuple[str, ...]] = (
        *("communicator", "_shards", "_kept", "_reductions", "_shard_statistics", "_statistics"),
        *("_models", "_stream", "partial", "_residuals", "_counts", "_state_owners", "_is_divided"),
    )

    def __init__(
        self,
        opt: Optimizer | None = None,
        nccl_id: Any = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        buffSize: int = 4194304,
        *,
        virtual_ranks: int | None = None,
        shard_state: bool = False,
    ) -> None:
        self.__dict__["opt"] = opt = SGD() if opt is None else opt
        if not isinstance(opt, Optimizer):
            raise TypeError(f"[DistOpt] opt must be an Optimizer, got {opt!r:.80}")
        buffer = integer("DistOpt", "buffSize", buffSize, 1)
        if nccl_id is None:
            self.communicator = singa_wrap.default_communicator()
        else:
            rank = integer("DistOpt", "local_rank", local_rank, 0)
            size = integer("DistOpt", "world_size", world_size, 1)
            self.communicator = singa_wrap.Communicator(rank, size, nccl_id, buffer)
        distributed.use(self.communicator)
        self.world_size: int = self.communicator.world_size
        self.global_rank: int = self.communicator.global_rank
        self.local_rank: int = self.communicator.local_rank
        self.buffSize = buffer
        self.virtual_ranks = agreement.checked_virtual_ranks(
            virtual_ranks, self.world_size, opt.accumulate
        )
        self.calls = self.virtual_ranks // self.world_size
        self._promises_bits = virtual_ranks is not None
        self._shards_apart = virtual_ranks is not None and self.calls > 1
        opt.accumulate = 1  # the calls for an update are counted here
        self.partial = 0
        self._shards: list[list[list[Pair]]] = []  # buckets of the calls so far
        self._counts: list[float | None] = []  # targets that the calls so far count
        self._kept: list[list[Pair]] = []  # buckets of the present call
        self._reductions: list[Any] = []  # that the last call of an update has started
        self._shard_statistics: list[list[BatchStatistics]] = []
        self._statistics: list[BatchStatistics] = []  # of the present call
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stream = (0, 0)  # random state at the start of the present update
        self._residuals = Residuals(self.opt.unsent)
        self.shard_state = bool(shard_state)
        self._is_divided = False  # each rank has the state of its own parameters only
        self._state_owners: Owners | None = None
        if shard_state and self.world_size > 1:
            self._state_owners = Owners(self.global_rank, self.world_size)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "opt" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.opt, name)

    def __setattr__(self, name: str, value: Any) -> None:
        opt = self.__dict__["opt"]
        if name == "accumulate":
            raise AttributeError("[DistOpt] accumulate follows from virtual_ranks")
        owner = name != "opt" and name not in self.__dict__ and hasattr(opt, name)
        object.__setattr__(opt if owner else self, name, value)

    @property
    def accumulate(self) -> int:
        """Calls for each update."""
        return self.calls

    @property
    def calls_made(self) -> int:
        """Calls since the last update whose gradients wait for it."""
        return len(self._shards)

    @property
    def is_alone(self) -> bool:
        """Whether it does what `opt` does by itself."""
        return self.virtual_ranks == 1

    @property
    def has_parts(self) -> bool:
        """Whether an update has several parts, which a loss that counts its targets weighs."""
        return not self.is_alone

    # A step.

    @contextmanager
    def training_step(self, model: Model) -> Iterator[None]:
        """Context manager around a training step of a model, which `Model` enters: an error in it
        reaches the other ranks, random numbers come from the shard's stream, and batch norms leave
        their running statistics to the optimizer."""
        if self.is_alone:
            yield
            return
        self._start_from_rank_0(model)
        agreement.share_refused_plans(self.communicator)
        self._announce()
        collected = collected_in(self._statistics, self._shards_apart)
        with self._aborting(), self._random_stream(model), collected:
            yield
            if self._statistics:  # the step did not call the optimizer
                self._take_statistics()

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            name = type(error).__name__
            text = f"[DistOpt] rank {self.global_rank}: {name}: {error}"
            abort_by(self.communicator, text)
            self.communicator.drain()  # before the memory of gradients goes away
            self._forget_calls()
            raise

    def _forget_calls(self) -> None:
        """Drops what calls have kept for an update that is not made."""
        self._shards, self._kept, self._reductions, self._shard_statistics = [], [], [], []
        self._counts = []
        self._statistics.clear()

    def _announce(self) -> None:
        """Ranks that are not in the same step, or have other hyperparameters, are told apart."""
        opt = self.opt
        place = f"update {opt.steps}, call {len(self._shards)}, learning rate {opt.now('lr')}"
        self.communicator.set_context(f"{place}\n{settings_of(opt)}")

    @contextmanager
    def _random_stream(self, model: Model) -> Iterator[None]:
        """Random numbers of a call come from the shard's stream. The device's own position goes on
        by the same for each update: ranks draw differently many numbers, because one of them may
        have fewer images, and all go on from the position of rank 0 when they are started again."""
        device = next(iter(model.get_states().values())).device
        afterwards = device.random_state()
        if not self._shards:
            self._stream = seed, position = afterwards
            afterwards = (seed, (position + _DRAWS) % 2**64)
        seed, position = self._stream
        shard = self.global_rank * self.calls + len(self._shards)
        device.set_random_state(((seed + shard * _STREAMS) % 2**64, position))
        try:
            with late.common_seed((seed - (self.opt.steps + 1) * _STREAMS) % 2**64):
                yield
        finally:
            device.set_random_state(afterwards)

    def _start_from_rank_0(self, model: Model) -> None:
        """Gives all ranks the states and the random state of rank 0, once for each model."""
        if model in self._models:
            return
        states = each_once(model.get_states())
        if not states:
            raise RuntimeError("[DistOpt] the model has no parameters yet: call compile() first")
        device = next(iter(states.values())).device
        if device.kind() == singa_wrap.DeviceKind_kCuda:
            agreement.check_gpu(self._promises_bits, self._state_owners is not None)
        agreement.start_from_rank_0(
            self.communicator,
            device,
            f"optimizer {type(self.opt).__name__}\n{self.virtual_ranks} virtual ranks\n"
            f"shard_state {self.shard_state}\n{settings_of(self.opt)}\n"
            f"{members_of_groups(self.opt)}\n",
            states,
            self.opt.get_states(),
            with_slots=not self._is_divided,  # by a checkpoint, which all ranks have loaded
        )
        self._models.add(model)
        if self._state_owners is not None:
            self._divide_states(self._state_owners)

    def _divide_states(self, owners: Owners) -> None:
        """Leaves each rank the optimizer's state of its own parameters."""
        trained = self.opt.trained_parameters()
        owners.add(trained)
        for param in trained:
            self.opt.state_key(param)  # so that the optimizer knows whose state it has
        self.opt.update_only(owners.is_own)
        self._is_divided = True

    def __call__(self, loss: Tensor) -> None:
        """Backward from `loss`, sum over the ranks, update, next step of the schedules."""
        self.call(loss)
        host_call(self._end_call)

    def call(self, loss: Tensor, limit: int | None = None) -> None:
        """Backward, sum and update, without the next step of the schedules. `limit` is the number
        of elements from which on gradients go to the other ranks."""
        if self.is_alone:
            self.opt.call(loss)
            return
        with self._aborting():
            if not is_recording_step():
                self._announce()
            seed, count = self._seed(loss)
            pairs = autograd.backward(loss, seed)
            buckets = full_buckets(pairs, min(limit or self.buffSize, self.buffSize))
            if self.calls > 1:
                self._collect(buckets, count)
                return
            started = [(self._started([bucket]), bucket) for bucket in buckets]
            self._take_statistics()
            if count is None:
                self._update(started)
            else:
                self._update_counted(started, count)

    def _end_call(self) -> None:
        if not self._shards:
            self.opt.end_call()

    def _started(self, shards: Sequence[Sequence[Pair]]) -> Any:
        raw = [grad.data for shard in shards for _, grad in shard]
        names = [self.opt.state_key(param) for param, _ in shards[0]]
        owners = []
        if self._state_owners is not None:
            self._state_owners.add([param for param, _ in shards[0]])
            if self.opt.updates_apart:
                owners = [self._state_owners.of(param) for param, _ in shards[0]]
        factor = 1.0 / self.virtual_ranks
        reduction = singa_wrap.Reduction(self.communicator, raw, names, len(shards), factor, owners)
        reduction.Start()
        return reduction

    def _sharing(self, params: Sequence[Tensor]) -> list[Any]:
        """With sharded state: starts to give all ranks the parameters that their owners have
        updated. Returns what to wait for."""
        if self._state_owners is None or not params:
            return []
        raw = [param.data for param in params]
        names = [self.opt.state_key(param) for param in params]
        owners = [self._state_owners.of(param) for param in params]
        gathering = singa_wrap.Gathering(self.communicator, raw, names, owners)
        gathering.Start()
        return [gathering]

    def _share(self, params: Sequence[Tensor]) -> None:
        for gathering in self._sharing(params):
            gathering.Wait()

    def _update(self, buckets: Sequence[tuple[Any, list[Pair]]]) -> None:
        opt = self.opt
        sharing: list[Any] = []
        if buckets and opt.updates_apart:
            for reduction, bucket in buckets:  # parameters change while later gradients arrive
                reduction.Wait()
                opt.apply_gradients(bucket)
                sharing += self._sharing([param for param, _ in bucket])
        else:
            for reduction, _ in buckets:
                reduction.Wait()
            opt.apply_gradients([pair for _, bucket in buckets for pair in bucket])
            for _, bucket in buckets:
                sharing += self._sharing([param for param, _ in bucket])
        for each in sharing:
            each.Wait()

    # Losses that count some of their targets (`counting`).

    def _seed(self, loss: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """What backward from the loss starts with, and what the loss counts, if it does."""
        seed = self.opt.backward_seed(loss)
        if getattr(loss, "counted", None) is None:
            return seed, None
        count = counted_copy(loss)
        return of_sum(seed, count), count

    def _weighs(self, pairs: Sequence[Pair], counts: list[float | None]) -> bool:
        """Divides gradients of sums over targets by the targets of all shards together, and
        multiplies them by the number of shards. `counts` are those of this rank's shards; None: its
        loss does not tell, and all count alike. False: no target counts, so there is no update."""
        if all([count is None for count in counts]):
            return True
        of_ranks = distributed.gather([1.0 if count is None else count for count in counts])
        targets = sum([count for counts in of_ranks for count in counts])
        if not targets:
            self.opt.skip_update()
            return False
        scale_to_mean([grad for _, grad in pairs], self.virtual_ranks, targets)
        return True

    def _update_counted(self, buckets: Sequence[tuple[Any, list[Pair]]], count: Tensor) -> None:
        for reduction, _ in buckets:
            reduction.Wait()
        pairs = [pair for _, bucket in buckets for pair in bucket]
        lent = [count.data, *[grad.data for _, grad in pairs]]
        host_call(lambda: self._apply_counted(pairs, [float(count)]), lent)

    def _apply_counted(self, pairs: Sequence[Pair], counts: list[float | None]) -> None:
        """Updates by the means of all shards' gradients."""
        if self._weighs(pairs, counts):
            self.opt.apply_gradients(pairs)
            self._share([param for param, _ in pairs])

    # Several calls for an update.

    def _collect(self, buckets: Iterable[list[Pair]], count: Tensor | None) -> None:
        """Keeps the gradients and statistics of a call. In the last call of an update the gradients
        of all calls go to the other ranks, each bucket while backward makes the next ones."""
        for bucket in buckets:
            host_call(functools.partial(self._keep, bucket), [grad.data for _, grad in bucket])
        seen, self._statistics[:] = list(self._statistics), []
        lent = [t for one in seen for t in (one.mean, one.var)]
        if count is not None:
            lent.append(count.data)
        host_call(functools.partial(self._end_collecting, seen, count), lent)

    def _keep(self, bucket: list[Pair]) -> None:
        number = len(self._kept)
        self._kept.append([(param, wrap(grad.data.Clone(), False)) for param, grad in bucket])
        if len(self._shards) + 1 == self.calls:
            shards = [*self._shards, self._kept]
            agreement.check_equal_parameters([shard[number : number + 1] for shard in shards])
            self._reductions.append(self._started([shard[number] for shard in shards]))

    def _end_collecting(self, seen: list[BatchStatistics], count: Tensor | None) -> None:
        kept = [s._replace(mean=s.mean.Clone(), var=s.var.Clone()) for s in seen]
        self._shards.append(self._kept)
        self._counts.append(None if count is None else float(count))
        self._shard_statistics.append(kept)
        self._kept = []
        if len(self._shards) < self.calls:
            return
        shards, self._shards = self._shards, []
        counts, self._counts = self._counts, []
        statistics, self._shard_statistics = self._shard_statistics, []
        reductions, self._reductions = self._reductions, []
        agreement.check_equal_parameters(shards)
        update_statistics(self.communicator, statistics)
        for reduction in reductions:
            reduction.Wait()
        self._apply_counted([pair for bucket in shards[0] for pair in bucket], counts)

    # Running statistics of batch norms.

    def _take_statistics(self) -> None:
        seen, self._statistics[:] = list(self._statistics), []
        update_statistics(self.communicator, [seen])

    # SINGA's ways to make a step.

    def backward_and_update(self, loss: Tensor, threshold: int = 2097152) -> None:
        """The same as calling the optimizer. Gradients go to the other ranks when there are
        `threshold` elements of them."""
        self.call(loss, integer("DistOpt", "threshold", threshold, 1))
        host_call(self._end_call)

    def backward_and_update_half(
        self,
        loss: Tensor,
        threshold: int = 2097152,
        clipping: bool = False,
        clip_Value: float = 100,
    ) -> None:
        """As backward_and_update, with float16 between the ranks, added in float32. The rounding
        errors of a step are added to the gradients of the next (error feedback), and are part of
        the state. With `clipping`, elements of gradients are first limited to ±clip_Value. With a
        scaler, limits are those of gradients without the scale, and an update whose scaled values
        do not fit into float16 on some rank is skipped by all."""
        bound = number("DistOpt", "clip_Value", clip_Value) if clipping else None
        self._compressed(loss, functools.partial(self._reduce_half, bound))

    def backward_and_sparse_update(
        self,
        loss: Tensor,
        threshold: int = 2097152,
        spars: float = 0.05,
        topK: bool = False,
        corr: bool = True,
    ) -> None:
        """As backward_and_update, but only the largest elements of the gradients go to the other
        ranks: those with an absolute value of at least `spars`, or with `topK` the fraction `spars`
        of each buffer. Gradients of at most `threshold` elements fill a buffer until it has more
        than that; larger ones are buffers of their own. With `corr` what is not sent is added to
        the gradients of the next step (error feedback), and is part of the state."""
        share = number("DistOpt", "spars", spars)
        if share < 0 or (topK and share > 1):
            raise ValueError(f"[DistOpt] spars must be from 0 to 1, got {spars}")
        limit = integer("DistOpt", "threshold", threshold, 1)
        self._compressed(loss, functools.partial(self._reduce_sparse, share, topK, corr, limit))

    def _compressed(self, loss: Tensor, reduce: Callable[[list[Pair]], None]) -> None:
        if self.calls > 1:
            raise ValueError("[DistOpt] compression needs virtual_ranks of the number of ranks")
        with self._aborting():
            seed, count = self._seed(loss)
            pairs = list(autograd.backward(loss, seed))
            self._take_statistics()
            lent = [grad.data for _, grad in pairs]
            if count is not None:
                lent.append(count.data)

            def run() -> None:
                if self._weighs(pairs, [None if count is None else float(count)]):
                    reduce(pairs)

            host_call(run, lent)
        host_call(self._end_call)

    def _reduce_half(self, bound: float | None, pairs: list[Pair]) -> None:
        keys = self._keys_of(pairs)
        grads, scale = self._without_scale(pairs)
        if bound is not None:
            clip_values(grads, bound)
        sums = sum_of_halves(self.communicator, keys, grads, self._residuals, scale)
        self._apply(pairs, sums)

    def _reduce_sparse(
        self, spars: float, topk: bool, corr: bool, limit: int, pairs: list[Pair]
    ) -> None:
        keys = self._keys_of(pairs)
        residuals = self._residuals if corr else None
        grads, scale = self._without_scale(pairs)
        sums = None
        if scale is None or not distributed.any_rank(not is_finite(grads)):
            sums = sum_of_largest(self.communicator, keys, grads, spars, topk, limit, residuals)
            if scale is not None:
                singa_wrap.ScaleAll(sums, scale)
        self._apply(pairs, sums)

    def _without_scale(self, pairs: list[Pair]) -> tuple[list[Any], float | None]:
        """The raw gradients, without the scale of a GradScaler, and that scale."""
        grads = [dense(grad).data for _, grad in pairs]
        if self.opt.scaler is None:
            return grads, None
        scale = self.opt.scaler.get_scale()
        return without_scale(grads, scale), scale

    def _keys_of(self, pairs: list[Pair]) -> list[str]:
        if self._state_owners is not None:
            self._state_owners.add([param for param, _ in pairs])
        return [self.opt.state_key(param) for param, _ in pairs]

    def _apply(self, pairs: list[Pair], sums: list[Any] | None) -> None:
        """Updates by sums over the ranks. None: a rank's gradients have overflowed, and the scaler
        of each rank skips the update."""
        if sums is None:
            sums = overflow_like([grad.data for _, grad in pairs])
        self.opt.apply_gradients(with_gradients(pairs, sums))
        self._share([param for param, _ in pairs])

    def backward_and_partial_update(self, loss: Tensor, threshold: int = 2097152) -> None:
        """Each rank updates by its own gradients. Then one part of the parameters, another one at
        each step, is averaged over the ranks. A part has at most `threshold` elements, or is one
        parameter."""
        limit = integer("DistOpt", "threshold", threshold, 1)
        if self._state_owners is not None:
            raise ValueError("[DistOpt] a partial update needs the whole state: no shard_state")
        with self._aborting():
            pairs = list(autograd.backward(loss, self.opt.backward_seed(loss)))
            self._take_statistics()
            lent = [grad.data for _, grad in pairs]
            host_call(functools.partial(self._update_and_average, pairs, limit), lent)
        host_call(self._end_call)

    def _update_and_average(self, pairs: list[Pair], limit: int) -> None:
        grads = [grad.data for _, grad in pairs]
        if self.opt.scaler is not None and distributed.any_rank(not is_finite(grads)):
            grads = overflow_like(grads)  # ranks have one scale, and count the same updates
        self.opt.apply_gradients(with_gradients(pairs, grads))
        parts = parts_of([param for param, _ in pairs], limit)
        part = parts[self.partial % len(parts)]
        names = [self.opt.state_key(param) for param in part]
        raw = [param.data for param in part]
        self.communicator.all_reduce(raw, names, 1.0 / self.world_size)
        self.partial = (self.partial + 1) % len(parts)

    # SINGA's single operations; others are those of `Collectives`.

    @host_called
    def update(self, param: Tensor, grad: Tensor) -> None:
        """Updates one parameter by a gradient that was summed over the ranks, which becomes their
        mean."""
        singa_wrap.ScaleAll([as_raw(grad)], 1.0 / self.world_size)
        if self._state_owners is None:
            self.opt.update(param, grad)
            return
        self._state_owners.add([param])
        if self._state_owners.is_own(param):
            self.opt.update(param, grad)
        self._share([param])

    # Saved state.

    def get_states(self, rank: int | None = None) -> dict[str, Any]:
        """What `set_states` continues from: the state of `opt`, and with compression the
        "residuals" of all ranks, (world_size, ...) for each parameter. With compression, or with
        `shard_state`, all ranks have to call it. `rank` is the only one that needs the result, of
        which others then get a part: by default all do."""
        states = self.opt.get_states()
        if self._state_owners is not None:
            states = joined_states(states, rank)
        return states | self._residuals.get_states(self.communicator)

    def set_states(self, states: dict[str, Any]) -> None:
        """Continues from what get_states() returned, also on another number of ranks. Drops the
        gradients of calls for an update that was not made. Raises ValueError or TypeError for the
        state of another optimizer."""
        own = {key: value for key, value in states.items() if key != "residuals"}
        if self._state_owners is not None:
            self._divide_states(self._state_owners)
        self.opt.set_states(own)
        self._forget_calls()
        self._residuals.set_states(states.get("residuals", {}), self.communicator)

    def state_types(self, name: str, param: Tensor | None) -> Collection[DType]:
        """The types that a tensor of `get_states()[name]` may have. `param` is its parameter; None:
        it is not known yet."""
        return (DType.float32,) if name == "residuals" else self.opt.state_types(name, param)
