"""Changes of Python state that an executed step reads are detected before a replay."""

import builtins
import contextvars
import enum
import functools
import os
import statistics
import sys
import threading
import types

import numpy as np
import pytest
from recorded import graphs
from scaled_net import FIRST, compiled, images, one, sets, trained
from singa import autograd, layer, model
from singa.graph import settings

pytestmark = pytest.mark.usefixtures("no_warning", "no_audits")


class Mode(enum.Enum):
    HALF = 0.5
    TWICE = 2.0


def has(attributes):
    """Sets attributes, which are created anew for each model."""
    return lambda s: [setattr(s, name, value) for name, value in attributes().items()]


def closure():
    value = 0.5

    def read(s):
        return value

    def change(s):
        nonlocal value
        value = 2.0

    return lambda s: None, read, change


def wrapped(function):
    @functools.wraps(function)
    def read(s):
        return function(s) * s.factor

    return read


def replaced_class(s):
    s.__class__ = type("Other", (type(s),), {"shared": 2.0})


RATE = 0.5
LISTS = [[0.5]]


class Table:
    rate = 0.5
    inner = types.SimpleNamespace(rate=0.5)


class Meta(type):
    rate = 0.5


class Made(metaclass=Meta):
    pass


def innermost():
    return LISTS[0][0]


def inner():
    return sum(innermost() for _ in range(1))


def imports(s):
    from settings_of_a_program import RATE

    return RATE


def imports_all(s):
    import settings_of_a_program as program

    return program.RATE


#: A module of the program, as an import statement finds it.
PROGRAM = sys.modules["settings_of_a_program"] = types.ModuleType("settings_of_a_program")
ON_OFF = "A_SWITCH_OF_THIS_TEST"


def globally(target, name, value=2.0):
    """Sets a variable outside of the model."""
    return lambda s: setattr(target, name, value)


def item(place, value):
    """Assigns to an item of the object at `place`."""

    def change(s):
        container, key = place(s)
        container[key] = value

    return change


