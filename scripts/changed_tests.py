#!/usr/bin/env python3
"""Prints the tests of what changed in the working tree, or else in the last commit, a line each.

    scripts/changed_tests.py python     files and folders below test/python, for pytest
    scripts/changed_tests.py cpp        programs of test/cpp, as ctest names them

The tests' folders mirror the sources' (CONTRIBUTING.md). Where nothing changed that has tests, it
prints the tests of tensors and of the tape for Python, and nothing for C++.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Where a source has no folder of its own in the tests.
ELSEWHERE = {
    "include/singa": ["ops"],
    "src/api": ["tape", "ops"],
    "src/backend/reference": ["ops"],
    "src/backend": ["ops", "layer"],
    "src/core/graph": ["graph"],
    "src/core": ["tape"],
    "src/model/passes": ["graph"],
    "src/model": ["ops"],
    "src/distributed": ["distributed"],
    "python/singa/raw": ["ops"],
    "examples": ["examples"],
    "test/ops": ["ops"],
}
SMOKE = ["tape/test_tensor.py", "tape/test_autograd.py"]


def changed() -> list[str]:
    """Paths of changed and new files, relative to the root."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(ROOT), *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.stdout.splitlines() if found.returncode == 0 else []

    files = git("diff", "--name-only", "HEAD") + git("ls-files", "-o", "--exclude-standard")
    return files or git("diff", "--name-only", "HEAD~1", "HEAD")


def python_tests(path: str) -> list[str]:
    """The Python tests of a file."""
    parts = Path(path).parts
    if path.startswith("test/python/support/"):
        return []
    if path.startswith("test/python/") and Path(path).name.startswith("test_"):
        return [str(Path(*parts[2:]))]
    if path.startswith("test/python/"):
        return [str(Path(*parts[2:]).parent)]
    if path.startswith("python/singa/"):
        place = Path(*parts[2:])
        names = [str(place.parent / f"test_{place.name}"), str(place.parent), f"test_{place.name}"]
        # The file's own test before its folder's.
        found = [name for name in names if name != "." and (ROOT / "test/python" / name).exists()]
        if found:
            return found
    return next((tests for start, tests in ELSEWHERE.items() if path.startswith(f"{start}/")), [])


def cpp_programs(path: str) -> list[str]:
    """The C++ test program of a file, if there is one."""
    start = next((s for s in ("test/cpp/", "src/", "include/singa/") if path.startswith(s)), None)
    if start is None or "/cuda/" in path:  # there is no emulated GPU
        return []
    folders = Path(path.removeprefix(start)).parent.parts
    # A program is a folder of `model` or `backend`, or another folder at the top.
    program = folders[: 2 if folders[:1] in (("model",), ("backend",)) else 1]
    if not program or not any((ROOT / "test/cpp").joinpath(*program).rglob("*_test.cc")):
        return []
    return ["_".join(program)] if program not in (("model",), ("backend",)) else []


def main(kind: str) -> None:
    """Prints the tests of that kind."""
    tests = python_tests if kind == "python" else cpp_programs
    found = dict.fromkeys(test for path in changed() for test in tests(path))
    if kind == "python":
        print("\n".join(f"test/python/{name}" for name in found or SMOKE))
    elif found:
        print("\n".join(found))


if __name__ == "__main__":
    if sys.argv[1:] not in (["python"], ["cpp"]):
        sys.exit(__doc__)
    main(sys.argv[1])
