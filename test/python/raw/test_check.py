"""Facts of errors, which code reads instead of messages."""

import ast
from pathlib import Path

import numpy as np
import pytest
import singa
from singa import autograd, layer, models, opt, tensor
from singa.layer.named_losses import advising
from singa.raw.check import facts_of

SOURCES = Path(singa.raw.check.__file__).resolve().parent.parent
#: Modules that read the messages of others, which carry nothing else.
OF_OTHERS = {
    "compat/image_tool.py": "Pillow",
    "data/label_file.py": "csv",
    "raw/calls.py": "Python, of calls",
    "torch_networks/refusals.py": "PyTorch",
    "training/fitting.py": "Python, of calls",
}
#: What hands a message on, or makes it fit into a line.
HANDED_ON = ("append", "error", "refused", "removeprefix", "say", "split")


def test_no_code_reads_the_messages_of_singa() -> None:
    assert sorted(_reading()) == sorted(OF_OTHERS)


def _reading() -> set[str]:
    found = set()
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for handler in ast.walk(tree):
            names = _errors_in(handler)
            texts = [node for node in ast.walk(handler) if names and _text_of(node) in names]
            if not all(_is_handed_on(above[node]) for node in texts):
                found.add(str(path.relative_to(SOURCES)))
    return found


def _errors_in(node: ast.AST) -> set[str]:
    """Names of the errors that an `except` or a function has."""
    if isinstance(node, ast.ExceptHandler):
        return {node.name} if node.name else set()
    if not isinstance(node, ast.FunctionDef):
        return set()
    types = {each.arg: ast.unparse(each.annotation) for each in node.args.args if each.annotation}
    return {name for name, kind in types.items() if kind.endswith(("Error", "Exception"))}


def _text_of(node: ast.AST) -> str | None:
    """The x of str(x)."""
    is_text = isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args
    return ast.unparse(node.args[0]) if is_text else None


def _is_handed_on(by: ast.AST) -> bool:
    if isinstance(by, ast.Call):
        called = ast.unparse(by.func).rpartition(".")[2]
        return called in HANDED_ON or called.endswith("Error")
    if isinstance(by, ast.Attribute):
        return by.attr in HANDED_ON
    return isinstance(by, ast.Assign | ast.BoolOp | ast.Dict | ast.IfExp | ast.Return)


SCORES = tensor.Tensor(data=np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (
            lambda: autograd.softmax_cross_entropy(SCORES, np.array([0, 7])),
            IndexError,
            ("outside", "SoftmaxCrossEntropyForward", "index", 7, 1, 0, 3),
        ),
        (
            lambda: autograd.gather(SCORES, 0, np.array([1, -3])),
            IndexError,
            ("outside", "Gather", "index", -3, 1, -2, 2),
        ),
        (
            lambda: singa.metric.count_top_k(SCORES, tensor.from_numpy(np.array([0, 9]))),
            IndexError,
            ("outside", "CountTopK", "label", 9, 1, 0, 3),
        ),
        (
            lambda: autograd.softmax_cross_entropy(SCORES, np.array([0.0, 0.5], np.float32)),
            ValueError,
            ("not_whole", "SoftmaxCrossEntropyForward", "index", 0, 0, 0, 0),
        ),
        (
            lambda: autograd.log_softmax(tensor.from_numpy(np.array([[1, 2]])), 1),
            TypeError,
            ("not_float", "LogSoftmax", "x", 0, 0, 0, 0),
        ),
    ],
)
def test_errors_of_cpp_carry_facts(call, error, facts) -> None:
    with pytest.raises(error) as caught:
        str(call())  # reads it, which waits for a GPU
    assert tuple(facts_of(caught.value).values()) == facts


@pytest.mark.cpu("a GPU says it later, when the loss is known to nobody")
def test_a_weighted_loss_says_what_is_outside_as_one_without_weights_does() -> None:
    with pytest.raises(IndexError) as caught:
        autograd.nll_loss(SCORES, np.array([0, 3]), weight=[1.0, 1.0, 2.0])
    assert str(caught.value) == "[nll_loss] index 3 at position 1 is outside [0, 3)"
    facts = facts_of(caught.value)
    assert [facts[name] for name in ("kind", "op", "low", "high")] == ["outside", "nll_loss", 0, 3]


def test_errors_with_the_words_of_a_loss_get_no_advice() -> None:
    """Only facts decide."""
    for kind, said in (
        (ValueError, "[mine] t must have the shape of x (8, 1), got (8,)"),
        (ValueError, "x must be scores (N, C, ...) for me"),
        (IndexError, "[nll_loss] index 3 at position 0 is outside [0, 3)"),
    ):
        with pytest.raises(kind) as caught, advising("mse"):
            raise kind(said)
        assert str(caught.value) == said


def test_a_replayed_step_says_what_to_do_about_classes() -> None:
    x, y = np.zeros((24, 4), np.float32), np.zeros(24, np.int32)
    y[-1] = 2
    net = models.Sequential(layer.Linear(2))
    net.set_optimizer(opt.SGD(0.01))
    with pytest.raises(IndexError, match=r"index 2 at position 7 .*scores of 2 classes"):
        net.fit(x, y, batch_size=8, shuffle=False, verbose=False)
