"""What a `Trainer` computes without training: losses and metrics of batches, and outputs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import opt, singa_wrap
from ..data import DataLoader
from ..dtypes import is_float
from ..layer.named_losses import advising
from ..model.outputs import loss_function
from ..tape.tensor import wrap
from ..tensor import Tensor, float32
from .named import named_metrics
from .program import say
from .progress import Progress
from .totals import Measure, Totals

if TYPE_CHECKING:
    from ..model import Model

_LOOKED_AT = 1000  # batches, for numbers that are not finite
#: Share of the first weights in averages from which a note says so, and that of the decay in it.
_MOST_OF_FIRST_WEIGHTS, _WANTED_SHARE = 0.1, 0.01
_TOGETHER = 16  # batches whose results are read at once from a GPU


class Evaluator:
    """The part of a `Trainer` that validates and predicts. Arguments are those of Trainer."""

    def __init__(
        self,
        model: Model,
        metrics: Mapping[str, Measure | str] | Sequence[str] | None,
        dtype: Any,
        ema: opt.EMA | float | None,
        verbose: bool,
    ) -> None:
        self.model = model
        self.metrics: dict[str, Measure] = named_metrics(metrics)
        if reserved := self.metrics.keys() & {"loss", "images", "counted"}:
            raise ValueError(f"[Trainer] metrics: {min(reserved)!r} has another meaning")
        self.dtype = dtype
        self.ema = opt.EMA(model, ema) if isinstance(ema, int | float) else ema
        self.verbose = verbose
        self._loss_name = ""

    def evaluate(self, loader: Any) -> dict[str, Any]:
        """The loss and all metrics on the batches of a loader, of all ranks: {"loss": 0.31, ...}.

        Nothing is trained. Averages of `ema` take the place of the weights. There is no loss if the
        model has no `loss`. Raises ValueError if there is no metric either, NonFiniteLossError.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = np.zeros((32, 2), np.float32), np.ones((32, 1), np.float32)
        >>> loader = data.DataLoader(data.ArrayDataset(x, y), 16)
        >>> training.Trainer(net, verbose=False).evaluate(loader)["loss"]
        1.0
        """
        self._compile(loader)
        with advising(self._loss_name):
            return self._evaluate(loader, "")

    def _evaluate(self, loader: Any, prefix: str) -> dict[str, Any]:
        loss_of = getattr(self.model, "loss", None) and loss_function(self.model)
        if loss_of is None and not self.metrics:
            raise ValueError(
                f"[Trainer] there is nothing to evaluate: {type(self.model).__name__} has no loss, "
                "and there are no metrics"
            )
        check_batches(loader)
        totals = Totals(self.metrics, self._together(), has_loss=loss_of is not None)
        title = prefix.removesuffix("_") or "evaluate"
        shown = Progress(len(loader), title, shown=self.verbose)
        with self._inferring(), _first_epoch_of(loader), shown as bar:
            for given in loader:
                *inputs, y = self._tensors(given)
                if not inputs:
                    raise ValueError("[Trainer] a batch has one part: expected inputs and targets")
                if len(y):  # a short batch may have no row for this rank
                    out = self.model(*inputs)
                    loss = None if loss_of is None else loss_of(out, y)
                    totals.add(out, loss, y, len(y))
                bar.step()
        return totals.of_all(prefix)

    def predict(self, loader: Any) -> NDArray[Any]:
        """The outputs for the batches of a loader, in one array. Of a batch with several parts, the
        last one is taken for the targets. On several ranks, each gets those of its own rows.

        Rows are in the order of the items: a DataLoader is read without `shuffle` and
        `drop_last`. Another loader where one of them is true is refused by a ValueError. Averages
        of `ema` take the place of the weights.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = np.zeros((32, 2), np.float32), np.ones((32, 1), np.float32)
        >>> loader = data.DataLoader(data.ArrayDataset(x, y), 16)
        >>> training.Trainer(net, verbose=False).predict(loader).shape
        (32, 1)
        """
        self._compile(loader)
        outputs = []
        with self._inferring(), _first_epoch_of(loader), _in_order(loader):
            for given in loader:
                batch = self._tensors(given)
                outputs.append(self.model(*(batch[:-1] or batch)).numpy())
        return np.concatenate(outputs) if outputs else np.zeros(0, np.float32)

    def averaged(self) -> AbstractContextManager[None]:
        """Context manager: the model's weights are the averages of `ema`, if there are some."""
        if self.ema is None or not self.ema.updates:
            return contextlib.nullcontext()
        return self.ema.applied()

    @contextlib.contextmanager
    def _inferring(self) -> Iterator[None]:
        before, executed = self.model.training, self._needs_execution()
        self.model.eval()
        try:
            with self.averaged(), self.model.executed() if executed else contextlib.nullcontext():
                yield
        finally:
            self.model.train(before)

    def _needs_execution(self) -> bool:
        """Whether inference must be executed, not replayed."""
        return False

    def _compile(self, loader: Any) -> None:
        """Compiles the model for the first batch, unless that was done and there is no dtype."""
        if self.dtype is None and self.model.get_states():
            return
        with _first_epoch_of(loader):
            batch = self._tensors(next(iter(loader)))
        use_graph = self.model.graph_mode or not self.model.get_states()
        self.model.compile(list(batch[:-1] or batch), True, use_graph, dtype=self.dtype)
        self.dtype = None

    def _tensors(self, batch: Any) -> tuple[Any, ...]:
        """The parts of a batch. Arrays become tensors on the device of the model. Of float32, which
        loaders make of all floats, they get the type of its parameters."""
        parts = self.model._as_tensors(
            tuple(batch) if isinstance(batch, tuple | list) else (batch,)
        )
        wanted = self.model._place.dtype(self.model)
        if self.model.input_types == "fixed" or wanted in (None, float32) or not is_float(wanted):
            return parts
        return tuple(
            wrap(part.data.AsType(int(wanted)), part.requires_grad)
            if isinstance(part, Tensor) and part.dtype == float32
            else part
            for part in parts
        )

    def _together(self) -> int:
        state = next(iter(self.model.get_states().values()), None)
        on_cpu = state is None or state.device.kind() == singa_wrap.DeviceKind_kCpu
        return 1 if on_cpu else _TOGETHER


