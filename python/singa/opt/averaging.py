"""Averages of a model's weights over the steps of training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from .. import singa_wrap
from ..dtypes import is_float
from ..layer import BatchNorm2d, Layer, late
from ..layer.parameters import each_once
from ..raw.check import integer, number
from ..tape.assignment import Value, checked, write
from ..tape.grad_mode import no_grad, set_training, training
from ..tape.step_recording import host_called
from ..tensor import Tensor, from_numpy


class Average:
    """What averages of a model's weights share: EMA and SWA."""

    #: What no step computes with; see `Layer.not_settings`.
    not_settings: ClassVar[tuple[str, ...]] = ("_averages", "_updates", "_applied", "_late")

    def __init__(self, model: Layer, use_buffers: bool = False) -> None:
        if not isinstance(model, Layer):
            kind = type(self).__name__
            raise TypeError(f"[{kind}] model must be a Model or a Layer, got {model!r:.80}")
        self.model = model
        self.use_buffers: bool = bool(use_buffers)
        # (weight, average): an average belongs to its weight, whatever its name becomes.
        self._averages: list[tuple[Tensor, Tensor]] = []
        self._late: dict[str, Any] = {}  # of weights that do not exist yet; see `layer.late`
        self._updates = 0
        self._applied = False

    def _share(self) -> float:
        """The share of the average so far in the next one."""
        raise NotImplementedError

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self._updates

    def weights(self) -> dict[str, Tensor]:
        """The tensors of the model that are averaged, by name, each once."""
        if not self.use_buffers:
            return self.model.get_params()
        return each_once(self.model.get_states())

    @host_called
    def update(self) -> None:
        """Adds the current weights to the averages.

        Raises RuntimeError if the model has no weights yet, and inside `applied`.
        """
        weights = self.weights()
        if not weights:
            raise RuntimeError(
                f"[{type(self).__name__}] the model has no parameters yet: call compile() first"
            )
        if self._applied:
            raise RuntimeError(
                f"[{type(self).__name__}] the model's weights are the averages: update after "
                "applied()"
            )
        before = {id(weight): average for weight, average in self._averages}
        self._averages = []
        for name, weight in weights.items():
            average = before.get(id(weight))
            if average is None and name in self._late:
                average = weight.deepcopy()
                value = self._late.pop(name)
                write(average, checked("[update]", {name: average}, {name: value})[name])
            if average is None:
                average = weight.deepcopy()
            else:
                if average.dtype != weight.dtype:  # `to_type` has converted the weight
                    average.to_type(weight.dtype)
                if is_float(weight.dtype):
                    share = self._share()
                    singa_wrap.ScaleAll([average.data], share)
                    singa_wrap.Axpy(1.0 - share, weight.data, average.data)
                else:  # a count, such as that of batches
                    average.data.CopyFrom(weight.data)
            self._averages.append((weight, average))
        self._updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model's weights are the averages; afterwards they are what they were, bit for
        bit. Training inside is lost.

        Raises RuntimeError before the first update, and inside itself.
        """
        if not self._updates:
            raise RuntimeError(
                f"[{type(self).__name__}] there are no averages before the first update()"
            )
        if self._applied:
            raise RuntimeError(
                f"[{type(self).__name__}] the model's weights are the averages already"
            )
        before = [weight.data.Clone() for weight, _ in self._averages]
        self._applied = True
        try:
            for weight, average in self._averages:
                weight.data.CopyFrom(average.data)
            yield
        finally:
            for (weight, _), value in zip(self._averages, before, strict=True):
                weight.data.CopyFrom(value)
            self._applied = False

    def get_states(self) -> dict[str, Any]:
        """What `set_states` continues from: "updates", their number, and "averages", the tensors by
        name, which are not copies."""
        averages = {id(weight): average for weight, average in self._averages}
        named = {n: averages[id(w)] for n, w in self.weights().items() if id(w) in averages}
        named |= {n: from_numpy(value) for n, value in self._late.items()}
        return {"updates": self._updates, "averages": named}

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Continues from what get_states() returned. The tensors (or arrays) are copied.

        Raises ValueError or TypeError for the state of another model. Nothing has changed then.
        """
        updates, averages = self.checked_states(f"[{type(self).__name__}]", states)
        weights = self.weights()
        pairs = []
        for name, value in averages.items():
            average = weights[name].deepcopy()
            write(average, value)
            pairs.append((weights[name], average))
        self._averages, self._updates = pairs, updates
        others = {n: v for n, v in states["averages"].items() if n not in averages}
        self._late = {n: v.numpy() if isinstance(v, Tensor) else v for n, v in others.items()}

    def checked_states(self, where: str, states: Mapping[str, Any]) -> tuple[int, dict[str, Value]]:
        """The number of updates and the averages in `states`, as `set_states` takes them. Raises as
        it does; messages begin with `where`."""
        try:
            updates, averages = states["updates"], states["averages"]
        except (KeyError, TypeError):
            raise ValueError(f"{where} expected a state with 'updates' and 'averages'") from None
        if not isinstance(averages, Mapping):
            raise TypeError(f"{where} expected averages by name, got {type(averages).__name__}")
        updates = integer(type(self).__name__, "updates", updates, 0)
        weights = self.weights() if updates else {}
        awaited = late.awaited(self.model, averages.keys() - weights.keys())
        if weights.keys() != averages.keys() - awaited:
            odd = ", ".join(sorted((weights.keys() ^ averages.keys()) - awaited))
            raise ValueError(f"{where} the averages are not of this model's weights: {odd:.200}")
        return updates, checked(where, weights, averages)


