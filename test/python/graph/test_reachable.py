"""A change of what the step's code can reach is seen, whatever class the objects on the way have.
Code that may reach anything is executed, with a warning."""

import builtins
import collections
import contextvars
import ctypes
import dataclasses
import enum
import functools
import importlib
import inspect
import io
import itertools
import operator
import os
import queue
import random
import statistics
import sys
import threading
import types
import warnings
import weakref
from xml.etree import ElementTree

import numpy as np
import pytest
from recorded import graphs
from singa import layer, model, tensor
from singa.graph import GraphWarning


class Thing:
    def __init__(self, value=0.5):
        self.value = value

    def __hash__(self):
        return 1


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@dataclasses.dataclass
class Config:
    value: float
    inner: object = None


class Weights:
    __weight__ = 0.5
    __weights__ = [0.5]  # noqa: RUF012
    note: 0.5


class Documented:
    """0.5"""


class Low:
    rate = 0.5


class High:
    rate = 2.0


class Between(Low):
    pass


FACTOR = 0.5
TARGET = Thing()
CONFIG = types.ModuleType("config_of_a_program")
CONFIG.value, CONFIG.values = 0.5, [0.5]
LAZY = types.ModuleType("lazy_config_of_a_program")
exec("found = {}\ndef __getattr__(name): return found[name]", vars(LAZY))


SWAPPED = types.ModuleType("swapped_module_of_a_program")
SWAPPED.value = 0.5
IN_CONTEXT = contextvars.ContextVar("IN_CONTEXT")


def swapped_value(held):
    import swapped_module_of_a_program

    return swapped_module_of_a_program.value


def context_with(value):
    context = contextvars.copy_context()
    context.run(IN_CONTEXT.set, value)
    return context


class Picks:
    def pick(self, values):
        return values[0]


def set_factor(held):
    globals()["FACTOR"] = 2.0


def value(held):
    return held.value


def set_value(held):
    held.value = 2.0


def derived(base, *arguments):
    """Makes an object of a class that derives from `base`, with an attribute."""
    kind = type("Derived", (base,), {"__module__": __name__})

    def make():
        one = kind(*arguments)
        one.value = 0.5
        return one

    return make, value, set_value


def marked(make):
    """An object of a library's class, with an attribute."""

    def marked_one():
        one = make()
        one.value = 0.5
        return one

    return marked_one, value, set_value


def enumeration(**members):
    kind = enum.Enum("Kind", members, module=__name__)
    kind.rate = 0.5
    next(iter(kind)).value_of_it = 0.5
    return kind


class Number(enum.IntEnum):
    ONE = 1

    def factor(self):
        return FACTOR


class Scaled(property):
    def __get__(self, one, kind=None):
        return self.value


def with_property():
    kind = type("HasProperty", (), {"__module__": __name__, "rate": Scaled(lambda self: 1.0)})
    vars(kind)["rate"].value = 0.5
    return kind()


def closure():
    box = [0.5]
    return lambda: box[0]


def set_closure(function):
    function.__closure__[0].cell_contents[0] = 2.0


def first(held):
    return next(iter(held))


def read_factor(*_):
    return FACTOR


def halved(value=0.5):
    return value


def frozen():
    array = np.full(3, 0.5)
    array.flags.writeable = False
    return array


def thaw(array):
    array.flags.writeable = True
    array[0] = 2.0
    array.flags.writeable = False


def view_of_values():
    inner = {"a": 0.5}
    return types.SimpleNamespace(inner=inner, view=inner.values())


def at(make, place=lambda held: held):
    """An object that leads to one with a value."""
    return make, lambda held: place(held).value, lambda held: set_value(place(held))


def put(container, key=0):
    container[key] = 2.0


def inside(make, place=lambda held: held, key=0):
    """An object that leads to a container."""
    return make, lambda held: place(held)[key], lambda held: put(place(held), key)


