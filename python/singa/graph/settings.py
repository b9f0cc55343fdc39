"""The Python state that a recorded step may depend on. It is compared before each replay.

A replay runs no Python, so everything that an executed step would read must be unchanged.
`Settings` walks over all objects that are reachable from a model: attributes of layers and other
objects, items of containers, arrays, flags and gradients of tensors, classes, functions with their
closures, and the global variables that the code of these functions names. It compares objects and
does not intercept assignments, because a list can change in place, and `vars(layer)["x"] = 1`
bypasses `__setattr__`. In the usual case nothing has changed, and one call of C++ that compares
addresses shows that. If addresses differ, the walk is repeated and values are compared bit for bit:
two objects 0.5 are equal, -0.0 differs from 0.0, True differs from 1, and a NaN equals itself.

Every object is visited by what it is made of: items, attributes, slots, its class, whatever that
derives from. Only of modules, and of objects such as locks and files (`owners.is_opaque`), those
attributes alone count that code names. Of objects written in C, what they tell the garbage
collector counts, and the bytes that they lend. What `code.names` cannot tell is not seen, nor are
the inside of modules and classes of other packages, files, and clocks.
Elements of tensors are seen where the host has read them; a replay reads all others anyway.
`Layer.not_settings` names attributes that may change, such as a history. docs/recorded_steps.md
tells users the same.
"""

from __future__ import annotations

import builtins
import contextvars
import enum
import functools
import gc
import io
import os
import struct
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import singa_wrap as _c
from ..tape.tensor import Tensor
from .code import BY_ANY_NAME, TO_VARIABLES, asking, imported, leading_anywhere, names
from .owners import (
    can_change,
    is_frozen,
    is_iterator,
    is_of_program,
    is_opaque,
    is_ours,
    is_own,
    is_program,
    leads_in_c,
    package,
    slots,
)
from .tokens import (
    ABSENT,
    answer,
    array_state,
    buffer_elements,
    buffer_size,
    class_and_attributes,
    classes,
    context_identity,
    decimal_context,
    elements,
    exact,
    file_in_memory,
    foreign_elements,
    generator_state,
    identities,
    is_plain,
    local_identity,
    object_identities,
    referents,
    slot_identity,
)

#: Limits of the values and bytes that are compared. Comparing more could take longer than a step.
_MOST_VALUES = 100_000
_MOST_BYTES = 1 << 20
_MOST_FROZEN = 1 << 12  # bytes of a read-only array, which its owner may make writeable again
_ANY: Any = object()  # stands for a value that is not compared
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
#: Builtin objects that lead to others by more than attributes.
_HOLDERS: tuple[type, ...] = (
    *(deque, functools.partial, slice, staticmethod, classmethod, property, contextvars.ContextVar),
    *(types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items())),
)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_TENSOR = ("data", "requires_grad", "stores_grad", "name", "grad")  # as in HeldObjects
_FUNCTION = (
    *("__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__"),
    "__dict__",
)
#: Variables and functions of Python's library by which code reads what the program sets.
_OF_ENVIRONMENT = [
    getattr(os, name) for name in ("environ", "environb", "getenv", "getenvb") if hasattr(os, name)
]
_CELL = vars(types.CellType)["cell_contents"]
_OF_CLASS = ("__bases__", "__name__", "__qualname__")
_OF_DECIMAL = ("decimal", "_decimal", "_pydecimal")


def differing(one: Settings, other: Settings) -> set[str]:
    """The places at which two Settings have different values."""
    a, b = one.values, other.values
    return {place for place in a.keys() | b.keys() if a.get(place) != b.get(place)}


def _not_settings(value: object, of_ours: bool = True) -> set[str]:
    """Names of attributes that are not compared, from `not_settings` of the object's classes."""
    kind = type(value)
    if not hasattr(kind, "not_settings"):
        return set()
    mine = [each for each in kind.__mro__ if of_ours or not is_ours(each)]
    return {name for each in mine for name in vars(each).get("not_settings", ())}


