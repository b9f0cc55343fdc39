"""The fuzzer finds a planted defect, minimises it, and continues."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"


@pytest.fixture(scope="module")
def fuzz():
    """test/fuzz/__main__.py as a module."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("fuzz_main", FUZZ / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


@pytest.fixture(scope="module")
def worker(fuzz):
    with fuzz.Worker("planted:Planted", computing=1.0) as started:
        yield started


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (b"seed", ""),
        (b"V", ""),  # declared
        (b"A", "crash: SIGABRT in run"),
        (b"H", "hang: more than 1 s of computing"),
        (b"M", "memory: more than 64 MiB for 1 bytes"),
        (b"K", "an exception that is not declared: KeyError: 'name'"),
        (b"U", "an exception that is not declared: UnicodeDecodeError"),
        (b"E", "an exception that says nothing: ValueError"),
        (b"D", "differs"),
    ],
)
def test_what_is_found(worker, data, finding):
    outcome = worker.run(data)
    assert outcome.finding.startswith(finding)
    assert bool(outcome.finding) == bool(finding)
    assert outcome.note == f"{len(data)} bytes"
    assert not worker.run(b"seed").finding  # a new process runs it after the crash of the old one


def test_a_finding_is_cut_down_and_can_be_run_again(fuzz, worker, tmp_path, capsys):
    fuzzer = fuzz.Fuzzer("planted:Planted", worker, seed=1, out=tmp_path)
    assert fuzzer.attempt(b"a lot before K and behind it" * 20, None)
    assert fuzzer.attempt(b"another K", None)
    ((times, outcome, path),) = fuzzer.found.values()
    assert times == 2
    assert path.read_bytes() == b"K"
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert command[-3:-1] == ["planted:Planted", "--input"]
    again = subprocess.run(
        [sys.executable, FUZZ, *command[-3:]], capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert again.stdout.startswith(outcome.finding[:40])


def test_equal_seeds_begin_with_equal_inputs(fuzz, worker, tmp_path):
    def inputs(seed):
        fuzzer = fuzz.Fuzzer("planted:Planted", worker, seed, tmp_path)
        fuzzer.pool = [b"0123456789" * 8]
        return [fuzzer.new_input() for _ in range(20)]

    assert inputs(1) == inputs(1) != inputs(2)


@pytest.mark.parametrize("name", ["zip", "safetensors", "json", "pickle", "gzip", "bytes"])
def test_changes_of_formats_end_in_bytes(fuzz, name):
    """Mutations give bytes for any input, so that the fuzzer itself does not fail."""
    random, change = fuzz.Random(name), fuzz.FORMATS[name]
    pool = [fuzz.read_input(path) for path in sorted(fuzz.CORPUS.glob("*/*"))][:12]
    pool = [data for data in pool if len(data) < 20000] + [b"", b"{}", b"[[1]]", b"PK\x03\x04"]
    for _ in range(400):
        data = change(random, random.choice(pool), pool)
        assert isinstance(data, bytes)
        if random.random() < 0.3:
            pool[random.randrange(len(pool))] = data[:20000]
