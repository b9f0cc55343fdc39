"""Model: a layer that can be trained, saved and loaded as a whole."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from .. import autograd, layer, tensor
from .. import singa_wrap as _c
from ..graph.memory_limit import limit_of_compile
from ..graph.step_graphs import Rewriting, StepGraphs
from ..layer.named_losses import named_loss
from ..raw import calls, words
from ..raw.arrays import kind_of
from ..tape import autocast
from ..tape.behaviour import behaviour
from ..tape.grad_mode import state as grad
from ..tape.operator import backward_followers
from ..tensor import Tensor
from .above import of_above
from .inputs import NO_ARRAYS, Like, as_tensors, like_of, with_type
from .modes import Step, Threads, in_mode, running
from .outputs import loss_function
from .place import Place
from .reports import Inspectable
from .states import Savable

if TYPE_CHECKING:
    from ..opt import Optimizer


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
            if is_own and self.training and running.step() is None:
                return Model.__call__(self, *args, **kwargs)
            with in_mode(self.training):
                return func(self, *args, **kwargs)

        return train_one_batch

    def __new__(mcs, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> type:
        if "train_one_batch" in attributes:
            attributes["train_one_batch"] = ModelMeta.buffer_operation(
                attributes["train_one_batch"]
            )
        return super().__new__(mcs, name, bases, attributes)


class Model(Savable, Inspectable, layer.Layer, metaclass=ModelMeta):
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
        *("_epochs_fitted", "_place", "task", "_memory_limit", "_use_of_fit"),
    )
    #: How `models.create` made the network: {"name": name, "arguments": its keyword arguments}.
    #: None for other networks. Checkpoints keep it.
    architecture: dict[str, Any] | None = None
    #: What makes its inputs of pictures: a transform of `singa.data`, such as
    #: `data.evaluation_transform(...)`. `save` keeps it.
    transform: Any = None
    #: Epochs that `fit` has made of its own batches. The next `fit` goes on in the order of items.
    _epochs_fitted: int = 0
    _memory_limit: int = 0  # bytes of a training step; 0: none

    def __init__(self) -> None:
        super().__init__()
        self._start_modes(training=True)
        self.graph_mode: bool = False
        self._step_graphs: StepGraphs | None = None
        self._autocast_dtype: Any = None  # type of float32 operands of matrix products
        self._recompute: bool | None = None
        self._fuse = False
        self.sequential: bool = False
        self._inputs: list[Like] = []

    # Training and inference.

    @calls.says_what_to_write("compile")
    def compile(
        self,
        inputs: Sequence[Tensor | Sequence[Tensor]],
        is_train: bool = True,
        use_graph: bool = False,
        sequential: bool = False,
        dtype: Any = None,
        recompute: bool | str | None = None,
        fuse: bool = False,
        memory_limit: int | str | None = None,
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
        recompute   what recorded training steps compute again in backward instead of keeping it,
                    with the same bits. True: outputs of norms and elementwise operations, for a
                    few percent of time; on a GPU those of batch norm with ReLU. None (the default):
                    of these, what costs 2 % of the step's time at most by estimates, in steps with
                    32 MiB of results and more, on the CPU. False: nothing. "auto": what
                    `memory_limit` takes; the first step prints what it costs, before it runs
        fuse        recorded training steps merge neighbouring operations where that saves a pass
                    over memory. Results on the CPU are the same. On a GPU with a 16-bit type, the
                    convolution computes the statistics of the batch norm after it where cuDNN
                    supports that, with different rounding.
        memory_limit  with "auto": bytes of a training step, or "1.5 GiB": parameters, optimizer,
                    inputs, results, temporaries. If they cannot do, its call raises MemoryError

        Raises TypeError if `inputs` are not tensors or do not have the type of parameters that
        exist, ValueError for another dtype, and where "auto", its limit or use_graph is missing.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))], is_train=False)
        >>> {name: W.shape for name, W in net.get_params().items()}
        {'0.W': (4, 2), '0.b': (2,)}
        """
        if not isinstance(inputs, list | tuple) or not inputs:
            given = (
                f"{inputs!r:.80}"
                if isinstance(inputs, str | list | tuple | None)
                else kind_of(inputs)
            )
            raise TypeError(f"[compile] expected a list of tensors, such as [x], got {given}")
        inputs = self._as_tensors(inputs)
        self._inputs = [like_of(x) for x in inputs]
        wanted = None if dtype is None else tensor.as_dtype(dtype)
        if wanted not in (None, tensor.float32, tensor.bfloat16, tensor.float16):
            raise ValueError(f"[compile] dtype must be float32, bfloat16 or float16, got {dtype!r}")
        self._autocast_dtype = None if wanted == tensor.float32 else wanted
        self._memory_limit = limit_of_compile(recompute, memory_limit, use_graph)
        self._recompute = recompute if recompute is None else bool(recompute)
        self._fuse = bool(fuse)
        self._update_names()
        with self._precision(), in_mode(False), autograd.no_grad():
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
        self._inputs = with_type(self._inputs, tensor.as_dtype(dtype))
        return self

    def to_blocked(self) -> Self:
        """Moves parameters into the layouts in which operations read them.

        It predicts once, on the inputs that compile() was given, to see which layouts these are.
        Values stay the same, and so do results. Predictions that are not recorded then need no
        second copy of the weights, which they otherwise keep from the second call on until the
        weights are written. Training moves parameters into the layouts of their gradients anyway.

        Parameters whose memory NumPy or DLPack shares stay as they are. Raises RuntimeError before
        compile().

        >>> net = models.Sequential(layer.Conv2d(32, 3), layer.ReLU())
        >>> net.compile([tensor.zeros((1, 32, 8, 8))], is_train=False)
        >>> before = net.get_params()["0.W"].numpy().copy()
        >>> bool((net.to_blocked().get_params()["0.W"].numpy() == before).all())
        True
        """
        self._infer_on_examples("to_blocked")
        for value in self.get_params().values():
            value.data.MoveAsWanted()
        return self

    def to_plain(self) -> Self:
        """Moves parameters and states to row-major order, in place.

        Operations that want them in another layout copy them, or move them again, as they do after
        compile(). Raises RuntimeError if the model has no parameters yet.

        >>> net = models.create("lenet")
        >>> net.compile([tensor.zeros((1, 1, 28, 28))], is_train=False)
        >>> net.to_blocked().to_plain().is_blocked
        False
        """
        for value in self._compiled_states("to_plain").values():
            value.to_plain()
        return self

    @property
    def is_blocked(self) -> bool:
        """Whether one of its parameters or states lies in a layout that only its backend reads.

        >>> models.Sequential(layer.ReLU()).is_blocked
        False
        """
        return any(value.is_blocked for value in self.get_states().values())

    def train_one_batch(self, *input: Any, **kwargs: Any) -> Any:
        """One training step, which returns (outputs, loss). Subclasses may implement it.

        That of a model with a `loss`, a layer or a function of outputs and targets: `forward` of
        all arguments but the last, the loss for the last one, and `self.optimizer(loss)`. `weight`
        is a factor of the gradients, such as `data.DataLoader.weight`, unless the loss counts its
        targets (`Tensor.counted`). Raises NotImplementedError for other models.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = tensor.ones((4, 2)), tensor.zeros((4, 1))
        >>> net.compile([x], is_train=True)
        >>> out, loss = net(x, y)  # runs train_one_batch
        >>> out.shape
        (4, 1)
        """
        loss_of = loss_function(self)
        if len(input) < 2:
            raise TypeError(
                f"{type(self).__name__}.train_one_batch() takes inputs and targets, got "
                f"{len(input)} argument; call eval() first to run forward()"
            )
        *inputs, y = input
        out = self.forward(*inputs)
        if out is None:
            raise TypeError(f"{type(self).__name__}.forward() returns None: it lacks a `return`")
        loss = loss_of(out, y)
        weight = kwargs.pop("weight", 1.0)
        if kwargs:
            raise TypeError(f"[train_one_batch] unexpected arguments: {', '.join(kwargs)}")
        is_counted = getattr(loss, "counted", None) is not None
        counts = is_counted and getattr(self.optimizer, "has_parts", False)
        self.optimizer(loss if weight == 1.0 or counts else loss * weight)
        return out, loss

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        """Runs `train_one_batch`, or `forward` after eval(). Arrays of NumPy, PyTorch and others
        become tensors on the model's device by `tensor.from_numpy`, but stay float64 where the
        parameters are."""
        if not NO_ARRAYS.issuperset(map(type, input)):
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

    _as_tensors = as_tensors

    def _call(self, *input: Any, **kwargs: Any) -> Any:
        training = self.training
        step = self._train if training else self._infer
        if not self.graph_mode or grad.grad_mode is (not training) or backward_followers:
            return step(*input, **kwargs)
        limit = self._memory_limit if training else 0
        again = self._recompute
        rewriting = _rewriting(
            training, self._fuse, again is True and not limit, again is None, limit
        )
        graphs = self._step_graphs or self._graphs()
        return graphs.call(step, self._kind, input, kwargs, rewriting)

    def _kind(self) -> tuple[Any, ...]:
        """The settings that tell kinds of steps apart."""
        types = self._autocast_dtype, autocast.state.dtype
        training = getattr(self._threads, "training", self._training_at_home)
        modes = training, grad.grad_mode, self.graph_mode, behaviour.name
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
        with self._precision(), in_mode(False):
            return super().__call__(*input, **kwargs)

    def _train(self, *input: Any, **kwargs: Any) -> Any:
        step = Step()
        before, running.step = running.step, weakref.ref(step)
        try:
            with self._precision():
                return self.train_one_batch(*input, **kwargs)
        except Exception as error:
            self._note_layer(error)
            raise
        finally:
            running.step = before

    def _precision(self) -> AbstractContextManager[Any]:
        dtype = self._autocast_dtype
        return nullcontext() if dtype is None else autograd.autocast(dtype)

    @calls.says_what_to_write("fit")
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

        x           inputs (N, ...), an array or tensor, with targets `y` (N, ...); or a pair of
                    both, a Dataset, or a loader of batches. Pictures of an ImageSet or ImageFolder
                    are prepared by `transform`; without one the model gets one that normalises
                    them, which `evaluate`, `predict` and `save` use, too
        epochs      passes over the data. Default 1.
        batch_size  rows of a batch of arrays or of a Dataset. Default 32.
        validation  (x, y), a Dataset or a loader, for `evaluate` after each epoch
        shuffle     whether arrays and Datasets come in a new order in each epoch (default True),
                    which depends on `seed` (default 0). A second `fit` goes on in these orders:
                    two of one epoch are one of two.
        resume, overwrite  as for `training.Trainer.fit`
        options     those of `training.Trainer`: metrics, loss, callbacks, out, ema and others

        Raises as `Trainer.fit` does, and ValueError for a `Metric` without a validation.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = np.ones((64, 2), np.float32), np.zeros((64, 1), np.float32)
        >>> history = net.fit(x, y, epochs=2, verbose=False)
        >>> sorted(history[0])[:2]
        ['epoch', 'images_per_s']
        """
        return of_above("fit")(
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

    @calls.says_what_to_write("evaluate")
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
        return of_above("evaluate")(self, x, y, batch_size=batch_size, **options)

    @calls.says_what_to_write("predict", "Trainer")
    def predict(self, x: Any, *, batch_size: int = 32) -> NDArray[Any]:
        """The outputs for inputs (N, ...), for the batches of a loader without their targets, or
        for what `data.read_picture` takes, such as the name of a file or a list of names, of which
        `transform` makes inputs. Each rank computes all; of a loader with a `shard`, its own.

        >>> net = models.Sequential(layer.Linear(1))
        >>> net.compile([np.zeros((1, 2), np.float32)])
        >>> net.predict(np.zeros((64, 2), np.float32)).shape
        (64, 1)
        """
        return of_above("predict")(self, x, batch_size=batch_size)

    @calls.says_what_to_write("train")
    def train(self, mode: bool = True) -> None:
        """Sets this thread's mode: calls of the model train, or infer with `mode` False.

        It also sets `autograd.training` of this thread.

        >>> net = models.Sequential(layer.Dropout(0.5))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.train()
        >>> net.training, autograd.training
        (True, True)
        """
        self.training = autograd.training = mode

    def eval(self) -> None:
        """Sets this thread's mode to inference, as `train(False)`.

        >>> net = models.Sequential(layer.Dropout(0.5))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.eval()
        >>> net.training, autograd.training
        (False, False)
        """
        self.train(False)

    @calls.says_what_to_write("graph")
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
        self.graph_mode, self.sequential = mode, sequential

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
            text = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
            given = (
                repr(optimizer)
                if isinstance(optimizer, str | None)
                else text.removeprefix("builtins.")
            )
            raise TypeError(
                f"[set_optimizer] expected an optimizer such as opt.SGD(lr=0.1), got {given}"
            )
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
        elif name == "loss":
            value = named_loss(value, type(self).__name__) if isinstance(value, str) else value
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(
                f"[{type(self).__name__}] has no optimizer: call set_optimizer() before training"
            )
        raise words.attribute_error(f"{type(self).__name__!r} object", name, _WORDS)

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
        self._threads = Threads(threading.get_ident())
        self._training_at_home = training
        self._place = Place()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._start_modes(state["_training_at_home"])
        if "optimizer" in state:
            self.optimizer = state["optimizer"]


_WORDS = {**words.LAYERS, **words.UNASSIGNED["Layer"]}
_rewriting = functools.cache(Rewriting)  # which makes no new one for each step


def _takes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
