"""GPT: sampling, and what a position sees."""

import numpy as np
import pytest
import singa
from singa import models, opt, tensor
from singa.models.gpt import GPT, _draw

SMALL = {"num_classes": 11, "context": 8, "width": 16, "depth": 2, "heads": 2}


def small(**options):
    singa.seed(1)
    net = GPT(**(SMALL | options))
    net.compile([tensor.Tensor((2, 8), dtype="int32")], is_train=False)
    for name, param in net.get_params().items():
        if name.endswith(".W"):
            param.gaussian(0.0, 0.5)
    return net


def scores(net, tokens):
    return net(tensor.from_numpy(np.asarray(tokens, np.int32))).numpy()


def test_a_position_does_not_see_later_ones():
    net = small()
    tokens = np.random.default_rng(0).integers(0, 11, (2, 8))
    changed = tokens.copy()
    changed[:, 5:] = (changed[:, 5:] + 1) % 11
    before, after = scores(net, tokens), scores(net, changed)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(axis=2).all()
    np.testing.assert_allclose(scores(net, tokens[:, :3]), before[:, :3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("graph", [False, True])
def test_generate_takes_the_likeliest_token(graph):
    net = small()
    net.graph(graph)
    start = [[1, 2, 3], [4, 5, 6]]
    got = net.generate(start, 9, temperature=0)
    rows = np.array(start)
    net.graph(False)
    for _ in range(9):
        rows = np.concatenate([rows, scores(net, rows[:, -8:])[:, -1:].argmax(2)], 1)
    np.testing.assert_array_equal(got, rows)
    assert got.shape == (2, 12)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize(("start", "count"), [(1, 4), (1, 20), (5, 3), (8, 4), (13, 6)])
def test_kept_keys_and_values_give_the_same_tokens(dtype, start, count):
    """As drawn from the scores of the whole network at each step, before and behind the context."""
    net = small()
    net.compile([tensor.Tensor((3, 8), dtype="int32")], is_train=False, dtype=dtype)
    tokens = np.random.default_rng(2).integers(0, 11, (3, start))
    for temperature, top_k in ((0, None), (0.8, None), (1.0, 3)):
        random, rows = np.random.default_rng(7), tokens
        for _ in range(count):
            last = scores(net, rows[:, -8:])[:, -1].astype(np.float64)
            drawn = _draw(last, temperature, top_k, random)
            rows = np.concatenate([rows, drawn[:, None]], 1)
        np.testing.assert_array_equal(net.generate(tokens, count, temperature, top_k, 7), rows)


def test_a_step_of_sampling_computes_one_token():
    net = small()
    net.generate([[1, 2, 3]], 1)
    with singa.profile() as profile:
        net.generate([[1, 2, 3]], 5, temperature=0)
    one = 2 * (2 * 12 * 16 * 16 + 16 * 11)  # two blocks, and the scores of 11 tokens
    products = sum(record.flops for record in profile.records if record.op == "LinearForward")
    assert products == (3 + 1 + 1 + 1 + 1) * one


def test_generate_draws_with_its_seed_and_leaves_the_mode():
    net = small()
    start = [[1]]
    first = net.generate(start, 20, seed=1)
    np.testing.assert_array_equal(first, net.generate(start, 20, seed=1))
    assert (first != net.generate(start, 20, seed=2)).any()
    np.testing.assert_array_equal(
        net.generate(start, 9, top_k=1, seed=3), net.generate(start, 9, temperature=0)
    )
    assert not net.training
    net.train()
    net.generate(start, 1)
    assert net.training
    net.eval()


def test_draws_follow_the_softmax():
    row = np.log([0.1, 0.2, 0.3, 0.4])
    rows = np.tile(row, (20_000, 1))
    random = np.random.default_rng(0)
    # 20,000 draws: a standard deviation of 0.0035 or less.
    counts = np.bincount(_draw(rows, 1.0, None, random), minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0.1, 0.2, 0.3, 0.4], atol=0.015)
    counts = np.bincount(_draw(rows, 0.5, None, random), minlength=4) / 20_000
    np.testing.assert_allclose(counts, np.array([1, 4, 9, 16]) / 30, atol=0.015)
    counts = np.bincount(_draw(rows, 1.0, 2, random), minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0, 0, 3 / 7, 4 / 7], atol=0.015)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[]], 1), "at least 1"),
        (([1, 2], 1), "expected tokens"),
        (([[1]], 1, -1.0), "temperature must be 0 or more"),
        (([[1]], 1, 1.0, 0), "top_k 1 or more"),
        (([[1]], -1), "count"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        small().generate(*arguments)


def test_start_values():
    singa.seed(0)
    net = models.create("gpt_small", context=16)
    net.compile([tensor.Tensor((1, 16), dtype="int32")])
    states = net.get_params()
    assert states["wte.W"].numpy().std() == pytest.approx(0.02, rel=0.02)
    assert states["h.3.attn.qkv.W"].numpy().std() == pytest.approx(0.02, rel=0.02)
    for name in ("attn.proj", "mlp.fc2"):
        std = states[f"h.3.{name}.W"].numpy().std()
        assert std == pytest.approx(0.02 / 12**0.5, rel=0.02)
    assert not states["h.3.mlp.fc1.b"].numpy().any()


def test_learns_a_sequence():
    """Each token follows from the one before it: a loss of almost 0."""
    singa.seed(0)
    net = GPT(**SMALL)
    net.set_optimizer(opt.AdamW(0.01))
    random = np.random.default_rng(0)
    net.compile([tensor.Tensor((16, 8), dtype="int32")], use_graph=True)
    for _ in range(60):
        tokens = (random.integers(0, 11, (16, 1)) + 3 * np.arange(9)) % 11
        x, y = (tensor.from_numpy(t.astype(np.int32)) for t in (tokens[:, :-1], tokens[:, 1:]))
        _, loss = net(x, y)
    assert float(loss) < 0.1
    net.eval()
    np.testing.assert_array_equal(
        net.generate([[4]], 5, temperature=0), (4 + 3 * np.arange(6))[None] % 11
    )
