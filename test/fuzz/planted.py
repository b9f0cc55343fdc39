"""Planted defects of each kind, for tests of the fuzzer. A letter of the input triggers each."""

from __future__ import annotations

import os

from targets import Finding, Target


class Planted(Target):
    memory = 64 << 20

    def seeds(self) -> list[bytes]:
        return [b"seed"]

    def run(self, data: bytes) -> str:
        self.tell(f"{len(data)} bytes")
        for letter in data.decode("latin-1"):
            if letter == "A":
                os.abort()
            if letter == "H":
                while True:
                    pass
            if letter == "M":
                return str(len(b"x" * (256 << 20)))
            if letter == "K":
                raise KeyError("name")
            if letter == "U":
                b"\xff".decode()  # a ValueError that Python raises, not singa
            if letter == "E":
                raise ValueError
            if letter == "V":
                raise ValueError("[planted] this is declared")
            if letter == "D":
                raise Finding("differs")
        return "nothing"
