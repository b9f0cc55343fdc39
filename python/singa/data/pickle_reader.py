"""Reads plain data and NumPy arrays out of a pickle without executing anything in it.

Python's own `pickle.load` imports modules and calls functions that the file names, so a hostile
file is a program. Here nothing is imported or called: `pickletools.genops` of the standard library
decodes the opcodes, a stack machine of a few lines builds dicts, lists, tuples, strings, bytes and
numbers, and the few globals that stand for NumPy arrays are symbols with a meaning of our own
(`_call`, `_build`). Any other global, and any other opcode, is refused.

That covers protocols 0 to 5: Python 2's files (the published CIFAR ones, protocol 2, whose `str`
comes out as bytes; in protocol 0 only if it is ASCII), and what Python 3 writes for the same data.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_CORE = ("numpy.core", "numpy._core")  # NumPy 1 and 2
_RECONSTRUCT = frozenset((f"{core}.multiarray", "_reconstruct") for core in _CORE)
_FROMBUFFER = frozenset((f"{core}.numeric", "_frombuffer") for core in _CORE)
_NDARRAY = ("numpy", "ndarray")
_DTYPE = ("numpy", "dtype")
_ENCODE = ("_codecs", "encode")  # how Python 3 writes bytes in protocols 0 to 2
_BYTES = frozenset((("__builtin__", "bytes"), ("builtins", "bytes")))  # the same for b""
_GLOBALS = _RECONSTRUCT | _FROMBUFFER | _BYTES | {_NDARRAY, _DTYPE, _ENCODE}
_CODES = frozenset(("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"))

# CIFAR-100's training file, the largest of them, has about 300,000.
_MAX_OPCODES = 4_000_000
# Of dict keys, and of names in calls, which are compared, and copied, as often as they are used.
_MAX_NAME = 1000

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_PYTHON2_STRINGS = frozenset(("STRING", "BINSTRING", "SHORT_BINSTRING"))
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}


def loads(data: bytes) -> Any:
    """What the pickle `data` describes: dict, list, tuple, str, bytes, numbers, None, ndarray.

    Dict keys are strings or bytes. Arrays are of integer or floating type, in the machine's byte
    order, and may be read-only. Time and memory are bounded by the length of `data`. Raises
    ValueError for anything damaged, unfinished or not plain data.
    """
    try:
        return _resolve(_Machine(len(data)).run(data))
    except ValueError as error:
        raise ValueError(f"not a readable pickle: {error}") from None
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # A stack that runs empty, a memo that was never written, an operand of the wrong kind.
        raise ValueError(f"not a readable pickle: malformed ({type(error).__name__})") from None


class _Mark:
    pass


_MARK = _Mark()


@dataclass(frozen=True)
class _Symbol:
    """A global: a name, never the thing."""

    module: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return self.module, self.name


@dataclass
class _DType:
    code: str
    swapped: bool = False

    def numpy(self) -> np.dtype[Any]:
        if self.code not in _CODES:
            raise ValueError(f"an array of type {self.code!r} is not plain data")
        dtype = np.dtype(self.code)
        return dtype.newbyteorder() if self.swapped else dtype


@dataclass
class _Array:
    """An array under construction: `_reconstruct` makes it empty, BUILD fills it."""

    value: np.ndarray[Any, Any] | None = None


class _Machine:
    """The pickle virtual machine, less everything that calls or imports.

    Calls may make copies of what the file holds, but a pickle can name the same string in as many
    calls as it likes: `made` counts the bytes of the copies. A sound file asks for two at most, of
    bytes that Python 3 wrote as text and of an array in the other byte order.
    """

    def __init__(self, length: int) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.most = 2 * length
        self.made = 0

    def run(self, data: bytes) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            name = opcode.name
            if count >= _MAX_OPCODES:
                raise ValueError(f"more than {_MAX_OPCODES} opcodes")
            if name in _VALUES:
                self.stack.append(argument)
            elif name in _PYTHON2_STRINGS:
                self.stack.append(str(argument).encode("latin-1"))
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in _EMPTY:
                self.stack.append(_EMPTY[name]())
            elif name == "STOP":
                break
            else:
                handler = getattr(self, f"op_{name.lower()}", None)
                if handler is None:
                    raise ValueError(f"opcode {name} is refused: it is not plain data")
                handler(argument)
        (result,) = self.stack
        return result

    def op_proto(self, version: int) -> None:
        if version > 5:
            raise ValueError(f"protocol {version} is unknown")

    def op_frame(self, _: int) -> None:
        pass

    def op_mark(self, _: None) -> None:
        self.stack.append(_MARK)

    def op_pop(self, _: None) -> None:
        self.stack.pop()

    def op_pop_mark(self, _: None) -> None:
        self.above_mark()

    def op_dup(self, _: None) -> None:
        self.stack.append(self.stack[-1])

    def op_put(self, index: int) -> None:
        if not 0 <= index < 1 << 32:  # as in the binary opcodes; larger ones can be made to collide
            raise ValueError("a memo of impossible number")
        self.memo[index] = self.stack[-1]

    op_binput = op_long_binput = op_put

    def op_memoize(self, _: None) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def op_get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    op_binget = op_long_binget = op_get

    def op_list(self, _: None) -> None:
        self.stack.append(self.above_mark())

    def op_tuple(self, _: None) -> None:
        self.stack.append(tuple(self.above_mark()))

    def op_tuple1(self, _: None) -> None:
        self.stack[-1:] = [tuple(self.top(1))]

    def op_tuple2(self, _: None) -> None:
        self.stack[-2:] = [tuple(self.top(2))]

    def op_tuple3(self, _: None) -> None:
        self.stack[-3:] = [tuple(self.top(3))]

    def op_dict(self, _: None) -> None:
        items = self.above_mark()
        self.stack.append({})
        self.set_items(items)

    def op_setitem(self, _: None) -> None:
        value = self.stack.pop()
        self.set_items([self.stack.pop(), value])

    def op_setitems(self, _: None) -> None:
        self.set_items(self.above_mark())

    def op_append(self, _: None) -> None:
        value = self.stack.pop()
        self.extend([value])

    def op_appends(self, _: None) -> None:
        self.extend(self.above_mark())

    def op_global(self, argument: str) -> None:
        self.push_symbol(*argument.split(" ", 1))

    def op_stack_global(self, _: None) -> None:
        name = self.stack.pop()
        self.push_symbol(self.stack.pop(), name)

    def op_reduce(self, _: None) -> None:
        arguments = self.stack.pop()
        self.stack.append(_call(self.stack.pop(), arguments, self.make))

    def op_build(self, _: None) -> None:
        state = self.stack.pop()
        _build(self.stack[-1], state, self.make)

    def make(self, size: int) -> None:
        """Called before a copy of so many bytes is made."""
        self.made += size
        if self.made > self.most:
            raise ValueError(f"it would take more than {self.most} bytes of copies")

    def above_mark(self) -> list[Any]:
        """Takes everything above the topmost mark, and the mark, off the stack."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise ValueError("a mark is missing")

    def top(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("the stack runs empty")
        return self.stack[-count:]

    def push_symbol(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("a global whose name is no string")
        if (module, name) not in _GLOBALS:
            # Shortened: the text comes from the file.
            raise ValueError(f"the global {f'{module}.{name}'[:80]!r} is refused")
        self.stack.append(_Symbol(module, name))

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise ValueError("keys and values without a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Only what hashes fast and unpredictably: nested tuples, or numbers chosen to
            # collide, can take for ever.
            if not isinstance(key, str | bytes):
                raise ValueError(f"a dict key of type {type(key).__name__}")
            if len(key) > _MAX_NAME:
                raise ValueError(f"a dict key of length {len(key)}")
            target[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("items without a list")
        self.stack[-1].extend(items)


def _call(function: Any, arguments: Any, make: Callable[[int], None]) -> Any:
    """The meaning of `function(*arguments)` for the few symbols that are let through."""
    if not (isinstance(function, _Symbol) and isinstance(arguments, tuple)):
        raise ValueError("a call of something that is no function")
    if function.key == _ENCODE:
        text, encoding = arguments
        make(len(text))
        if encoding not in ("latin1", "latin-1"):
            raise ValueError("bytes in an unknown encoding")
        return str.encode(text, "latin-1")
    if function.key in _BYTES and not arguments:
        return b""
    if function.key == _DTYPE:
        return _DType(_text(arguments[0]).lstrip("|<>="))
    if function.key in _RECONSTRUCT:
        if not (isinstance(arguments[0], _Symbol) and arguments[0].key == _NDARRAY):
            raise ValueError("an array of an unknown class")
        return _Array()
    if function.key in _FROMBUFFER:
        content, dtype, shape, order = arguments
        return _Array(_array(shape, dtype, content, _text(order) == "F", make))
    raise ValueError(f"the class {function.name} is no function")


def _build(target: Any, state: Any, make: Callable[[int], None]) -> None:
    """The meaning of `target.__setstate__(state)` for a dtype or an array."""
    if not isinstance(state, tuple):
        raise ValueError("a state that is no tuple")
    if isinstance(target, _DType):
        # (version, byte order, subarray, names, fields, item size, alignment, flags, ...)
        if any(part is not None for part in state[2:5]):
            raise ValueError("an array of records is not plain data")
        native = "<" if np.little_endian else ">"
        target.swapped = _text(state[1]) not in ("|", "=", native)
    elif isinstance(target, _Array):
        _, shape, dtype, fortran, content = state
        target.value = _array(shape, dtype, content, bool(fortran), make)
    else:
        raise ValueError(f"a state for a {type(target).__name__}")


def _array(
    shape: Any, dtype: Any, content: Any, fortran: bool, make: Callable[[int], None]
) -> np.ndarray[Any, Any]:
    if not isinstance(shape, tuple):
        shape = (shape,)
    if len(shape) > 8 or not all(type(extent) is int and 0 <= extent < 2**40 for extent in shape):
        raise ValueError("an array of impossible shape")
    if not isinstance(dtype, _DType) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array without type or content")
    stored = dtype.numpy()
    if math.prod(shape) * stored.itemsize != len(content):
        raise ValueError(
            f"an array of shape {shape} and type {stored} that holds {len(content)} bytes"
        )
    array = np.frombuffer(content, stored).reshape(shape, order="F" if fortran else "C")
    if not stored.isnative:
        make(len(content))
    return array.astype(stored.newbyteorder("="), copy=False)


def _text(value: Any) -> str:
    if isinstance(value, str | bytes) and len(value) > _MAX_NAME:
        raise ValueError(f"a name of length {len(value)}")
    if isinstance(value, bytes):
        return value.decode("ascii")
    if not isinstance(value, str):
        raise ValueError("a name that is no string")
    return value


def _resolve(value: Any) -> Any:
    """Turns the arrays in the top-level value, or one level below, into NumPy ones.

    That is where data sets keep them; symbols and half-made objects elsewhere stay unusable.
    """
    if isinstance(value, dict):
        return {key: _finished(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_finished, value))
    return _finished(value)


def _finished(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.value is None:
            raise ValueError("an array that is never filled")
        return value.value
    if isinstance(value, _Symbol | _DType | _Mark):
        raise ValueError(f"a {type(value).__name__.lstrip('_').lower()} where data belongs")
    return value
