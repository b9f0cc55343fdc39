"""What a code object names: global variables, attributes, imports. It is read, not run."""

from __future__ import annotations

import dis
import functools
import importlib.util
import sys
from collections.abc import Mapping
from types import CodeType, ModuleType
from typing import Any, NamedTuple

_VARIABLE = (
    *("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"),
)
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")
_BETWEEN = ("PUSH_NULL", "EXTENDED_ARG", "CACHE")  # between the loads of `a` and of `.b`
#: By which code may reach any variable: what modules contain, and attributes.
_ANYWHERE = {
    "builtins": ("globals", "eval", "exec", "__import__"),
    "sys": ("modules", "_getframe", "_current_frames", "_current_exceptions"),
    "importlib": ("import_module", "__import__", "reload"),
    "inspect": ("currentframe", "stack", "trace"),
    "gc": ("get_objects", "get_referrers", "get_referents"),
    "pkgutil": ("resolve_name",),
    "pydoc": ("locate",),
    "runpy": ("run_module", "run_path"),
}
#: Functions without arguments that say what the process, or this thread, was set to.
_ASKING = {
    "faulthandler": ("is_enabled",),
    "gc": ("get_debug", "get_threshold", "isenabled"),
    "locale": ("getlocale", "getpreferredencoding", "localeconv"),
    "numpy": ("get_printoptions", "getbufsize", "geterr", "geterrcall"),
    "os": ("getcwd", "getcwdb"),
    "socket": ("getdefaulttimeout",),
    "sys": ("get_int_max_str_digits", "getrecursionlimit", "getswitchinterval"),
    "torch": (
        *("are_deterministic_algorithms_enabled", "get_default_dtype"),
        *("get_float32_matmul_precision", "get_num_threads", "is_grad_enabled"),
    ),
    "tracemalloc": ("is_tracing",),
}
TO_VARIABLES = {
    *("__globals__", "__builtins__", "f_globals", "f_locals", "f_builtins", "f_back", "tb_frame"),
    *("gi_frame", "cr_frame", "ag_frame"),
}
#: By which code may reach any variable of a module that it has.
BY_ANY_NAME = {"getattr", "vars", "__dict__", "__getattribute__", "attrgetter", "getmembers"}


class Names(NamedTuple):
    """What code names, with the code of functions, classes and comprehensions inside it.

    variables   of the module: ("CONFIG", "scale") for `CONFIG.scale`
    attributes  of any object, and all texts, which may be names of attributes
    imports     (module, path inside it), the path being empty for the module itself; a relative
                import has a dot for each level
    """

    variables: tuple[tuple[str, ...], ...]
    attributes: frozenset[str]
    imports: tuple[tuple[str, tuple[str, ...]], ...]


@functools.lru_cache(maxsize=4096)
def names(code: CodeType) -> Names:
    """The names in `code`."""
    variables: set[tuple[str, ...]] = set()
    attributes: set[str] = set()
    imports: set[tuple[str, tuple[str, ...]]] = set()
    path: tuple[str, ...] = ()  # of the variable that the last instructions have loaded
    module = ""  # that the last instructions have imported
    constants: list[Any] = [0, None]
    for instruction in dis.get_instructions(code):
        kind, name = instruction.opname, instruction.argval
        if kind != "CALL_KW":  # the names of arguments are none of attributes
            texts = constants[-1] if isinstance(constants[-1], tuple) else constants[-1:]
            attributes.update([text for text in texts if isinstance(text, str)])
        if kind in _VARIABLE:
            variables.add(path)
            path = (name,)
        elif kind in _ATTRIBUTE:
            attributes.add(name)
            path = (*path, name) if path else ()
        elif kind == "IMPORT_NAME":
            level, wanted = constants[-2:]  # loaded by the last two instructions
            module = "." * level + name
            if not wanted or "*" in wanted:
                imports.add((module, ()))
        elif kind == "IMPORT_FROM":
            imports.add((module, (name,)))
        elif kind not in _BETWEEN:
            variables.add(path)
            path = ()
            loads = kind.startswith(("LOAD_CONST", "LOAD_SMALL_INT"))
            constants.append(name if loads else None)
    variables.add(path)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = names(constant)
            variables.update(inner.variables)
            attributes |= inner.attributes
            imports.update(inner.imports)
    # In one order, since Settings name an object after the first place where it is found.
    return Names(tuple(sorted(variables - {()})), frozenset(attributes), tuple(sorted(imports)))


def imported(module: str, namespace: Mapping[str, Any]) -> tuple[str, ModuleType | None]:
    """The full name of what code with these global variables imports under this name, and the
    module, if it is loaded."""
    try:
        package = namespace.get("__package__") or namespace.get("__name__", "").rpartition(".")[0]
        name = importlib.util.resolve_name(module, package)
    except ImportError:
        return module, None
    return name, sys.modules.get(name)


def leading_anywhere() -> dict[int, str]:
    """Names of the objects by which code may reach any variable, by identity."""
    return _identities(_ANYWHERE)


def asking() -> dict[int, str]:
    """Names of the functions that say what the process was set to, by identity."""
    return _identities(_ASKING)


def _identities(table: Mapping[str, tuple[str, ...]]) -> dict[int, str]:
    return {
        id(value): name if module == "builtins" else f"{module}.{name}"
        for module, names_inside in table.items()
        for name in names_inside
        if (value := getattr(sys.modules.get(module), name, None)) is not None
    }
