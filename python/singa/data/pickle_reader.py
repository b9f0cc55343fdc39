"""Reads plain data and NumPy arrays from a pickle without executing code.

`pickle.load` imports modules and calls functions that a file names, so a malicious file can run any
code. This reader imports and calls nothing from the file. `pickletools.genops` of the standard
library decodes the opcodes. A small stack machine builds dicts, lists, tuples, strings, bytes and
numbers. The few globals that pickles of NumPy arrays use are symbols, which `_call` and `_build`
interpret. All other globals and opcodes raise ValueError.

It reads protocols 0 to 5, as written by Python 3 and by Python 2, such as the published files of
CIFAR (protocol 2). Python 2's `str` becomes bytes; in protocol 0 it must be ASCII.
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
_ENCODE = ("_codecs", "encode")  # Python 3 writes bytes with it in protocols 0 to 2
_BYTES = frozenset((("__builtin__", "bytes"), ("builtins", "bytes")))  # and b"" with these
_GLOBALS = _RECONSTRUCT | _FROMBUFFER | _BYTES | {_NDARRAY, _DTYPE, _ENCODE}
_CODES = frozenset(("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"))

# The training file of CIFAR-100, the largest file, has about 300,000.
_MAX_OPCODES = 4_000_000
# Length of dict keys and of names in calls. They are compared and copied at each use.
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
    """Reads a pickle of dicts, lists, tuples, str, bytes, numbers, None and NumPy arrays.

    Dict keys must be str or bytes. Arrays have an integer or float type, are in native byte order,
    and may be read-only. Time and memory are bounded by the length of `data`. Raises ValueError for
    damaged or incomplete pickles and for other objects.
    """
    try:
        return _resolve(_Machine(len(data)).run(data))
    except ValueError as error:
        raise ValueError(f"not a readable pickle: {error}") from None
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # An empty stack, a missing memo, or an operand of a wrong type.
        raise ValueError(f"not a readable pickle: malformed ({type(error).__name__})") from None


class _Mark:
    pass


_MARK = _Mark()


@dataclass(frozen=True)
class _Symbol:
    """A global, by name only."""

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
    """An array under construction. `_reconstruct` creates it, BUILD sets its value."""

    value: np.ndarray[Any, Any] | None = None


class _Machine:
    """The pickle virtual machine without imports and calls.

    Some opcodes copy data of the file, and a malicious pickle can copy the same data any number of
    times. `made` therefore counts the copied bytes. A valid file needs at most two copies: of bytes
    that Python 3 wrote as text, and of an array in the other byte order.
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
        # The limit of the binary opcodes. Larger keys could be chosen to collide in the dict.
        if not 0 <= index < 1 << 32:
            raise ValueError("a memo index out of range")
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
        """Counts a copy of `size` bytes. Called before the copy; raises ValueError at the limit."""
        self.made += size
        if self.made > self.most:
            raise ValueError(f"it would need more than {self.most} bytes of copies")

    def above_mark(self) -> list[Any]:
        """Removes the topmost mark and everything above it from the stack; returns the items."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise ValueError("a mark is missing")

    def top(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        return self.stack[-count:]

    def push_symbol(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("the name of a global is not a string")
        if (module, name) not in _GLOBALS:
            # Shortened: the text comes from the file.
            raise ValueError(f"the global {f'{module}.{name}'[:80]!r} is refused")
        self.stack.append(_Symbol(module, name))

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise ValueError("keys and values without a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Hashes of other keys can be slow (nested tuples) or made to collide (numbers).
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
    """The value of `function(*arguments)` for the symbols that are accepted."""
    if not (isinstance(function, _Symbol) and isinstance(arguments, tuple)):
        raise ValueError("a call of an object that is not a function")
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
    raise ValueError(f"{function.name} is not a function")


def _build(target: Any, state: Any, make: Callable[[int], None]) -> None:
    """The effect of `target.__setstate__(state)` for a dtype or an array."""
    if not isinstance(state, tuple):
        raise ValueError("a state that is not a tuple")
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
        raise ValueError("an array with an invalid shape")
    if not isinstance(dtype, _DType) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array without type or content")
    stored = dtype.numpy()
    if math.prod(shape) * stored.itemsize != len(content):
        raise ValueError(
            f"an array of shape {shape} and type {stored} with {len(content)} bytes of data"
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
        raise ValueError("a name that is not a string")
    return value


def _resolve(value: Any) -> Any:
    """Replaces the arrays in the top-level value, and one level below, by NumPy arrays.

    Data sets have them only there. Symbols and unfinished arrays at a deeper level stay as they are
    and are of no use.
    """
    if isinstance(value, dict):
        return {key: _finished(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_finished, value))
    return _finished(value)


def _finished(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.value is None:
            raise ValueError("an array without data")
        return value.value
    if isinstance(value, _Symbol | _DType | _Mark):
        raise ValueError(f"a {type(value).__name__.lstrip('_').lower()} in place of data")
    return value
