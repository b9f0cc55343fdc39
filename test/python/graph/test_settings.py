"""Changes of Python state that an executed step reads are detected before a replay. If that is not
possible, the step is executed, with a reason."""

import builtins
import contextlib
import contextvars
import enum
import functools
import itertools
import os
import random
import statistics
import sys
import threading
import types
import warnings

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, layer, model, opt, tensor
from singa.graph import GraphWarning, settings

pytestmark = pytest.mark.usefixtures("no_warning", "no_audits")


class Mode(enum.Enum):
    HALF = 0.5
    TWICE = 2.0


class Scale(layer.Layer):
    """A user's layer, whose factor can be anywhere."""

    shared = 0.5
    values = None

    def __init__(self):
        super().__init__()
        self._factor = 0.5

    @property
    def factor(self):
        return self._factor

    @factor.setter
    def factor(self, value):
        self._factor = value

    def forward(self, x):
        return x * self.read(self)


class Net(model.Model):
    not_settings = ("runs",)  # no operation depends on it

    def __init__(self, make, read):
        super().__init__()
        self.fc = layer.Linear(3)
        self.fc2 = layer.Linear(3)
        # Each test has its own classes, which it may change.
        self.scale = type("Scale", (type("Base", (Scale,), {}),), {})()
        self.scale.read = read
        make(self.scale)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return self.scale(self.fc2(autograd.relu(self.fc(x))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        self.optimizer(autograd.softmax_cross_entropy(out, y))
        return out


def compiled(use_graph, make, read):
    singa.seed(3)
    m = Net(make, read)
    m.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    m.compile([images(0)], use_graph=use_graph)
    return m


def images(step):
    return tensor.from_numpy(np.random.default_rng([5, step]).standard_normal((4, 6)).astype("f4"))


def labels():
    return tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))


def one(layer):
    return 1.0


def sets(**attributes):
    return lambda s: [setattr(s, name, value) for name, value in attributes.items()]


#: Steps that are recorded before there is a graph. The creation of the optimizer's state takes one
#: more.
FIRST = (2, 3)


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


def trained(m, steps, change=lambda m, i: None):
    """Outputs of a number of steps, with a function called before each, and the number of forward
    calls."""
    runs, seen = m.runs, []
    for i in range(steps):
        change(m, i)
        seen.append(m(images(i), labels()).numpy().tobytes())
    return seen, m.runs - runs


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


