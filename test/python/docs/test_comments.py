"""Files that comments name exist."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CPP = {".cc", ".cu", ".def", ".h", ".i"}
MARKS = dict.fromkeys(CPP, "//") | dict.fromkeys([".cmake", ".py", ".sh", ".txt"], "#")
#: Files of the compiler and the system, and those that a build or the site writes.
_ELSEWHERE = {"_setup.py", "backends.cc", "omp.h", "prctl.h"}
_NAME = re.compile(r"(?<![\w/.<\"*{}$-])((?:[\w-]+/)*\w+\.(?:cc|cu|def|h|py|sh))\b", re.ASCII)


def _files() -> list[str]:
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        pytest.skip("not a clone")
    return [file for file in run.stdout.split() if (ROOT / file).exists()]


def _named(line: str, mark: str) -> list[str]:
    """The files that the comment in a line names."""
    return _NAME.findall(line.partition(f"{mark} ")[2])


def test_names_in_comments_are_found() -> None:
    assert _named("int a; // as in core/plan.h and select.cc, not <map.h> or *.py", "//") == [
        "core/plan.h",
        "select.cc",
    ]
    assert _named('x = "a.py"  # see "b.py" and scripts/docs.sh', "#") == ["scripts/docs.sh"]


def test_files_that_comments_name_exist() -> None:
    files = _files()
    known = {file[start:] for file in files for start in _starts(file)}
    gone = []
    for file in files:
        mark = MARKS.get(Path(file).suffix)
        if mark is None:
            continue
        for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
            gone += [
                f"{file}:{number} {name}"
                for name in _named(line, mark)
                if name not in known and name.rpartition("/")[2] not in _ELSEWHERE
            ]
    assert gone == []


def _starts(file: str) -> list[int]:
    """Where the name of the file, and of each folder before it, begins."""
    return [0, *(found.end() for found in re.finditer("/", file))]
