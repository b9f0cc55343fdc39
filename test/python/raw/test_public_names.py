"""The public names are those of public_names.txt, so that the list grows on purpose. As a program,
it writes the list:

P=build/debug/python:test/python/support/interface
PYTHONPATH=$P python test/python/raw/test_public_names.py
"""

from pathlib import Path

import public_names

LIST = Path(__file__).with_suffix("").with_name("public_names.txt")


def _lines() -> list[str]:
    return sorted({f"{name.module} {name.path}" for name in public_names.public_names()})


def test_the_public_names_are_those_of_the_list() -> None:
    listed, found = set(LIST.read_text().splitlines()), set(_lines())
    assert (sorted(found - listed), sorted(listed - found)) == ([], []), (
        "new, and gone; this file as a program writes the list"
    )


if __name__ == "__main__":
    LIST.write_text("\n".join(_lines()) + "\n")
