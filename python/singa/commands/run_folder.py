"""The output folder of `python -m singa train`, as pages show it."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..drawing.chart import Curve
from ..files.atomic import atomic_write
from ..files.json_text import json_text
from ..report.diagnostics import doctor
from ..training import checkpoint, read_log
from ..training.curves import PLACES, is_fraction, is_number, panels
from ..training.log import Record
from .picture_sets import DEFAULT_SPLIT

#: The title of the curves whose values are fractions of 1.
ACCURACY = "Accuracy"
#: The file with what `doctor` said of the machine that trained last.
_ENVIRONMENT = "environment.json"
_TITLES = {"loss": "Loss", "accuracy": ACCURACY, "lr": "Learning rate"}


@dataclass
class RunFolder:
    """What a run has left.

    path         the folder
    records      of its log, one for each epoch
    settings     of the program that trained, by the names of its options; empty without a
                 checkpoint
    environment  rows of `singa.doctor()` where it trained last; empty where that is not known
    notes        sentences on what is missing
    """

    path: Path
    records: list[Record]
    settings: dict[str, Any] = field(default_factory=dict)
    environment: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.resolve().name

    def command(self) -> str:
        """The commands that repeat the run; empty if its settings are not known."""
        if not self.settings:
            return ""
        words = ["python", "-m", "singa", "train"]
        for name, value in self.settings.items():
            if name in _OF_PICTURES and self.settings.get("size") is None:
                continue
            if value is None or value is False or name == "extended":
                continue
            if (name, value) == ("split", DEFAULT_SPLIT):  # older runs keep it where it is not used
                continue
            words.append("--" + name.replace("_", "-"))
            words += [] if value is True else [str(value)]
        again = ["python", "-m", "singa", "train", "--out", str(self.path), "--resume", "--epochs"]
        longer = [[*again, str(epochs)] for epochs in self.settings.get("extended", [])]
        return " && ".join(shlex.join(command) for command in [words, *longer])

    def last(self) -> dict[str, float]:
        """The numbers of the last epoch."""
        last = self.records[-1].items()
        return {name: value for name, value in last if is_number(value) and math.isfinite(value)}


_OF_PICTURES = (
    *("size", "split", "augment", "columns", "class_weights", "weights", "multilabel"),
    "regression",
)


def read_run(path: Path) -> RunFolder:
    """Reads the log and the checkpoint in a folder.

    Raises FileNotFoundError if there is no folder, or no log in it, and ValueError if the log is
    damaged or no epoch has ended yet.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no folder: expected the output folder of a run")
    log = path / "log.jsonl"
    if not log.exists():
        raise FileNotFoundError(f"{path} holds no log.jsonl: is it the output folder of a run?")
    run = RunFolder(path, read_log(log))
    if not run.records:
        raise ValueError(f"{log} is empty: a run writes it after its first epoch")
    run.environment = _read_environment(path)
    try:
        settings = checkpoint.read_progress(path / "checkpoint.safetensors").get("settings")
        run.settings = dict(settings) if isinstance(settings, Mapping) else {}
        if not run.settings:
            run.notes.append("The checkpoint does not hold the settings of the run.")
    except FileNotFoundError:
        run.notes.append(
            "The folder holds no checkpoint.safetensors, so the settings of the run are not known."
        )
    except ValueError as error:
        run.notes.append(f"The settings of the run are not known: {error}")
    return run


def note_environment(folder: str | os.PathLike[str]) -> None:
    """Writes what `singa.doctor()` says of this machine into the folder of a run. Raises OSError if
    writing fails."""
    with atomic_write(Path(folder, _ENVIRONMENT), "w") as file:
        file.write(json_text(dict(doctor().rows()), indent=1))


def _read_environment(folder: Path) -> list[tuple[str, str]]:
    try:
        noted = json.loads((folder / _ENVIRONMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    rows = noted.items() if isinstance(noted, dict) else ()
    return [(str(name), str(value)) for name, value in rows]


def curves(records: Iterable[Mapping[str, Any]]) -> tuple[str, dict[str, dict[str, Curve]]]:
    """The numbers of a log as curves: what their horizontal axis is, and {title: {field: curve}}.

    Losses are together, and so are accuracies (`training.curves.panels`). Names of fields have
    spaces.
    """
    records = [{"record": number, **record} for number, record in enumerate(records, 1)]
    everywhere = (name for name in PLACES if all(name in record for record in records))
    x = next(everywhere, "record")
    found = panels(records, x)
    found.pop("record", None)
    titled: dict[str, dict[str, Curve]] = {
        _TITLES.get(name, name.replace("_", " ")): {
            field.replace("_", " "): curve for field, curve in fields.items()
        }
        for name, fields in found.items()
    }
    return x, {title: titled[title] for title in sorted(titled, key=_rank)}


def is_result(name: str) -> bool:
    """Whether a field of a log is a loss or a metric."""
    return "loss" in name or is_fraction(name) or name.startswith(("train_", "test_"))


def _rank(title: str) -> int:
    first = list(_TITLES.values())
    return first.index(title) if title in first else len(first)
