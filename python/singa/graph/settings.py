"""The Python state that a recorded step may depend on. It is compared before each replay.

A replay runs no Python, so everything that an executed step would read must be unchanged.
`Settings` walks over all objects that are reachable from a model: attributes of layers and other
objects, items of containers, arrays, flags and gradients of tensors, classes, functions with their
closures, and the global variables that the code of these functions names. It compares objects and
does not intercept assignments, because a list can change in place, and `vars(layer)["x"] = 1`
bypasses `__setattr__`. In the usual case nothing has changed, and one call of C++ that compares
addresses shows that. If addresses differ, the walk is repeated and values are compared bit for bit:
two objects 0.5 are equal, -0.0 differs from 0.0, True differs from 1, and a NaN equals itself.

What `code.names` cannot tell is not seen, nor are the inside of modules and classes of other
packages and of objects written in C, files, and clocks. Elements of tensors are seen where the host
has read them; a replay reads all others anyway. `Layer.not_settings` names attributes that may
change, such as a history. docs/recorded_steps.md tells users the same.
"""

from __future__ import annotations

import builtins
import contextvars
import enum
import functools
import importlib
import io
import os
import struct
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import singa_wrap as _c
from ..tape.tensor import Tensor
from .code import imported, names
from .tokens import (
    ABSENT,
    array_state,
    class_and_attributes,
    classes,
    context_identity,
    elements,
    exact,
    generator_state,
    identities,
    local_identity,
    object_identities,
    slot_identity,
    version,
)

#: Limits of the values and bytes that are compared. Comparing more could take longer than a step.
_MOST_VALUES = 100_000
_MOST_BYTES = 1 << 20
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that can be changed
_ANY: Any = object()  # stands for a value that is not compared
#: Classes whose attributes are not visited.
_OPAQUE = (types.ModuleType, io.IOBase, threading.Thread, enum.Enum)
_OPAQUE_MODULES = (
    *("_thread", "threading", "queue", "multiprocessing", "concurrent", "asyncio", "logging"),
)
_PACKAGE = __name__.partition(".")[0]
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_TENSOR = ("data", "requires_grad", "stores_grad", "name", "grad")  # as in SameObjects
_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__")


def differing(one: Settings, other: Settings) -> set[str]:
    """The places at which two Settings have different values."""
    a, b = one.values, other.values
    return {place for place in a.keys() | b.keys() if a.get(place) != b.get(place)}


def _not_settings(value: object, of: Callable[[type], bool] = lambda kind: True) -> set[str]:
    """Names of attributes that are not compared, from `not_settings` of the object's classes."""
    kind = type(value)
    if not hasattr(kind, "not_settings"):
        return set()
    mine = [each for each in kind.__mro__ if of(each)]
    return {name for each in mine for name in vars(each).get("not_settings", ())}


def _is_of_program(kind: type) -> bool:
    return _package(kind.__module__) != _PACKAGE


