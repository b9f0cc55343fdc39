"""The memory that a process may use: that of the machine, or of its cgroups."""

import os
from pathlib import Path

import pytest
from singa.report.machine_memory import machine_memory

ALL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("lines", "files", "bytes"),
    [
        ("", {}, ALL),
        ("0::/job", {"memory.max": "max", "job/memory.max": "max"}, ALL),
        ("0::/job", {"memory.max": "max", "job/memory.max": "8192"}, 8192),
        ("0::/job/a", {"job/memory.max": "8192", "job/a/memory.max": "16384"}, 8192),
        ("0::/../../job", {"memory.max": "4096"}, 4096),
        ("3:cpu,memory:/job", {"memory/job/memory.limit_in_bytes": "8192"}, 8192),
        ("3:cpu:/job", {"memory/job/memory.limit_in_bytes": "8192"}, ALL),
        ("3:memory:/", {"memory/memory.limit_in_bytes": str(1 << 62)}, ALL),
    ],
)
def test_the_least_limit_counts(
    tmp_path: Path, lines: str, files: dict[str, str], bytes: int
) -> None:
    process = tmp_path / "cgroup"
    process.write_text(lines)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert machine_memory(tmp_path, process) == bytes


def test_a_process_without_cgroups(tmp_path: Path) -> None:
    assert machine_memory(tmp_path, tmp_path / "none") == ALL
