"""Model: a layer that can be trained, saved and loaded as a whole.

class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.fc = layer.Linear(10)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.fc(x)

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss

net = Net()
net.set_optimizer(opt.SGD(lr=0.1))
net.compile([x], is_train=True)
out, loss = net(x, y)
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from . import autocast, autograd, layer, tensor
from . import singa_wrap as _c
from ._assignment import checked
from .graph import Rewriting, StepGraphs
from .tape import grad_mode
from .tensor import Tensor

if TYPE_CHECKING:
    from .graph import MemoryPlan
    from .opt import Optimizer
    from .summary import Summary

# state_files and summary are imported where they are used: a program that only computes should not
# wait for zipfile, json and what they bring along.


class ModelMeta(layer.LayerMeta):
    """Wraps `train_one_batch` so that it records on the tape whenever the model is in training."""

    @staticmethod
    def buffer_operation(func: Callable[..., Any]) -> Callable[..., Any]:
        """`func`, a train_one_batch, run in the mode that its model is in."""

        @functools.wraps(func)
        def train_one_batch(self: Model, *args: Any, **kwargs: Any) -> Any:
            with _mode(self.training):
                return func(self, *args, **kwargs)

        return train_one_batch

    def __new__(mcs, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> type:
        if "train_one_batch" in attributes:
            attributes["train_one_batch"] = ModelMeta.buffer_operation(
                attributes["train_one_batch"]
            )
        return super().__new__(mcs, name, bases, attributes)


class Model(layer.Layer, metaclass=ModelMeta):
    """A network with the step that trains it. Called, it trains one batch or, after eval(), infers.

    A subclass implements `forward` and `train_one_batch`. Whether the model trains is a setting of
    each thread: one that has called neither train() nor eval() follows the thread that made the
    model.
    """

    optimizer: Optimizer
    transient = ("_threads", "_step_graphs")
    # By the last ones steps are told apart.
    not_settings = (
        *("_threads", "_step_graphs", "_training_at_home", "_inputs", "graph_mode", "sequential"),
        *("_lowered", "_fuse", "_recompute"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._start_modes(training=True)
        self.graph_mode = False
        self._step_graphs: StepGraphs | None = None
        self._lowered: Any = None  # what float32 operands of products become
        self._recompute, self._fuse = False, False
        self.sequential = False
        self._inputs: list[_Like] = []

    # Training and inference.

    def compile(
        self,
        inputs: Sequence[Tensor | Sequence[Tensor]],
        is_train: bool = True,
        use_graph: bool = False,
        sequential: bool = False,
        dtype: Any = None,
        recompute: bool = False,
        fuse: bool = False,
    ) -> None:
        """Makes all parameters by one forward without training over `inputs`, and sets the mode.

        `inputs` are the arguments of forward, tensors or lists of tensors, of which only types,
        shapes and devices count. With dtype="bfloat16" or "float16" every call runs under
        `autograd.autocast`: convolutions and matrix products in 16 bits, parameters, statistics
        and losses in 32. With `recompute`, recorded training steps (use_graph) do not keep what
        batch norm with ReLU wrote, but compute it again in backward: a few percent slower, less
        memory, the same bits. With `fuse` they merge neighbouring operations where that saves a
        pass over memory. On the CPU: the same results. On a GPU, in 16 bits: batch norms take their
        statistics from the convolution before them, where cuDNN can, which rounds them otherwise.
        Raises TypeError for other inputs, ValueError for another dtype.
        """
        if not isinstance(inputs, list | tuple) or not inputs:
            raise TypeError(f"[compile] expected a list of tensors, got {inputs!r:.80}")
        self._inputs = [_like(x) for x in inputs]
        wanted = None if dtype is None else tensor.as_dtype(dtype)
        if wanted not in (None, tensor.float32, tensor.bfloat16, tensor.float16):
            raise ValueError(
                f"[compile] dtype has to be float32, bfloat16 or float16, got {dtype!r}"
            )
        self._lowered = None if wanted == tensor.float32 else wanted
        self._recompute, self._fuse = bool(recompute), bool(fuse)
        with self._precision(), _mode(False), autograd.no_grad():
            layer.Layer.__call__(self, *inputs)
        self.graph(use_graph, sequential)
        self.train(is_train)

    def train_one_batch(self, *input: Any, **kwargs: Any) -> Any:
        """One step of training: forward, loss, `self.optimizer(loss)`."""
        raise NotImplementedError(f"{type(self).__name__} does not define train_one_batch()")

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        step = self._train if self.training else self._infer
        mode = grad_mode()
        if not self.graph_mode or mode is (not self.training):
            return step(*input, **kwargs)
        kind = (self.training, mode, self._lowered, autocast.dtype(), _c.Selection())
        rewriting = Rewriting(self.training, self._fuse, self._recompute)
        return self._graphs().call(step, kind, input, kwargs, rewriting)

    def _graphs(self) -> StepGraphs:
        if self._step_graphs is None:
            self._step_graphs = StepGraphs(self)
        return self._step_graphs

    def _infer(self, *input: Any, **kwargs: Any) -> Any:
        with self._precision(), _mode(False):
            return super().__call__(*input, **kwargs)

    def _train(self, *input: Any, **kwargs: Any) -> Any:
        try:
            with self._precision():
                return self.train_one_batch(*input, **kwargs)
        except Exception as error:
            self._say_where(error)
            raise

    def _precision(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._lowered is None else autograd.autocast(self._lowered)

    def train(self, mode: bool = True) -> None:
        """From now on, calls in this thread train (or, with False, infer)."""
        self.training = mode
        autograd.training = mode

    def eval(self) -> None:
        """From now on, calls in this thread infer."""
        self.train(False)

    def graph(self, mode: bool = True, sequential: bool = False) -> None:
        """Chooses between replaying recorded steps (see `singa.graph`) and executing each.

        The results are the same; those of inference up to rounding, because batch norm becomes
        part of the convolution before it. Steps that cannot be replayed are executed, with a
        GraphWarning that says why.
        """
        self.graph_mode = mode
        self.sequential = sequential

    @contextmanager
    def executed(self) -> Iterator[None]:
        """Context: calls are executed, whatever `graph` says."""
        before, self.graph_mode = self.graph_mode, False
        try:
            yield
        finally:
            self.graph_mode = before

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Sets what `train_one_batch` calls as `self.optimizer(loss)`."""
        if not callable(optimizer):
            raise TypeError(f"[set_optimizer] expected an optimizer, got {optimizer!r:.80}")
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        # Only what is not there comes here.
        if name == "optimizer":
            raise AttributeError(
                f"[{type(self).__name__}] has no optimizer: call set_optimizer() before training"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def training(self) -> bool:
        """Whether a call in this thread trains."""
        return getattr(self._threads, "training", self._training_at_home)

    @training.setter
    def training(self, mode: bool) -> None:
        self._threads.training = mode = bool(mode)
        if threading.get_ident() == self._threads.home:
            self._training_at_home = mode

    def _start_modes(self, training: bool) -> None:
        self._threads = _Threads(threading.get_ident())
        self._training_at_home = training

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._start_modes(state["_training_at_home"])

    # Looking at it.

    def summary(self, file: IO[str] | None = None) -> Summary:
        """Prints a table of the layers with output shapes and numbers of parameters.

        `file` defaults to standard output. Raises RuntimeError before compile().
        """
        from .summary import summarize

        zeros = self._zeros("summary")
        with _mode(False), autograd.no_grad():
            summary = summarize(self, zeros)
        print(summary, file=file or sys.stdout)
        return summary

    def _infer_on_zeros(self) -> None:
        zeros = self._zeros("explain")
        with self._precision(), _mode(False), autograd.no_grad():
            layer.Layer.__call__(self, *zeros)

    def _zeros(self, function: str) -> list[Any]:
        """Inputs as compile() was given."""
        if not self._inputs:
            raise RuntimeError(
                f"[{function}] compile the model first: shapes follow from the inputs"
            )
        device = next((p.device for p in self.get_params().values()), None)
        return [_zeros(x, device) for x in self._inputs]

    def memory_plan(self) -> MemoryPlan:
        """Bytes that recorded steps use, by what they are for: a dict that prints as a table.

        "planned_bytes" is the sum of "by_kind": parameters, statistics and other tensors that live
        on, the optimizer's state, the arena of all temporaries, results, and the plans themselves
        (an estimate). "graphs" has a dict for each recorded step. Raises RuntimeError where nothing
        was recorded yet: compile with use_graph=True, then run a few steps.
        """
        from .graph import memory_plan

        states = self.get_states()
        optimizer = self.optimizer.get_states() if "optimizer" in self.__dict__ else {}
        return memory_plan(self._graphs(), self.get_params(), states, optimizer)

    # Files.

    def save_states(
        self, fpath: str | os.PathLike[str], aux_states: Mapping[str, Any] | None = None
    ) -> None:
        """Saves parameters and running statistics, in plain layout.

        The suffix chooses the format: .npz, .safetensors, else SINGA's zip. `aux_states` are other
        tensors, arrays or numbers to keep with them. The file is replaced as a whole or not at all.
        Raises RuntimeError if the model has no parameters yet.
        """
        from . import state_files

        states = self._compiled_states("save_states")
        aux = {name: _as_array(name, value) for name, value in (aux_states or {}).items()}
        if common := states.keys() & aux.keys():
            raise ValueError(f"[save_states] aux_states has names of the model's: {sorted(common)}")
        dtypes = {name: int(value.dtype) for name, value in states.items()}
        for name, value in aux.items():
            dtypes[name] = int(tensor.as_dtype(value.dtype))
        arrays = {name: value.numpy() for name, value in states.items()}
        state_files.save_states(fpath, arrays, aux, dtypes)

    def load_states(self, fpath: str | os.PathLike[str]) -> dict[str, Tensor]:
        """Loads what save_states, of this version or of SINGA's, wrote; returns the aux_states.

        Raises ValueError if the file is damaged, or if names or shapes are not the model's (the
        message lists them); the model is then unchanged. FileNotFoundError if there is none.
        Neither time nor memory goes far beyond the size of the file and of the model.
        """
        from . import state_files

        own = self._compiled_states("load_states")
        where = os.fspath(fpath)
        expected = {name: tuple(value.shape) for name, value in own.items()}
        states, aux = state_files.load_states(
            fpath,
            lambda found: state_files.check_fit(where, expected, found),
            sum(value.memsize() for value in own.values()),
        )
        others = {name: _as_tensor(value) for name, value in aux.items()}
        self.set_states(checked(f"[load_states] {where}:", own, states))
        return others

    def load_torch(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        """Loads PyTorch's weights of the same architecture: a .safetensors file or a state dict.

        Raises ValueError listing what is missing, unexpected or of another shape, TypeError for
        what is no number; the model is then unchanged.
        """
        from .torch_weights import load_torch

        self._compiled_states("load_torch")
        load_torch(self, source)

    #: For load_torch: patterns of names in PyTorch's state dict that have no place here.
    torch_ignore: tuple[str, ...] = ("*.num_batches_tracked",)

    def torch_name(self, name: str) -> str:
        """PyTorch's name of the layer that is called `name` here."""
        return name

    def _compiled_states(self, function: str) -> dict[str, Tensor]:
        states = self.get_states()
        if not states:
            raise RuntimeError(
                f"[{function}] {type(self).__name__} has no parameters yet: call compile() first"
            )
        return states


#: Shape and type of an input, or those of a list of inputs.
_Like = tuple[tuple[int, ...], Any] | list["_Like"]


def _like(x: Any) -> _Like:
    if isinstance(x, list | tuple):
        return [_like(item) for item in x]
    if not isinstance(x, Tensor):
        raise TypeError(f"[compile] expected tensors, got {type(x).__name__}")
    return tuple(x.shape), x.dtype


def _zeros(like: _Like, device: Any) -> Any:
    if isinstance(like, list):
        return [_zeros(item, device) for item in like]
    shape, dtype = like
    return Tensor(shape, device, dtype)


class _Threads(threading.local):
    """What each thread has chosen, and which thread is followed by those that chose nothing."""

    def __init__(self, home: int) -> None:
        self.home = home


@contextmanager
def _mode(training: bool) -> Iterator[None]:
    """This thread's training flag, set for a while."""
    before = autograd.training
    autograd.training = training
    try:
        yield
    finally:
        autograd.training = before


def _as_tensor(array: np.ndarray) -> Tensor:
    """As SINGA reads arrays; int64 where int32 does not have the values."""
    try:
        return tensor.from_numpy(array)
    except ValueError:
        return tensor.from_numpy(array, dtype=tensor.int64)


def _as_array(name: str, value: Any) -> np.ndarray:
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "USV":
        raise TypeError(f"[save_states] aux state {name}: expected numbers, got {value!r:.60}")
    return array
