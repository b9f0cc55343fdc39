"""The process in which inputs run, one after the other: `python worker.py TARGET`.

Reads inputs from stdin, each as its length and its bytes, and answers each with a line of JSON. The
controlling process limits the time and starts a new worker if this one dies.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import re
import resource
import struct
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

#: Address space in bytes that an input may add; larger allocations raise MemoryError.
ADDRESSES = 6 << 30


def main() -> None:
    faulthandler.enable()
    # Redirect stdout, so that output of the tested code does not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), "rb")
    warnings.simplefilter("ignore")
    os.environ.setdefault("SINGA_OPCHECK_DIR", os.getcwd())

    import targets

    target = targets.make(sys.argv[1])
    limit = _status("VmSize") + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seeds = [seed.hex() for seed in target.seeds()]
    gc.collect()
    gc.freeze()  # exclude permanent objects from the collection after each input
    print(json.dumps({"format": target.format, "seeds": seeds}), file=answers, flush=True)
    while head := questions.read(8):
        (length,) = struct.unpack("<q", head)
        answer = _tried(target, questions.read(length))
        print(json.dumps(answer), file=answers, flush=True)


def _tried(target: Any, data: bytes) -> dict[str, Any]:
    _forget_peak()
    before = _status("VmRSS")
    finding, novelty = "", ""
    try:
        novelty = str(target.run(data))
    except targets_finding() as error:
        finding = str(error)
    except BaseException as error:
        novelty = _plain(f"{type(error).__name__}: {error}")
        if complaint := target.complaint(error):
            finding = f"{complaint}: {_told(error)}"
    grown = _status("VmHWM") - before
    if not finding and target.memory and grown > target.memory:
        # Names the limit, not the amount, so that similar runs give the same finding.
        finding = f"memory: more than {target.memory >> 20} MiB for {len(data)} bytes"
    gc.collect()
    return {
        "finding": finding,
        "novelty": novelty,
        "resident": _status("VmRSS"),
        "note": target.note,
    }


def targets_finding() -> type[Exception]:
    from targets import Finding

    return Finding


def _told(error: BaseException) -> str:
    """The exception and the functions of singa that raised it."""
    places = [
        f"{Path(frame.filename).name}:{frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/singa/" in frame.filename
    ]
    return f"{type(error).__name__}: {str(error)[:300]} [{' > '.join(places[-3:])}]"


def _plain(text: str) -> str:
    """The text without parts that differ from input to input, such as numbers and quotations."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\([^()]*\)", "…", text[:400])
    return re.sub(r"-?\d[\d.e+-]*", "0", text)[:160]


def _status(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
    return 0


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
