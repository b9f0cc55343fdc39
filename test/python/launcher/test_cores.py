"""The cores of ranks, and the quota of their cgroup."""

import functools
import math
import operator

import pytest
from singa.launcher import cores


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 64])
def test_split(count, ranks):
    given = [3 * core for core in range(count)]
    parts = cores.split(given, ranks)
    assert len(parts) == ranks
    if ranks <= count:
        assert functools.reduce(operator.iadd, parts, []) == given
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    else:
        assert all(len(part) == 1 for part in parts)
        shares = [sum(part == [core] for part in parts) for core in given]
        assert max(shares) - min(shares) <= 1


def test_threads():
    assert cores.threads([0, 1, 2], 4) == 3
    assert cores.threads([0, 1, 2], 4, 4.0) == 1
    assert cores.threads([0, 1, 2], 4, 7.0) == 2
    assert cores.threads([5], 4, 0.5) == 1


def test_quota(tmp_path):
    process = tmp_path / "cgroup"
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    assert cores.quota(root, process) == math.inf
    process.write_text("0::/a/b\n")
    assert cores.quota(root, process) == math.inf
    (root / "cpu.max").write_text("max 100000\n")
    (root / "a/cpu.max").write_text("250000 100000\n")
    (root / "a/b/cpu.max").write_text("900000 100000\n")
    assert cores.quota(root, process) == 2.5
    # In a container the path is the host's.
    process.write_text("0::/docker/1234\n")
    (root / "cpu.max").write_text("150000 100000\n")
    assert cores.quota(root, process) == 1.5


def test_quota_of_version_1(tmp_path):
    process = tmp_path / "cgroup"
    process.write_text("3:memory:/x\n2:cpu,cpuacct:/a\n")
    folder = tmp_path / "cpu/a"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.quota(tmp_path, process) == math.inf
    (folder / "cpu.cfs_quota_us").write_text("300000\n")
    assert cores.quota(tmp_path, process) == 3.0


def test_available_cores_are_those_of_the_process():
    assert len(cores.available()) == len(set(cores.available())) >= 1