class Settings:
    """The state that is reachable from `root`, the elements of the raw tensors in `read`, and what
    the objects in `handed` lead to.

    values    comparable values by place, such as "conv1.stride[0]"
    tensors   the raw tensors of all Tensors
    obstacle  why the state cannot be compared, so that no step can be replayed; empty if it can
    """

    def __init__(
        self, root: Any, read: Sequence[_c.Tensor] = (), handed: Sequence[Any] = ()
    ) -> None:
        self.values: dict[str, Any] = {}
        self.tensors: list[_c.Tensor] = []
        self.obstacle = ""
        self._alive: list[Any] = []  # keeps objects alive whose identities are in `values`
        self._places: dict[int, str] = {}  # place of each visited object, by identity
        self._classes: set[type] = set()  # classes whose attributes were visited
        self._slots: dict[type, list[str]] = {}
        self._descriptors: dict[tuple[type, str], Any] = {}
        self._bytes = 0
        numpys = classes("numpy.random", "Generator", "BitGenerator", "RandomState")
        self._kinds_of_generators = (*classes("random", "Random"), *numpys)
        self._anywhere, self._asking = leading_anywhere(), asking()
        self._containers: list[Any] = []
        self._addresses: list[int] = []  # of the items of the containers
        self._readers: list[tuple[Callable[[Any], Any], Any, Any]] = []
        #: Random generators by their places, which begin with a dot.
        self.generators: dict[str, Any] = {}
        self._root = root  # which is not kept alive: it has the graphs that have this
        # Packages that belong to the program although they are installed.
        self._packages = {package(each.__module__) for each in type(root).__mro__}
        # The global variables that code names, by the identity of their namespace.
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._scanned: set[tuple[int, types.CodeType]] = set()
        # Attributes that are compared only where code names them, by these names, and all names in
        # the code.
        self._apart: list[tuple[str, dict[str, Any], dict[str, str], bool]] = []
        self._named: set[str] = set()
        self._locks: list[tuple[str, Any]] = []
        for i, raw in enumerate(read):
            self.values[f"elements that the host reads, {i}"] = self._read(elements, raw)
        self._waiting = [(f"argument {i}", value) for i, value in enumerate(handed)]
        self._waiting.append(("", root))
        while self._waiting or self._visit_apart():
            if len(self.values) > _MOST_VALUES:
                self._refuse(f"the model's attributes hold more than {_MOST_VALUES} values")
                break
            self._visit(*self._waiting.pop())
        for namespace, found in self._globals.values():
            self._note((namespace, *found), found.values())
        for place, lock in self._locks if "locked" in self._named else ():
            self.values[f"{place}.locked()"] = self._read(type(lock).locked, lock)
        held = struct.pack(f"{len(self._addresses)}q", *self._addresses)
        self._objects = _c.HeldObjects(self._containers, held)
        del self._root, self._waiting, self._places, self._classes, self._slots, self._scanned
        del self._descriptors, self._containers, self._addresses, self._globals, self._apart
        del self._named, self._locks

    def hold(self) -> bool:
        """Whether nothing has changed. Also False if objects were replaced by equal ones."""
        try:
            same = self._objects.same()
            for read, value, then in self._readers:
                same = same and read(value) == then
            return same
        except Exception:  # another thread changed a container, or an object was closed
            return False

    def drawn(self, before: Settings) -> list[str]:
        """Those of `generators` whose state differs from that in `before`."""
        then, now = before.values, self.values
        places = [(name, name[1:]) for name in self.generators]
        return [name for name, place in places if then.get(place, now[place]) != now[place]]

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
            self._check_reach(value)
            self.values[place] = type(value), self._describe(place, value)
            self._members(place, value)
        except Exception as error:
            self.values[place] = (type(value), id(value))
            self._refuse(f"{place} cannot be inspected: {type(error).__name__}")

    def _describe(self, place: str, value: Any) -> Any:
        """What tells the object apart from others of its class, besides its attributes and items.

        Items are queued, to be visited next.
        """
        kind = type(value)
        if isinstance(value, Tensor):
            raw, *flags, grad = found = [getattr(value, name) for name in _TENSOR]
            self._note(value, found)
            self.tensors.append(raw)
            self._add(f"{place}.grad", grad)
            return id(value), id(raw), tuple([exact(flag) for flag in flags])
        if isinstance(value, list | tuple):
            if isinstance(value, list):
                self._note(value, value)
            for i, item in enumerate(value):
                self._add(f"{place}[{i}]", item)
            return len(value)
        if isinstance(value, dict):
            self._entries(value, [(_key(place, i, key), key) for i, key in enumerate(value)])
            if isinstance(value, OrderedDict | defaultdict):  # which are more than the dict inside
                self._read(identities if isinstance(value, OrderedDict) else referents, value)
                self._add(f"{place}.default_factory", getattr(value, "default_factory", None))
            return self._names(place, value)
        if isinstance(value, set | frozenset):
            if not isinstance(value, frozenset):  # which cannot change
                self._read(identities, value)
            return frozenset(self._names(place, value))
        if isinstance(value, np.ndarray):
            return self._array(place, value)
        if isinstance(value, self._kinds_of_generators):
            self.generators[f".{place}"] = value
            return self._read(generator_state, value)
        if isinstance(value, types.FunctionType):
            return self._function(place, value)
        if isinstance(value, _METHODS):
            if not isinstance(value.__self__, types.ModuleType):  # that of a builtin function
                self._add(f"{place}.__self__", value.__self__)
            self._add(f"{place}.__func__", getattr(value, "__func__", None))
            return value.__name__
        if isinstance(value, _HOLDERS):
            getattr(value, "__dict__", None)  # which the first access makes
            if isinstance(value, deque | functools.partial):
                self._read(referents, value)
            if isinstance(value, contextvars.ContextVar):
                self._read(context_identity, value)
                self._add(f"{place}.get()", value.get(None))
            held = gc.get_referents(value)
            for i, item in enumerate(held):
                self._add(f"{place}[{i}]", item)
            return len(held)
        if isinstance(value, weakref.ref):
            return id(value), id(value())
        if isinstance(value, type):
            self._class(value)
        elif isinstance(value, threading.Event):
            return self._read(threading.Event.is_set, value)
        elif isinstance(value, io.StringIO | io.BytesIO):
            length = 0 if value.closed else len(value.getvalue())
            return id(value), self._content(place, file_in_memory, value, length)
        elif kind.__module__ in _OF_DECIMAL:
            return exact(str(value)), self._read(decimal_context, None)
        elif kind.__module__ == "_thread" and hasattr(kind, "locked"):
            self._locks.append((place, value))
        elif isinstance(value, threading.local):
            self._read(local_identity, value)
        elif hasattr(kind, "__dlpack__"):
            return id(value), self._content(place, foreign_elements, value, value.nbytes)
        elif is_iterator(value):
            self._refuse(f"{place} is a {kind.__name__}, whose position cannot be compared")
        else:
            if leads_in_c(kind):
                getattr(value, "__dict__", None)  # which the first access makes
                for i, item in enumerate(gc.get_referents(value)):
                    self._add(f"{place}[{i}]", item)
                self._read(referents, value)
            if (size := buffer_size(value)) is not None:
                return self._content(place, buffer_elements, value, size)
        return id(value)

    def _members(self, place: str, value: Any) -> None:
        """Visits what any object may have: its class, attributes in its __dict__ and in slots."""
        kind = type(value)
        if kind.__module__ == _c.__name__ or (isinstance(value, enum.Enum) and is_ours(kind)):
            return
        self._class(kind)
        attributes = getattr(value, "__dict__", None)
        if isinstance(value, types.ModuleType):
            self._module(place, value)
        elif isinstance(attributes, dict):
            if value is self._root:
                self._read(class_and_attributes, weakref.ref(value))
            elif not isinstance(value, Tensor | types.FunctionType):
                if self._is_usual(kind):
                    self._note(value, (kind, attributes))
                else:
                    replaceable = ("__class__", "__dict__") if can_change(kind) else ("__dict__",)
                    self._attributes(value, *replaceable)
            if is_opaque(kind):
                left_out = set(attributes)
                apart = {name: name for name in left_out}
            else:
                left_out = _not_settings(value)
                apart = {name: name for name in left_out - _not_settings(value, of_ours=False)}
                if hasattr(kind, "_unwatched"):
                    apart |= {name: name.lstrip("_") for name in value._unwatched()}
            if apart:
                self._apart.append((place, attributes, apart, False))
                left_out |= apart.keys()
            named = [(None if n in left_out else _attribute(place, n), n) for n in attributes]
            self._entries(attributes, named)
        if isinstance(value, Tensor):
            return
        if kind not in self._slots:
            self._slots[kind] = slots(kind)
        for name in self._slots[kind]:
            item = getattr(value, name, ABSENT)
            self._readers.append((functools.partial(slot_identity, name), value, id(item)))
            self._add(_attribute(place, name), item)

    def _class(self, kind: type) -> None:
        for each in kind.__mro__:
            if each in self._classes:
                continue
            self._classes.add(each)
            ours = is_ours(each)
            constant = ours and (issubclass(Tensor, each) or isinstance(each, enum.EnumMeta))
            if constant or not (can_change(each) and (ours or is_of_program(each, self._packages))):
                continue
            self._class(type(each))
            place = _class_place(each, self.values)
            names_of = [getattr(each, name) for name in _OF_CLASS]
            self.values[place] = (each, *names_of[1:])
            namespace = gc.get_referents(vars(each))[0]  # the dict behind the proxy
            self._note(namespace, [x for pair in namespace.items() for x in pair])
            if not ours:
                self._note((each, *[vars(type)[n] for n in _OF_CLASS]), names_of)
            for name, value in namespace.items():
                if isinstance(value, _DESCRIPTORS):
                    continue
                if ours and name.startswith("__") and not callable(value):
                    continue  # metadata such as __module__
                if ours and is_own(value):
                    self._alive.append(value)
                    self.values[f"{place}.{name}"] = (type(value), id(value))
                else:
                    self._add(f"{place}.{name}", value)

    def _function(self, place: str, function: types.FunctionType) -> Any:
        code, *defaults = self._attributes(function, *_FUNCTION)
        self._alive.append(code)
        for name, value in zip(_FUNCTION[1:-1], defaults, strict=False):
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
        self._scan(place, function)
        return id(code)

    # Global variables.

    def _check_reach(self, value: Any) -> None:
        if id(value) in self._anywhere:
            self._refuse(
                f"the step uses {self._anywhere[id(value)]}, which may lead to any variable"
            )
        if id(value) in self._asking:
            self.values[f"{self._asking[id(value)]}()"] = self._read(answer, value)

    def _scan(self, place: str, function: types.FunctionType) -> None:
        """Visits the global variables that the code of a function of the program names."""
        if any([function is each for each in _OF_ENVIRONMENT]):
            self._add("os.environ", os.environ)
        code, namespace = function.__code__, function.__globals__
        if (id(namespace), code) in self._scanned or not is_program(namespace, self._packages):
            return
        self._scanned.add((id(namespace), code))
        found = names(code)
        self._named |= found.attributes.union(*found.variables)
        if reach := found.attributes & TO_VARIABLES:
            self._refuse(f"{place} uses {min(reach)}, which may lead to any variable")
        for path in found.variables:
            self._variable(namespace, path)
        for module, path in found.imports:
            name, inside = imported(module, namespace)
            if inside is not None:
                self._note((sys.modules, name), [inside])
                self._variable({module: inside}, (module, *path))

    def _variable(self, namespace: dict[str, Any], path: Sequence[str]) -> None:
        """Visits a variable of a module, and what `path` names in it as far as modules lead."""
        for i, name in enumerate(path):
            if i > 0 and name not in namespace:
                break  # `module.__dict__`
            place = _attribute(str(namespace.get("__name__", "")), name)
            value = namespace.get(name, ABSENT)
            if value is ABSENT and i == 0 and name in vars(builtins):
                self._variable(vars(builtins), (name,))
            _, found = self._globals.setdefault(id(namespace), (namespace, {}))
            if name in found and not isinstance(value, types.ModuleType):
                return
            found[name] = value
            if not isinstance(value, types.ModuleType):
                if (
                    is_program(namespace, self._packages)
                    or is_plain(value)
                    or any([value is each for each in _OF_ENVIRONMENT])
                ):
                    self._add(place, value)
                else:  # other packages do not change what else they contain
                    if getattr(value, "__module__", None) in _OF_DECIMAL:
                        self.values["decimal context"] = self._read(decimal_context, None)
                    self._alive.append(value)
                    self.values[place] = exact(value) or (type(value), id(value))
                    self._check_reach(value)
                return
            module, namespace = value, vars(value)
        self._add(str(module.__name__), module)  # which the code has itself

    def _module(self, place: str, module: types.ModuleType) -> None:
        """Queues what code names of a module that it has as a value."""
        variables = vars(module)
        if is_program(variables, self._packages):
            self._read(len, variables)
            if "__getattr__" in variables:  # which gives what the module does not have
                self._variable(variables, ("__getattr__",))
        self._apart.append((place, variables, {name: name for name in variables}, True))

    def _visit_apart(self) -> bool:
        """Queues attributes that are compared only because code names them. Whether there are
        new ones."""
        dynamic = not self._named.isdisjoint(BY_ANY_NAME)
        for place, attributes, apart, is_module in self._apart:
            all_names = dynamic and is_module and is_program(attributes, self._packages)
            for name in sorted(apart.keys() & attributes.keys(), key=str):
                if apart[name] not in self._named and (not all_names or name.startswith("__")):
                    continue
                del apart[name]
                if is_module:
                    self._variable(attributes, (name,))
                else:
                    self._note((attributes, name), [attributes[name]])
                    self._add(_attribute(place, name), attributes[name])
        return bool(self._waiting)

    # The contents of objects.

    def _array(self, place: str, value: np.ndarray) -> Any:
        value = value.view(np.ndarray)  # without the methods of another class
        if value.dtype.hasobject:
            items = value.reshape(-1).tolist()
            self._read(object_identities, value)
            for i, item in enumerate(items):
                self._add(f"{place}[{i}]", item)
            return value.shape
        if not is_frozen(value):
            return self._content(place, array_state, value, value.nbytes)
        return id(value) if value.nbytes > _MOST_FROZEN else self._read(array_state, value)

    def _content(self, place: str, read: Callable[[Any], Any], value: Any, size: int) -> Any:
        """The elements of an array, or of something like it, which `read` reads."""
        self._bytes += size
        if self._bytes <= _MOST_BYTES:
            return self._read(read, value)
        self._refuse(
            f"{place} is a writeable {'array' if read is array_state else type(value).__name__}, "
            f"and more than {_MOST_BYTES >> 20} MiB of such arrays would be compared before each "
            "step: set its flags.writeable to False, or do not keep it in the model"
        )
        return id(value)

    def _names(self, place: str, items: Iterable[Any]) -> tuple[Any, ...]:
        """Comparable values for the items of a set or the keys of a dict, which are visited."""
        found = list(items)
        for i, item in enumerate(found):
            if exact(item) is None:
                self._add(f"{place}{{{i}}}", item)
        return tuple([self._name(item) for item in found])

    def _name(self, item: Any) -> Any:
        token = exact(item)
        if token is not None:
            return token
        if type(item) is tuple:
            return tuple([self._name(each) for each in item])
        return type(item), id(item)

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

    def _is_usual(self, kind: type) -> bool:
        """Whether objects of a class have the class and __dict__ that C++ sees, and are none of the
        containers that HeldObjects tells apart."""
        own = self._descriptor(kind, "__dict__")
        return (
            not issubclass(kind, dict | list | tuple)
            and self._descriptor(kind, "__class__") is vars(object)["__class__"]
            and type(own) is types.GetSetDescriptorType
        )

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

    def _refuse(self, reason: str) -> None:
        self.obstacle = self.obstacle or reason


#: Addresses that HeldObjects knows.
_STANDS_FOR = {id(_ANY): 0, id(ABSENT): 1}


def _attribute(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _key(place: str, i: int, key: Any) -> str:
    return f"{place}[{key!r}]" if type(key) in (str, bytes, int) else f"{place}[key {i}]"


def _class_place(kind: type, taken: dict[str, Any]) -> str:
    place = f"class {kind.__qualname__}"
    while place in taken:  # another class has the same name
        place += "'"
    return place
