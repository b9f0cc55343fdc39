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

Calls after `net.eval()` infer: `out = net(x)`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import is_
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from . import autograd, layer, tensor
from . import singa_wrap as _c
from .dtypes import is_float
from .graph.memory_plan import MemoryPlan, memory_plan
from .graph.step_graphs import Rewriting, StepGraphs
from .layer import late
from .layer.head import replace_head
from .layer.outputs import outputs_of
from .layer.place import Place
from .layer.summary import Summary, summarize
from .raw import compat_mode, words
from .tape import autocast
from .tape.assignment import checked
from .tape.grad_mode import state as grad
from .tape.operator import backward_followers
from .tape.tensor import wrap
from .tensor import Tensor

if TYPE_CHECKING:
    from .drawing.svg import Picture
    from .files.fit import Mismatch
    from .onnx.quantizing import QuantizedModel
    from .opt import Optimizer

# state_files and torch_weights are imported in functions, so that a program that only computes does
# not load zipfile, json and their dependencies.


#: Methods of Model that modules above this one implement, by a function of the same name. There are
#: no other calls upward.
OF_ABOVE = {
    "quantize": "singa.onnx.quantizing",
    "plot": "singa.report.network",
    "save": "singa.training.model_file",
    "fit": "singa.training.fitting",
    "evaluate": "singa.training.fitting",
    "predict": "singa.training.fitting",
}


def _of_above(method: str) -> Any:
    """The function that implements a method of Model."""
    return getattr(importlib.import_module(OF_ABOVE[method]), method)