class Settings:
    """The state that is reachable from `root`, and the elements of the raw tensors in `read`.

    values    comparable values by place, such as "conv1.stride[0]"
    obstacle  why the state cannot be compared, so that no step can be replayed; empty if it can
    """

    def __init__(self, root: Any, read: Sequence[_c.Tensor] = ()) -> None:
        self.values: dict[str, Any] = {}
        self.obstacle = ""
        self._alive: list[Any] = []  # keeps objects alive whose identities are in `values`
        self._places: dict[int, str] = {}  # place of each visited object, by identity
        self._classes: set[type] = set()  # classes whose attributes were visited
        self._slots: dict[type, list[str]] = {}
        self._descriptors: dict[tuple[type, str], Any] = {}
        self._bytes = 0
        numpys = classes("numpy.random", "Generator", "BitGenerator", "RandomState")
        self._kinds_of_generators = (*classes("random", "Random"), *numpys)
        self._kinds_of_buffers = (bytearray, memoryview, *classes("array", "array"))
        self._containers: list[Any] = []
        self._addresses: list[int] = []  # of the items of the containers
        self._readers: list[tuple[Callable[[Any], Any], Any, Any]] = []
        self._generators: set[str] = set()
        self._root = root  # which is not kept alive: it has the graphs that have this
        # Packages that belong to the program although they are installed.
        self._packages = {_package(each.__module__) for each in type(root).__mro__}
        # The global variables that code names, by the identity of their namespace.
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._scanned: set[tuple[int, types.CodeType]] = set()
        # Attributes that are compared only where code names them, by these names, and all names of
        # attributes.
        self._apart: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self._attributes_named: set[str] = set()
        for i, raw in enumerate(read):
            self.values[f"elements that the host reads, {i}"] = self._read(elements, raw)
        self._waiting: list[tuple[str, Any]] = [("", root)]
        while self._waiting or self._visit_apart():
            if len(self.values) > _MOST_VALUES:
                self._refuse(f"the model's attributes hold more than {_MOST_VALUES} values")
                break
            self._visit(*self._waiting.pop())
        for namespace, found in self._globals.values():
            self._note((namespace, *found), found.values())
        self._held = struct.pack(f"{len(self._addresses)}q", *self._addresses)
        del self._root, self._waiting, self._places, self._classes, self._slots, self._scanned
        del self._descriptors, self._addresses, self._globals, self._apart, self._attributes_named

    def hold(self) -> bool:
        """Whether nothing has changed. Also False if objects were replaced by equal ones."""
        try:
            return _c.SameObjects(self._containers, self._held) and all(
                [read(value) == then for read, value, then in self._readers]
            )
        except RuntimeError:  # another thread changed a container during the comparison
            return False

    def drawn(self, before: Settings) -> bool:
        """Whether the state of a random generator differs from that in `before`."""
        return any(
            [before.values.get(g, self.values[g]) != self.values[g] for g in self._generators]
        )

    # The walk.

    def _visit(self, place: str, value: Any) -> None:
        token = exact(value)
        if token is not None:
            self.values[place] = token
            return
        if id(value) in self._places:
            self.values.setdefault(place, ("as", self._places[id(value)]))
            return
        self._places[id(value)] = place
        if value is not self._root:
            self._alive.append(value)
        try:
            self.values[place] = self._describe(place, value)
        except Exception as error:
            self.values[place] = (type(value), id(value))
            self._refuse(f"{place} cannot be inspected: {type(error).__name__}")

    def _describe(self, place: str, value: Any) -> Any:
        """A value that identifies the object, without its items and attributes.

        Items and attributes are queued, to be visited next.
        """
        kind = type(value)
        if isinstance(value, Tensor):
            raw, *flags, grad = found = [getattr(value, name) for name in _TENSOR]
            self._note(value, found)
            self._alive.append(raw)
            self._add(f"{place}.grad", grad)
            self._members(place, value)
            return kind, id(value), id(raw), tuple([exact(flag) for flag in flags])
        if isinstance(value, list | tuple):
            if isinstance(value, list):
                self._note(value, value)
            for i, item in enumerate(value):
                self._add(f"{place}[{i}]", item)
            self._members(place, value)
            return kind, len(value)
        if value is os.environ or value is getattr(os, "environb", None):
            self._add("os.environ's", vars(value)["_data"])
            return kind, ()
        if isinstance(value, dict):
            self._entries(value, [(_key(place, i, key), key) for i, key in enumerate(value)])
            if isinstance(value, OrderedDict):  # whose order is not that of the dict inside
                self._readers.append((identities, value, identities(value)))
            self._members(place, value)
            return kind, tuple([self._name(key) for key in value])
        if isinstance(value, set | frozenset | deque):
            return self._sequence(place, value)
        if isinstance(value, np.ndarray):
            return self._array(place, value)
        if isinstance(value, self._kinds_of_buffers):
            return kind, self._read(bytes, value)
        if isinstance(value, self._kinds_of_generators):
            self._generators.add(place)
            return kind, self._read(generator_state, value)
        if isinstance(value, types.FunctionType):
            return self._function(place, value)
        if isinstance(value, functools.partial):
            self._add(f"{place}.func", value.func)
            self._add(f"{place}.args", value.args)
            self._add(f"{place}.keywords", value.keywords)
            return kind, ()
        if isinstance(value, _METHODS):
            self._add(f"{place}.__self__", value.__self__)
            if isinstance(value, types.MethodType):
                self._add(f"{place}.__func__", value.__func__)
            return kind, value.__name__
        if isinstance(value, staticmethod | classmethod):
            self._add(f"{place}.__func__", value.__func__)
        elif isinstance(value, property):
            for name in ("fget", "fset"):
                self._add(f"{place}.{name}", getattr(value, name))
        elif isinstance(value, types.MappingProxyType):
            self._add(f"{place}.mapping", _behind(value))
            return kind, ()
        elif isinstance(value, weakref.ref):
            return kind, id(value), id(value())
        elif isinstance(value, contextvars.ContextVar):
            self._readers.append((context_identity, value, context_identity(value)))
            self._add(f"{place}.get()", value.get(None))
        elif isinstance(value, type):
            self._class(value)
        elif _is_iterator(value):
            self._refuse(f"{place} is a {kind.__name__}, whose position cannot be compared")
        elif isinstance(value, threading.Event):
            return kind, self._read(threading.Event.is_set, value)
        elif isinstance(value, threading.local):
            self._readers.append((local_identity, value, local_identity(value)))
            self._object(place, value)
        elif hasattr(kind, "__dlpack__") and hasattr(value, "_version"):
            return kind, id(value), self._read(version, value)
        elif not _is_opaque(value):
            self._object(place, value)
        return kind, id(value)

    def _object(self, place: str, value: Any) -> None:
        self._class(type(value))
        self._members(place, value)

    def _members(self, place: str, value: Any) -> None:
        """Visits attributes of the object itself, in its __dict__ or in slots."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            if value is self._root:
                self._read(class_and_attributes, weakref.ref(value))
            elif not isinstance(value, Tensor):
                self._attributes(value, "__class__", "__dict__")
            left_out = _not_settings(value)
            apart = {name: name for name in left_out - _not_settings(value, _is_of_program)}
            if hasattr(type(value), "_unwatched"):
                apart |= {name: name.lstrip("_") for name in value._unwatched()}
            if apart:
                self._apart.append((place, attributes, apart))
                left_out |= apart.keys()
            named = [(None if n in left_out else _attribute(place, n), n) for n in attributes]
            self._entries(attributes, named)
        if isinstance(value, Tensor):
            return
        if type(value) not in self._slots:
            self._slots[type(value)] = _slots(type(value))
        for name in self._slots[type(value)]:
            item = getattr(value, name, ABSENT)
            self._readers.append((functools.partial(slot_identity, name), value, id(item)))
            self._add(_attribute(place, name), item)

    def _class(self, kind: type) -> None:
        for each in kind.__mro__:
            if each in self._classes or not self._can_change(each):
                continue
            self._classes.add(each)
            self._class(type(each))
            place = _class_place(each, self.values)
            self.values[place] = (each,)
            namespace = _behind(vars(each))
            ours = _package(each.__module__) == _PACKAGE
            self._note(namespace, [x for pair in namespace.items() for x in pair])
            for name, value in namespace.items():
                if name.startswith("__") and not callable(value):
                    continue  # metadata such as __module__
                if not ours:
                    self._add(f"{place}.{name}", value)
                elif isinstance(value, _CODE):  # singa's own functions do not change
                    self._alive.append(value)
                    self.values[f"{place}.{name}"] = (type(value), id(value))
                elif not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                    self._add(f"{place}.{name}", value)

    def _function(self, place: str, function: types.FunctionType) -> Any:
        code, *defaults = self._attributes(function, *_FUNCTION)
        self._alive.append(code)
        for name, value in zip(_FUNCTION[1:], defaults, strict=True):
            self._add(f"{place}.{name}", value)
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if name != "__class__":
                self._note((cell, _CELL), [value])
                self._add(f"{place}<{name}>", value)
        self._entries(vars(function), [(f"{place}.{name}", name) for name in vars(function)])
        self._scan(place, function)
        return type(function), id(code)

    # Global variables.

    def _scan(self, place: str, function: types.FunctionType) -> None:
        """Visits the global variables that the code of a function of the program names."""
        if function is os.getenv:
            self._add("os.environ", os.environ)
        code, namespace = function.__code__, function.__globals__
        if (id(namespace), code) in self._scanned or not self._is_program(namespace):
            return
        self._scanned.add((id(namespace), code))
        found = names(code)
        self._attributes_named |= found.attributes
        for path in found.variables:
            self._variable(namespace, path)
            if path[0] in _BEHIND_NAMES and path[0] not in namespace:
                self._refuse(f"{place} uses {path[0]}, which may read any variable")
        for module, path in found.imports:
            if inside := imported(module, namespace):
                self._variable(vars(inside), path)

    def _variable(self, namespace: dict[str, Any], path: Sequence[str]) -> None:
        """Visits a variable of a module, and what `path` names in it as far as modules lead."""
        within = False
        for name in path:
            if within and name not in namespace:
                break  # `module.__dict__`
            place = _attribute(str(namespace.get("__name__", "")), name)
            value = namespace.get(name, ABSENT)
            if value is ABSENT and not within and name in vars(builtins):
                self._variable(vars(builtins), (name,))
            within = True
            _, found = self._globals.setdefault(id(namespace), (namespace, {}))
            if name in found and not isinstance(value, types.ModuleType):
                return
            found[name] = value
            if not isinstance(value, types.ModuleType):
                if self._is_program(namespace) or value is os.environ or value is os.getenv:
                    self._add(place, value)
                elif value is sys.modules or value is importlib.import_module:
                    self._refuse(f"the step uses {place}, which may lead to any variable")
                else:  # other packages do not change what they contain
                    self._alive.append(value)
                    self.values[place] = exact(value) or (type(value), id(value))
                return
            namespace = vars(value)
        # The code has the module itself.
        if self._is_program(namespace) and id(namespace) not in self._places:
            place = self._places[id(namespace)] = f"variables of {namespace.get('__name__')}"
            self.values[place] = self._read(len, namespace)
            for name in list(namespace):
                if not name.startswith("__"):
                    self._variable(namespace, (name,))
        elif namespace is vars(os):
            self._add("os.environ", os.environ)

    def _is_program(self, namespace: dict[str, Any]) -> bool:
        """Whether a module belongs to the program, so that its variables may change."""
        package = _package(namespace.get("__name__", ""))
        if package in (_PACKAGE, "numpy") or package in sys.stdlib_module_names:
            return False
        return package in self._packages or "-packages" not in str(namespace.get("__file__", ""))

    def _can_change(self, kind: type) -> bool:
        """Whether a class belongs to the program or to singa. Other classes are assumed to be
        constant."""
        if not kind.__flags__ & _HEAP_TYPE or issubclass(kind, enum.Enum):
            return False
        module = str(kind.__module__)
        namespace = vars(sys.modules.get(module, types.ModuleType(module)))
        return _package(module) == _PACKAGE or self._is_program(namespace)

    def _visit_apart(self) -> bool:
        """Queues attributes that are compared only because code names them. Whether there are
        new ones."""
        for place, attributes, apart in self._apart:
            for name in apart.keys() & attributes.keys():
                if apart[name] not in self._attributes_named:
                    continue
                del apart[name]
                self._note((attributes, name), [attributes[name]])
                self._add(_attribute(place, name), attributes[name])
        return bool(self._waiting)

    def _sequence(self, place: str, value: Any) -> Any:
        """Compares a set by the identities of its items, a deque like a list."""
        items = list(value)
        self._alive.append(items)
        if not isinstance(value, frozenset):  # which cannot change
            self._readers.append((identities, value, identities(value)))
        if isinstance(value, deque):
            for i, item in enumerate(items):
                self._add(f"{place}[{i}]", item)
            return type(value), len(items)
        return type(value), frozenset([self._name(item) for item in items])

    def _array(self, place: str, value: np.ndarray) -> Any:
        if _is_frozen(value):
            return type(value), id(value)
        if value.dtype.hasobject:
            items = value.reshape(-1).tolist()
            self._readers.append((object_identities, value, object_identities(value)))
            for i, item in enumerate(items):
                self._add(f"{place}[{i}]", item)
            return type(value), value.shape
        self._bytes += value.nbytes
        if self._bytes > _MOST_BYTES:
            self._refuse(
                f"{place} is a writeable array, and more than {_MOST_BYTES >> 20} MiB of such "
                "arrays would be compared before each step: set its flags.writeable to False, or "
                "do not keep it in the model"
            )
            return type(value), id(value)
        return type(value), self._read(array_state, value)

    # What `hold` compares.

    def _note(self, container: Any, objects: Iterable[Any]) -> None:
        """Makes `hold` compare the items of a container."""
        held = list(objects)
        self._containers.append(container)
        self._addresses.append(len(held))
        self._addresses.extend([_STANDS_FOR.get(id(one), id(one)) for one in held])
        self._alive.append([one for one in held if one is not self._root])

    def _entries(self, entries: dict[Any, Any], named: list[tuple[str | None, Any]]) -> None:
        """Visits the values of a dict. `named` has (place, key) for each.

        A value whose place is None is not compared.
        """
        held: list[Any] = []
        for place, key in named:
            held += (key, _ANY if place is None else entries[key])
            if place is not None:
                self._add(place, entries[key])
        self._note(entries, held)

    def _attributes(self, value: Any, *names: str) -> list[Any]:
        found = [getattr(value, name) for name in names]
        read = [self._descriptor(type(value), name) for name in names]
        if None not in read:
            self._note((value, *read), found)
        return found

    def _descriptor(self, kind: type, name: str) -> Any:
        """The descriptor of an attribute of objects of a class, or None if it has none."""
        if (kind, name) not in self._descriptors:
            owner = next((each for each in kind.__mro__ if name in vars(each)), None)
            self._descriptors[kind, name] = None if owner is None else vars(owner)[name]
        return self._descriptors[kind, name]

    def _read(self, function: Callable[[Any], Any], value: Any) -> Any:
        state = function(value)
        self._readers.append((function, value, state))
        return state

    def _add(self, place: str, value: Any) -> None:
        self._waiting.append((place, value))

    def _name(self, key: Any) -> Any:
        """A comparable value for an item of a set or a key of a dict."""
        token = exact(key)
        if token is not None:
            return token
        if type(key) is tuple:
            return tuple([self._name(item) for item in key])
        self._alive.append(key)
        return type(key), id(key)

    def _refuse(self, reason: str) -> None:
        self.obstacle = self.obstacle or reason


#: Addresses that SameObjects knows.
_STANDS_FOR = {id(_ANY): 0, id(ABSENT): 1}
#: Builtin functions that read variables which no code names.
_BEHIND_NAMES = {"globals", "eval", "exec", "__import__"}
_CELL = vars(types.CellType)["cell_contents"]
_CODE = (types.FunctionType, staticmethod, classmethod, property)


def _attribute(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _key(place: str, i: int, key: Any) -> str:
    return f"{place}[{key!r}]" if type(key) in (str, bytes, int) else f"{place}[key {i}]"


def _class_place(kind: type, taken: dict[str, Any]) -> str:
    place = f"class {kind.__qualname__}"
    while place in taken:  # another class has the same name
        place += "'"
    return place


def _package(module: object) -> str:
    return str(module).partition(".")[0]


class _Catcher:
    """Keeps the object with which it is compared."""

    def __eq__(self, other: object) -> bool:
        self.found = other
        return True

    __hash__ = None  # type: ignore[assignment]


def _behind(proxy: types.MappingProxyType[Any, Any]) -> Any:
    """The dict behind a read-only proxy, such as that of a class, without a copy."""
    catcher = _Catcher()
    _ = proxy == catcher
    return catcher.found


def _slots(kind: type) -> list[str]:
    """Names of attributes in __slots__."""
    return [
        name
        for each in kind.__mro__
        if each.__flags__ & _HEAP_TYPE
        for name, value in vars(each).items()
        if isinstance(value, types.MemberDescriptorType)
    ]


def _is_iterator(value: Any) -> bool:
    kind = type(value)
    return (
        hasattr(kind, "__next__")
        and not hasattr(value, "__dict__")
        and not isinstance(value, io.IOBase)
    )


def _is_opaque(value: Any) -> bool:
    kind = type(value)
    if isinstance(value, _OPAQUE):
        return True
    return str(kind.__module__).partition(".")[0] in _OPAQUE_MODULES or (
        kind.__module__ == _c.__name__
    )


def _is_frozen(value: np.ndarray) -> bool:
    """Whether the array and all arrays under it are read-only."""
    owner: Any = value
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or type(owner).__name__ in ("bytes", "mmap")
