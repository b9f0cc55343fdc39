#!/usr/bin/env python3
"""Makes libraries to link with, so that the result runs on an older Linux (SingaManylinux.cmake).

Each stands in for a library of the system. It has the system's symbols without code, each in the
newest version that the older Linux has: one that changed since is bound to what it was, and one
that came later is not found. What came later in libstdc++ is taken from its static library.

    older_libraries.py COMPILER READELF FOLDER
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: The newest versions that manylinux_2_28 allows, as auditwheel's policy says.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}

#: Libraries that later became parts of libc, and the names in them.
FORMER = {
    "libpthread.so.0": r"_*(pthread|sem)_",
    "libdl.so.2": r"dl",
    "librt.so.1": r"(aio|lio|mq|shm|timer)_",
}

SYMBOL = re.compile(
    r"\d+: \w+ +(?P<size>\w+) (?P<kind>\w+) +(?:GLOBAL|WEAK|UNIQUE) .* \d+ "
    r"(?P<name>[^\s@]+)@@?(?P<node>(?P<family>[A-Z]+)_(?P<version>[\d.]+))$"
)


class Symbol(NamedTuple):
    version: tuple[int, ...]
    node: str  # the version as the linker names it, such as GLIBC_2.28
    kind: str
    size: int


def older_symbols(library: Path, readelf: str) -> dict[str, dict[str, Symbol]]:
    """The symbols of a library in older versions, by the name of the library that had them."""
    command = [readelf, "--dyn-syms", "--wide", str(library)]
    versions: dict[str, list[Symbol]] = {}
    older: dict[str, list[Symbol]] = {}
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    ):
        if match := SYMBOL.search(line):
            version = tuple(int(part) for part in match["version"].split("."))
            symbol = Symbol(version, match["node"], match["kind"], int(match["size"], 0))
            versions.setdefault(match["name"], []).append(symbol)
            if version <= NEWEST.get(match["family"], ()):
                older.setdefault(match["name"], []).append(symbol)
    found: dict[str, dict[str, Symbol]] = {}
    for name, symbols in older.items():
        home, newest = library.name, max(symbols)
        if home == "libc.so.6" and max(versions[name]) > newest:
            home = next((to for to, names in FORMER.items() if re.match(names, name)), home)
        found.setdefault(home, {})[name] = newest
    return found


def make_library(compiler: str, library: Path, symbols: dict[str, Symbol]) -> None:
    sections = {
        "TLS": ('.section .tbss,"awT",%nobits', "tls_object"),
        "OBJECT": (".bss", "object"),
    }
    code, nodes = [], dict[str, list[str]]()
    for name, symbol in symbols.items():
        section, kind = sections.get(symbol.kind, (".text", "function"))
        size = max(symbol.size, 1) if symbol.kind in sections else 1
        code += [section, f'.globl "{name}"', f'.type "{name}", %{kind}', f'.size "{name}", {size}']
        code += [f'"{name}":', f".zero {size}"]
        nodes.setdefault(symbol.node, []).append(f'"{name}";')
    source, versions = library.with_suffix(".s"), library.with_suffix(".map")
    source.write_text("\n".join([*code, '.section .note.GNU-stack,"",%progbits', ""]))
    versions.write_text("".join(f"{n} {{ {' '.join(names)} }};\n" for n, names in nodes.items()))
    flags = [f"-Wl,-soname,{library.name}", f"-Wl,--version-script,{versions}"]
    subprocess.run(
        [compiler, "-shared", "-nostdlib", *flags, str(source), "-o", str(library)], check=True
    )


def main(compiler: str, readelf: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def find(name: str) -> Path:
        command = [compiler, f"-print-file-name={name}"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if not (path := Path(printed.strip())).is_absolute():
            sys.exit(f"error: {compiler} has no {name}")
        return path

    for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6"):
        for home, symbols in older_symbols(find(name), readelf).items():
            make_library(compiler, folder / home, symbols)
    [loader] = find("libc.so.6").parent.glob("ld-linux-*.so.*")
    rest = " ".join(str(path) for path in [*(folder / name for name in FORMER), loader])
    for name, members in [
        ("libc.so", f"{folder / 'libc.so.6'} {find('libc_nonshared.a')} AS_NEEDED ( {rest} )"),
        ("libm.so", str(folder / "libm.so.6")),
        ("libstdc++.so", f"{folder / 'libstdc++.so.6'} {find('libstdc++.a')}"),
    ]:
        (folder / name).write_text(f"INPUT ( {members} )\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]).absolute())
