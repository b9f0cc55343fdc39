"""Layer: base class of layers. Layers form a named tree and create their parameters at the first
call."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

from .. import autograd, tensor
from ..tape import autocast
from ..tape.assignment import checked, write
from ..tape.autocast import master_dtype
from ..tensor import Tensor

__all__ = [
    "Layer",
    "LayerMeta",
]

#: In `Layer._fits`: there is nothing to look at.
_NO_TENSORS: Any = ()
_FLOATS = (tensor.float16, tensor.bfloat16, tensor.float32, tensor.float64)

# One thread at a time creates parameters; others wait for it.
_initializing = threading.RLock()


class Observer(Protocol):
    """An object in `observers`, which is notified before and after each call of a layer."""

    def enter(self, layer: Layer) -> None: ...
    def leave(self, layer: Layer, output: Any) -> None: ...


#: Usually empty, so that a call of a layer only tests for that.
observers: list[Observer] = []


def are_watched() -> bool:
    """Whether an observer needs a call of each layer by itself. One that has a true `takes_fused`
    does not."""
    return any(not getattr(observer, "takes_fused", False) for observer in observers)


class LayerMeta(type):
    """Metaclass that makes the first call of `forward` call `initialize`, with the tape off."""

    @staticmethod
    def init_wrapper(func: Callable[..., None]) -> Callable[..., None]:
        """Wraps `initialize`: no tape, no recording of the device, and a check of the arguments."""

        @functools.wraps(func)
        def initialize(self: Layer, *args: Any, **kwargs: Any) -> None:
            first = next(iter(args or kwargs.values()), None)
            while isinstance(first, list | tuple) and first:
                first = first[0]
            if args and not isinstance(first, Tensor | list | tuple):
                raise TypeError(
                    f"[{type(self).__name__}] initialize expects tensors, got "
                    f"{type(first).__name__}"
                )
            device = first.device if isinstance(first, Tensor) else None
            recording = device if device is not None and device.graph_enabled() else None
            if recording is not None:
                recording.EnableGraph(False)
            try:
                with autograd.no_grad():
                    func(self, *args, **kwargs)
            finally:
                if recording is not None:
                    recording.EnableGraph(True)
            self._initialized = True

        return initialize

    @staticmethod
    def forward_wrapper(func: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `forward` so that its first call initializes the layer."""

        @functools.wraps(func)
        def forward(self: Layer, *args: Any, **kwargs: Any) -> Any:
            if not self._initialized:
                with _initializing:
                    if not self._initialized:
                        self.initialize(*args, **kwargs)
                        self._initialized = True
            return func(self, *args, **kwargs)

        return forward

    def __new__(mcs, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> type:
        if "initialize" in attributes:
            attributes["initialize"] = LayerMeta.init_wrapper(attributes["initialize"])
        if "forward" in attributes:
            attributes["forward"] = LayerMeta.forward_wrapper(attributes["forward"])
        return super().__new__(mcs, name, bases, attributes)


class Layer(metaclass=LayerMeta):
    """A function of tensors with parameters, sublayers, or both.

    A subclass implements `forward`, and also `initialize` if it has parameters of its own.
    `initialize` gets the arguments of the first call and creates the parameters as attributes:
    tensors with stores_grad=True. `get_params` finds them. Attributes named in `state_names`, such
    as running statistics, are found by `get_states`.

    Layers and tensors that are assigned as attributes are named after the attribute, with the names
    of the enclosing layers as a prefix: "layer1.conv1.W".
    """

    sep = "."
    #: Names of attributes with tensors that are saved but not trained.
    state_names: ClassVar[tuple[str, ...]] = ()
    #: Names of attributes that are created on demand, and neither copied nor pickled.
    transient: ClassVar[tuple[str, ...]] = ()
    #: Names of attributes that do not affect a step. A change of any other attribute makes captured
    #: steps be captured again.
    not_settings: ClassVar[tuple[str, ...]] = ("_parent", "_fits")
    #: Whether observers see parts of the layer that are not layers, such as nodes of a graph.
    has_parts: ClassVar[bool] = False
    #: Whether parameters are converted to the float type of the input.
    follows_dtype: ClassVar[bool] = True

    name: str | None
    _initialized: bool
    _parent: Layer | None
    _layers: dict[str, Layer]
    _registered: int  # number of layers that register_layers() has added
    #: (kind of input, tensors, their data) for which `_follow` has nothing to convert.
    _fits: tuple[Any, list[Tensor], list[Any]] | None = None

    def __init__(self) -> None:
        self.__dict__.update(name=None, _initialized=False, _parent=None, _layers={}, _registered=0)

    def initialize(self, *input: Any, **options: Any) -> None:
        """Creates the parameters for the given inputs. The first call of `forward` calls it."""

    def forward(self, *input: Any) -> Any:
        """Computes the outputs. Subclasses implement it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._fits is not _NO_TENSORS:
                self._follow(args)
            if observers:
                return self._observed(*args, **kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            self._say_where(error)
            raise

    # Parameters and states.

    def get_params(self) -> dict[str, Tensor]:
        """{name: tensor} of all parameters of this layer and its sublayers."""
        params = dict(self._own_params())
        for child in self._layers.values():
            params.update(child.get_params())
        return params

    def set_params(self, parameters: Mapping[str, Any]) -> None:
        """Copies values (tensors or arrays) to the parameters of the same names.

        Unknown names are ignored. Raises ValueError for a wrong shape, and if the outermost layer
        has none of the names; TypeError for values that are not numeric. Nothing is changed after
        an error.
        """
        ready = self._checked("set_params", parameters, self.get_params)
        for name, own in self._own_params():
            if name in ready:
                write(own, ready[name])
        for child in self._layers.values():
            child.set_params(ready)

    def get_states(self) -> dict[str, Tensor]:
        """{name: tensor} of all parameters, and of tensors that are saved but not trained, such as
        running means."""
        states = dict((*self._own_params(), *self._own_states()))
        for child in self._layers.values():
            states.update(child.get_states())
        return states

    def set_states(self, states: Mapping[str, Any]) -> None:
        """As set_params, for all tensors that get_states returns."""
        ready = self._checked("set_states", states, self.get_states)
        for name, own in (*self._own_params(), *self._own_states()):
            if name in ready:
                write(own, ready[name])
        for child in self._layers.values():
            child.set_states(ready)

    def _checked(
        self, function: str, values: Mapping[str, Any], own: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Any]:
        """Checks the values for tensors of this layer and its sublayers, so that writing them
        cannot fail, and returns all values.

        Raises ValueError if the outermost layer has none of the names. Sublayers also get values
        for other layers.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"[{function}] expected a dict by name, got {type(values).__name__}")
        tensors = own()
        if self._parent is None and values and tensors.keys().isdisjoint(values):
            raise ValueError(
                f"[{function}] {self.title} has none of these names: {', '.join(values):.200}"
            )
        return {**values, **checked("[set_params]", tensors, values)}

    def freeze(self, frozen: bool = True) -> None:
        """Stops training of all parameters of this layer and its sublayers, or resumes it with
        frozen=False. No gradient is computed for frozen parameters.

        Call it after compile() or the first call, since parameters do not exist before.
        """
        for param in self.get_params().values():
            param.requires_grad = not frozen

    def _own_params(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of the parameters that are attributes of this layer."""
        for attribute, value in self.__dict__.items():
            if (
                isinstance(value, Tensor)
                and value.stores_grad
                and attribute not in self.state_names
            ):
                yield value.name or attribute, value

    def _own_states(self) -> Iterator[tuple[str, Tensor]]:
        for attribute in self.state_names:
            value = self.__dict__.get(attribute)
            if isinstance(value, Tensor):
                yield value.name or attribute, value

    def _new_param(
        self, attribute: str, shape: tuple[int, ...], like: Tensor, fill: Callable[[Tensor], Any]
    ) -> None:
        """Creates a parameter on the device of `like`, with its float type, or float32 if it is
        not a float tensor."""
        dtype = master_dtype(like.dtype) if like.dtype in _FLOATS else tensor.float32
        param = Tensor(shape, like.device, dtype, requires_grad=True, stores_grad=True)
        fill(param)
        setattr(self, attribute, param)

    # Types and devices.

    def dtype_check(self, *inputs: Tensor) -> None:
        """Converts all tensors, in place, to the type of the first."""
        for other in inputs[1:]:
            if other.dtype != inputs[0].dtype:
                other.to_type(inputs[0].dtype)

    def device_check(self, *inputs: Tensor) -> None:
        """Moves all tensors, in place, to the device of the first."""
        device = inputs[0].device
        for other in inputs[1:]:
            if other.device.id() != device.id():
                other.to_device(device)

    def _follow(self, inputs: tuple[Any, ...]) -> None:
        """Converts the tensors of this layer to the type and device of the first input."""
        x = _first_tensor(inputs)
        if x is None:
            return
        target = autocast.dtype()
        kind = x.data.type_and_place(), target
        if self._fits is not None:
            fitting, tensors, raws = self._fits
            if kind == fitting and [t.data for t in tensors] == raws:
                return
        own = [value for _, value in (*self._own_params(), *self._own_states())]
        if self.follows_dtype and x.dtype in _FLOATS:
            # Under autocast, matrix products convert their operands and parameters stay float32.
            types = (x.dtype, tensor.float32, target)
            fit = types if target is not None and x.dtype in types[1:] else types[:1]
            self.dtype_check(x, *[mine for mine in own if mine.dtype not in fit])
        self.device_check(x, *own)
        empty = self._initialized and not any(
            [isinstance(value, Tensor) for value in self.__dict__.values()]
        )
        self.__dict__["_fits"] = _NO_TENSORS if empty else (kind, own, [t.data for t in own])

    # The tree.

    @property
    def title(self) -> str:
        """Class and name for messages, such as "Conv2d layer1.conv1"."""
        return f"{type(self).__name__} {self.name}" if self.name else type(self).__name__

    def register_layers(self, *args: Any) -> None:
        """Adds sublayers that were not assigned as attributes, for example those in a list.

        The arguments are layers, which are named "Class_index", or one OrderedDict of layers by
        name.
        """
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            items = list(args[0].items())
        else:
            first = self._registered
            items = [(f"{type(v).__name__}_{i}", v) for i, v in enumerate(args, start=first)]
            self.__dict__["_registered"] = first + len(args)
        for name, value in items:
            if isinstance(value, Layer):
                self._adopt(name, value)

    def sublayers(self) -> Iterator[Layer]:
        """All sublayers at any depth, in the order of their addition, each before its own."""
        for child in self._layers.values():
            yield child
            yield from child.sublayers()

    def _adopt(self, attribute: str, child: Layer) -> None:
        if "_layers" not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__}: call super().__init__() before assigning layers"
            )
        self._layers[attribute] = child
        self.__dict__[attribute] = child
        child.__dict__["_parent"] = self
        child.name = self._get_name_prefix() + attribute

    def _get_name_prefix(self) -> str:
        return self.name + self.sep if self.name and self._parent is not None else ""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Layer):
            self._adopt(name, value)
            return
        if name in self.__dict__.get("_layers", ()):
            del self._layers[name]
        if isinstance(value, Tensor) or isinstance(self.__dict__.get(name), Tensor):
            self.__dict__["_fits"] = None
        object.__setattr__(self, name, value)
        if isinstance(value, Tensor):
            if value.is_dummy():
                value.name = self._get_name_prefix() + name
        elif name == "name":
            self._pass_name_on()

    def __delattr__(self, name: str) -> None:
        self._layers.pop(name, None)
        self.__dict__["_fits"] = None
        object.__delattr__(self, name)

    def _pass_name_on(self) -> None:
        prefix = self._get_name_prefix()
        for attribute, child in self._layers.items():
            child.name = prefix + attribute
        for attribute, value in self.__dict__.items():
            if isinstance(value, Tensor) and value.is_dummy():
                value.name = prefix + attribute

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        # The parent is left out, so that a copy of a layer does not copy the whole model.
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_parent", "_fits") and name not in self.transient
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(dict.fromkeys(self.transient), _parent=None, _fits=None)
        self.__dict__.update(state)
        for child in self._layers.values():
            child.__dict__["_parent"] = self

    # Observed calls.

    def _observed(self, *args: Any, **kwargs: Any) -> Any:
        present = list(observers)
        for observer in present:
            observer.enter(self)
        output = None
        try:
            output = self.forward(*args, **kwargs)
            return output
        finally:
            for observer in reversed(present):
                observer.leave(self, output)

    def _say_where(self, error: Exception) -> None:
        """Adds the name of the innermost layer to an error's traceback."""
        if self.name and not getattr(error, "_singa_layer", None):
            error._singa_layer = self.name  # type: ignore[attr-defined]
            error.add_note(f"in layer {self.name} ({type(self).__name__})")

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={type(v).__name__}" for k, v in self._layers.items())
        return f"<{self.title}{': ' if inside else ''}{inside}>"


def _first_tensor(inputs: Any) -> Tensor | None:
    """The first tensor among the inputs or in lists among them."""
    for x in inputs:
        if isinstance(x, list | tuple):
            x = _first_tensor(x)
        if isinstance(x, Tensor):
            return x
    return None
