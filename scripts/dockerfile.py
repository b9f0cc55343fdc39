#!/usr/bin/env python3
"""Prints what a Dockerfile does as commands for a shell: dockerfile.py FILE build|start|health.

build is RUN and COPY, start is CMD with USER, health is HEALTHCHECK. The system in which the
commands run stands in for FROM. Another instruction is an error.
"""

import json
import shlex
import sys
from pathlib import Path


def commands(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"build": [], "start": [], "health": []}
    user = ""
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name in ("", "#", "FROM", "EXPOSE"):
            continue
        if name == "RUN":
            found["build"].append(rest)
        elif name == "COPY":
            *sources, target = rest.split()
            found["build"] += [f"mkdir -p {target}", f"cp -r --preserve=mode {rest}"]
            if not sources or not target.endswith("/"):
                raise SystemExit(f"Dockerfile: a target must end in /: {line}")
        elif name == "USER":
            user = rest
        elif name == "CMD":
            found["start"].append(_as(user, json.loads(rest)))
        elif name == "HEALTHCHECK":
            found["health"].append(_as(user, json.loads(rest.removeprefix("CMD "))))
        else:
            raise SystemExit(f"Dockerfile: what does this do? {line}")
    return found


def _as(user: str, words: list[str]) -> str:
    prefix = f"setpriv --reuid={user} --regid=nogroup --clear-groups " if user else ""
    return f"exec {prefix}{shlex.join(words)}"


if __name__ == "__main__":
    file, part = sys.argv[1:]
    print("\n".join(commands(Path(file).read_text())[part]))
