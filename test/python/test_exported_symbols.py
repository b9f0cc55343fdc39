"""libsinga.so exports what its public headers declare, and what headers in src declare for backends
in other libraries, and nothing else. Its SONAME has the version of the interface."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import singa

_ROOT = Path(__file__).parents[2]
_LIBRARY = Path(singa.__file__).parent / "lib" / "libsinga.so"

pytestmark = [
    pytest.mark.skipif(not _LIBRARY.exists(), reason="this is not a build folder"),
    pytest.mark.skipif(not shutil.which("nm"), reason="needs binutils"),
]


def _class_bodies(text: str) -> dict[str, str]:
    """What stands between the braces of each exported class of a header."""
    bodies = {}
    for match in re.finditer(r"\b(?:class|struct) SINGA_API (\w+)[^{;]*\{", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        bodies[match[1]] = text[match.end() : end]
    return bodies


@functools.cache
def _declared(folder: str) -> tuple[dict[str, str], set[str], dict[str, set[str]]]:
    """Of all headers of a folder: exported classes and what stands in them, exported functions, and
    exported members of other classes."""
    classes: dict[str, str] = {}
    functions: set[str] = set()
    members: dict[str, set[str]] = {}
    for path in (_ROOT / folder).rglob("*.h"):
        text = re.sub(r"//.*", "", path.read_text())
        classes |= _class_bodies(text)
        function = r"^(?:\[\[.*\]\] )?SINGA_API [^;{]*?(operator<<|\w+)\("
        functions |= set(re.findall(function, text, re.MULTILINE))
        name = ""
        for line in text.splitlines():
            if found := re.match(r"(?:class|struct) (\w+)", line):
                name = found[1]
            if found := re.match(r"  SINGA_API .*?(\w+)\(", line):
                members.setdefault(name, set()).add(found[1])
    return classes, functions, members


def _exported() -> list[str]:
    lines = subprocess.run(
        ["nm", "-DC", "--defined-only", str(_LIBRARY)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [line.split(" ", 2)[2] for line in lines]


def _path_of(symbol: str) -> list[str]:
    """The name of a symbol without what it is given: ["singa", "Device", "Exec"]."""
    name = re.sub(r"^(typeinfo name|typeinfo|vtable) for ", "", symbol)
    name = re.sub(r"\[abi:\w+\]|(?<=\w)<[\w:]+>", "", name)  # of a template, too
    return re.split(r"\((?!anonymous)", name, maxsplit=1)[0].split("::")


def _is_declared(symbol: str, folder: str) -> bool:
    classes, functions, members = _declared(folder)
    space, *path = _path_of(symbol)
    if path[:1] == ["detail"]:  # of functions that templates of public headers call
        path = path[1:]
    if space != "singa" or len(path) not in (1, 2):
        return False
    if len(path) == 1:
        return path[0] in functions or path[0] in classes
    of, member = path[0], path[1].lstrip("~")
    in_class = re.search(rf"(?<!\w){re.escape(member)}(?!\w)", classes.get(of, "")) is not None
    return in_class or member in members.get(of, ()) or (of == member and of in classes)


def test_every_exported_symbol_is_declared_for_that() -> None:
    exported = _exported()
    public = [symbol for symbol in exported if _is_declared(symbol, "include")]
    others = [symbol for symbol in exported if symbol not in set(public)]
    assert len(public) > 300
    assert [symbol for symbol in others if not _is_declared(symbol, "src")] == []


@pytest.mark.parametrize(
    "symbol",
    [
        "singa::cpu::attention::StoreSum<float>(float const*, long, long, long, float*)",
        "void singa::formula::CellForward<double>(singa::RnnMode, long)",
        "singa::Graph::Impl::Finish()",
        "singa::Graph::Compute()",
        "singa::ConvSpec::Sample(singa::spot::Sampler&) const",
        "std::bad_optional_access::what() const",
        "typeinfo for singa::ConvSpec",
        "_edata",
    ],
)
def test_a_symbol_that_no_header_exports_would_be_found(symbol: str) -> None:
    assert not _is_declared(symbol, "include")
    assert not _is_declared(symbol, "src")


def test_every_exported_function_is_there() -> None:
    names = {_path_of(symbol)[-1] for symbol in _exported()}
    for folder in ("include", "src"):
        assert sorted(_declared(folder)[1] - names) == []


def test_the_name_of_the_library_has_its_version() -> None:
    """Of versions that differ in it, programs take the one that they were linked to."""
    version = ".".join(singa.__version__.split(".")[:2])
    dynamic = subprocess.run(
        ["readelf", "-d", str(_LIBRARY)], check=True, capture_output=True, text=True
    ).stdout
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == [f"libsinga.so.{version}"]
    assert _LIBRARY.resolve().name == f"libsinga.so.{version}"
