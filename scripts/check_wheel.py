#!/usr/bin/env python3
"""Checks a wheel of singa: its files, its size, and the libraries that it needs from the system.

A process must have only one OpenMP runtime, so the libraries may depend only on `libgomp.so.1`, the
wheel may contain it under this name alone, and the libraries may not use symbols newer than version
5.0, because PyTorch ships an older one. Needs binutils.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Limits of the installed size without NumPy: for the CPU, and additionally for the CUDA library.
LIMIT_MB = 100
CUDA = "singa/lib/libsinga_cuda.so"
LIMIT_CUDA_MB = 30

# Libraries of others, with their licences. Our oneDNN package is for x86-64 only.
VENDORED = {
    "x86_64": ("libdnnl.so.3", "libgomp.so.1", "libscipy_openblas.so"),
    "aarch64": ("libgomp.so.1", "libscipy_openblas.so"),
}

REQUIRED = [
    "singa/__init__.py",
    "singa/_singa_wrap.abi3.so",
    "singa/_version.py",
    "singa/commands/templates/report.html",
    "singa/examples/cifar10.py",
    "singa/include/singa/singa.h",
    "singa/include/singa/version.h",
    "singa/lib/cmake/singa/singa-config.cmake",
    "singa/lib/pkgconfig/singa.pc",
    "singa/py.typed",
    "singa/singa_wrap.py",
]

# Libraries of the system: the C and C++ runtimes.
SYSTEM = {
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
}

# The newest symbol versions that may be needed. Those of the system are what manylinux_2_28 allows,
# and are checked with --manylinux.
NEWEST = {"GOMP": (5, 0), "OMP": (5, 0)}
NEWEST_OF_SYSTEM = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_library(path: Path, carried: set[str], limits: dict[str, tuple[int, ...]]) -> list[str]:
    """The problems of a shared library, one sentence each."""
    problems = []
    dynamic = output_of("readelf", "-dW", str(path))
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if needed not in carried and needed not in SYSTEM:
            problems.append(f"{path.name} needs {needed}, which neither the wheel nor a system has")
    for run_path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
        if not all(part.startswith("$ORIGIN") for part in run_path.split(":")):
            problems.append(f"{path.name} looks for libraries in {run_path}")
    for name in re.findall(r"\(SONAME\).*\[(.*)\]", dynamic):
        if name != path.name:
            problems.append(f"{path.name} calls itself {name}: a process may load both")
    symbols = output_of("readelf", "--dyn-syms", "-W", str(path))
    for family, version in sorted(set(re.findall(r" UND \S+@([A-Z]+)_([\d.]+)", symbols))):
        newest = limits.get(family)
        if newest and tuple(int(n) for n in version.split(".")) > newest:
            problems.append(f"{path.name} needs {family}_{version}; {newest} is the newest allowed")
    return problems


def symbols_of(path: Path) -> tuple[set[str], set[str]]:
    """What a library has, and what it needs of others without naming a version."""
    symbols = output_of("readelf", "--dyn-syms", "-W", str(path))
    pattern = r" (?:GLOBAL|WEAK|UNIQUE) .* \d+ ([^\s@]+)"
    return set(re.findall(pattern, symbols)), set(
        re.findall(r" GLOBAL .* UND ([^\s@]+)$", symbols, re.MULTILINE)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--manylinux", action="store_true", help="check that it is manylinux_2_28")
    arguments = parser.parse_args()
    wheel: Path = arguments.wheel
    limits = NEWEST | (NEWEST_OF_SYSTEM if arguments.manylinux else {})
    problems = []
    if arguments.manylinux and not re.search(r"manylinux_2_(27|28)_", wheel.name):
        problems.append(f"{wheel.name} is not manylinux_2_28, nor older")
    if "-cp311-abi3-" not in wheel.name:
        problems.append(f"{wheel.name} is not tagged cp311-abi3")
    processor = next((name for name in VENDORED if wheel.stem.endswith(name)), None)
    if processor is None:
        parser.error(f"{wheel.name} is for none of {', '.join(VENDORED)}")
    version = ".".join(wheel.name.split("-")[1].split(".")[:2])
    required = [*REQUIRED, f"singa/lib/libsinga.so.{version}"]
    for library in VENDORED[processor]:
        required += [f"singa/lib/{library}", f"singa/share/singa/licenses/{library}.txt"]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        files = [item for item in archive.infolist() if not item.is_dir()]
        names = {item.filename for item in files}
        problems += [f"{name} is missing" for name in required if name not in names]
        if "singa/lib/libsinga.so" in names:
            problems.append("libsinga.so is a second copy: a wheel has no symbolic links")
        libraries = [
            Path(folder, name) for name in sorted(names) if re.search(r"\.so[.\d]*$", name)
        ]
        carried = {path.name for path in libraries}
        symbols = {path.name: symbols_of(path) for path in libraries}
        there = set().union(*(has for has, _ in symbols.values()))
        for name, (_, needs) in symbols.items():
            for symbol in sorted(needs - there):
                if not re.match("_?Py", symbol):
                    problems.append(f"{name} needs {symbol}, in no version: no library had it")
        for path in libraries:
            problems += check_library(path, carried, limits)
            if re.match(r"lib(gomp|iomp5|omp)\b", path.name) and path.name != "libgomp.so.1":
                problems.append(f"{path.name} is a second OpenMP runtime")
        megabytes = sum(item.file_size for item in files) / 1e6
        for item in sorted(files, key=lambda item: -item.file_size)[:5]:
            print(f"  {item.file_size / 1e6:7.1f} MB  {item.filename}")
        print(f"  {megabytes:7.1f} MB  installed, {wheel.stat().st_size / 1e6:.1f} MB to download")
        cuda = sum(item.file_size for item in files if item.filename == CUDA) / 1e6
        for what, size, limit in [
            ("installed size", megabytes - cuda, LIMIT_MB),
            (f"size of {CUDA}", cuda, LIMIT_CUDA_MB),
        ]:
            if size > limit:
                problems.append(f"{what} is {size:.0f} MB; the limit is {limit} MB")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
