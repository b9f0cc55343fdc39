#!/usr/bin/env python3
"""Counts the instructions of operations on a few elements, and compares with benchmark/counts.json.

    python benchmark/counts.py --build build/ci             # exit status 1 if a count has changed
    python benchmark/counts.py --build build/ci --update    # rewrites the counts of this toolchain

Counts can be repeated, unlike times: copies of a build in different folders differ by less than
0.2 %, and runs of one copy not at all. So a difference of more than 1 %, up or down, comes from a
change of the code. A commit that changes a count on purpose updates the file, and says why.

The cases "C++" are those of dispatch.cc, and the cases "Python" the small ones of operators.py.
Valgrind's callgrind counts the calls alone: a small library, which is compiled first and preloaded,
tells it where a count starts and ends. The count of a case is the smallest of several ones. It is
taken in several processes, too, because Python's cache of attributes depends on addresses and on
how many types were made before: two names that share a place in it can add 4 %. Both are others in
each process. A count that is larger than expected is taken in further processes, up to 20, before
it is called changed.

Counts do not depend on the processor, if it has AVX2: Valgrind presents each of these as the same
Haswell, with its caches. They depend on the toolchain: compiler, C library, oneDNN, Python and
Valgrind, but not on NumPy and OpenBLAS, which the cases do not run. The file has an entry for each
toolchain. Where there is none, the program prints the counts and how to add them, and compares
nothing.

The exit status is 1 if a count has changed, 2 if Valgrind, its headers, a C compiler or the build
is missing or fails, and otherwise 0.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import harness

FILE = Path(__file__).with_name("counts.json")
TOLERANCE = 0.01
#: Calls of a Python case that are counted together, and how often that is repeated.
CALLS, REPEATS = 50, 2
#: Processes that count the Python cases, at least and at most.
PROCESSES, MOST_PROCESSES = 2, 20
#: Client requests are instructions that do nothing outside of Valgrind.
REQUESTS = """
#include <valgrind/callgrind.h>
void count_start(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}
void count_stop(const char* label) { CALLGRIND_DUMP_STATS_AT(label); }
"""


class MissingError(RuntimeError):
    """A program or a file is missing, or fails."""


def python_cases(args: argparse.Namespace) -> None:
    """Runs the small cases of operators.py, in process `args.number` under Valgrind."""
    # Gives the objects that are made later other addresses in each process, and the types other
    # numbers: a name's place in the cache is made of both.
    kept = [bytes(size % 480) for size in range(777 * args.number)]
    for _ in range(331 * args.number):
        getattr(type("", (), {}), "name", None)
    import operators
    import singa

    if Path(singa.__file__).parents[1] != Path(os.environ["PYTHONPATH"]):
        raise SystemExit(f"Python imports another singa: {singa.__file__}")
    requests = ctypes.CDLL(None)  # what is loaded, such as the preloaded library
    singa.set_num_threads(1)
    framework = operators.small_of_singa()
    for case, function in framework.cases.items():
        for way, (context, call) in operators.small_passes(framework, function).items():
            # Collecting garbage takes time in proportion to all objects that are not frozen.
            gc.collect()
            gc.freeze()
            with context:
                for _ in range(CALLS):
                    call()
                for _ in range(REPEATS):
                    requests.count_start()
                    for _ in range(CALLS):
                        call()
                    requests.count_stop(f"{CALLS} Python: {case}, {way}".encode())
    del kept


def output(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a program prints. Raises MissingError if it fails."""
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if child.returncode != 0:
        raise MissingError(f"{' '.join(command)} failed:\n{child.stdout}{child.stderr[-4000:]}")
    return child.stdout


