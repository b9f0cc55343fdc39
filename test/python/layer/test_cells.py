"""Recurrent cells and the transformer's decoder, compared with PyTorch's; padded embeddings."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from arrays import of
from recorded import graphs
from singa import autograd, layer, model, opt, tensor
from singa.tensor import Tensor

_RANDOM = np.random.default_rng(3)


class _Model(model.Model):
    """A layer as a model, which loads PyTorch's weights."""

    def __init__(self, part: layer.Layer) -> None:
        super().__init__()
        self.part = part

    def forward(self, *xs: Any, **named: Any) -> Any:
        return self.part(*xs, **named)


def _loaded(part: layer.Layer, theirs: Any, *xs: Any) -> Any:
    net = _Model(part)
    net.forward(*xs)
    net.load_torch({f"part.{name}": value for name, value in theirs.state_dict().items()})
    return part


def _check_gradients(y: Tensor, truth: Any, torch: ModuleType, theirs: Any, part: Any) -> None:
    dy = _RANDOM.standard_normal(y.shape).astype(np.float32)
    truth.backward(torch.tensor(dy))
    gradients = autograd.gradients(y, dy)
    expected = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    for name, p in part.get_params().items():
        found = gradients[p].numpy()
        owner, _, leaf = name.rpartition(".")
        if leaf in ("W", "b"):  # of a Linear, whose weight PyTorch stores transposed
            name, found = f"{owner}.{'weight' if leaf == 'W' else 'bias'}", found.T
        np.testing.assert_allclose(found, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["RNNCell", "RNNCell relu", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("given", [True, False])
def test_cells_like_torch(
    kind: str, bias: bool, given: bool, torch: ModuleType, training: None
) -> None:
    name, _, nonlinearity = kind.partition(" ")
    named = {"nonlinearity": nonlinearity} if nonlinearity else {}
    theirs = getattr(torch.nn, name)(3, 5, bias=bias, **named)
    x = _RANDOM.standard_normal((4, 3)).astype(np.float32)
    h, c = (_RANDOM.standard_normal((4, 5)).astype(np.float32) for _ in range(2))
    part = _loaded(getattr(layer, name)(3, 5, bias=bias, **named), theirs, of(x))
    state = ((of(h), of(c)) if name == "LSTMCell" else of(h)) if given else None
    other = (
        (tuple(map(torch.tensor, (h, c))) if name == "LSTMCell" else torch.tensor(h))
        if (given)
        else None
    )
    y, truth = part(of(x), state), theirs(torch.tensor(x), other)
    if name == "LSTMCell":
        np.testing.assert_allclose(y[1].numpy(), truth[1].detach().numpy(), rtol=1e-5, atol=1e-6)
        y, truth = y[0], truth[0]
    np.testing.assert_allclose(y.numpy(), truth.detach().numpy(), rtol=1e-5, atol=1e-6)
    _check_gradients(y, truth, torch, theirs, part)


def test_wrong_states_of_cells() -> None:
    x = of(np.ones((2, 3), np.float32))
    for call in (
        lambda: layer.GRUCell(4, 5)(x),
        lambda: layer.GRUCell(3, 5)(x, of(np.ones((2, 4), np.float32))),
        lambda: layer.LSTMCell(3, 5)(x, (of(np.ones((2, 5), np.float32)), x)),
        lambda: layer.RNNCell(3, 5, nonlinearity="gelu"),
    ):
        with pytest.raises(ValueError, match="Cell"):
            call()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_like_torch(
    norm_first: bool, activation: str, torch: ModuleType, training: None
) -> None:
    theirs = torch.nn.TransformerDecoderLayer(
        8, 2, 16, 0.0, activation, batch_first=True, norm_first=norm_first
    )
    tgt = _RANDOM.standard_normal((2, 5, 8)).astype(np.float32)
    memory = _RANDOM.standard_normal((2, 7, 8)).astype(np.float32)
    ours = layer.TransformerDecoderLayer(8, 2, 16, 0.0, activation, norm_first=norm_first)
    part = _loaded(ours, theirs, of(tgt), of(memory))
    padding = np.zeros((2, 7), bool)
    padding[1, 5:] = True
    y = part(of(tgt), of(memory), tgt_is_causal=True, memory_key_padding_mask=of(padding))
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5) < 0
    truth = theirs(
        torch.tensor(tgt),
        torch.tensor(memory),
        tgt_mask=causal,
        tgt_is_causal=True,
        memory_key_padding_mask=torch.tensor(padding),
    )
    np.testing.assert_allclose(y.numpy(), truth.detach().numpy(), rtol=1e-4, atol=1e-5)
    _check_gradients(y, truth, torch, theirs, part)


def test_a_stack_of_decoders_like_torch(torch: ModuleType) -> None:
    make = lambda kind, **kw: kind(8, 2, 16, 0.0, **kw)  # noqa: E731
    theirs = torch.nn.TransformerDecoder(
        make(torch.nn.TransformerDecoderLayer, batch_first=True), 2, torch.nn.LayerNorm(8)
    ).eval()
    ours = layer.TransformerDecoder(make(layer.TransformerDecoderLayer), 2, layer.LayerNorm(8))
    tgt, memory = (_RANDOM.standard_normal((2, n, 8)).astype(np.float32) for n in (5, 7))
    part = _loaded(ours, theirs, of(tgt), of(memory))
    truth = theirs(torch.tensor(tgt), torch.tensor(memory)).detach().numpy()
    np.testing.assert_allclose(part(of(tgt), of(memory)).numpy(), truth, rtol=1e-4, atol=1e-5)


class _Words(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = layer.Embedding(6, 4, padding_idx=-6)
        self.cell = layer.GRUCell(4, 5)
        self.fc = layer.Linear(3)

    def forward(self, x: Tensor) -> Tensor:
        words, state = self.embedding(x), None
        for i in range(x.shape[1]):
            state = self.cell(words[:, i], state)
        return self.fc(state)

    def train_one_batch(self, x: Tensor, y: Tensor) -> Tensor:
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        self.optimizer(loss)
        return loss


@pytest.mark.filterwarnings("error")
def test_the_row_of_padding_is_not_trained() -> None:
    """In executed and recorded steps, with the same bits."""
    x = of(np.array([[1, 2, 0], [3, 0, 0], [4, 5, 1]], np.int32))
    y = of(np.array([0, 1, 2], np.int32))
    found = []
    for use_graph in (False, True):
        singa.seed(4)
        net = _Words()
        net.set_optimizer(opt.SGD(lr=0.5))
        net.compile([x], is_train=True, use_graph=use_graph)
        before = net.embedding.W.numpy()
        losses = [net(x, y).item() for _ in range(5)]
        after = net.embedding.W.numpy()
        assert not before[0].any()
        assert not after[0].any()
        assert (after[1:] != before[1:]).all()
        assert losses[-1] < losses[0]
        found.append(losses)
    assert found[0] == found[1]
    assert graphs(net)
    with pytest.raises(ValueError, match="padding_idx"):
        layer.Embedding(6, 4, padding_idx=6)


def test_padding_in_an_embedding_like_torch(torch: ModuleType, training: None) -> None:
    indices = np.array([[1, 3, 0], [3, 2, 3]])
    ours = layer.Embedding(4, 2, padding_idx=3)
    theirs = torch.nn.Embedding(4, 2, padding_idx=3)
    x = tensor.from_numpy(indices)
    ours(x)
    ours.W.copy_from_numpy(theirs.weight.detach().numpy())
    dy = _RANDOM.standard_normal((2, 3, 2)).astype(np.float32)
    gradient = autograd.gradients(ours(x), dy)[ours.W].numpy()
    theirs(torch.tensor(indices)).backward(torch.tensor(dy))
    np.testing.assert_allclose(gradient, theirs.weight.grad.numpy(), rtol=1e-6)