def warned(m, reason, steps=9):
    """Executes steps, with one warning that gives the reason."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        seen, runs = trained(m, steps)
    assert runs == steps
    (message,) = [str(w.message) for w in caught if w.category is GraphWarning]
    assert reason in message
    return seen


COUNT = {"n": 0}
TOTAL = 0


def counted(s):
    s.calls += 1
    return 1.0


def listed(s):
    s.seen.append(1.0)
    return 1.0


def kept(s):
    s.kept = tensor.Tensor((2,))
    return 1.0


def counted_in_a_dict(s):
    COUNT["n"] += 1
    return 1.0


def counted_in_the_module(s):
    global TOTAL
    TOTAL += 1
    return 1.0


def counted_in_a_closure():
    count = 0

    def read(s):
        nonlocal count
        count += 1
        return 1.0

    return read


def counted_by_itself(s):
    counted_by_itself.count = getattr(counted_by_itself, "count", 0) + 1
    return 1.0


def counted_in_its_defaults(s, seen=[]):  # noqa: B006
    seen.append(1.0)
    return 1.0


def counted_in_the_class(s):
    type(s).shared += 1.0
    return 1.0


LOCAL = threading.local()
LOCAL.n = 0
TURN = contextvars.ContextVar("TURN", default=0)


def counted_in_the_thread(s):
    LOCAL.n += 1
    return 1.0


def counted_in_the_context(s):
    TURN.set(TURN.get() + 1)
    return 1.0


def counted_in_the_environment(s):
    os.environ["COUNTED"] = str(int(os.environ.get("COUNTED", "0")) + 1)
    return 1.0


def by_dict(s):
    return PROGRAM.__dict__["RATE"]


def by_name(s):
    return sys.modules["settings_of_a_program"].RATE


def by_globals(s):
    return globals()["RATE"]


@pytest.mark.parametrize("read", [by_name, by_globals])
def test_variables_that_no_code_names_are_an_obstacle(read, monkeypatch):
    monkeypatch.setattr(PROGRAM, "RATE", 0.5, raising=False)
    warned(compiled(True, sets(), read), "any variable", 4)


def test_an_optimizer_that_a_step_changes_by_name_is_seen():
    def read(s):
        for owner in model_of:  # none in compile()
            setattr(owner.optimizer, "lr", 0.1)  # noqa: B010
        return 1.0

    model_of = []
    m = compiled(True, sets(), read)
    model_of.append(m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        trained(m, 12)
    assert "optimizer.lr" in m._graphs().reasons()[0]


@pytest.mark.parametrize(
    ("read", "place"),
    [
        (counted, "scale.calls"),
        (listed, "scale.seen"),
        (kept, "scale.kept"),
        (counted_in_a_dict, "COUNT['n']"),
        (counted_in_the_module, "TOTAL"),
        (counted_in_a_closure(), "scale.read<count>"),
        (counted_by_itself, "scale.read.count"),
        (counted_in_its_defaults, "scale.read.__defaults__[0]"),
        (counted_in_the_class, "class Scale.shared"),
        (counted_in_the_thread, "LOCAL.n"),
        (counted_in_the_context, "TURN.get()"),
        (counted_in_the_environment, "COUNTED"),
    ],
)
def test_what_a_step_changes_itself_is_executed_and_named(read, place, monkeypatch):
    monkeypatch.setenv("COUNTED", "0")
    m = compiled(True, sets(calls=0, seen=[]), read)
    warned(m, "the step changes", 12)
    (reason,) = m._graphs().reasons()
    assert place in reason


def test_a_switch_that_a_step_takes_back_counts_each_time():
    """A step that sets an attribute back may depend on it all the same."""

    def read(s):
        factor = 3.0 if s.pending else 1.0
        s.pending = False
        return factor

    def change(m, i):
        if i % 5 == 4:
            m.scale.pending = True

    results = []
    for use_graph in (False, True):
        m = compiled(use_graph, sets(pending=False), read)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            results.append(trained(m, 25, change)[0])
    assert results[0] == results[1]


def test_modes_that_two_kinds_of_steps_set_are_left_as_executed():
    def read(s):
        s.mode = "train" if autograd.training else "infer"
        return 0.5

    m = compiled(True, sets(mode=""), read)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        for _ in range(4):
            m.train()
            trained(m, 3)
            assert m.scale.mode == "train"
            m.eval()
            for i in range(3):
                m(images(i))
            assert m.scale.mode == "infer"


def dropping(generator):
    """A layer that is skipped at random. The first two steps may be equal."""
    return lambda s: 1.0 if generator(s) < 0.9 else 0.5


@pytest.mark.parametrize(
    ("make", "read", "reason"),
    [
        (lambda s: setattr(s, "x", np.random.default_rng(1)), lambda s: s.x.random(), "random"),
        (lambda s: setattr(s, "x", random.Random(1)), lambda s: s.x.random(), "random"),
        (lambda s: setattr(s, "x", np.random.RandomState(1).random), lambda s: s.x(), "random"),
        (lambda s: random.seed(1), lambda s: random.random(), "random"),
        (lambda s: np.random.seed(1), lambda s: np.random.random(), "random"),  # noqa: NPY002
        (
            lambda s: setattr(s, "x", itertools.count()),
            lambda s: next(s.x) / 9,
            "scale.x is a count",
        ),
        (
            lambda s: setattr(s, "x", (i / 9 for i in range(99))),
            lambda s: next(s.x),
            "scale.x is a generator",
        ),
        (
            lambda s: setattr(s, "x", np.zeros(1 << 18)),
            lambda s: s.x[0],
            "scale.x is a writeable array",
        ),
        (lambda s: setattr(s, "x", [0] * 5001), lambda s: s.x[0], "more than 5000 values"),
    ],
)
def test_what_cannot_be_compared_is_executed_and_says_why_once(make, read, reason, monkeypatch):
    monkeypatch.setattr(settings, "_MOST_VALUES", 5000)
    results = []
    for use_graph in (False, True):
        m = compiled(use_graph, make, dropping(read))
        make(m.scale)
        results.append(warned(m, reason) if use_graph else trained(m, 9)[0])
    assert results[0] == results[1]


@contextlib.contextmanager
def beside_a_thread():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, args=(60,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("draw", [random.random, lambda: random.uniform(0, 1), np.random.random])
def test_a_step_that_draws_is_executed_beside_other_threads(draw):
    with beside_a_thread():
        results = []
        for use_graph in (False, True):
            m = compiled(use_graph, lambda s: None, dropping(lambda s: draw()))
            random.seed(1), np.random.seed(1)  # noqa: NPY002
            results.append(warned(m, "random") if use_graph else trained(m, 9)[0])
    assert results[0] == results[1]


def test_generators_that_only_others_draw_from_do_no_harm():
    m = compiled(True, lambda s: setattr(s, "x", np.random.default_rng(1)), one)
    assert trained(m, 6)[1] in FIRST


def test_random_numbers_of_other_threads_do_no_harm():
    stop = threading.Event()

    def draw():
        while not stop.is_set():
            random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        assert trained(compiled(True, sets(), one), 6)[1] in FIRST
    finally:
        stop.set()
        thread.join()


def test_a_large_array_that_nobody_can_write_to_is_no_obstacle():
    array = np.zeros(1 << 18)
    array.flags.writeable = False
    m = compiled(True, lambda s: setattr(s, "x", array), lambda s: 1.0 + float(s.x[0]))
    assert trained(m, 6)[1] in FIRST


def test_settings_that_change_all_the_time_are_given_up():
    m = compiled(True, sets(x=0), one)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        for i in range(102):
            m.scale.x = i
            trained(m, 3)
            assert len(graphs(m)) == (i <= 100)
    assert ["100 times, the last time scale.x" in str(w.message) for w in caught] == [True]


def test_attributes_that_are_named_as_no_settings_may_change():
    m = compiled(True, sets(), one)
    type(m.scale).not_settings = ("history",)
    m.scale.history = []
    assert trained(m, 9, lambda m, i: m.scale.history.append(i))[1] in FIRST


def test_an_obstacle_that_a_step_removes_itself_is_gone():
    def read(s):
        if s.x is None:
            s.x = tensor.from_numpy(np.float32([0.5]))
            s.x.requires_grad = False
        return s.x

    m = compiled(True, lambda s: setattr(s, "x", None), read)
    m.scale.x = None
    _, runs = trained(m, 9)
    assert 2 <= runs <= 4


def test_an_executed_step_gets_another_chance_when_settings_change():
    m = compiled(True, lambda s: setattr(s, "x", itertools.count()), lambda s: next(s.x) % 2 + 1.0)
    warned(m, "count")
    m.scale.x = 0.5
    m.scale.read = lambda s: s.x
    assert trained(m, 9)[1] in FIRST


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda i: np.array(["text"]), "one of its arguments is a ndarray"),
        (lambda i: {1, 2}, "one of its arguments is a set"),
        (lambda i: types.SimpleNamespace(), "arguments is a SimpleNamespace"),
    ],
)
def test_arguments_that_cannot_be_told_apart(make, reason):
    class Takes(Net):
        def train_one_batch(self, x, y, more):
            return super().train_one_batch(x, y)

    singa.seed(3)
    m = Takes(sets(), one)
    m.set_optimizer(opt.SGD(lr=0.1))
    m.compile([images(0)], use_graph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        for i in range(4):
            m(images(i), labels(), make(i))
    assert [reason in str(w.message) for w in caught] == [True]
    assert m.runs == 1 + 4  # and one in compile


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