class ModelMeta(layer.LayerMeta):
    """Wraps `train_one_batch` so that it records on the tape if the model is in training mode.

    >>> type(models.Sequential) is model.ModelMeta
    True
    """

    @staticmethod
    def buffer_operation(func: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `func`, a train_one_batch: it runs in the mode of its model, and a script that
        calls it in training mode calls the model."""

        @functools.wraps(func)
        def train_one_batch(self: Model, *args: Any, **kwargs: Any) -> Any:
            is_own = type(self).train_one_batch is train_one_batch  # not one called by super()
            if is_own and self.training and _running.step() is None:
                return Model.__call__(self, *args, **kwargs)
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
    """A network and its training step.

    A subclass implements `forward` and `train_one_batch`. A call of the model runs
    `train_one_batch`, or `forward` after eval(). In training mode `net.train_one_batch(x, y)` is
    the same as `net(x, y)`: recorded, and under autocast. Each thread has its own training mode. A
    thread that has called neither train() nor eval() uses the mode of the thread that created the
    model.

    >>> class Net(model.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = layer.Linear(1)
    ...     def forward(self, x):
    ...         return self.linear(x)
    ...     def train_one_batch(self, x, y):
    ...         out = self.forward(x)
    ...         loss = autograd.mse_loss(out, y)
    ...         self.optimizer(loss)
    ...         return out, loss
    ...
    >>> net = Net()
    >>> net.set_optimizer(opt.SGD(lr=0.1))
    >>> x, y = tensor.ones((4, 2)), tensor.zeros((4, 1))
    >>> net.compile([x], is_train=True, use_graph=True)
    >>> losses = [float(net(x, y)[1]) for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    >>> net.eval()
    >>> net(x).shape
    (4, 1)
    """

    optimizer: Optimizer
    transient: ClassVar[tuple[str, ...]] = ("_threads", "_step_graphs", "_place")
    # The last line: the first three are in the key of a recorded step, the others compute nothing.
    not_settings: ClassVar[tuple[str, ...]] = (
        *("_threads", "_step_graphs", "_training_at_home", "_inputs", "graph_mode", "sequential"),
        *("_autocast_dtype", "_fuse", "_recompute", "architecture", "class_names", "transform"),
        *("_epochs_fitted", "_place"),
    )
    #: How `models.create` made the network: {"name": name, "arguments": its keyword arguments}.
    #: None for other networks. Checkpoints keep it.
    architecture: dict[str, Any] | None = None
    #: Names of the classes, in the order of the outputs. Checkpoints keep them. Loading one sets
    #: them where they are None.
    class_names: Sequence[str] | None = None
    #: What makes its inputs of pictures: a transform of `singa.data`, such as
    #: `data.evaluation_transform(...)`. `save` keeps it.
    transform: Any = None
    #: Epochs that `fit` has made of its own batches. The next `fit` goes on in the order of items.
    _epochs_fitted: int = 0

    def __init__(self) -> None:
        super().__init__()
        self._start_modes(training=True)
        self.graph_mode: bool = False
        self._step_graphs: StepGraphs | None = None
        self._autocast_dtype: Any = None  # type of float32 operands of matrix products
        self._recompute, self._fuse = False, False
        self.sequential: bool = False
        self._inputs: list[_Like] = []

    # Training and inference.

    @words.says_what_to_write("compile")
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
        """Creates all parameters by one forward pass in inference mode, and sets the modes.

        inputs      arguments of `forward`: tensors, or lists of tensors. NumPy arrays become
                    tensors, as in calls. `summary`, `plot`, `explain` and files run the network on
                    these values again, but on zeros for inputs of more than 65,536 elements.
                    Parameters that exist keep their type; others take the first float type that
                    their layer gets
        is_train    mode of the following calls: training, or inference
        use_graph   record steps and replay them; see `graph`
        sequential  accepted for SINGA's scripts; recorded steps always run in order
        dtype       "float32" (the default), "bfloat16" or "float16". With a 16-bit type every call
                    runs under `autograd.autocast`: convolutions, products and recurrent networks
                    compute in 16 bits; parameters, statistics and losses stay float32.
        recompute   recorded training steps do not keep the outputs of batch norm with ReLU, but
                    compute them again in backward. This saves memory, costs a few percent of time,
                    and gives the same bits.
        fuse        recorded training steps merge neighbouring operations where that saves a pass
                    over memory. Results on the CPU are the same. On a GPU with a 16-bit type, the
                    convolution computes the statistics of the batch norm after it where cuDNN
                    supports that, with different rounding.

        Raises TypeError if `inputs` are not tensors or do not have the type of parameters that
        exist, ValueError for another dtype.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))], is_train=False)
        >>> {name: W.shape for name, W in net.get_params().items()}
        {'0.W': (4, 2), '0.b': (2,)}
        """
        if not isinstance(inputs, list | tuple) or not inputs:
            raise TypeError(f"[compile] expected a list of tensors, got {inputs!r:.80}")
        inputs = self._as_tensors(inputs)
        self._inputs = [_like(x) for x in inputs]
        wanted = None if dtype is None else tensor.as_dtype(dtype)
        if wanted not in (None, tensor.float32, tensor.bfloat16, tensor.float16):
            raise ValueError(f"[compile] dtype must be float32, bfloat16 or float16, got {dtype!r}")
        self._autocast_dtype = None if wanted == tensor.float32 else wanted
        self._recompute, self._fuse = bool(recompute), bool(fuse)
        self._update_names()
        with self._precision(), _mode(False), autograd.no_grad():
            layer.Layer.__call__(self, *inputs)
        self.graph(use_graph, sequential)
        self.train(is_train)

    def to_type(self, dtype: Any) -> Self:
        """As Layer.to_type. `summary`, `plot` and `save` then expect float inputs of this type.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))], is_train=False)
        >>> net.to_type("float64")(tensor.zeros((1, 4), dtype="float64")).dtype
        singa.float64
        """
        super().to_type(dtype)
        self._inputs = _with_type(self._inputs, tensor.as_dtype(dtype))
        return self

    def train_one_batch(self, *input: Any, **kwargs: Any) -> Any:
        """One training step, which returns (outputs, loss). Subclasses may implement it.

        That of a model with a `loss`, a layer or a function of outputs and targets: `forward` of
        all arguments but the last, the loss for the last one, and `self.optimizer(loss)`. The
        keyword `weight` is a factor of the gradients, such as `data.DataLoader.weight`: of the
        parts of an update, unless the loss counts its targets (`Tensor.counted`), which weigh them
        better. Raises NotImplementedError for other models.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = tensor.ones((4, 2)), tensor.zeros((4, 1))
        >>> net.compile([x], is_train=True)
        >>> out, loss = net(x, y)  # runs train_one_batch
        >>> out.shape
        (4, 1)
        """
        loss_of = getattr(self, "loss", None)
        if loss_of is None:
            raise NotImplementedError(
                f"{type(self).__name__} defines neither train_one_batch(), which a call in "
                "training mode runs, nor a loss; call eval() first to run forward()"
            )
        if len(input) < 2:
            raise TypeError(
                f"{type(self).__name__}.train_one_batch() takes inputs and targets, got "
                f"{len(input)} argument; call eval() first to run forward()"
            )
        *inputs, y = input
        out = self.forward(*inputs)
        loss = loss_of(out, y)
        weight = kwargs.pop("weight", 1.0)
        if kwargs:
            raise TypeError(f"[train_one_batch] unexpected arguments: {', '.join(kwargs)}")
        counts = getattr(loss, "counted", None) is not None and getattr(
            self.optimizer, "has_parts", False
        )
        self.optimizer(loss if weight == 1.0 or counts else loss * weight)
        return out, loss

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        """Runs `train_one_batch`, or `forward` after eval(). NumPy arrays become tensors on the
        device of the model, as `tensor.from_numpy` makes them."""
        if not _MAY_HOLD_ARRAYS.isdisjoint(map(type, input)):
            input = self._as_tensors(input)
        if kwargs:
            kwargs = {name: self._as_tensors(value) for name, value in kwargs.items()}
        around = getattr(self.__dict__.get("optimizer"), "training_step", None)
        try:
            if around is None or not self.training:
                return self._call(*input, **kwargs)
            with around(self):
                return self._call(*input, **kwargs)
        except TypeError as error:
            if advice := self._mode_advice(*input, **kwargs):
                raise TypeError(f"{error}: {advice}") from error
            raise

    def _mode_advice(self, *input: Any, **kwargs: Any) -> str:
        """What to call first, if the arguments are those of the other mode."""
        train, infer = self.train_one_batch, self.forward
        run, other = (train, infer) if self.training else (infer, train)
        if _takes(run, input, kwargs) or not _takes(other, input, kwargs):
            return ""
        if self.training:
            return "the model is in training mode; call eval() first to run forward()"
        return "the model is in inference mode; call train() first to run train_one_batch()"

    def _as_tensors(self, values: Any) -> Any:
        """The values, in which NumPy arrays are tensors on the device of the model."""
        if isinstance(values, np.ndarray):
            return self._as_tensors((values,))[0]
        if type(values) not in (list, tuple):
            return values
        found: list[Any] = []
        device, copies = None, True
        for value in values:
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
                found.append(self._as_tensors(value) if type(value) in (list, tuple) else value)
                continue
            if device is None and (device := self._place.device(self)) is not None:
                copies = device.kind() == _c.DeviceKind_kCpu
            if device is None or type(value) is not np.ndarray or value.dtype not in _KEPT:
                found.append(_as_tensor(value, device))
            else:  # the same with fewer calls
                raw = _c.from_buffer(value, copies or not value.flags.writeable)
                found.append(wrap(raw.ToDevice(device), True))
        return values if all(map(is_, found, values)) else type(values)(found)

    def _call(self, *input: Any, **kwargs: Any) -> Any:
        training = self.training
        step = self._train if training else self._infer
        if not self.graph_mode or grad.grad_mode is (not training) or backward_followers:
            return step(*input, **kwargs)
        rewriting = _rewriting(training, self._fuse, self._recompute)
        graphs = self._step_graphs or self._graphs()
        return graphs.call(step, self._kind, input, kwargs, rewriting)

    def _kind(self) -> tuple[Any, ...]:
        """The settings that tell kinds of steps apart."""
        types = self._autocast_dtype, autocast.state.dtype
        training = getattr(self._threads, "training", self._training_at_home)
        modes = training, grad.grad_mode, self.graph_mode, compat_mode.enabled
        return *modes, *types, _c.Selection()

    def __del__(self) -> None:
        # Graphs refer to the attributes, and these to the graphs.
        graphs = self.__dict__.get("_step_graphs")
        if graphs is not None:
            graphs.clear()

    def _graphs(self) -> StepGraphs:
        if self._step_graphs is None:
            self._step_graphs = StepGraphs(self)
        return self._step_graphs

    def _infer(self, *input: Any, **kwargs: Any) -> Any:
        with self._precision(), _mode(False):
            return super().__call__(*input, **kwargs)

    def _train(self, *input: Any, **kwargs: Any) -> Any:
        step = _Step()
        before, _running.step = _running.step, weakref.ref(step)
        try:
            with self._precision():
                return self.train_one_batch(*input, **kwargs)
        except Exception as error:
            self._note_layer(error)
            raise
        finally:
            _running.step = before

    def _precision(self) -> AbstractContextManager[Any]:
        dtype = self._autocast_dtype
        return nullcontext() if dtype is None else autograd.autocast(dtype)

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        validation: Any = None,
        shuffle: bool = True,
        seed: int = 0,
        resume: bool = False,
        overwrite: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Trains the model with its optimizer; returns a record for each epoch.

            net.set_optimizer(opt.Adam(0.001))
            history = net.fit(images, labels, epochs=5, validation=(test_images, test_labels))

        x           inputs (N, ...), an array or tensor, with targets `y` (N, ...); or a Dataset, or
                    a loader of batches
        epochs      passes over the data. Default 1.
        batch_size  rows of a batch of arrays or of a Dataset. Default 32.
        validation  (x, y), a Dataset or a loader, for `evaluate` after each epoch
        shuffle     whether arrays and Datasets come in a new order in each epoch (default True),
                    which depends on `seed` (default 0). A second `fit` goes on in these orders:
                    two of one epoch are one of two.
        resume, overwrite  as for `training.Trainer.fit`
        options     those of `training.Trainer`: metrics, loss, callbacks, out, ema and others

        Raises as `Trainer.fit` does.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = np.ones((64, 2), np.float32), np.zeros((64, 1), np.float32)
        >>> history = net.fit(x, y, epochs=2, verbose=False)
        >>> sorted(history[0])[:2]
        ['epoch', 'images_per_s']
        """
        return _of_above("fit")(
            self,
            x,
            y,
            epochs=epochs,
            batch_size=batch_size,
            validation=validation,
            shuffle=shuffle,
            seed=seed,
            resume=resume,
            overwrite=overwrite,
            **options,
        )

    def evaluate(
        self, x: Any, y: Any = None, *, batch_size: int = 32, **options: Any
    ) -> dict[str, Any]:
        """The loss and the `metrics` on data that are given as for `fit`: {"loss": 0.31, ...}.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> x, y = np.zeros((64, 2), np.float32), np.ones((64, 1), np.float32)
        >>> net.compile([x[:1]])
        >>> net.evaluate(x, y)["loss"]
        1.0
        """
        return _of_above("evaluate")(self, x, y, batch_size=batch_size, **options)

    def predict(self, x: Any, *, batch_size: int = 32) -> NDArray[Any]:
        """The outputs for inputs (N, ...), computed in batches; or for the batches of a loader,
        without their targets. Each rank gets the outputs for all inputs, which it computes itself;
        from a loader with a `shard`, those for its own rows.

        >>> net = models.Sequential(layer.Linear(1))
        >>> net.compile([np.zeros((1, 2), np.float32)])
        >>> net.predict(np.zeros((64, 2), np.float32)).shape
        (64, 1)
        """
        return _of_above("predict")(self, x, batch_size=batch_size)

    def train(self, mode: bool = True) -> None:
        """Sets this thread's mode: calls of the model train, or infer with `mode` False.

        It also sets `autograd.training` of this thread.

        >>> net = models.Sequential(layer.Dropout(0.5))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.train()
        >>> net.training, autograd.training
        (True, True)
        """
        self.training = mode
        autograd.training = mode

    def eval(self) -> None:
        """Sets this thread's mode to inference, as `train(False)`.

        >>> net = models.Sequential(layer.Dropout(0.5))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.eval()
        >>> net.training, autograd.training
        (False, False)
        """
        self.train(False)

    def graph(self, mode: bool = True, sequential: bool = False) -> None:
        """Turns recording and replaying of steps (see `singa.graph`) on, or off with `mode` False.

        Replayed training steps give the same results as executed ones. Inference differs by
        rounding, because batch norm is folded into the convolution before it. A step that cannot
        be replayed is executed, with a GraphWarning that gives the reason. `sequential` is
        accepted for SINGA's scripts and has no effect.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))], use_graph=True)
        >>> net.graph(False)
        >>> net.graph_mode
        False
        """
        self.graph_mode = mode
        self.sequential = sequential

    @contextmanager
    def executed(self) -> Iterator[None]:
        """Context manager: calls are executed and not replayed, whatever `graph` was set to.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))], use_graph=True)
        >>> with net.executed():
        ...     print(net.graph_mode)
        ...
        False
        >>> net.graph_mode
        True
        """
        before, self.graph_mode = self.graph_mode, False
        try:
            yield
        finally:
            self.graph_mode = before

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Sets `self.optimizer`, which `train_one_batch` calls with the loss.

        It may update only what is in get_params(): the first update of another tensor raises
        ValueError. Raises TypeError for a class, and for what cannot be called.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.set_optimizer(opt.Adam(lr=1e-3))
        >>> net.optimizer.now("lr")
        0.001
        """
        if not callable(optimizer):
            raise TypeError(f"[set_optimizer] expected an optimizer, got {optimizer!r:.80}")
        self.optimizer = optimizer

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "optimizer":
            if isinstance(value, type):
                raise TypeError(
                    f"[set_optimizer] expected an optimizer, got the class {value.__name__}: write "
                    f"set_optimizer({value.__name__}(lr=0.1))"
                )
            if hasattr(value, "set_on"):
                value.set_on(self)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(
                f"[{type(self).__name__}] has no optimizer: call set_optimizer() before training"
            )
        raise words.attribute_error(f"{type(self).__name__!r} object", name, words.LAYERS)

    @property
    def training(self) -> bool:
        """Whether calls in this thread train.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))], is_train=False)
        >>> net.training
        False
        """
        return getattr(self._threads, "training", self._training_at_home)

    @training.setter
    def training(self, mode: bool) -> None:
        self._threads.training = mode = bool(mode)
        if threading.get_ident() == self._threads.home:
            self._training_at_home = mode

    def _start_modes(self, training: bool) -> None:
        self._threads = _Threads(threading.get_ident())
        self._training_at_home = training
        self._place = Place()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._start_modes(state["_training_at_home"])
        if "optimizer" in state:
            self.optimizer = state["optimizer"]

    # Reports.

    def summary(self, file: IO[str] | None = None) -> Summary:
        """Prints a table of the layers, their output shapes and numbers of parameters.

        It also returns the table, of at most 80 columns. `file` defaults to standard output; on a
        terminal, rich prints it in colour where it is installed. Raises RuntimeError before
        compile().

        >>> net = models.Sequential(layer.Linear(8), layer.ReLU(), layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> table = net.summary()
        layer  type    output  parameters
        ---------------------------------
        0      Linear  (1, 8)          40
        1      ReLU    (1, 8)           0
        2      Linear  (1, 2)          18
        ---------------------------------
        Sequential: 58 parameters
        >>> table.params
        58
        """
        from .drawing.table import show  # not loaded by a program that only computes

        inputs = self._examples("summary")
        with _mode(False), autograd.no_grad():
            summary = summarize(self, inputs)
        show(summary.table(), file)
        return summary

    def values(self, inputs: Any, names: Sequence[str]) -> list[Any]:
        """The outputs of some layers for these inputs, in the order of `names`.

            middle, scores = net.values(x, ["layer3", ""])

        inputs  what `forward` takes: one tensor or array, or a list of several arguments
        names   paths of layers, as named_layers() has them; "" is the model itself

        It runs `forward` as a call after eval() does, whatever the mode, and does not record it.
        The output of a layer is what it hands on: that of a batch norm that is called with
        `relu=True` is behind the ReLU. Gradients lead through the results inside of
        `autograd.enable_grad()`.

        Raises ValueError for a name of no layer, and for a layer that does not run, or that runs
        several times; TypeError if `names` are not texts.

        >>> net = models.Sequential(layer.Linear(8), layer.ReLU(), layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> hidden, out = net.values(tensor.ones((3, 4)), ["1", ""])
        >>> hidden.shape, out.shape
        ((3, 8), (3, 2))
        """
        given = inputs if isinstance(inputs, list | tuple) else [inputs]
        arguments = self._as_tensors(given)
        return outputs_of(self, names, lambda: self._infer(*arguments))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """A picture of the network: its layers with shapes, parameters, time, memory of the output
        and implementation, in frames for its blocks, and lines between layers. Equal blocks that
        follow each other are drawn once.

        Times are those of inference on what compile() was given, as explain() runs it. Notebooks
        show the picture; `path` also writes it to an SVG file. Raises RuntimeError before
        compile(), ValueError for a name that does not end in .svg.

        >>> from pathlib import Path
        >>> net = models.Sequential(layer.Linear(8), layer.ReLU())
        >>> net.compile([tensor.zeros((1, 4))])
        >>> picture = net.plot("net.svg")
        >>> Path("net.svg").stat().st_size > 1000
        True
        """
        return _of_above("plot")(self, path)

    def _infer_on_examples(self, function: str = "explain") -> None:
        inputs = self._examples(function)
        with self._precision(), _mode(False), autograd.no_grad():
            layer.Layer.__call__(self, *inputs)

    def _examples(self, function: str) -> list[Any]:
        """The inputs that compile() was given: zeros in the place of large ones."""
        if not self._inputs:
            raise RuntimeError(
                f"[{function}] call compile() first: output shapes depend on its inputs"
            )
        self._update_names()
        device = next((p.device for p in self.get_params().values()), None)
        return [_example(x, device) for x in self._inputs]

    def memory_plan(self) -> MemoryPlan:
        """Memory that recorded steps use, by purpose, in bytes: a dict that prints as a table.

        "by_kind" has the bytes of parameters, of statistics and other tensors that outlive a step,
        of the optimizer's state, of the arena that holds all temporaries, of results, and of the
        plans (an estimate). "planned_bytes" is their sum. "graphs" has a dict for each recorded
        step. Raises RuntimeError if no step has been recorded: compile with use_graph=True and run
        a few steps first.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = tensor.ones((4, 2)), tensor.zeros((4, 1))
        >>> net.compile([x], is_train=True, use_graph=True)
        >>> for _ in range(5):
        ...     out, loss = net(x, y)
        ...
        >>> net.memory_plan()["by_kind"]["parameters"]
        12
        """
        states = self.get_states()
        optimizer = self.optimizer.get_states() if "optimizer" in self.__dict__ else {}
        return memory_plan(self._graphs(), self.get_params(), states, optimizer)

    # Files.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the whole network to a file, from which `singa.load` makes it again.

        The file has the weights, how to make the network, the shapes of its inputs, `class_names`,
        `transform` and singa's version. Networks of `models.create` and `models.Sequential` with
        layers of singa are described by names and arguments. Any other network is saved as its ONNX
        graph, which predicts and trains, but has no layers; this needs the package onnx. A warning
        says so where a network of the first kind has been changed, and names the layer.

        The write is atomic: a failure leaves the old file. Raises RuntimeError before compile(),
        ValueError that names the operator and its layer for a network that has no ONNX graph, and
        for another number of class names than the network has; TypeError for a transform that is
        not singa's.

        >>> net = models.create("lenet")
        >>> net.compile([tensor.zeros((1, 1, 28, 28))])
        >>> net.save("lenet.singa")
        >>> type(singa.load("lenet.singa")).__name__
        'LeNet'
        """
        _of_above("save")(self, path)

    def save_states(
        self, fpath: str | os.PathLike[str], aux_states: Mapping[str, Any] | None = None
    ) -> None:
        """Saves parameters and running statistics.

        The suffix of `fpath` chooses the format: .npz, .safetensors, or SINGA's zip for any other.
        `aux_states` are further tensors, arrays or numbers to save, by name. The write is atomic:
        a failure leaves the old file. Raises RuntimeError if the model has no parameters yet,
        ValueError if `aux_states` has a name of the model's states, and TypeError for a value that
        is not numeric.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.save_states("net.safetensors", {"epoch": 3})
        >>> net.load_states("net.safetensors")["epoch"]
        Tensor(3, dtype=int32)
        """
        from .files import state_files

        states = self._compiled_states("save_states")
        aux = {name: _as_array(name, value) for name, value in (aux_states or {}).items()}
        if common := states.keys() & aux.keys():
            raise ValueError(f"[save_states] aux_states has names of the model: {sorted(common)}")
        dtypes = {name: int(value.dtype) for name, value in states.items()}
        for name, value in aux.items():
            dtypes[name] = int(tensor.as_dtype(value.dtype))
        arrays = {name: value.numpy() for name, value in states.items()}
        for name, value in late.waiting(self).items():
            arrays[name], dtypes[name] = value, int(tensor.as_dtype(value.dtype))
        state_files.save_states(fpath, arrays, aux, dtypes)

    def load_states(self, fpath: str | os.PathLike[str], strict: bool = True) -> LoadedStates:
        """Loads a file of `save_states`, or of SINGA's, and returns its aux_states by name.

        strict  whether the file must have all states of the model, and no others. With False, the
                result says what it lacked, and what it had besides: see LoadedStates.

        A file that was saved before the model became part of another one fits: where names differ,
        and it is clear for all of them which one ends in which, a warning lists them.

        Raises FileNotFoundError if there is no such file, RuntimeError if the model has no
        parameters yet, and ValueError if the file is damaged, for wrong shapes, and if `strict` for
        missing and unexpected names; the message lists them. The model is unchanged after an error.
        Time and memory are bounded by the sizes of the file and of the model, even for a malicious
        file.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.save_states("net.npz")
        >>> net.load_states("net.npz")
        {}
        """
        from .files import fit, state_files

        own = self._compiled_states("load_states")
        where = f"[load_states] {os.fspath(fpath)}"

        def present(found: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
            awaited = late.awaited(self, found.keys() - own.keys())
            return {name: shape for name, shape in found.items() if name not in awaited}

        def check(found: dict[str, tuple[int, ...]]) -> None:
            fit.fit(where, own, present(found), strict)

        room = sum(value.memsize() for value in own.values())
        states, aux = state_files.load_states(fpath, check, room)
        others = {name: _as_tensor(value) for name, value in aux.items()}
        shapes = present({name: value.shape for name, value in states.items()})
        names, apart = fit.fit(where, own, shapes, strict)
        ready = checked(f"{where}:", own, {here: states[there] for here, there in names.items()})
        fit.say_renamed(where, names)
        if strict:  # a script's own set_states takes the states alone
            self.set_states(ready)
        else:
            self.set_states(ready, strict=False)
        late.give(self, {n: v for n, v in states.items() if n not in own and n not in shapes})
        return LoadedStates(others, apart.missing, apart.unexpected)

    def load_torch(
        self, source: str | os.PathLike[str] | Mapping[str, Any], strict: bool = True
    ) -> Mismatch:
        """Loads weights that PyTorch saved for the same architecture.

        source  a .safetensors file or a state dict
        strict  whether all must fit (default True). With False, what does not is left out, such as
                a head for another number of classes.

        Returns the named tuple (missing, unexpected) of PyTorch's names: of weights of the model
        that were not set, and of values that were not used. A value of a wrong shape is in both.

        Raises TypeError for values that are not numeric, RuntimeError if the model has no
        parameters yet, and if `strict` ValueError that lists missing and unexpected names and wrong
        shapes, otherwise if no value fits at all. The model is unchanged after an error.

        >>> net = models.Sequential(layer.Linear(1))
        >>> net.compile([tensor.zeros((1, 2))])
        >>> net.load_torch({"0.weight": np.array([[1.0, 2.0]]), "0.bias": np.array([3.0])})
        Mismatch(missing=[], unexpected=[])
        >>> net.get_params()["0.W"]
        Tensor([[1.],
                [2.]], dtype=float32)
        """
        from .layer.torch_weights import load_torch

        self._compiled_states("load_torch")
        return load_torch(self, source, strict)

    #: Patterns of names in PyTorch's state dict that load_torch ignores.
    torch_ignore: tuple[str, ...] = ("*.num_batches_tracked",)

    def quantize(
        self,
        samples: Any,
        path: str | os.PathLike[str] | None = None,
        *,
        tolerance: float = 0.1,
    ) -> QuantizedModel:
        """The network with convolutions and fully connected layers of int8, for inference.

        samples    batches of inputs as in use, such as a few hundred images: an iterable of
                   tensors or arrays, or of lists of them for several inputs; without labels. Those
                   of a data.DataLoader are left out
        path       also writes an ONNX file, with pairs of QuantizeLinear and DequantizeLinear
        tolerance  largest change of the outputs: the root mean square of the differences, relative
                   to that of the outputs. While it is larger, layers that lose accuracy stay in
                   float, those first that alone change the outputs most. A warning names them, and
                   so does `float_layers` of the result.

        Batch norm is folded into convolutions. Weights have a scale for each output; activations
        are uint8 with one scale for each tensor, from their smallest to their largest number over
        all samples. The network itself is unchanged.

        Raises ExportError where the network has no form in ONNX, ValueError if it has no layers of
        float32 to quantise, without samples, and for values that are not finite. It needs the
        package onnx. See docs/onnx.md.

        >>> net = models.Sequential(layer.Linear(2))
        >>> x = tensor.random((8, 4))
        >>> net.compile([x])
        >>> net.eval()
        >>> quantized = net.quantize([x])
        >>> float((quantized(x) - net(x)).abs().max()) < 0.05
        True
        """
        return _of_above("quantize")(self, samples, path, tolerance=tolerance)

    def torch_name(self, name: str) -> str:
        """PyTorch's name of layer `name`. Models whose names differ from PyTorch's override it.

        >>> models.Sequential().torch_name("features.0")
        'features.0'
        """
        return name

    def replace_head(self, num_outputs: int) -> tuple[str, ...]:
        """Gives the network's last layer, Linear or a convolution, `num_outputs` outputs, for
        training on other classes. Its parameters get new initial values; the others stay.

            net.load_torch("resnet50.safetensors")
            net.freeze()
            net.replace_head(37)  # trains

        Returns the paths of its parameters. `class_names` become None. Raises RuntimeError before
        compile(), and ValueError if the outputs come from another kind of layer, or the weight has
        a second use.

        >>> net = models.create("lenet")
        >>> net.compile([tensor.zeros((1, 1, 28, 28))])
        >>> net.replace_head(3)
        ('fc2.W', 'fc2.b')
        """
        inputs = self._examples("replace_head")
        with autograd.no_grad():
            paths = replace_head(self, num_outputs, lambda: self._infer(*inputs))
        self.class_names = None
        return paths

    def _compiled_states(self, function: str) -> dict[str, Tensor]:
        states = self.get_states()
        if not states:
            raise RuntimeError(
                f"[{function}] {type(self).__name__} has no parameters yet: call compile() first"
            )
        return states


class LoadedStates(dict[str, Tensor]):
    """The result of `Model.load_states`: the file's aux_states by name. It is true, even without
    any.

    missing: names of states of the model that the file lacked.
    unexpected: names in the file that the model does not have.

    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> net.save_states("lenet.npz", {"epoch": 3})
    >>> loaded = net.load_states("lenet.npz")
    >>> loaded["epoch"], loaded.missing
    (Tensor(3, dtype=int32), [])
    """

    def __init__(
        self, aux: Mapping[str, Tensor], missing: Sequence[str], unexpected: Sequence[str]
    ) -> None:
        super().__init__(aux)
        self.missing = list(missing)
        self.unexpected = list(unexpected)

    def __bool__(self) -> bool:
        return True


#: Element types of arrays that tensors keep.
_KEPT = frozenset(map(np.dtype, ("float32", "float16", "int32", "int8", "uint8", "bool")))
_rewriting = functools.cache(Rewriting)  # which makes no new one for each step
#: Types of arguments among which a NumPy array may be.
_MAY_HOLD_ARRAYS = frozenset({np.ndarray, list, tuple})


def _takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


#: Most elements of an input that `compile` keeps.
_MOST_KEPT = 1 << 16
#: Shape, type and, if they are few, elements of an input, or those of a list of inputs.
_Like = tuple[Any, ...] | list["_Like"]


def _like(x: Any) -> _Like:
    if isinstance(x, list | tuple):
        return [_like(item) for item in x]
    if not isinstance(x, Tensor):
        raise TypeError(f"[compile] expected tensors, got {type(x).__name__}")
    elements = () if x.size() > _MOST_KEPT else (x.numpy().copy(),)
    return tuple(x.shape), x.dtype, *elements


def _with_type(like: Any, dtype: Any) -> Any:
    """The inputs, in which floats have this type."""
    if isinstance(like, list):
        return [_with_type(item, dtype) for item in like]
    shape, its_type, *elements = like
    return (shape, dtype if is_float(its_type) else its_type, *elements)


def _example(like: _Like, device: Any) -> Any:
    if isinstance(like, list):
        return [_example(item, device) for item in like]
    shape, dtype, *elements = like
    return Tensor(shape, device, dtype, *elements)


class _Threads(threading.local):
    """The training mode of each thread, and the thread whose mode is the default of the others."""

    def __init__(self, home: int) -> None:
        self.home = home


class _Step:
    """A training step, for as long as it runs: an interrupt may come at any line, also where a flag
    would be taken back."""


class _Running(threading.local):
    """A reference to the training step of a model in which this thread is."""

    step: Callable[[], _Step | None] = staticmethod(lambda: None)


_running = _Running()


@contextmanager
def _mode(training: bool) -> Iterator[None]:
    """Context manager that sets this thread's training flag and restores it at the end."""
    before = autograd.training
    autograd.training = training
    try:
        yield
    finally:
        autograd.training = before


def _as_tensor(array: np.ndarray, device: Any = None) -> Tensor:
    """Converts an array as `from_numpy` does; int64 stays where values do not fit int32."""
    try:
        return tensor.from_numpy(array, device)
    except ValueError:
        return tensor.from_numpy(array, device, dtype=tensor.int64)


def _as_array(name: str, value: Any) -> np.ndarray:
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "USV":
        raise TypeError(f"[save_states] aux state {name}: expected numbers, got {value!r:.60}")
    return array