#: name: (attributes of the layer, its factor computed from them, the change)
NUMBERS = {
    "attribute": (has(lambda: {"x": 0.5}), lambda s: s.x, sets(x=2.0)),
    "private attribute": (has(lambda: {"_x": 0.5}), lambda s: s._x, sets(_x=2.0)),
    "property": (sets(), lambda s: s.factor, sets(factor=2.0)),
    "vars": (has(lambda: {"x": 0.5}), lambda s: s.x, lambda s: vars(s).update(x=2.0)),
    "object": (has(lambda: {"x": 0.5}), lambda s: s.x, lambda s: object.__setattr__(s, "x", 2.0)),
    "new attribute": (sets(), lambda s: getattr(s, "x", 0.5), sets(x=2.0)),
    "deleted attribute": (
        has(lambda: {"shared": 0.7}),
        lambda s: s.shared,
        lambda s: delattr(s, "shared"),
    ),
    "minus zero": (has(lambda: {"x": 0.0}), lambda s: s.x, sets(x=-0.0)),
    "minus zero in vars": (
        has(lambda: {"x": 0.0}),
        lambda s: s.x,
        lambda s: vars(s).update(x=-0.0),
    ),
    "minus zero in a list": (
        has(lambda: {"x": [0.0]}),
        lambda s: s.x[0],
        item(lambda s: (s.x, 0), -0.0),
    ),
    "minus zero of NumPy": (
        has(lambda: {"x": np.float32(0)}),
        lambda s: float(s.x),
        sets(x=-np.float32(0)),
    ),
    "complex": (has(lambda: {"x": complex(1, 0.0)}), lambda s: s.x.imag, sets(x=complex(1, -0.0))),
    "true for 1": (has(lambda: {"x": 1}), lambda s: 1.0 if s.x is True else 3.0, sets(x=True)),
    "1.0 for 1": (has(lambda: {"x": 1}), lambda s: 1.0 if type(s.x) is float else 3.0, sets(x=1.0)),
    "text": (has(lambda: {"x": "a"}), lambda s: float(len(s.x)), sets(x="bc")),
    "list": (has(lambda: {"x": [0.5]}), lambda s: s.x[0], item(lambda s: (s.x, 0), 2.0)),
    "dict": (has(lambda: {"x": {"a": 0.5}}), lambda s: s.x["a"], item(lambda s: (s.x, "a"), 2.0)),
    "mapping proxy": (
        has(lambda: {"x": types.MappingProxyType({"a": 0.5})}),
        lambda s: s.x["a"],
        sets(x=types.MappingProxyType({"a": 2.0})),
    ),
    "array": (
        has(lambda: {"x": np.array([0.5])}),
        lambda s: float(s.x[0]),
        item(lambda s: (s.x, 0), 2.0),
    ),
    "read-only array": (
        has(lambda: {"x": np.broadcast_to(0.5, (2,))}),
        lambda s: float(s.x[0]),
        sets(x=np.broadcast_to(2.0, (2,))),
    ),
    "enumeration": (has(lambda: {"x": Mode.HALF}), lambda s: s.x.value, sets(x=Mode.TWICE)),
    "class attribute": (
        sets(),
        lambda s: s.shared,
        lambda s: setattr(type(s).__mro__[1], "shared", 2.0),
    ),
    "list of a class": (
        lambda s: setattr(type(s), "values", [0.5]),
        lambda s: s.values[0],
        item(lambda s: (s.values, 0), 2.0),
    ),
    "another class": (sets(), lambda s: s.shared, replaced_class),
    "method of an object": (
        has(lambda: {"more": lambda: 0.5}),
        lambda s: s.more(),
        sets(more=lambda: 2.0),
    ),
    "method of a class": (
        lambda s: setattr(type(s), "more", lambda self: 0.5),
        lambda s: s.more(),
        lambda s: setattr(type(s), "more", lambda self: 2.0),
    ),
    "forward": (sets(), one, lambda s: setattr(s, "forward", lambda x: x * 2.0)),
    "closure": closure,
    "wrapped": (sets(), wrapped(one), sets(factor=2.0)),
}
#: The same, outside of the model.
VARIABLES = {
    "global": (lambda s: RATE, lambda s: globals().update(RATE=2.0)),
    "global list in a function": (lambda s: inner(), lambda s: LISTS[0].__setitem__(0, 2.0)),
    "global in a comprehension": (
        lambda s: sum(RATE for _ in range(1)),
        lambda s: globals().update(RATE=2.0),
    ),
    "global function": (lambda s: inner(), lambda s: globals().update(innermost=lambda: 2.0)),
    "global of another type": (
        lambda s: float(RATE),
        lambda s: globals().update(RATE=np.float64(2.0)),
    ),
    "attribute of a class": (lambda s: Table.rate, globally(Table, "rate")),
    "attribute of an object": (lambda s: Table.inner.rate, globally(Table.inner, "rate")),
    "variable of a module": (lambda s: PROGRAM.RATE, globally(PROGRAM, "RATE")),
    "variable by __dict__": (lambda s: by_dict(s), globally(PROGRAM, "RATE")),
    "new variable of a module": (
        lambda s: getattr(PROGRAM, "NEW", 0.5),
        lambda s: setattr(PROGRAM, "NEW", 2.0),
    ),
    "imported variable": (imports, globally(PROGRAM, "RATE")),
    "imported module": (imports_all, globally(PROGRAM, "RATE")),
    "environment": (
        lambda s: float(os.environ[ON_OFF]),
        lambda s: os.environ.__setitem__(ON_OFF, "2.0"),
    ),
    "getenv": (lambda s: float(os.getenv(ON_OFF)), lambda s: os.environ.__setitem__(ON_OFF, "2.0")),
    "builtin": (
        lambda s: RATE_OF_ALL,  # noqa: F821
        lambda s: setattr(builtins, "RATE_OF_ALL", 2.0),
    ),
    "event": (lambda s: 2.0 if EVENT.is_set() else 0.5, lambda s: EVENT.set()),
    "metaclass": (lambda s: Made.rate, globally(Meta, "rate")),
    "thread": (lambda s: LOCAL.rate, lambda s: setattr(LOCAL, "rate", 2.0)),
    "context": (lambda s: CONTEXT.get(), lambda s: CONTEXT.set(2.0)),
    "function of another package": (
        lambda s: statistics.mean([0.5]),
        globally(statistics, "mean", lambda values: 2.0),
    ),
}
CONTEXT = contextvars.ContextVar("CONTEXT", default=0.5)
EVENT = threading.Event()
LOCAL = threading.local()
TENSORS = {
    "stores_grad": lambda m: setattr(m.fc.W, "stores_grad", False),
    "requires_grad": lambda m: setattr(m.fc2.W, "requires_grad", False),
    "data": lambda m: setattr(m.fc.W, "data", (m.fc.W * 2.0).data),
    "another layer": lambda m: setattr(m, "fc2", m.fc2.__class__(3, bias=False)),
    "no bias": lambda m: setattr(m.fc, "b", None),
    "a layer": lambda m: setattr(m, "scale", layer.ReLU()),
}


