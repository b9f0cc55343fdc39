"""A network of PyTorch as a Model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import autograd, layer
from ..device import checked_device, get_default_device
from ..dtypes import DType, float32, is_float
from ..layer.named_losses import named_loss
from ..networks.element_types import FLOATS, INTEGERS
from ..networks.errors import UnsupportedError
from ..networks.graph import ValueType
from ..networks.model import NetworkModel
from ..networks.network import Network
from ..networks.tensors import as_tensor
from ..raw import calls, words
from ..raw.arrays import kind_of
from ..tape.grad_mode import training
from ..tensor import Tensor
from . import guards
from . import operators as _operators  # noqa: F401 - fills the table
from .export import Exported, export, type_name
from .front import TORCH
from .given import as_array, check_module, open_axes, require_torch, torch_inputs
from .refusals import own_error, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable


@calls.says_what_to_write("from_torch")
def from_torch(
    module: Any,
    example_inputs: Any,
    loss: Callable[[Any, Tensor], Tensor] | None = None,
    device: Any = None,
    dynamic: Sequence[int] = (),
) -> TorchModel:
    """A `torch.nn.Module` as a Model, which trains and infers without PyTorch.

    module          the network. It stays as it is: parameters and buffers are copied.
    example_inputs  what it is called with: a tuple of tensors of PyTorch or arrays, or one of them.
                    Arrays of float64 count as floats of the module's type.
                    Axis 0 is the batch, which stays open unless PyTorch says that the network works
                    for one length alone; a batch of 1 is repeated.
    loss            a layer or function of outputs and targets, a name as `fit` takes it, or a loss
                    of PyTorch that singa has, too (default: CrossEntropyLoss)
    device          where the parameters lie (default: the default device)
    dynamic         axes besides the batch that may have other lengths than in the example, such as
                    (2, 3) for heights and widths. What PyTorch assumes of these lengths, such as
                    that they are multiples of 32, is checked in each call.

    Parameters and buffers have the names of `module.state_dict()`. Those with `requires_grad=False`
    are not trained. Modules that are in inference while `module` trains stay so. Dropout follows
    `singa.seed`, and draws other numbers than PyTorch. The model starts in inference mode.

    It needs PyTorch 2.6 or newer. Raises ImportError without it; UnsupportedError, which lists all
    operators that singa does not have, with the lines that call them, and for a module that
    `torch.export` refuses, or whose axes it cannot open; TypeError for other example inputs;
    ValueError for axes that no input has.

        net = singa.from_torch(torchvision.models.resnet18(), images)
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        net.fit(train_images, labels, epochs=10)
        net.to_torch(module)
    """
    torch = require_torch()
    check_module(torch, "from_torch", module)
    loss = None if loss is None else named_loss(loss, "from_torch")
    device = get_default_device() if device is None else checked_device("from_torch", device)
    inputs = torch_inputs(torch, module, example_inputs)
    axes = open_axes(dynamic, inputs)
    graphs = {mode: export(torch, module, inputs, mode, axes) for mode in (False, True)}
    net = TorchModel(type(module).__name__, graphs, loss)
    tensors: dict[int, Tensor] = {}
    for name, value, trained in _values_of(module):
        held = tensors.get(id(value))
        if held is None:
            held = tensors[id(value)] = as_tensor(as_array(torch, value), device)
        net._put(name, held, trained)
    net.training = False
    net._inputs = [(tuple(x.shape), DType[type_name(x.dtype)]) for x in inputs]
    try:
        net._try([as_tensor(as_array(torch, x), device) for x in inputs])
    except UnsupportedError:
        raise
    except Exception as error:
        own = own_error(torch, module, inputs)
        if own is not None:
            for note in (f"{type(own).__name__}: {own}", *own.__notes__):
                error.add_note(note)
        raise
    return net


def _values_of(module: Any) -> list[tuple[str, Any, bool]]:
    """(name, tensor, whether it is trained) of the parameters and buffers of a module."""
    found = [
        (name, value, bool(value.requires_grad))
        for name, value in module.named_parameters(remove_duplicate=False)
    ]
    kept = module.state_dict(keep_vars=True)
    found += [
        (name, value, False)
        for name, value in module.named_buffers(remove_duplicate=False)
        if name in kept
    ]
    return found


class TorchModel(NetworkModel):
    """A network of `from_torch`.

    title   the name of the module's class
    graphs  what `export` made of the module, by whether it trains
    loss    as for `from_torch`

    >>> import torch
    >>> net = singa.from_torch(torch.nn.Linear(4, 3), np.zeros((2, 4), np.float32))
    >>> type(net).__name__
    'TorchModel'
    """

    transient: ClassVar[tuple[str, ...]] = (*NetworkModel.transient, "_networks")
    not_settings: ClassVar[tuple[str, ...]] = ("_networks", "_exported")
    types_from = "its module; convert that before from_torch: module.double()"

    def __init__(
        self, name: str, graphs: dict[bool, Exported], loss: Callable[[Any, Tensor], Tensor] | None
    ) -> None:
        super().__init__()
        self.module_name = name
        self._exported = graphs
        self._networks: dict[bool, Network] | None = _networks(graphs)
        self.loss: Callable[[Any, Tensor], Tensor] = (
            layer.CrossEntropyLoss() if loss is None else loss
        )
        self._initialized = True

    @property
    def has_open_batch(self) -> bool:
        """Whether axis 0 of the inputs may have any length.

        >>> import torch
        >>> net = singa.from_torch(torch.nn.Linear(4, 3), np.zeros((2, 4), np.float32))
        >>> net.has_open_batch
        True
        """
        shapes = [
            exported.graph.types[name].shape or ()
            for exported in self._exported.values()
            for name in exported.graph.inputs
        ]
        return any(isinstance(n, str) for shape in shapes for n in shape[:1])

    def __getattr__(self, name: str) -> Any:
        keys = self.__dict__.get("_keys", {})
        own = next((key for key in keys if key.partition(".")[0] == name), None)
        if own is None:
            return super().__getattr__(name)
        raise words.attribute_error(
            f"{type(self).__name__!r} object",
            name,
            {name: f"get_params()[{own!r}]: the module's parts are a graph here, without layers"},
        )

    def values(self, inputs: Any, names: Sequence[str]) -> list[Any]:
        """As Model.values, of the whole network alone, whose name is "". Raises ValueError for
        parts of the module, which are a graph here."""
        if any(names):
            raise ValueError(
                f"[values] {self.title} is a graph, without layers: have the forward of "
                f"{self.module_name} return what you want before from_torch"
            )
        return super().values(inputs, names)

    def replace_head(self, num_outputs: int) -> tuple[str, ...]:
        """Raises ValueError: the module's last layer is replaced before `from_torch`."""
        raise ValueError(
            f"[replace_head] {self.title} is a graph, without layers: replace the last layer of "
            f"{self.module_name} before from_torch: module.fc = torch.nn.Linear(inputs, "
            f"{num_outputs})"
        )

    # Steps.

    def _network(self) -> tuple[Exported, Network]:
        if self._networks is None:
            self._networks = _networks(self._exported)
        mode = bool(training())
        return self._exported[mode], self._networks[mode]

    def forward(self, *inputs: Tensor) -> Any:
        """What the module returns for these inputs: a tensor, or a tuple or dict of them.

        Raises TypeError and ValueError for inputs that do not fit the example inputs.
        """
        exported, network = self._network()
        return self._run(exported, network, inputs, writes=True)

    def _run(
        self, exported: Exported, network: Network, inputs: Sequence[Any], writes: bool
    ) -> Any:
        given = self._checked_inputs(exported, inputs)
        values = self._values_by_name()
        results = network.run(given, values, exported.graph.outputs)
        count = len(results) - len(exported.written)
        if writes:
            for name, result in zip(exported.written, results[count:], strict=True):
                values[name].data.CopyFrom(result.data)
        return _formed(exported.outputs, results[:count])

    def train_one_batch(self, *inputs_and_target: Any, **options: Any) -> Any:
        """One step on inputs and, as the last argument, targets; see `Model.train_one_batch`.

        Raises TypeError where the module has several outputs and no loss was given.
        """
        form = self._exported[True].outputs
        if type(self.loss) is layer.CrossEntropyLoss and not isinstance(form, int):
            raise TypeError(
                f"[{self.title}] {self.module_name} has several outputs in training: give "
                "from_torch a loss of them"
            )
        return super().train_one_batch(*inputs_and_target, **options)

    def _prepare(self, inputs: Sequence[Any], train: bool) -> None:
        exported = self._exported[train]
        given = inputs[: len(exported.graph.inputs)]
        if self._networks is None:
            self._networks = _networks(self._exported)
        network = self._networks[train]
        try:
            checked = self._checked_inputs(exported, given)
        except (TypeError, ValueError):
            return  # forward raises it
        if not network.knows_values_for(checked):
            self._dry(exported, network, given)

    def _dry(self, exported: Exported, network: Network, inputs: Sequence[Any]) -> None:
        """Runs a graph as in inference: no buffer changes, and random numbers stay."""
        before, device = training(), inputs[0].device
        position = device.random_state()
        autograd.training = False
        try:
            with autograd.no_grad():
                self._run(exported, network, inputs, writes=False)
        finally:
            autograd.training = before
            device.set_random_state(position)

    def _try(self, inputs: Sequence[Tensor]) -> None:
        """Runs both graphs once, so that all that is refused is refused now."""
        assert self._networks is not None
        for mode, exported in self._exported.items():
            try:
                self._dry(exported, self._networks[mode], inputs)
            except UnsupportedError as error:
                raise unsupported(error.problems) from None

    def _checked_inputs(self, exported: Exported, inputs: Sequence[Any]) -> dict[str, Any]:
        names = exported.graph.inputs
        if len(inputs) != len(names):
            infers = len(inputs) == len(names) + 1 and not self.training
            raise ValueError(
                f"[{self.title}] expected {words.counted(len(names), 'input')}, got {len(inputs)}"
                f"{': call train() first to train on inputs and targets' if infers else ''}"
            )
        lengths: dict[str, int] = {}
        checked = {
            name: _checked(name, x, exported.graph.types[name], lengths)
            for name, x in zip(names, inputs, strict=True)
        }
        shapes = [tuple(x.shape) for x in checked.values()]
        for guard in exported.guards:
            if not guards.holds(guard, shapes):
                titles = [name.removeprefix("%") for name in names]
                raise ValueError(
                    f"[from_torch] {self.module_name} was exported for lengths with "
                    f"{guards.written(guard, titles)}, got shapes {', '.join(map(str, shapes))}"
                )
        return checked

    # To PyTorch.

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers as tensors of PyTorch, for `module.load_state_dict(...)`.

        >>> import torch
        >>> module = torch.nn.BatchNorm1d(3)
        >>> net = singa.from_torch(module, np.zeros((2, 3), np.float32))
        >>> module.load_state_dict(net.state_dict())
        <All keys matched successfully>
        """
        torch = require_torch()
        result = {}
        for name, value in self._values_by_name().items():
            array = value.numpy()
            kind = getattr(torch, value.dtype.name)
            result[name] = torch.from_numpy(np.array(array)).to(kind)
        return result

    def to_torch(self, module: Any) -> None:
        """Writes parameters and buffers into a module of the same form, in place.

        Raises RuntimeError, as PyTorch's load_state_dict, for a module of another form.

        >>> import torch
        >>> module = torch.nn.Linear(2, 1)
        >>> net = singa.from_torch(module, np.zeros((2, 2), np.float32))
        >>> net.get_params()["bias"].set_value(3.0)
        Tensor([3.], dtype=float32)
        >>> net.to_torch(module)
        >>> module.bias.item()
        3.0
        """
        module.load_state_dict(self.state_dict(), strict=True)


def _networks(graphs: dict[bool, Exported]) -> dict[bool, Network]:
    """The compiled graphs. Raises UnsupportedError with what both of them lack."""
    problems: dict[Any, Any] = {}
    result = {}
    for mode, exported in graphs.items():
        try:
            result[mode] = Network(exported.graph, TORCH)
        except UnsupportedError as error:
            problems |= {(each.operator, each.reason): each for each in error.problems}
    if problems:
        raise unsupported(list(problems.values()))
    return result


def _checked(name: str, x: Any, declared: ValueType, lengths: dict[str, int]) -> Tensor:
    name = name.removeprefix("%")
    if not isinstance(x, Tensor):
        raise TypeError(f"[from_torch] input {name!r} must be a Tensor, got {kind_of(x)}")
    assert declared.shape is not None
    assert declared.type is not None
    fits = len(x.shape) == len(declared.shape) and all(
        lengths.setdefault(wanted, n) == n if isinstance(wanted, str) else wanted == n
        for wanted, n in zip(declared.shape, x.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("?" if isinstance(n, str) else str(n) for n in declared.shape)
        message = f"[from_torch] input {name!r} has shape ({wanted}), got {tuple(x.shape)}"
        if tuple(x.shape[1:]) == declared.shape[1:]:
            message += (
                ". PyTorch has exported the module for this batch alone: its code may take len(x) "
                "where x.shape[0] would leave it open"
            )
        raise ValueError(message)
    if x.dtype.name == declared.type:
        return x
    if x.dtype == float32 and declared.type in FLOATS:  # which loaders make of all floats
        return autograd.cast(x, DType[declared.type])
    if is_float(x.dtype) or declared.type not in INTEGERS:
        raise TypeError(f"[from_torch] input {name!r} has type {declared.type}, got {x.dtype}")
    return autograd.cast(x, DType[declared.type])


def _formed(form: Any, results: Sequence[Any]) -> Any:
    if isinstance(form, int):
        return results[form]
    if isinstance(form, dict):
        return {name: _formed(each, results) for name, each in form.items()}
    return tuple(_formed(each, results) for each in form)
