"""Layer: base class of layers. Layers form a named tree and create their parameters at the first
call."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from .. import tensor
from ..raw.check import facts_of
from ..tape import autocast
from ..tape.autocast import master_dtype
from ..tensor import Tensor
from .creation import LayerMeta, first_tensor, take_room
from .hooks import Hookable
from .observers import observers
from .parameters import Parameterized
from .types import Typed

if TYPE_CHECKING:
    pass

#: In `Layer._fits`: there is nothing to look at.
_NO_TENSORS: Any = ()
_FLOATS = (tensor.float16, tensor.bfloat16, tensor.float32, tensor.float64)
#: Containers in which a layer keeps layers and tensors.
CONTAINERS = (list, tuple, dict, deque)
#: Types of values that hold nothing.
_PLAIN = frozenset([int, float, bool, str, bytes, type(None)])


def checked_layer(op: str, layer: Any) -> Layer:
    """A layer, which `op` was given. Raises TypeError for other things."""
    if isinstance(layer, Layer):
        return layer
    given = type(layer).__name__
    if isinstance(layer, list | tuple):
        given = f"a {given}: write {op}(*layers)"
    elif isinstance(layer, type):
        given = f"the class {layer.__name__}: write {layer.__name__}(...)"
    elif callable(layer):
        given += ": a function is called in forward(), or is a layer such as layer.ReLU()"
    raise TypeError(f"[{op}] expected layers, got {given}")


class Layer(Hookable, Parameterized, Typed, metaclass=LayerMeta):
    """A function of tensors with parameters, sublayers, or both.

    A subclass implements `forward`, and also `initialize` if it has parameters of its own.
    `initialize` gets the arguments of the first call and creates the parameters as attributes:
    tensors with stores_grad=True. `get_params` finds them. Attributes named in `state_names`, such
    as running statistics, are found by `get_states`.

    Layers and tensors are found in attributes, and in lists, tuples and dicts there, at any depth.
    Their names are paths from the layer that is asked: "layer1.conv1.W", "blocks.0.W" of an item,
    "heads.left.W" of an entry. A parameter that has several paths, such as a shared weight, is
    listed once by `get_params`, under the first, and under each by `get_states`. `name` of a layer
    and of a tensor, which messages and reports show, is its path in the layer that took it last.

    Parameters keep the type that they were given. singa's layers create theirs in the float type of
    the first input, and raise TypeError for inputs of another float type. `autocast` and `to_type`
    are the ways to compute in another one. Norms create float32 ones and take 16-bit inputs, too.

    >>> class Scale(layer.Layer):
    ...     def initialize(self, x):
    ...         self.factor = tensor.Tensor(data=np.full(x.shape[1], 2.0), stores_grad=True)
    ...     def forward(self, x):
    ...         return x * self.factor
    ...
    >>> scale = Scale()
    >>> scale(tensor.Tensor(data=[[1.0, 3.0]]))
    Tensor([[2., 6.]], dtype=float32)
    >>> scale.get_params()
    {'factor': Tensor([2., 2.], dtype=float32)}
    """

    sep = "."
    #: Names of attributes with tensors that are saved but not trained.
    state_names: ClassVar[tuple[str, ...]] = ()
    #: Names of attributes that are created on demand, and neither copied nor pickled.
    transient: ClassVar[tuple[str, ...]] = ()
    #: Names of attributes that do not affect a step. A change of any other attribute makes recorded
    #: steps be recorded again; a step that changes one itself is executed.
    not_settings: ClassVar[tuple[str, ...]] = ("_inside", "_fits", "_late")
    #: Names of settings that parameters follow from. They cannot change once there are parameters.
    fixed_settings: ClassVar[tuple[str, ...]] = ()
    #: Names of settings that `transient` attributes, such as handles, are made of. A change drops
    #: these.
    handle_settings: ClassVar[tuple[str, ...]] = ()
    _watched: ClassVar[frozenset[str]] = frozenset()  # both, with those of base classes
    #: Names of attributes that hold no layers and no parameters.
    _partless: ClassVar[frozenset[str]] = frozenset(["_layers", "_fits", "_late"])
    #: Whether observers see parts of the layer that are not layers, such as nodes of a graph.
    has_parts: ClassVar[bool] = False

    name: str | None
    _initialized: bool
    _inside: bool  # whether another layer has it
    _layers: dict[str, Layer]  # those that are attributes
    _registered: int  # number of layers that register_layers() has added
    #: (kind of input, tensors, their data) for which `_follow` has nothing to do.
    _fits: tuple[Any, list[Tensor], list[Any]] | None = None
    #: What a file has for parameters that do not exist yet; see `late`.
    _late: dict[str, Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._watched |= {*cls.fixed_settings, *cls.handle_settings}
        cls._partless |= {*cls._watched, *cls.transient}

    def __init__(self) -> None:
        self.__dict__.update(
            name=None, _initialized=False, _inside=False, _layers={}, _registered=0
        )

    def initialize(self, *input: Any, **options: Any) -> None:
        """Creates the parameters for the given inputs. The first call of `forward` calls it."""

    # With `**options: Any`, type checkers take any arguments of a subclass.
    def forward(self, *input: Any, **options: Any) -> Any:
        """Computes the outputs. Subclasses implement it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._fits is not _NO_TENSORS:
                self._follow(args or kwargs.values())
            if observers:
                return self._observed(*args, **kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            self._note_layer(error)
            raise

    def _own_states(self) -> list[tuple[str, Tensor]]:
        """(path, tensor) of what is saved but not trained."""
        return [
            (path, value)
            for attribute in self.state_names
            for path, value in _inside(attribute, self.__dict__.get(attribute), self.sep)
            if isinstance(value, Tensor)
        ]

    def _children(self) -> list[tuple[str, Layer]]:
        """(path, layer) of the sublayers in the attributes of this layer."""
        return [(path, value) for path, value in self._members() if isinstance(value, Layer)]

    def _members(self) -> list[tuple[str, Layer | Tensor]]:
        """(path, value) of the layers and tensors in attributes, and in containers there that are
        no attributes themselves."""
        found: list[tuple[str, Layer | Tensor]] = []
        apart = self._partless
        for name, value in self.__dict__.items():
            kind = type(value)
            if kind in _PLAIN or name in apart:  # most are, and isinstance takes longer
                continue
            if kind not in CONTAINERS and isinstance(value, _PARTS):
                found.append((name, value))
            elif kind in CONTAINERS or isinstance(value, CONTAINERS):
                items = value.values() if isinstance(value, dict) else value
                if not _PLAIN.issuperset(map(type, items)):
                    found += self._contained(name, value)
        return found

    def _contained(self, attribute: str, value: Any) -> list[tuple[str, Layer | Tensor]]:
        """Those in a container that is an attribute."""
        if attribute in self._partless:
            return []
        here = set(map(id, self.__dict__.values()))
        members = _inside(attribute, value, self.sep)
        return [(path, item) for path, item in members if id(item) not in here]

    def _is_late(self) -> bool:
        """Whether the layer has not created its parameters, and may have some."""
        return not self._initialized and type(self).initialize is not Layer.initialize

    def _new_param(
        self, attribute: str, shape: tuple[int, ...], like: Tensor, fill: Callable[[Tensor], Any]
    ) -> None:
        """Creates a parameter on the device of `like`, with its float type, or float32 if it is
        not a float tensor."""
        dtype = master_dtype(like.dtype) if like.dtype in _FLOATS else tensor.float32
        take_room(self, shape)
        param = Tensor(shape, like.device, dtype, requires_grad=True, stores_grad=True)
        fill(param)
        setattr(self, attribute, param)

    # Types (types.py) and devices.

    def device_check(self, *inputs: Tensor) -> None:
        """Moves all tensors, in place, to the device of the first."""
        device = inputs[0].device
        for other in inputs[1:]:
            if other.device.id() != device.id():
                other.to_device(device)

    def _own_tensors(self) -> list[Tensor]:
        return [value for _, value in (*self._own_params(), *self._own_states())]

    def _creates_parameters(self) -> bool:
        return not self._initialized and type(self).initialize is not Layer.initialize

    def _follow(self, inputs: Iterable[Any]) -> None:
        """Checks the type of the first input, and moves the tensors of this layer to its device."""
        x = first_tensor(inputs)
        if x is None:
            return
        target = autocast.dtype()
        kind = x.data.type_and_place(), target
        if self._fits is not None:
            fitting, tensors, raws = self._fits
            if kind == fitting and [t.data for t in tensors] == raws:
                return
        own = self._own_tensors()
        here = {id(value) for value in self.__dict__.values() if isinstance(value, Tensor)}
        self._check_type(x, own)
        self.device_check(x, *own)
        if not here.issuperset(map(id, own)):  # in containers, which change without notice
            self.__dict__["_fits"] = None
        else:
            empty = self._initialized and not here
            self.__dict__["_fits"] = _NO_TENSORS if empty else (kind, own, [t.data for t in own])

    # The tree.

    @property
    def title(self) -> str:
        """Class and name for messages, such as "Conv2d layer1.conv1".

        >>> layer.Sequential(layer.Linear(2))[0].title
        'Linear 0'
        """
        return f"{type(self).__name__} {self.name}" if self.name else type(self).__name__

    def register_layers(self, *args: Any) -> None:
        """Adds sublayers as attributes that were not assigned as such.

        The arguments are layers, which are named "Class_index", or one OrderedDict of layers by
        name.

        >>> net = layer.Layer()
        >>> net.register_layers(layer.Linear(2), layer.ReLU())
        >>> len(list(net.sublayers()))
        2
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
        """All sublayers at any depth, in the order of their addition, each once and before its
        own.

        >>> net = layer.Sequential(layer.Linear(2), layer.ReLU())
        >>> [type(each).__name__ for each in net.sublayers()]
        ['Linear', 'ReLU']
        """
        return (child for path, child in self.named_layers() if path)

    def named_layers(self) -> Iterator[tuple[str, Layer]]:
        """(path, layer) of this layer, whose path is "", and of all that `sublayers` returns, each
        under its first path. As PyTorch's named_modules.

        >>> net = layer.Sequential(layer.Linear(2), layer.ReLU())
        >>> [(name, type(each).__name__) for name, each in net.named_layers()]
        [('', 'Sequential'), ('0', 'Linear'), ('1', 'ReLU')]
        """
        yield "", self
        seen = {id(self)}
        for path, child in self._all_sublayers((id(self),)):
            if id(child) not in seen:
                seen.add(id(child))
                yield path, child

    def _all_sublayers(self, above: tuple[int, ...] = ()) -> Iterator[tuple[str, Layer]]:
        """(path, layer) of all sublayers, under all their paths."""
        for path, child in self._children():
            if id(child) in above:
                continue
            yield path, child
            for name, inner in child._all_sublayers((*above, id(child))):
                yield f"{path}{self.sep}{name}", inner

    def _adopt(self, attribute: str, child: Layer) -> None:
        if "_layers" not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__}: call super().__init__() before assigning layers"
            )
        self._layers[attribute] = child
        self.__dict__[attribute] = child
        child.__dict__["_inside"] = True
        child._rename(self._get_name_prefix() + attribute, (id(self),))

    def _get_name_prefix(self) -> str:
        return self.name + self.sep if self.name and self._inside else ""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Layer):
            self._adopt(name, value)
            return
        if name in self.__dict__.get("_layers", ()):
            del self._layers[name]
        if isinstance(value, Tensor) or isinstance(self.__dict__.get(name), Tensor):
            self.__dict__["_fits"] = None
        if name in self._watched:
            value = self._new_setting(name, self._checked_setting(name, value))
        object.__setattr__(self, name, value)
        if isinstance(value, Tensor):
            if value.is_dummy():
                value.name = self._get_name_prefix() + name
        elif isinstance(value, CONTAINERS):
            if value and "_layers" in self.__dict__:
                self._name_members(self._contained(name, value))
        elif name == "name":
            self._update_names()

    def _checked_setting(self, name: str, value: Any) -> Any:
        """The form in which a value of a fixed or handle setting is kept. Raises TypeError or
        ValueError for a wrong one."""
        return value

    def _new_setting(self, name: str, value: Any) -> Any:
        """Makes a new value of a fixed or handle setting count."""
        before = self.__dict__.get(name, value)
        if before != value and self.__dict__.get("_initialized"):
            if any([name in vars(each).get("fixed_settings", ()) for each in type(self).__mro__]):
                raise ValueError(
                    f"[{self.title}] {name} cannot change from {before} to {value}: the parameters "
                    "follow from it; make a new layer"
                )
            for handle in self.transient:
                self.__dict__[handle] = None
        return value

    def __delattr__(self, name: str) -> None:
        self._layers.pop(name, None)
        self.__dict__["_fits"] = None
        object.__delattr__(self, name)

    def _update_names(self) -> None:
        """Names what was added to containers since they were assigned."""
        self._name_members(self._members())

    def _rename(self, name: str, above: tuple[int, ...] = ()) -> None:
        self.__dict__["name"] = name
        self._name_members(self._members(), above)

    def _name_members(
        self, members: Iterable[tuple[str, Layer | Tensor]], above: tuple[int, ...] = ()
    ) -> None:
        """Gives layers, and what they have, and tensors their paths as names."""
        prefix, above = self._get_name_prefix(), (*above, id(self))
        for path, value in members:
            if isinstance(value, Layer):
                if id(value) not in above:
                    value.__dict__["_inside"] = True
                    value._rename(prefix + path, above)
            elif value.is_dummy() and (value.stores_grad or self.sep not in path):
                value.name = prefix + path

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_inside", "_fits") and name not in self.transient
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(dict.fromkeys(self.transient), _inside=False, _fits=None)
        self.__dict__.update(state)
        for _, child in self._children():
            child.__dict__["_inside"] = True

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

    def _note_layer(self, error: Exception) -> None:
        """Adds the name of the innermost layer to an error's traceback."""
        if self.name and not getattr(error, "_singa_layer", None):
            error._singa_layer = self.name  # type: ignore[attr-defined]
            facts = facts_of(error)
            floats = facts.get("kind") == "not_float" and facts["argument"] == "x"
            advice = ": x.astype(np.float32) makes floats of an array" if floats else ""
            error.add_note(f"in layer {self.name} ({type(self).__name__}){advice}")

    def __repr__(self) -> str:
        inside = ", ".join(f"{path}={type(child).__name__}" for path, child in self._children())
        return f"<{self.title}{': ' if inside else ''}{inside}>"

    def _repr_html_(self) -> str:
        """What notebooks show: the tree of layers with their numbers of parameters."""
        from ..drawing.html import tree  # not loaded by a program that only computes

        return tree([self._branch(self.name or "", ())])

    def _branch(self, path: str, above: tuple[int, ...]) -> Any:
        """(text, branches) of this layer for `drawing.html.tree`."""
        above = (*above, id(self))
        inside = [
            child._branch(name, above) for name, child in self._children() if id(child) not in above
        ]
        count = sum(param.size() for param in self.get_params().values())
        text = f"{path} {type(self).__name__}".strip()
        return f"{text}: {count:,} parameters" if count else text, inside


#: What a layer consists of.
_PARTS = (Layer, Tensor)


def _inside(
    path: str, value: Any, sep: str, above: tuple[int, ...] = ()
) -> Iterator[tuple[str, Layer | Tensor]]:
    """(path, layer or tensor) of a value: itself, or what lists, tuples and dicts hold at any
    depth."""
    if isinstance(value, _PARTS):
        yield path, value
    elif isinstance(value, CONTAINERS) and id(value) not in above:
        above = (*above, id(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, (*_PARTS, *CONTAINERS)):
                yield from _inside(f"{path}{sep}{key}", item, sep, above)