class EMA(Average):
    """Exponential moving average of a model's weights. Polyak & Juditsky 1992; Tarvainen & Valpola
    2017.

        average = decay · average + (1 - decay) · weight        the first update copies the weight

    The same as torch.optim.swa_utils.AveragedModel with get_ema_avg_fn(decay):

        ema = opt.EMA(net, decay=0.999)
        for x, y in loader:
            net(x, y)
            ema.update()
        net.eval()
        with ema.applied():  # the averages are the weights
            out = net(x)

    decay: of the average, from 0 to less than 1. Default 0.999, PyTorch's.
    use_buffers: also averages what is kept but not trained, such as running means; of integers it
        has the last ones. By default the model's own remain in use, which is what PyTorch's copies
        of buffers amount to.

    `update` goes after the step, or inside `train_one_batch`; in graph mode each replay repeats it.
    Averages have their weights' types and devices. `checkpoint.save(..., ema=ema)` keeps them.

    Raises ValueError for a decay outside [0, 1].

    >>> net = layer.Linear(1)
    >>> net(tensor.ones((1, 1)))
    Tensor([[0.9911]], dtype=float32)
    >>> ema = opt.EMA(net, decay=0.9)
    >>> for value in (0.0, 1.0):
    ...     net.W.set_value(value)
    ...     ema.update()
    ...
    Tensor([[0.]], dtype=float32)
    Tensor([[1.]], dtype=float32)
    >>> with ema.applied():
    ...     print(net.W)
    ...
    Tensor([[0.1]], dtype=float32)
    """

    def __init__(self, model: Layer, decay: float = 0.999, use_buffers: bool = False) -> None:
        super().__init__(model, use_buffers)
        if not 0 <= number("EMA", "decay", decay) < 1:
            raise ValueError(f"[EMA] decay must be in [0, 1): {decay}")
        self.decay: float = float(decay)

    def _share(self) -> float:
        return self.decay


