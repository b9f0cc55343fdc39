"""Layer: a named tree of layers that make their parameters when they first see their input."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

from .. import autocast, autograd, tensor
from .._assignment import checked, write
from ..autocast import kept_type
from ..settings import named_in_classes
from ..tensor import Tensor

#: In `Layer._fits`: there is nothing to look at.
_NO_TENSORS: Any = ()
_FLOATS = (tensor.float16, tensor.bfloat16, tensor.float32, tensor.float64)

# One thread at a time makes parameters; others that meet the same new layer wait for it.
_initializing = threading.RLock()


class Observer(Protocol):
    """Is told of every layer call while it is in `observers`."""

    def enter(self, layer: Layer) -> None: ...
    def leave(self, layer: Layer, output: Any) -> None: ...


#: Empty in normal running, so that a layer call costs one look at it.
observers: list[Observer] = []


class LayerMeta(type):
    """Lets a layer be written as `initialize(x)` and `forward(x)`: the first call of forward runs
    initialize once, with the tape off."""

    @staticmethod
    def init_wrapper(func: Callable[..., None]) -> Callable[..., None]:
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
    """Something with parameters, or with layers inside, that maps tensors to tensors.

    Layers and tensors assigned as attributes get the attribute's name, with the names of the
    layers around it in front: "layer1.conv1.W". A subclass implements `forward`, and `initialize`
    if it has parameters of its own: tensors made there with stores_grad=True are found by
    `get_params`, tensors whose attribute is listed in `state_names` by `get_states`.
    """

    sep = "."
    #: Attributes with tensors that are saved but not trained.
    state_names: ClassVar[tuple[str, ...]] = ()
    #: Attributes that are made again when needed, and neither copied nor pickled.
    transient: ClassVar[tuple[str, ...]] = ()
    #: Attributes that no step computes with. Where others change, recorded steps are recorded anew.
    not_settings: ClassVar[tuple[str, ...]] = ("_parent", "_fits")
    #: Whether parameters take the float type of the input.
    follows_dtype: ClassVar[bool] = True

    name: str | None
    _initialized: bool
    _parent: Layer | None
    _layers: dict[str, Layer]
    _registered: int  # layers that register_layers() has numbered
    #: For which kind of input `_follow` has found the tensors here, with this data, to be right.
    _fits: tuple[Any, list[Tensor], list[Any]] | None = None

    def __init__(self) -> None:
        self.__dict__.update(name=None, _initialized=False, _parent=None, _layers={}, _registered=0)

    def initialize(self, *input: Any) -> None:
        """Makes the parameters for inputs like these. Called by the first forward."""

    def forward(self, *input: Any) -> Any:
        """Computes the outputs."""
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
        """{name: tensor} of all trained tensors here and in the layers inside."""
        params = dict(self._own_params())
        for child in self._layers.values():
            params.update(child.get_params())
        return params

    def set_params(self, parameters: Mapping[str, Any]) -> None:
        """Copies values (tensors or arrays) into the parameters of those names.

        Other names are ignored. Raises ValueError for a wrong shape, and where a layer that is in
        no other one has none of the names, TypeError for what is no number; nothing is changed
        then.
        """
        ready = self._checked("set_params", parameters, self.get_params)
        for name, own in self._own_params():
            if name in ready:
                write(own, ready[name])
        for child in self._layers.values():
            child.set_params(ready)

    def get_states(self) -> dict[str, Tensor]:
        """Parameters, and tensors that are kept but not trained, such as running means."""
        states = dict((*self._own_params(), *self._own_states()))
        for child in self._layers.values():
            states.update(child.get_states())
        return states

    def set_states(self, states: Mapping[str, Any]) -> None:
        """As set_params, for all that get_states returns."""
        ready = self._checked("set_states", states, self.get_states)
        for name, own in (*self._own_params(), *self._own_states()):
            if name in ready:
                write(own, ready[name])
        for child in self._layers.values():
            child.set_states(ready)

    def _checked(
        self, function: str, values: Mapping[str, Any], own: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Any]:
        """The values, those for tensors here and in the layers inside checked, so that writing them
        does not fail. Refuses values of which none is for this layer; layers inside get those of
        others too."""
        if not isinstance(values, Mapping):
            raise TypeError(f"[{function}] expected a dict by name, got {type(values).__name__}")
        tensors = own()
        if self._parent is None and values and tensors.keys().isdisjoint(values):
            raise ValueError(
                f"[{function}] {self.title} has none of these names: {', '.join(values):.200}"
            )
        return {**values, **checked("[set_params]", tensors, values)}

    def freeze(self, frozen: bool = True) -> None:
        """Stops (or resumes) training of all parameters here: no gradient is computed for them.

        Call it after the first forward or compile, when the parameters are there.
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
        """Makes a parameter of `like`'s float type (else float32) on its device."""
        dtype = kept_type(like.dtype) if like.dtype in _FLOATS else tensor.float32
        param = Tensor(shape, like.device, dtype, requires_grad=True, stores_grad=True)
        fill(param)
        setattr(self, attribute, param)

    # Types and devices.

    def dtype_check(self, *inputs: Tensor) -> None:
        """Converts all tensors to the first one's type."""
        for other in inputs[1:]:
            if other.dtype != inputs[0].dtype:
                other.to_type(inputs[0].dtype)

    def device_check(self, *inputs: Tensor) -> None:
        """Moves all tensors to the first one's device."""
        device = inputs[0].device
        for other in inputs[1:]:
            if other.device.id() != device.id():
                other.to_device(device)

    def _follow(self, inputs: tuple[Any, ...]) -> None:
        """Takes the type and device of the first input, where it has others."""
        x = _first_tensor(inputs)
        if x is None:
            return
        lowered = autocast.dtype()
        kind = x.data.type_and_place(), lowered
        if self._fits is not None:
            fitting, tensors, raws = self._fits
            if kind == fitting and [t.data for t in tensors] == raws:
                return
        own = [value for _, value in (*self._own_params(), *self._own_states())]
        if self.follows_dtype and x.dtype in _FLOATS:
            # Products convert these operands, and parameters stay float32.
            types = (x.dtype, tensor.float32, lowered)
            fit = types if lowered is not None and x.dtype in types[1:] else types[:1]
            self.dtype_check(x, *[mine for mine in own if mine.dtype not in fit])
        self.device_check(x, *own)
        empty = self._initialized and not any(
            [isinstance(value, Tensor) for value in self.__dict__.values()]
        )
        self.__dict__["_fits"] = _NO_TENSORS if empty else (kind, own, [t.data for t in own])

    # The tree.

    @property
    def title(self) -> str:
        """For messages: "Conv2d layer1.conv1"."""
        return f"{type(self).__name__} {self.name}" if self.name else type(self).__name__

    def register_layers(self, *args: Any) -> None:
        """Adds layers that are no attributes: a few layers, which get the names "Class_index", or
        one ordered dict of names and layers."""
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
        """All layers inside, in the order in which they were added, outer ones first."""
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

    def _unwatched(self) -> set[str]:
        """Attributes that `singa.settings` leaves out."""
        return named_in_classes(self, "not_settings")

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        # Without the parent: a copy of one layer must not copy the whole model.
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

    # Calls with someone looking on.

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
    """The first one among the inputs, or in lists of them."""
    for x in inputs:
        if isinstance(x, list | tuple):
            x = _first_tensor(x)
        if isinstance(x, Tensor):
            return x
    return None
