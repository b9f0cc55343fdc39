"""New inputs from old ones by changes of bytes and JSON, and ways to minimise an input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

NUMBERS = (
    *(0, 1, -1, 2, 3, 4, 7, 8, 12, 13, 16, 17, 64, 127, 128, 255, 256, 1000, 65535, 65536),
    *(2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63),
    *(2**64 - 1, 2**64, -2, -128, -(2**31), -(2**63), -(2**63) - 1),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", "\0", "\ud800", "a" * 300, "aux/", "../x", "😀"),
    *(0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), [], {}, [0], [[]], {"": 0}, {"x": []}),
)


def change_bytes(random: Random, data: bytes, others: list[bytes]) -> bytes:
    """Makes one to four changes of bytes."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(_CHANGES)(random, data, random.choice(others) if others else data)
    return data


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 1, 2, 4, 8, 16, 64, len(data))))


def _flip(random: Random, data: bytes, _: bytes) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _set(random: Random, data: bytes, _: bytes) -> bytes:
    if not data:
        return b"\xff"
    at = random.randrange(len(data))
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _number(random: Random, data: bytes, _: bytes) -> bytes:
    width = random.choice((1, 2, 4, 8))
    order = random.choice(("little", "big"))
    at = random.randrange(max(1, len(data) - width + 1))
    number = random.choice(NUMBERS) % (1 << 8 * width)
    return data[:at] + number.to_bytes(width, order) + data[at + width :]


def _digits(random: Random, data: bytes, _: bytes) -> bytes:
    found = list(re.finditer(rb"-?\d+", data[:65536]))
    if not found:
        return _flip(random, data, data)
    match = random.choice(found)
    return data[: match.start()] + str(random.choice(NUMBERS)).encode() + data[match.end() :]


def _delete(random: Random, data: bytes, _: bytes) -> bytes:
    start, end = _span(random, data)
    return data[:start] + data[end:]


def _repeat(random: Random, data: bytes, _: bytes) -> bytes:
    start, end = _span(random, data)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 16)) + data[end:]


def _insert(random: Random, data: bytes, _: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.choice((1, 2, 4, 16))) + data[at:]


def _truncate(random: Random, data: bytes, _: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _take(random: Random, data: bytes, other: bytes) -> bytes:
    start, end = _span(random, other)
    at = random.randrange(len(data) + 1)
    return data[:at] + other[start:end] + data[at:]


_CHANGES: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    *(_flip, _set, _number, _number, _digits, _digits, _delete, _repeat, _insert, _truncate),
    *(_splice, _take),
)


def change_json(random: Random, value: Any) -> Any:
    """`value` with one entry changed, removed or added. Also changes JSON inside of strings."""
    if isinstance(value, str) and value[:1] in ("{", "[") and random.random() < 0.9:
        try:
            return to_json(change_json(random, json.loads(value))).decode()
        except (ValueError, RecursionError):
            pass
    if isinstance(value, dict) and value and random.random() < 0.9:
        changed = dict(value)
        key = random.choice(list(changed))
        way = random.random()
        if way < 0.1:
            del changed[key]
        elif way < 0.2:
            changed[random.choice(list(VALUES[3:10]))] = changed[key]
        elif way < 0.25:
            changed[random.choice(list(changed))] = changed[key]
        else:
            changed[key] = change_json(random, changed[key])
        return changed
    if isinstance(value, list) and value and random.random() < 0.9:
        items = list(value)
        at, way = random.randrange(len(items)), random.random()
        if way < 0.15:
            del items[at]
        elif way < 0.3:
            items[at:at] = [items[at]] * random.choice((1, 1, 12, 40))
        else:
            items[at] = change_json(random, items[at])
        return items
    if isinstance(value, int) and random.random() < 0.7:
        return random.choice((value + 1, value - 1, -value, value * 2, random.choice(NUMBERS)))
    if isinstance(value, str) and value and random.random() < 0.5:
        return change_text(random, value)
    if random.random() < 0.03:
        return _nested(random.choice((20, 200, 5000)))
    return random.choice((random.choice(VALUES), random.choice(NUMBERS)))


def change_text(random: Random, text: str) -> str:
    changed = change_bytes(random, text.encode("utf-8", "surrogatepass"), [])
    return changed.decode("utf-8", "replace")


class _Raw(str):
    """Text that to_json inserts as it is."""


def _nested(depth: int) -> str:
    # As a list, json.dumps would hit the recursion limit itself.
    return _Raw("[" * depth + "]" * depth)


def to_json(value: Any) -> bytes:
    """JSON in which _Raw strings, such as those of `_nested`, appear as they are."""
    raws: list[str] = []

    def marked(item: Any) -> Any:
        if isinstance(item, _Raw):
            raws.append(item)
            return f"@raw{len(raws) - 1}@"
        if isinstance(item, dict):
            return {key: marked(entry) for key, entry in item.items()}
        return [marked(entry) for entry in item] if isinstance(item, list) else item

    text = json.dumps(marked(value))
    for number, raw in enumerate(raws):
        text = text.replace(f'"@raw{number}@"', raw)
    return text.encode()


def smaller(data: bytes) -> Iterator[Callable[[bytes], bytes | None]]:
    """Ways to make an input smaller or simpler. Each is called with the smallest input that still
    fails, and returns None if it does not apply."""
    width = 1 << max(len(data) // 2, 1).bit_length()
    while width:
        for start in range(0, len(data), width):

            def cut(now: bytes, start: int = start, width: int = width) -> bytes | None:
                # Goes from the end to the beginning, so that a cut does not move later ones.
                end = len(now) - start
                return now[: max(end - width, 0)] + now[end:] if end > 0 else None

            yield cut
        width //= 2
    for at in range(min(len(data), 512)):

        def clear(now: bytes, at: int = at) -> bytes | None:
            return now[:at] + b"\0" + now[at + 1 :] if at < len(now) and now[at] else None

        yield clear
