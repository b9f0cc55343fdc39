"""State of Python's library, and names of functions and classes, that a step reads: a change is
seen before a replay."""

import contextlib
import decimal
import io
import os
import sys
import threading
import types

import numpy as np
import pytest
from recorded import graphs
from scaled_net import FIRST, compiled, trained

pytestmark = pytest.mark.usefixtures("no_warning", "no_audits")

NOTHING = (lambda: None).__code__


def holds(make, read, change):
    """The same of an object in an attribute of the layer."""
    return lambda s: setattr(s, "held", make()), lambda s: read(s.held), lambda s: change(s.held)


def has_text(make, name):
    """Of an object with a text in this attribute."""

    def begin():
        made = make()
        setattr(made, name, "0.5")
        return made

    return holds(begin, lambda o: float(getattr(o, name)), lambda o: setattr(o, name, "2.0"))


def function():
    return types.FunctionType(NOTHING, {})


#: name: (what prepares a layer, its factor, the change)
STATES = {
    "sys.argv": (
        lambda s: setattr(sys, "argv", ["train.py", "0.5"]),
        lambda s: float(sys.argv[1]),
        lambda s: sys.argv.__setitem__(1, "2.0"),
    ),
    "another sys.argv": (
        lambda s: setattr(sys, "argv", ["train.py", "0.5"]),
        lambda s: float(sys.argv[1]),
        lambda s: setattr(sys, "argv", ["train.py", "2.0"]),
    ),
    "context of decimal": (
        lambda s: decimal.setcontext(decimal.Context(prec=1)),
        lambda s: float(decimal.Decimal("0.54") * 1),
        lambda s: setattr(decimal.getcontext(), "prec", 2),
    ),
    "context behind a Decimal": holds(
        lambda: decimal.setcontext(decimal.Context(prec=1)) or decimal.Decimal("0.54"),
        lambda number: float(+number),
        lambda number: setattr(decimal.getcontext(), "prec", 2),
    ),
    "folder": (
        lambda s: os.chdir("/"),
        lambda s: 0.5 if os.getcwd() == "/" else 2.0,
        lambda s: os.chdir("/tmp"),
    ),
    "function that names the folder": holds(
        lambda: (os.chdir("/"), os.getcwd)[1],
        lambda function: 0.5 if function() == "/" else 2.0,
        lambda function: os.chdir("/tmp"),
    ),
    "errors of NumPy": (
        lambda s: np.seterr(over="raise"),
        lambda s: 0.5 if np.geterr()["over"] == "raise" else 2.0,
        lambda s: np.seterr(over="ignore"),
    ),
    "limit of recursion": (
        lambda s: sys.setrecursionlimit(2001),
        lambda s: 0.5 if sys.getrecursionlimit() == 2001 else 2.0,
        lambda s: sys.setrecursionlimit(3001),
    ),
    "text in memory": holds(
        lambda: io.StringIO("0.5"),
        lambda file: float(file.getvalue()),
        lambda file: file.write("2.0"),
    ),
    "bytes in memory": holds(
        lambda: io.BytesIO(b"0.5"),
        lambda file: float(file.getvalue()),
        lambda file: file.write(b"2.0"),
    ),
    "lock": holds(
        threading.Lock,
        lambda lock: 2.0 if lock.locked() else 0.5,
        lambda lock: lock.acquire(),
    ),
    "name of a function": has_text(function, "__name__"),
    "path of a function": has_text(function, "__qualname__"),
    "text of a function": has_text(function, "__doc__"),
    "name of a class": has_text(lambda: type("Made", (), {}), "__name__"),
    "path of a class": has_text(lambda: type("Made", (), {}), "__qualname__"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_changed_state_is_seen(name, monkeypatch):
    make, read, change = STATES[name]
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(os.getcwd())
    results, limit = [], sys.getrecursionlimit()
    with decimal.localcontext(), np.errstate(), contextlib.ExitStack() as after:
        after.callback(sys.setrecursionlimit, limit)
        for use_graph, changed in ((False, False), (False, True), (True, True)):
            m = compiled(use_graph, make, read)
            seen = trained(m, 5)[0]
            if changed:
                change(m.scale)
            outputs, runs = trained(m, 5)
            assert len(graphs(m)) == use_graph
            assert runs in (FIRST if use_graph else (5,))
            results.append(seen + outputs)
    unchanged, executed, replayed = results
    assert replayed == executed != unchanged


def test_a_lock_that_is_only_taken_is_no_change():
    """Another thread may hold it in between."""
    lock = threading.Lock()

    def read(s):
        with s.held:
            return 0.5

    m = compiled(True, lambda s: setattr(s, "held", lock), read)
    trained(m, 5)
    with lock:
        assert trained(m, 3)[1] == 0