def compiled_library(folder: Path, code: str) -> Path:
    """Compiles C code as a library to preload."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise MissingError("there is no C compiler")
    source, library = folder / "preloaded.c", folder / "preloaded.so"
    source.write_text(code)
    output([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(library)])
    return library


def counted(command: list[str], library: Path, build: Path) -> dict[str, float]:
    """Instructions of a call of each case of a program."""
    environment = {
        "LC_ALL": "C",
        "LD_PRELOAD": str(library),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": os.defpath,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(build / "python"),
    }
    if path := os.environ.get("LD_LIBRARY_PATH"):  # the interpreter may need it
        environment["LD_LIBRARY_PATH"] = path
    valgrind = [shutil.which("valgrind") or "valgrind", "--tool=callgrind", "--instr-atstart=no"]
    counts: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output([*valgrind, f"--callgrind-out-file={folder / 'dump'}", *command], environment)
        files = folder.glob("dump.*")
        for file in sorted(files, key=lambda file: int(file.suffix[1:])):
            dump = file.read_text()
            # `label` of count_stop(): number of calls, name of the case
            label = re.search(r"^desc: Trigger: Client Request: (\d+) (.*)$", dump, re.MULTILINE)
            total = re.search(r"^summary: (\d+)$", dump, re.MULTILINE)
            if label and total:
                count = round(int(total[1]) / int(label[1]), 1)
                counts[label[2]] = min(count, counts.get(label[2], count))
    return counts


def all_counts(build: Path, expected: dict[str, float]) -> dict[str, float]:
    """The counts of all cases.

    Without an expected count of a case, it is counted in as many processes as there may be.
    """
    program = build / "bin" / "dispatch_benchmark"
    if not program.exists():
        raise MissingError(f"there is no {program}; build it with the tests")
    with tempfile.TemporaryDirectory() as name:
        library = compiled_library(Path(name), REQUESTS)
        counts = counted([str(program)], library, build)
        if not counts:
            raise MissingError(f"{program} counts nothing")
        for number in range(MOST_PROCESSES):
            if number >= PROCESSES and not any(
                count > expected.get(case, 0) * (1 + TOLERANCE)
                for case, count in counts.items()
                if case.startswith("Python")
            ):
                break
            command = harness.command(str(Path(__file__).resolve()), number=number)
            for case, count in counted(command, library, build).items():
                counts[case] = min(count, counts.get(case, count))
    return counts


def toolchain(build: Path) -> dict[str, str]:
    """What counts depend on, besides singa's own code."""

    def setting(name: str, file: Path) -> str:
        found = re.search(rf'{name}(?::\w+=| ")(.*?)"?\)?$', file.read_text(), re.MULTILINE)
        return found[1] if found else ""

    cache = build / "CMakeCache.txt"
    compiler = next(build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"), None)
    if not cache.exists() or not compiler:
        raise MissingError(f"{build} is not a build folder of CMake")
    onednn = Path(setting("dnnl_DIR", cache), "dnnl-config-version.cmake")
    flags = f"CMAKE_CXX_FLAGS_{setting('CMAKE_BUILD_TYPE', cache).upper()}"
    trained = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return {
        "compiler": " ".join(
            setting(f"CMAKE_CXX_COMPILER_{x}", compiler) for x in ("ID", "VERSION")
        ),
        "flags": f"{setting('CMAKE_CXX_FLAGS', cache)} {setting(flags, cache)}".strip(),
        "C library": " ".join(platform.libc_ver()),
        "oneDNN": setting("PACKAGE_VERSION", onednn) if onednn.exists() else "",
        "Python": f"{platform.python_version()}, {platform.python_compiler()}"
        + (", with profiles" if trained else ""),
        "Valgrind": output(["valgrind", "--version"]).strip().removeprefix("valgrind-"),
    }


def row(case: str, expected: float | None, count: float | None) -> dict[str, str]:
    """A row of the table. Its last cell is empty if the count is as expected."""
    ratio = count / expected if count and expected else 0
    change = "" if abs(ratio - 1) <= TOLERANCE else "changed"
    return {
        "case": case,
        "expected": f"{expected:.1f}" if expected else "-",
        "counted": f"{count:.1f}" if count else "-",
        "ratio": f"{ratio:.4f}" if ratio else "-",
        "": change if ratio else "new" if count else "missing",
    }


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--build", type=Path, default=Path("build/ci"), help="build folder [%(default)s]"
    )
    parser.add_argument("--update", action="store_true", help="write the counts to the file")
    args = parser.parse_args()
    build = args.build.resolve()
    try:
        if not shutil.which("valgrind"):
            raise MissingError("there is no valgrind (Debian's package has this name)")
        if "avx2" not in harness.cpu_name():
            raise MissingError("the processor has no AVX2, so counts are others")
        key = toolchain(build)
        entries = json.loads(FILE.read_text()) if FILE.exists() else []
        expected = next((entry["counts"] for entry in entries if entry["toolchain"] == key), {})
        counts = all_counts(build, {} if args.update else expected)
    except MissingError as error:
        print(f"counts.py: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{name} {value}" for name, value in key.items()), end="\n\n")
    cases = dict.fromkeys([*expected, *counts])
    rows = [row(case, expected.get(case), counts.get(case)) for case in cases]
    print(harness.table(rows))
    if args.update:
        entries = [entry for entry in entries if entry["toolchain"] != key]
        entries.append({"toolchain": key, "counts": counts})
        FILE.write_text(json.dumps(entries, indent=1) + "\n")
        print(f"\nwrote {FILE.name}")
        return 0
    if not expected:
        print(f"\nNOTHING WAS COMPARED: {FILE.name} has no entry for this toolchain.")
        print("If this build is good, run counts.py again with --update, and commit the file.")
        return 0
    changed = [row["case"] for row in rows if row[""]]
    if not changed:
        print(f"\n{len(rows)} counts are as expected")
        return 0
    print(f"\n{len(changed)} of {len(rows)} counts differ by more than {TOLERANCE:.0%}.")
    print(f"If this is intended, update {FILE.name} (--update) in the same commit, and say why.")
    return 1


if __name__ == "__main__":
    harness.main(main, python_cases)
