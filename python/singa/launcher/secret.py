"""The secret by which the ranks of a job on several machines know each other.

`find` looks for it in the order of the table in docs/distributed.md. A secret is in no command
line, and leaves a machine only as the store, the folder or the environment that hands it on does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .environment import Environment, started_by

#: Proposes a secret to torchrun's store, and prints the one that was there first. Only this child
#: process loads PyTorch.
_STORE = """
import datetime, sys
from torch.distributed import TCPStore
host, port, key, seconds = sys.argv[1:]
wait = datetime.timedelta(seconds=float(seconds))
store = TCPStore(host, int(port), is_master=False, timeout=wait)
sys.stdout.write(store.compare_set(key, "", sys.stdin.read()).decode())
"""
_LOOK = 0.1  # seconds between two looks for a file
_SHARING = 30.0  # most seconds that a shared folder takes to show a file
_written: list[Path] = []  # files with the secret, which rank 0 removes


def find(place: Environment, variables: Mapping[str, str] | None = None) -> str:
    """The secret of the job; "" if there is none.

    Raises ValueError for a file that others can read, and RuntimeError if what the launcher has
    (torchrun's store, a home folder that the machines share) does not hand a secret on.
    """
    given = os.environ if variables is None else variables
    if given.get("SINGA_SECRET"):
        return given["SINGA_SECRET"]
    if given.get("SINGA_SECRET_FILE"):
        return read(Path(given["SINGA_SECRET_FILE"]).expanduser())
    if given.get("SINGA_INSECURE") == "1" or place.world_size == 1:
        return ""
    if started_by("torchrun", place, given) and given.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _from_store(place, given)
    if started_by("SLURM", place, given):
        return _from_home(place)
    return ""


def read(path: Path) -> str:
    """The text of a file that only its owner, who is the user of this process, can read. Raises
    ValueError for another one, and OSError if it cannot be read."""
    with path.open() as file:
        state = os.fstat(file.fileno())
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            raise ValueError(
                f"[Communicator] {path} must be a file of this user, with mode 600, got mode "
                f"{state.st_mode & 0o777:o} of user {state.st_uid}"
            )
        return file.read(4096).strip()


def forget() -> None:
    """Removes what `find` has left for the others, and the secret from the environment, which
    programs that this process starts would inherit. To be called when the ranks have met."""
    os.environ.pop("SINGA_SECRET", None)
    while _written:
        _written.pop().unlink(missing_ok=True)


def _from_store(place: Environment, given: Mapping[str, str]) -> str:
    key = f"singa/secret/{place.job}"
    command = [sys.executable, "-c", _STORE, given["MASTER_ADDR"], given["MASTER_PORT"], key]
    found = subprocess.run(
        [*command, str(place.timeout)],
        input=secrets.token_hex(),
        env={**given, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode or not found.stdout:
        reason = found.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(
            f"[Communicator] torchrun's store at {command[3]}:{command[4]} does not hand on the "
            f"secret of the ranks: {reason}. Set SINGA_SECRET for all ranks instead"
        )
    return found.stdout


def _from_home(place: Environment) -> str:
    path = _file_of(place)
    if place.rank == 0:
        made = secrets.token_hex()
        path.unlink(missing_ok=True)  # of a start that was killed
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        _written.append(path)
        with os.fdopen(descriptor, "w") as file:
            file.write(made)
        return made
    end = time.monotonic() + min(_SHARING, 0.5 * place.timeout)
    while True:
        # An empty file: rank 0 is about to write it.
        with contextlib.suppress(FileNotFoundError):
            if text := read(path):
                return text
        if time.monotonic() > end:
            raise RuntimeError(
                f"[Communicator] rank {place.rank} does not see {path}, in which rank 0 hands on "
                "the secret of the ranks: the machines share no home folder. Set SINGA_SECRET for "
                "the whole job instead, such as by `export SINGA_SECRET=$(openssl rand -hex 32)` "
                "in the batch script"
            )
        os.scandir(path.parent).close()  # has NFS look again
        time.sleep(_LOOK)


def _file_of(place: Environment) -> Path:
    return Path.home() / f".{place.job}-secret".replace("/", "_")
