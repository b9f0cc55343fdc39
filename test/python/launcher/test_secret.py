"""Where the secret of a job comes from."""

import os

import pytest
from singa.launcher import secret
from singa.launcher.environment import completed, environment

SLURM = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "a,b",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
BY_HAND = {"SINGA_RANK": "0", "SINGA_WORLD_SIZE": "2", "SINGA_MEETING": "a:1"}
TIMEOUT = {"SINGA_TIMEOUT": "1"}


def _find(variables):
    return secret.find(completed(environment(variables), variables), variables)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_what_the_user_gives_comes_first(home):
    file = home / "secret"
    file.write_text(" of the file\n")
    file.chmod(0o600)
    by_file = SLURM | {"SINGA_SECRET_FILE": "~/secret"}
    assert _find(by_file) == "of the file"
    assert _find(by_file | {"SINGA_SECRET": "of the variable"}) == "of the variable"
    assert _find(BY_HAND) == ""
    assert _find(SLURM | {"SINGA_INSECURE": "1"}) == ""
    assert os.listdir(home) == ["secret"]


def test_a_file_that_others_can_read(home):
    file = home / "secret"
    file.write_text("x" * 32)
    for mode in (0o640, 0o604, 0o602):
        file.chmod(mode)
        with pytest.raises(
            ValueError, match=rf"secret must be a file .* mode 600, got mode {mode:o}"
        ):
            _find(BY_HAND | {"SINGA_SECRET_FILE": str(file)})
    with pytest.raises(FileNotFoundError):
        _find(BY_HAND | {"SINGA_SECRET_FILE": str(home / "none")})


def test_srun_hands_it_on_in_the_home_folder(home):
    stale = home / ".singa-7-3-0-secret"
    stale.write_text("of a start that was killed")
    made = _find(SLURM)
    assert len(made) == 64
    assert stale.stat().st_mode & 0o777 == 0o600
    other = SLURM | {"SLURM_PROCID": "1", "SLURM_NODEID": "1"}
    assert _find(other) == made
    # `singa launch` within srun gives the ranks variables of its own.
    place = completed(environment(other), other)
    assert _find(other | place.variables()) == made
    secret.forget()
    assert not stale.exists()
    assert _find(SLURM) != made


def test_programs_that_a_rank_starts_do_not_get_it(home, monkeypatch):
    monkeypatch.setenv("SINGA_SECRET", "x" * 16)
    monkeypatch.setattr(os.path, "expanduser", str)  # a container may have no home folder
    secret.forget()
    assert "SINGA_SECRET" not in os.environ


def test_a_home_folder_that_machines_do_not_share(home):
    with pytest.raises(RuntimeError, match=r"rank 1 does not see .*no home folder. Set SINGA_"):
        _find(SLURM | TIMEOUT | {"SLURM_PROCID": "1", "SLURM_NODEID": "1"})


# A stand-in for PyTorch, whose store is a folder. test_network.py has the real one.
STORE = """
import pathlib
class TCPStore:
    def __init__(self, host, port, is_master, timeout):
        self.folder = pathlib.Path(host)
        if not self.folder.exists() or is_master:
            raise RuntimeError("a long\\nreason")
    def compare_set(self, key, expected, desired):
        file = self.folder / key.replace("/", "_")
        if not file.exists() and not expected:
            file.write_text(desired)
        return file.read_bytes()
"""


@pytest.fixture
def torchrun(tmp_path):
    """Variables of a rank of torchrun."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/distributed.py").write_text(STORE)
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    store = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "x"}
    address = {"MASTER_ADDR": str(tmp_path), "MASTER_PORT": "80"}
    return {**os.environ, **place, **store, **address, "PYTHONPATH": str(tmp_path)}


def test_torchruns_store(torchrun):
    made = _find(torchrun)
    assert len(made) == 64
    other = torchrun | {"RANK": "1"}
    place = completed(environment(other), other)
    assert _find(other) == _find(other | place.variables()) == made
    assert _find(torchrun | {"TORCHELASTIC_RESTART_COUNT": "1"}) != made
    assert _find(torchrun | {"TORCHELASTIC_USE_AGENT_STORE": "False"}) == ""


def test_a_store_that_is_not_there(torchrun):
    message = r"torchrun's store at /none:80 does not hand on .* ranks: reason. Set SINGA_SECRET"
    with pytest.raises(RuntimeError, match=message):
        _find(torchrun | {"MASTER_ADDR": "/none"})