#: name: (the object that the model holds, the number that is read of it, the change)
OBJECTS = {
    "longer list": (lambda: [0.5], lambda h: h[-1], lambda h: h.append(2.0)),
    "list in a tuple": inside(lambda: ([0.5],), first),
    "dict in a list": inside(lambda: [{"a": [0.5]}], lambda h: h[0]["a"]),
    "order of a dict": (
        lambda: {"a": 0.5, "b": 2.0},
        lambda h: first(h.values()),
        lambda h: h.update(a=h.pop("a")),
    ),
    "order of an ordered dict": (
        lambda: collections.OrderedDict(a=0.5, b=2.0),
        lambda h: first(h.values()),
        lambda h: h.move_to_end("a"),
    ),
    "longer set": (lambda: {0.5}, lambda h: float(len(h)), lambda h: h.add(1.5)),
    "set of as many": (lambda: {0.5}, first, lambda h: (h.clear(), h.add(2.0))),
    "item of a deque": inside(lambda: collections.deque([0.5])),
    "dataclass": at(lambda: Config(0.5)),
    "dataclass in a dataclass": at(lambda: Config(1.0, Config(0.5)), lambda h: h.inner),
    "slots": at(lambda: Slotted(0.5)),
    "namespace": at(lambda: types.SimpleNamespace(value=0.5)),
    "array of objects": inside(lambda: np.array([[0.5], None], object), first),
    "byte": (lambda: bytearray(b"1"), lambda h: float(h), lambda h: h.__setitem__(0, ord("2"))),
    "class": at(lambda: type("Settings", (), {"value": 0.5})),
    "keyword of a partial": (
        lambda: functools.partial(lambda value: value, value=0.5),
        lambda h: h(),
        lambda h: put(h.keywords, "value"),
    ),
    "default of a function": (
        lambda: types.FunctionType(halved.__code__, {}, "halved", (0.5,)),
        lambda h: h(),
        lambda h: setattr(h, "__defaults__", (2.0,)),
    ),
    "bound method": (lambda: [0.5].__getitem__, lambda h: h(0), lambda h: put(h.__self__)),
    "referent of a weak reference": (
        lambda: [one := Config(0.5), weakref.ref(one)],
        lambda h: h[1]().value,
        lambda h: set_value(h[0]),
    ),
    "attribute of an enumeration": (
        lambda: enumeration(A=1),
        lambda e: e.rate,
        lambda e: setattr(e, "rate", 2.0),
    ),
    "attribute of a member": (
        lambda: first(enumeration(A=1)),
        lambda one: one.value_of_it,
        lambda one: setattr(one, "value_of_it", 2.0),
    ),
    "value of a member": inside(lambda: first(enumeration(A=[0.5])), lambda one: one.value),
    "method of a member": (lambda: Number.ONE, lambda one: one.factor(), set_factor),
    "item of a set": at(lambda: {Thing()}, first),
    "item of a frozen set": at(lambda: frozenset([Thing()]), first),
    "key": at(lambda: {Thing(): 1}, first),
    "tuple that is a key": at(lambda: {(Thing(), 1): 1}, lambda d: first(first(d))),
    "key of an ordered dict": at(lambda: collections.OrderedDict([(Thing(), 1)]), first),
    "closure in a set": (
        lambda: {closure()},
        lambda s: first(s)(),
        lambda s: set_closure(first(s)),
    ),
    "list in a slice": inside(lambda: slice([0.5], None), lambda s: s.start),
    "dict behind a view": (view_of_values, lambda o: sum(o.view), lambda o: o.inner.update(a=2.0)),
    "factory of a dict": (
        lambda: collections.defaultdict(lambda: 0.5),
        lambda d: d.default_factory(),
        lambda d: setattr(d, "default_factory", lambda: 2.0),
    ),
    "set": derived(set, [1]),
    "frozen set": derived(frozenset, [1]),
    "deque": derived(collections.deque, [1]),
    "ordered dict": derived(collections.OrderedDict),
    "tuple": derived(tuple, [1]),
    "float": derived(float, 1),
    "text": derived(str, "a"),
    "bytes": derived(bytes, 1),
    "number of NumPy": derived(np.float64, 1),
    "byte array": derived(bytearray, b"a"),
    "generator": derived(random.Random, 1),
    "event": derived(threading.Event),
    "thread": derived(threading.Thread),
    "queue": derived(queue.Queue),
    "text file": derived(io.StringIO),
    "weak reference": derived(weakref.ref, TARGET),
    "exception": derived(ValueError, 1),
    "array": marked(lambda: np.ones(3).view(type("Array", (np.ndarray,), {}))),
    "partial": marked(lambda: functools.partial(max, 1.0)),
    "static method": marked(lambda: staticmethod(max)),
    "event of the library": marked(threading.Event),
    "property": (
        with_property,
        lambda o: o.rate,
        lambda o: setattr(vars(type(o))["rate"], "value", 2.0),
    ),
    "number of C": at(lambda: ctypes.c_double(0.5)),
    "default of a context variable": inside(
        lambda: contextvars.ContextVar("v", default=[0.5]),  # noqa: B039
        lambda v: v.get(),
    ),
    "mask": (
        lambda: np.ma.array([0.5, 1e20], mask=[0, 1]),
        lambda a: float(a.sum()) / 1e19,
        lambda a: setattr(a, "mask", [0, 0]),
    ),
    "array that was writeable": (frozen, lambda a: float(a[0]), thaw),
    "bases of a class": (
        lambda: setattr(Between, "__bases__", (Low,)) or Between(),
        lambda o: o.rate,
        lambda o: setattr(Between, "__bases__", (High,)),
    ),
    "number with underscores": (
        Weights,
        lambda o: o.__weight__,
        lambda o: setattr(Weights, "__weight__", 2.0),
    ),
    "list with underscores": inside(Weights, lambda o: o.__weights__),
    "annotation": (
        Weights,
        lambda o: float(type(o).__annotations__["note"]),
        lambda o: Weights.__annotations__.update(note=2.0),
    ),
    "documentation": (
        Documented,
        lambda o: float(type(o).__doc__),
        lambda o: setattr(Documented, "__doc__", "2.0"),
    ),
    "module": at(lambda: CONFIG),
    "module in a list": at(lambda: [CONFIG], first),
    "module by any name": (lambda: CONFIG, lambda m: getattr(m, "".join(["val", "ue"])), set_value),
    "function of another package": (
        lambda: statistics,
        lambda m: m.mean([0.5]),
        lambda m: setattr(m, "mean", lambda values: 2.0),
    ),
    "list of a module": inside(lambda: CONFIG, lambda m: m.values),
    "what a module gives by __getattr__": (
        lambda: LAZY,
        lambda m: m.rate,
        lambda m: put(m.found, "rate"),
    ),
    "module in the place of another": (
        lambda: sys.modules.update({SWAPPED.__name__: SWAPPED}),
        swapped_value,
        lambda held: sys.modules.update({SWAPPED.__name__: Thing(2.0)}),
    ),
    "argument of a method caller": (
        lambda: [numbers := [0.5], operator.methodcaller("pick", numbers)],
        lambda h: h[1](Picks()),
        lambda h: put(h[0]),
    ),
    "function behind a ufunc": (
        lambda: np.frompyfunc(lambda x: FACTOR, 1, 1),
        lambda f: f(1.0),
        set_factor,
    ),
    "function that orders": (
        lambda: functools.cmp_to_key(lambda a, b: FACTOR - 1),
        lambda key: 0.5 + sorted([3, 1, 2], key=key)[0],
        set_factor,
    ),
    "variables of a context": (
        lambda: context_with(0.5),
        lambda c: c[IN_CONTEXT],
        lambda c: c.run(IN_CONTEXT.set, 2.0),
    ),
    "element of XML": (
        lambda: ElementTree.fromstring("<net><rate>0.5</rate></net>"),
        lambda net: float(net.find("rate").text),
        lambda net: setattr(net[0], "text", "2.0"),
    ),
    "number behind a pointer": at(
        lambda: ctypes.pointer(ctypes.c_double(0.5)), lambda pointer: pointer.contents
    ),
    "environment in bytes": (
        lambda: os.environ.update(SINGA_TEST_RATE="0.5"),
        lambda held: float(os.environb[b"SINGA_TEST_RATE"]),
        lambda held: os.environ.update(SINGA_TEST_RATE="2.0"),
    ),
    "record": inside(lambda: np.array([(0.5, 1)], "f8, i4")[0], key="f0"),
    "record with attributes": (
        lambda: np.rec.array([(0.5, 1)], names="rate, n", formats="f8, i4")[0],
        lambda r: r.rate,
        lambda r: setattr(r, "rate", 2.0),
    ),
    "class that type() made": (
        lambda: type("Made", (), {"factor": read_factor})(),
        lambda o: o.factor(),
        set_factor,
    ),
    "class that new_class() made": (
        lambda: types.new_class("Made", (), {}, lambda names: names.update(rate=0.5))(),
        lambda o: o.rate,
        lambda o: setattr(type(o), "rate", 2.0),
    ),
    "layer that type() made": (
        lambda: type("Made", (layer.Layer,), {"factor": read_factor})(),
        lambda o: o.factor(),
        set_factor,
    ),
}


