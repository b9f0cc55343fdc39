"""What one rank does in a step: computations, and exchanges with the other ranks."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_FORMAT = "singa step profile"


@dataclass(frozen=True)
class Compute:
    """A computation of so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Start:
    """A bucket of gradients is ready: an all-reduce begins beside what follows.

    bytes  of the gradients
    text   bytes by which ranks describe it to each other: names and shapes
    """

    bytes: int
    text: int = 0


@dataclass(frozen=True)
class Gather:
    """Waits for all all-reduces, and gets so many bytes of each other rank: running statistics."""

    bytes: int


@dataclass(frozen=True)
class Wait:
    """Waits for the sum of a bucket; buckets have numbers from 0 on, in the order of `Start`."""

    bucket: int


Event = Compute | Start | Gather | Wait
_KINDS = {kind.__name__.lower(): kind for kind in (Compute, Start, Gather, Wait)}


@dataclass(frozen=True)
class StepProfile:
    """A recorded step.

    title   of what was recorded
    events  what the rank does, one after the other
    memory  bytes of memory of the rank's process, at most
    """

    title: str
    events: tuple[Event, ...]
    memory: int = 0

    def __post_init__(self) -> None:
        started = waited = 0
        for event in self.events:
            if isinstance(event, Wait):
                if event.bucket != waited or waited >= started:
                    raise ValueError(f"bucket {event.bucket} is waited for out of order")
                waited += 1
            elif not all(0 <= number < math.inf for number in asdict(event).values()):
                raise ValueError(f"{event} has a number that is negative or infinite")
            started += isinstance(event, Start)
        if waited < started:
            raise ValueError(f"bucket {waited} is not waited for")
        if not self.compute:
            raise ValueError("nothing is computed")

    @property
    def compute(self) -> float:
        """Seconds of a step of one rank alone."""
        return sum(event.seconds for event in self.events if isinstance(event, Compute))

    @property
    def gradients(self) -> int:
        """Bytes of all gradients."""
        return sum(event.bytes for event in self.events if isinstance(event, Start))

    def without_compute(self) -> tuple[Event, ...]:
        """The exchanges alone."""
        return tuple(event for event in self.events if not isinstance(event, Compute))

    def write(self, path: Path) -> None:
        """Writes a JSON file. Raises OSError."""
        events = [{"event": type(event).__name__.lower(), **asdict(event)} for event in self.events]
        content = {"format": _FORMAT, "version": 1, "title": self.title, "memory": self.memory}
        path.write_text(json.dumps(content | {"events": events}, indent=1) + "\n")


def read(path: Path) -> StepProfile:
    """The profile in a file of `StepProfile.write`. Raises OSError, and ValueError for another
    file."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != _FORMAT or content["version"] != 1:
            raise ValueError(f"its format is {content['format']!r}, version {content['version']!r}")
        events = tuple(_event(dict(event)) for event in content["events"])
        return StepProfile(str(content["title"]), events, int(content["memory"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"[estimate] {path} is no profile of a step: {error}") from error


def _event(content: dict[str, Any]) -> Event:
    kind: Any = _KINDS[content.pop("event")]
    number = float if kind is Compute else int
    return kind(**{name: number(value) for name, value in content.items()})