def check_batches(loader: Any) -> None:
    """Raises TypeError or ValueError for a loader without a length, or without batches."""
    if not hasattr(loader, "__len__"):
        raise TypeError(
            "[Trainer] expected a data.DataLoader, or another loader with a length, such as a list "
            f"of batches, got {loader!r:.80}"
        )
    if not len(loader):
        raise ValueError("[Trainer] the loader has no batches")


def nonfinite_inputs(loader: Any, as_tensors: Callable[[Any], tuple[Any, ...]]) -> str:
    """Which part of the first batches has NaN or infinite numbers; "" if none has."""
    with _first_epoch_of(loader):
        for number, given in enumerate(itertools.islice(loader, _LOOKED_AT)):
            parts = as_tensors(given)
            for place, part in enumerate(parts):
                values = part.numpy() if hasattr(part, "numpy") else np.asarray(part)
                wrong = 0 if values.dtype.kind != "f" else int((~np.isfinite(values)).sum())
                if wrong:
                    what = "the targets have" if 0 < place == len(parts) - 1 else "the inputs have"
                    return (
                        f"{what} {wrong} NaN or infinite numbers of {values.size} in batch {number}"
                    )
    return ""


def say_if_unnormalised(x: Any) -> None:
    """Says so if the numbers of a batch of inputs are far from a mean of 0 and a spread of 1."""
    if not isinstance(x, Tensor) or not is_float(x.dtype) or not x.size():
        return
    values = x.numpy().astype(np.float64)
    mean, spread = float(values.mean()), float(values.std())
    if not np.isfinite(spread) or not spread:
        return  # NaN is an error of its own, and one value says nothing
    if abs(mean) > spread or not 0.2 < spread < 5:
        how = "data.Normalize(mean, std) as transform" if x.ndim() == 4 else "(x - mean) / spread"
        say(
            f"note: the inputs have mean {mean:.3g} and spread {spread:.3g}; networks learn better "
            f"from mean 0 and spread 1: {how}"
        )


def say_if_averages_lag(ema: Any, batches: int, optimizer: Any) -> None:
    """Says so if averages, which are validated in the place of the weights, will still be made of
    the first weights after so many batches."""
    updates = batches // getattr(optimizer, "accumulate", 1)
    if not isinstance(ema, opt.EMA) or not updates:
        return
    share = ema.decay**updates
    if share > _MOST_OF_FIRST_WEIGHTS:
        say(
            f"note: after the {updates} updates of this run, {share:.0%} of the averages of "
            f"ema={ema.decay:g}, which are validated, will be the first weights: for so few a "
            f"decay of {_WANTED_SHARE ** (1 / updates):.2g} or less is better"
        )


@contextlib.contextmanager
def _first_epoch_of(loader: Any) -> Iterator[None]:
    """Inside, a pass over a loader is that of its first epoch, so that each validation sees the
    same batches; afterwards the loader is where it was."""
    if not hasattr(loader, "state_dict"):
        yield
        return
    place = loader.state_dict()
    loader.set_epoch(0)
    if isinstance(loader, DataLoader):  # from its first batch, if it is within that epoch
        loader.load_state_dict({**place, "epoch": 0, "batch": 0})
    try:
        yield
    finally:
        loader.load_state_dict(place)


@contextlib.contextmanager
def _in_order(loader: Any) -> Iterator[None]:
    """Inside, a DataLoader reads all items in their order. Raises ValueError for another loader
    that shuffles or drops a batch, and for one whose sampler leaves items out."""
    if getattr(loader, "sampler", None) is not None and isinstance(loader, DataLoader):
        raise ValueError(
            "[predict] the loader draws items with a sampler, so rows would not be those of the "
            "items: give one without it"
        )
    sampler = type(getattr(loader, "sampler", None)).__name__  # of PyTorch's DataLoader
    shuffles = getattr(loader, "shuffle", False) is True or "Random" in sampler
    drops = getattr(loader, "drop_last", False) is True
    if isinstance(loader, DataLoader):
        before = loader.shuffle, loader.drop_last
        loader.shuffle = loader.drop_last = False
        try:
            yield
        finally:
            loader.shuffle, loader.drop_last = before
        return
    if shuffles or drops:
        does, wrong, option = (
            ("shuffles", "in the order of", "shuffle")
            if shuffles
            else ("drops a short batch", "those of all", "drop_last")
        )
        raise ValueError(
            f"[predict] the loader {does}, so rows would not be {wrong} the items: give one with "
            f"{option}=False"
        )
    yield
