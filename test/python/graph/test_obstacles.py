"""Steps that change Python state themselves, or depend on what nobody can compare, are executed,
with a reason."""

import contextlib
import contextvars
import cProfile
import itertools
import os
import pathlib
import random
import sys
import threading
import types
import warnings

import numpy as np
import pytest
import singa
from recorded import graphs
from scaled_net import FIRST, Net, compiled, images, labels, one, sets, trained
from singa import autograd, opt, tensor
from singa.graph import GraphWarning, settings

pytestmark = pytest.mark.usefixtures("no_warning", "no_audits")

#: A module of the program, which no code names.
PROGRAM = sys.modules["program_without_names"] = types.ModuleType("program_without_names")
RATE = 0.5


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


def moves(s):
    os.chdir("/tmp" if os.getcwd() == "/" else "/")
    return 1.0


def by_name(s):
    return sys.modules["program_without_names"].RATE


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
        (moves, "os.getcwd()"),
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


def drawn_in_a_function():
    return random.uniform(0, 1)  # this line


DRAWS = {
    "random": lambda s: random.random(),  # this line
    "function": lambda s: drawn_in_a_function(),
    "library": lambda s: random.shuffle([1, 2, 3]) or 1.0,  # this line
    "numpy": lambda s: np.random.rand(),  # noqa: NPY002 - this line
    "generator": lambda s: s.x.random(),  # this line
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("around", [contextlib.nullcontext, beside_a_thread])
def test_the_line_that_draws(name, around):
    make = lambda s: setattr(s, "x", np.random.default_rng(1))  # noqa: E731
    function = drawn_in_a_function if name == "function" else DRAWS[name]
    lines = pathlib.Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    number = next(n for n in range(first, first + 3) if "this line" in lines[n - 1])
    tracing = sys.gettrace()
    sys.settrace(None)
    try:
        with around():
            m = compiled(True, make, dropping(DRAWS[name]))
            warned(m, f"at {__file__} line {number}: draw them outside of the step")
            assert sys.gettrace() is None
    finally:
        sys.settrace(tracing)


def test_a_step_that_draws_from_pytorch_is_executed(torch):
    m = compiled(True, lambda s: None, lambda s: 1.0 if torch.rand(1).item() < 0.9 else 0.5)
    torch.manual_seed(1)
    with beside_a_thread():
        seen = warned(m, "random numbers of Python, NumPy or PyTorch")
    m = compiled(False, lambda s: None, lambda s: 1.0 if torch.rand(1).item() < 0.9 else 0.5)
    torch.manual_seed(1)
    assert trained(m, 9)[0] == seen


def test_a_step_that_draws_is_executed_under_cprofile():
    profile = cProfile.Profile()
    with beside_a_thread():
        m = compiled(True, lambda s: None, dropping(lambda s: random.random()))
        profile.enable()
        try:
            warned(m, "random")
        finally:
            profile.disable()


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