def both(kind, change=lambda m: None):
    """Checks that executed and replayed steps with a change in between give the same bits, and that
    the change has an effect."""
    results = []
    for use_graph, changed in ((False, False), (False, True), (True, True)):
        make, read, change_factor = kind() if callable(kind) else kind
        m = compiled(use_graph, make, read)
        seen = trained(m, 5)[0]
        assert len(graphs(m)) == use_graph
        if changed:
            change_factor(m.scale)
            change(m)
        outputs, runs = trained(m, 5)
        assert len(graphs(m)) == use_graph
        assert runs in (FIRST if use_graph else (5,))
        results.append((seen + outputs, {n: t.numpy() for n, t in m.get_states().items()}))
    (unchanged, _), (executed, states), (replayed, same) = results
    assert replayed == executed != unchanged
    for name, value in states.items():
        assert same[name].tobytes() == value.tobytes()


@pytest.mark.parametrize("name", NUMBERS)
def test_a_changed_setting_is_seen(name):
    both(NUMBERS[name])


@pytest.mark.parametrize("name", VARIABLES)
def test_a_changed_variable_is_seen(name, monkeypatch):
    read, change = VARIABLES[name]
    monkeypatch.setenv(ON_OFF, "0.5")
    for target in (Table, Table.inner, Meta):
        monkeypatch.setattr(target, "rate", 0.5)
    for target, attribute in ((PROGRAM, "RATE"), (builtins, "RATE_OF_ALL")):
        monkeypatch.setattr(target, attribute, 0.5, raising=False)
    monkeypatch.setattr(statistics, "mean", statistics.mean)
    for variable in ("RATE", "LISTS", "innermost"):
        monkeypatch.setitem(globals(), variable, globals()[variable])
    original = innermost

    def begin(s):
        os.environ[ON_OFF] = "0.5"
        Table.rate = Table.inner.rate = Meta.rate = PROGRAM.RATE = LOCAL.rate = 0.5
        statistics.mean = np.mean
        CONTEXT.set(0.5)
        EVENT.clear()
        builtins.RATE_OF_ALL = 0.5
        vars(PROGRAM).pop("NEW", None)
        globals().update(RATE=0.5, LISTS=[[0.5]], innermost=original)

    both((begin, read, change))


@pytest.mark.parametrize("name", TENSORS)
def test_a_changed_tensor_or_layer_is_seen(name):
    both((sets(), one, sets()), TENSORS[name])


@pytest.mark.parametrize(
    "change",
    [
        lambda m, i: setattr(m.scale, "x", float(f"0.{i % 1}5")),
        lambda m, i: setattr(m.scale, "x", float("nan")),
        lambda m, i: setattr(m.scale, "x", [1, (2.5, "a" * 20), {"b": {3.5}}]),
        lambda m, i: setattr(m.scale, "x", np.full(3, np.nan)),
        lambda m, i: setattr(m.scale, "x", functools.partial(one, 0.5)),
        lambda m, i: setattr(m, "graph_mode", bool(m.graph_mode)),
        lambda m, i: (m.eval(), m.train()),
    ],
)
def test_equal_settings_are_no_change(change):
    m = compiled(True, sets(x=0.05), one)
    change(m, 0)
    _, runs = trained(m, 9, change)
    assert runs in FIRST


def test_a_mode_that_another_kind_of_step_leaves_behind_is_seen():
    def read(s):
        if not autograd.training:
            s.x = 2.0
        return s.x

    results = []
    for use_graph in (False, True):
        m = compiled(False, lambda s: setattr(s, "x", 0.5), read)
        m.scale.x = 0.5
        m.graph(use_graph)
        seen = trained(m, 4)[0]
        m.eval()
        seen += [m(images(i)).numpy().tobytes() for i in range(4)]
        m.train()
        results.append((seen[:4], trained(m, 4)[0]))
    assert results[0] == results[1]


def by_dict(s):
    return PROGRAM.__dict__["RATE"]


def test_attributes_that_are_named_as_no_settings_may_change():
    m = compiled(True, sets(), one)
    type(m.scale).not_settings = ("history",)
    m.scale.history = []
    assert trained(m, 9, lambda m, i: m.scale.history.append(i))[1] in FIRST


def test_numbers_among_the_arguments_differ_by_their_bits():
    class Scaled(model.Model):
        def forward(self, x, scale):
            return x * scale

    m = Scaled()
    m.compile([images(0), images(0)], is_train=False, use_graph=True)
    for scale in (0.0, -0.0, float("nan"), 1, True, 1.5) * 3:
        expected = images(1).numpy() * np.float32(scale)
        found = m(images(1), scale).numpy()
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            np.signbit(found[found == 0]), np.signbit(expected[expected == 0])
        )
    assert len(graphs(m)) == 6


def test_differences_are_named():
    m = compiled(False, sets(x={"a": [1]}), one)
    before = settings.Settings(m)
    m.scale.x["a"][0] = 2
    m.fc.W.requires_grad = False
    assert not before.hold()
    assert settings.differing(before, settings.Settings(m)) == {"scale.x['a'][0]", "fc.W"}