class Reads(model.Model):
    not_settings = ("runs",)

    def __init__(self, make, read):
        super().__init__()
        self.held, self.read, self.runs = make(), read, 0

    def forward(self, x, *more):
        self.runs += 1
        return x * self.read(self.held, *more)


def batch(i=0, rows=3):
    return tensor.from_numpy(np.random.default_rng([1, i]).standard_normal((rows, 2)).astype("f4"))


def compiled(m, graph, *more):
    m.compile([batch(), *more], is_train=False, use_graph=graph)
    m.eval()
    return m


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 0.5)
    monkeypatch.setitem(LAZY.found, "rate", 0.5)
    monkeypatch.setitem(sys.modules, SWAPPED.__name__, SWAPPED)
    monkeypatch.setenv("SINGA_TEST_RATE", "0.5")
    for one, name, value in [
        (statistics, "mean", np.mean),
        *[(CONFIG, "value", 0.5), (CONFIG, "values", [0.5])],
        *[(Weights, "__weight__", 0.5), (Weights, "__weights__", [0.5])],
        *[(Documented, "__doc__", "0.5"), (Weights, "__annotations__", {"note": 0.5})],
    ]:
        monkeypatch.setattr(one, name, value)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.usefixtures("no_warning")
def test_a_change_is_seen(name, monkeypatch):
    make, read, change = OBJECTS[name]
    m = compiled(Reads(make, read), True)
    x = batch()
    before = [m(x).numpy() for _ in range(5)][-1]
    assert m.runs == 1 + 2  # in compile, and recorded
    change(m.held)
    after = [m(x).numpy() for _ in range(5)]
    assert m.runs == 1 + 2 + 2
    with m.executed():
        expected = m(x).numpy()
    assert not np.array_equal(before, expected)
    for found in after:
        np.testing.assert_array_equal(found, expected)
    assert len(graphs(m)) == 1


