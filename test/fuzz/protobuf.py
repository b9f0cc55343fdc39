"""Changes of fields inside protobuf messages that keep the lengths of the messages around right."""

from __future__ import annotations

from random import Random

from mutate import NUMBERS, change_bytes

#: A field: its number, its wire type, and its content.
Field = tuple[int, int, bytes]

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST = 1 << 20


def change_protobuf(random: Random, data: bytes, others: list[bytes]) -> bytes:
    """Makes one to three changes of fields, or changes bytes."""
    if random.random() < 0.15:
        return change_bytes(random, data, others)
    for _ in range(random.choice((1, 1, 2, 3))):
        fields = parse(data)
        if not fields:
            return change_bytes(random, data, others)
        donors = parse(random.choice(others)) if others else None
        data = join(_changed(random, fields, donors or fields, 12))
    return data[:_LONGEST]


def _changed(random: Random, fields: list[Field], donors: list[Field], depth: int) -> list[Field]:
    """The fields of a message with one change, which may lie in a message inside."""
    at = random.randrange(len(fields))
    number, kind, content = fields[at]
    inner = parse(content) if kind == _BYTES and depth else None
    if inner and random.random() < 0.8:
        same = [parse(c) for n, k, c in donors if n == number and k == _BYTES]
        known = [message for message in same if message]
        donor = random.choice(known) if known else inner
        content = join(_changed(random, inner, donor, depth - 1))
        return [*fields[:at], (number, kind, content), *fields[at + 1 :]]
    way = random.random()
    if way < 0.15:
        return fields[:at] + fields[at + 1 :]
    if way < 0.25:
        return fields[:at] + [fields[at]] * random.choice((2, 2, 3, 40)) + fields[at + 1 :]
    if way < 0.4:
        return [*fields[:at], random.choice(donors), *fields[at:]]
    if way < 0.5:
        other = random.randrange(len(fields))
        moved = fields[:at] + fields[at + 1 :]
        return [*moved[:other], fields[at], *moved[other:]]
    if way < 0.6:  # the content of a field of the same kind
        same = [c for _, k, c in (*fields, *donors) if k == kind]
        content = random.choice(same)
    elif kind == _VARINT:
        content = varint(random.choice(NUMBERS) % (1 << 64))
    elif kind == _BYTES:
        content = change_bytes(random, content, [])
    else:
        content = bytes(random.randrange(256) for _ in content)
    return [*fields[:at], (number, kind, content), *fields[at + 1 :]]


def parse(data: bytes) -> list[Field] | None:
    """The fields of a message; None if it is not one."""
    fields = []
    at = 0
    while at < len(data):
        tag, at = _read(data, at)
        number, kind = tag >> 3, tag & 7
        if at < 0 or not 0 < number < 1 << 29:
            return None
        if kind == _VARINT:
            _, end = _read(data, at)
        elif kind == _BYTES:
            length, at = _read(data, at)
            end = at + length if at >= 0 else -1
        elif kind in (_EIGHT, _FOUR):
            end = at + (8 if kind == _EIGHT else 4)
        else:
            return None
        if not 0 <= end <= len(data) or at < 0:
            return None
        fields.append((number, kind, data[at:end]))
        at = end
    return fields


def join(fields: list[Field]) -> bytes:
    """The message of these fields."""
    parts = []
    for number, kind, content in fields:
        parts.append(varint(number << 3 | kind))
        if kind == _BYTES:
            parts.append(varint(len(content)))
        parts.append(content)
    return b"".join(parts)


def varint(value: int) -> bytes:
    """A number of at most 64 bits, seven bits to a byte."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read(data: bytes, at: int) -> tuple[int, int]:
    """(a number, the place after it); the place is -1 if there is no number."""
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at += 1
        if not data[at - 1] & 128:
            return value, at
        shift += 7
    return 0, -1
