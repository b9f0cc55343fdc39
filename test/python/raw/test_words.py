"""Words of PyTorch and Keras: taken where they mean the same, answered where they do not."""

import copy
import importlib
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import singa
from singa import autograd, data, layer, metric, model, models, opt, tensor, training
from singa.raw import words

X = tensor.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Conv2d(3, 16, kernel_size=3)", "Conv2d(3, 16, 3)"),
        ("Conv2d(in_channels=3, out_channels=16, kernel_size=3, stride=2)", "Conv2d(3, 16, 3, 2)"),
        ("Conv2d(3, out_channels=16, kernel_size=3, in_channels=3)", None),
        ("Conv2d(3, 6, 3, groups=3)", "Conv2d(3, 6, 3, group=3)"),
        ("Conv2d(3, 4, 4, padding='same')", "Conv2d(4, 4, pad_mode='SAME_UPPER')"),
        ("Conv2d(3, 4, 4, padding='valid')", "Conv2d(4, 4)"),
        ("Dropout(p=0.25)", "Dropout(0.25)"),
        ("ReLU(inplace=True)", "ReLU()"),
        ("LeakyReLU(0.1, inplace=True)", "LeakyReLU(0.1)"),
        ("Flatten(start_dim=1, end_dim=-1)", "Flatten()"),
        ("Softmax(dim=1)", "Softmax(1)"),
        ("LogSoftmax(dim=1)", "LogSoftmax(1)"),
        ("BatchNorm2d(3, affine=True)", "BatchNorm2d(3)"),
        ("Linear(in_features=8, out_features=4)", "Linear(8, 4)"),
    ],
)
def test_pytorchs_keywords(theirs, ours):
    if ours is None:
        with pytest.raises(TypeError):
            eval(f"layer.{theirs}")
        return
    first, second = eval(f"layer.{theirs}"), eval(f"layer.{ours}")
    y = second(X)
    first(X)
    first.set_states(second.get_states())
    np.testing.assert_array_equal(first(X).numpy(), y.numpy())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("Flatten(start_dim=2)", ValueError, r"\[Flatten\] start_dim must be 1, got 2"),
        ("BatchNorm2d(3, track_running_stats=False)", ValueError, "must be True, got False"),
        ("Conv2d(3, 4, 3, padding_mode='reflect')", ValueError, "padding_mode must be 'zeros'"),
        ("Conv2d(3, 4, 3, 2, padding='same')", ValueError, "needs a stride of 1"),
        ("Conv2d(3, 4, 3, padding='full')", ValueError, "'same' or 'valid', got 'full'"),
        ("Dropout(p=0.5, ratio=0.5)", TypeError, "p and ratio are the same argument"),
        ("MultiheadAttention(8, 2, add_bias_kv=True)", ValueError, "add_bias_kv must be False"),
        ("Nonsense(5)", AttributeError, "no attribute 'Nonsense'$"),
    ],
)
def test_what_is_not_the_same_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        eval(f"layer.{call}")


@pytest.mark.parametrize(
    ("owner", "name", "advice"),
    [
        (models.Sequential(layer.Linear(2)), "parameters", r"use get_params\(\)"),
        (models.Sequential(layer.Linear(2)), "state_dict", r"use get_states\(\)"),
        (layer.Linear(2), "parameters", r"use get_params\(\)"),
        (autograd, "grad", r"use autograd\.input_gradients.*without second derivatives"),
        (autograd, "einsum", r"use tensor\.einsum"),
        (tensor, "cat", r"use autograd\.cat"),
        (tensor.ones((2,)), "flip", r"use x\[::-1\]"),
        (tensor.ones((2,)), "cumsum", r"use autograd\.cumsum"),
        (tensor.Tensor, "isnan", r"use autograd\.isnan"),
        (singa, "set_float32_matmul_precision", r"use singa\.set_float32_precision"),
        (tensor, "isnan", r"use autograd\.isnan"),
    ],
)
def test_names_that_are_not_there(owner, name, advice):
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match=f"has no attribute {name!r}: {advice}"):
        getattr(owner, name)


def test_tensors_are_copied_as_before():
    x = tensor.ones((2,))
    for again in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(again.numpy(), [1, 1])


def test_the_table_names_what_exists():
    """What the answers begin with is there, and the names that they answer are not."""
    modules = autograd, data, layer, metric, models, opt, tensor, training
    places = {module.__name__.partition(".")[2]: module for module in modules}
    tables = [words.TENSORS, words.LAYERS, words.DATASETS, *words.MODULES.values()]
    tables += words.ARGUMENTS.values()
    for table in tables:
        for answer in table.values():
            module, dot, rest = answer.partition(".")
            name = rest.partition("(")[0].partition(",")[0].split()[0] if rest.split() else ""
            if dot and module in places and name.isidentifier():
                assert hasattr(places[module], name), answer
    net = models.Sequential(layer.Linear(2))
    for name, answer in words.LAYERS.items():
        assert not hasattr(net, name), name
        first = answer.partition("(")[0]
        if first.isidentifier() and "(" in answer and " " not in first:
            assert hasattr(net, first), answer
    for name in words.TENSORS:
        assert not hasattr(tensor.Tensor, name), name
    for name in words.DATASETS:
        assert not hasattr(data.ImageFolder, name), name
    for module, names in words.MODULES.items():
        for name, answer in names.items():
            with pytest.raises(AttributeError, match=re.escape(f"{name!r}: use {answer}")):
                getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: autograd.input_gradients(lambda t: t.sum(), x, create_graph=True),
        lambda x: x.sum().backward(create_graph=True),
        lambda x: autograd.backward(x.sum(), create_graph=True),
        lambda x: autograd.gradients(x.sum(), create_graph=True),
    ],
)
def test_there_are_no_second_derivatives(call):
    with pytest.raises(TypeError, match=r"'create_graph': use .*has no second derivatives"):
        call(tensor.ones((2,)))


@pytest.mark.parametrize("page", ["keras", "fastai"])
def test_the_names_on_a_page_are_answered(page):
    """Names in the first column of the page's table are singa's too, or an error says what to
    write."""
    text = (Path(__file__).parents[3] / "docs" / "coming_from" / f"{page}.md").read_text()
    tables = [words.LAYERS, words.DATASETS, *words.MODULES.values(), *words.ARGUMENTS.values()]
    answered = {name for table in tables for name in table}
    modules = [data, layer, metric, model, models, opt, training]
    answered |= {name for owner in (*modules, model.Model, training.Trainer) for name in dir(owner)}
    rows = re.findall(r"^\| (`.*?) \| ", text.partition("## Names")[2], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 20
    for name in set(names) - {"dense.trainable = False", "mixed_bfloat16"}:  # not names to call
        word = re.match(r"(?:\w+\.)*(\w+)", name)[1]
        assert word in answered, name