def warned(m, reason, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        for _ in range(5):
            m(batch(), *arguments)
    (message,) = [str(w.message) for w in caught if w.category is GraphWarning]
    assert reason in message
    assert not graphs(m)


def other():
    return 0.5


NAME = "".join(["FAC", "TOR"])


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda o: sys._getframe().f_globals[NAME], "f_globals"),
        (lambda o: inspect.currentframe().f_globals[NAME], "f_globals"),
        (lambda o: len(inspect.stack()), "inspect.stack"),
        (lambda o: other.__globals__[NAME], "__globals__"),
        (lambda o: getattr(other, "__globals__")[NAME], "__globals__"),  # noqa: B009
        (lambda o: builtins.eval(NAME), "eval"),
        (lambda o: eval(NAME), "eval"),
        (lambda o: __builtins__["eval"](NAME), "any variable"),
        (lambda o: vars(sys)["modules"][__name__].FACTOR, "sys.modules"),
        (lambda o: getattr(importlib, "import_module")(__name__).FACTOR, "import_module"),  # noqa: B009
    ],
)
def test_code_that_may_reach_any_variable_is_executed(read, reason):
    warned(compiled(Reads(lambda: None, read), True), reason)


@pytest.mark.parametrize("held", [eval, sys.modules, [importlib.import_module]])
def test_a_model_that_holds_what_leads_to_any_variable_is_executed(held):
    warned(compiled(Reads(lambda: held, lambda o: 0.5), True), "any variable")


def test_an_iterator_with_attributes_is_executed():
    kind = type("Count", (itertools.count,), {"__module__": __name__})
    m = compiled(Reads(kind, lambda count: next(count) % 2 + 1.0), True)
    warned(m, "whose position cannot be compared")


@pytest.mark.usefixtures("no_warning")
def test_variables_of_a_module_that_no_code_names_may_change():
    m = compiled(Reads(lambda: CONFIG, value), True)
    for i in range(5):
        CONFIG.count = i
        m(batch())
    assert m.runs == 1 + 2
    del CONFIG.count


@pytest.mark.usefixtures("no_warning")
def test_a_tensor_of_pytorch_that_is_written_by_its_data(torch):
    m = compiled(Reads(lambda: torch.full((2,), 0.5), lambda t: float(t[0])), True)
    x = batch()
    for value in (0.5, 2.0):
        m.held.data.fill_(value)
        for _ in range(4):
            np.testing.assert_array_equal(m(x).numpy(), (x * value).numpy())
    assert m.runs == 1 + 2 + 2


# Arguments.


@pytest.mark.usefixtures("no_warning")
def test_what_an_argument_leads_to_is_seen():
    m = compiled(Reads(lambda: None, lambda o, *given: given[0].factor() if given else 1.0), True)
    x = batch()
    for factor in (0.5, 2.0):
        globals()["FACTOR"] = factor
        for _ in range(4):
            np.testing.assert_array_equal(m(x, Number.ONE).numpy(), (x * factor).numpy())
    assert m.runs == 1 + 2 + 2


def test_attributes_of_a_tensor_among_the_arguments():
    m = compiled(Reads(lambda: None, lambda o, t: getattr(t, "rate", 1.0)), True, batch())
    x, y = batch(), batch(1)
    for rate in (0.5, 2.0, 0.5):
        for _ in range(3):
            y.rate = rate
            np.testing.assert_array_equal(m(x, y).numpy(), (x * rate).numpy())
    assert len(graphs(m)) == 2  # one for each value
    y.rate = [0.5]
    with pytest.warns(GraphWarning, match="one of its arguments is a Tensor with attributes"):
        m(x, y)