class SWA(Average):
    """The mean of a model's weights at some times of training, usually after each of the last
    epochs: stochastic weight averaging. Izmailov et al. 2018; PyTorch's AveragedModel.

        swa = opt.SWA(net)
        for epoch in range(epochs):
            ...
            if epoch >= start:
                swa.update()
        with swa.applied():                        # the means are the weights
            opt.update_batch_norm(net, images)     # whose statistics are not the mean's
            net.eval()
            out = net(x)
            checkpoint.save("swa.safetensors", net)

    Statistics of batch norm that `update_batch_norm` wrote remain after `applied`. `use_buffers`
    averages them instead. `checkpoint.save(..., ema=swa)` keeps the means.

    Raises TypeError for what is no layer.

    >>> net = layer.Linear(1)
    >>> net(tensor.ones((1, 1)))
    Tensor([[0.9911]], dtype=float32)
    >>> swa = opt.SWA(net)
    >>> for value in (0.0, 1.0, 5.0):
    ...     net.W.set_value(value)
    ...     swa.update()
    ...
    Tensor([[0.]], dtype=float32)
    Tensor([[1.]], dtype=float32)
    Tensor([[5.]], dtype=float32)
    >>> with swa.applied():
    ...     print(net.W)
    ...
    Tensor([[2.]], dtype=float32)
    """

    def _share(self) -> float:
        return self._updates / (self._updates + 1.0)


def update_batch_norm(model: Layer, batches: Iterable[Any]) -> None:
    """Sets the running statistics of all batch norms to the mean over these batches of inputs, as
    torch.optim.swa_utils.update_bn.

    model    a Model, or another layer; its `forward` runs in training mode, without a tape. Dropout
             and other layers are in training mode, too.
    batches  inputs of `forward`: each a tensor or array, or a list or tuple with those that a
             loader gives, of which the first counts

    Weights do not change, and the mode is the one before. Batch norms whose statistics are frozen
    (`layer.freeze_statistics`) keep them. Nothing happens without a batch norm. Raises ValueError
    if there are no batches, and for a network from a file or from PyTorch whose batch norms are
    operators: SWA and EMA average their statistics with `use_buffers`. After an error the
    statistics are what they were.

    >>> net = layer.Sequential(layer.BatchNorm2d())
    >>> net(tensor.zeros((2, 1, 1, 1)))
    Tensor([[[[0.]]],
    <BLANKLINE>
    <BLANKLINE>
            [[[0.]]]], dtype=float32)
    >>> opt.update_batch_norm(net, [np.full((4, 1, 1, 1), 3.0, np.float32)])
    >>> net[0].running_mean
    Tensor([3.], dtype=float32)
    """
    parts = (model, *model.sublayers())
    norms = [p for p in parts if isinstance(p, BatchNorm2d) and not p.frozen_statistics]
    apart = [pair for part in parts if part.has_parts for pair in part._own_states()]
    if not norms and not apart:
        return
    device = next((state.device for state in model.get_states().values()), None)
    states = [state for norm in norms for _, state in norm._own_states()]
    before = [(state, state.data.Clone()) for state in (*states, *[state for _, state in apart])]
    versions = [state.data.version() for _, state in apart]
    momenta, mode = [norm.momentum for norm in norms], training()
    count = 0
    try:
        for state in states:
            state.set_value(0.0)  # whatever it was, also NaN
        set_training(True)
        with no_grad():
            for batch in batches:
                x = batch[0] if isinstance(batch, list | tuple) else batch
                for norm in norms:
                    norm.momentum = 1.0 / (count + 1)  # the mean so far
                model.forward(x if isinstance(x, Tensor) else from_numpy(np.asarray(x), device))
                count += 1
                missed = [
                    name
                    for (name, state), version in zip(apart, versions, strict=True)
                    if state.data.version() != version
                ]
                if missed:
                    raise ValueError(
                        f"[update_batch_norm] {', '.join(missed):.100} are of operators, which it "
                        "does not reach: average them, too, by SWA(model, use_buffers=True)"
                    )
        if not count:
            raise ValueError("[update_batch_norm] there are no batches")
    except BaseException:
        for state, value in before:
            state.data.CopyFrom(value)
        raise
    finally:
        set_training(mode)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
