"""Recurrent cells and the transformer's decoder, compared with PyTorch's; padded embeddings."""

from types import ModuleType

import numpy as np
import pytest
import singa
from arrays import of
from like_torch import check_like_torch
from recorded import graphs
from singa import autograd, layer, model, opt, tensor
from singa.tensor import Tensor

_RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["RNNCell", "RNNCell relu", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("given", [True, False])
def test_cells_like_torch(kind: str, bias: bool, given: bool, torch: ModuleType) -> None:
    name, _, nonlinearity = kind.partition(" ")
    named = {"nonlinearity": nonlinearity} if nonlinearity else {}
    shapes = [(4, 3), *[(4, 5)] * (given * (2 if name == "LSTMCell" else 1))]
    of = lambda cell, x, *state: cell(x, state if len(state) == 2 else (*state, None)[0])  # noqa: E731
    check_like_torch(
        torch,
        getattr(layer, name)(3, 5, bias=bias, **named),
        getattr(torch.nn, name)(3, 5, bias=bias, **named),
        [_RANDOM.standard_normal(shape) for shape in shapes],
        ours=of,
        other=of,
    )


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
def test_decoder_like_torch(norm_first: bool, activation: str, torch: ModuleType) -> None:
    options = {"dropout": 0.0, "activation": activation, "norm_first": norm_first}
    padding = np.zeros((2, 7), bool)
    padding[1, 5:] = True
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5) < 0
    check_like_torch(
        torch,
        layer.TransformerDecoderLayer(8, 2, 16, **options),
        torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, **options),
        [_RANDOM.standard_normal((2, n, 8)) for n in (5, 7)],
        ours=lambda inner, *xs: inner(*xs, tgt_is_causal=True, memory_key_padding_mask=of(padding)),
        other=lambda module, *xs: module(
            *xs, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=torch.tensor(padding)
        ),
    )


def test_a_stack_of_decoders_like_torch(torch: ModuleType) -> None:
    make = lambda kind, **kw: kind(8, 2, 16, 0.0, **kw)  # noqa: E731
    check_like_torch(
        torch,
        layer.TransformerDecoder(make(layer.TransformerDecoderLayer), 2, layer.LayerNorm(8)),
        torch.nn.TransformerDecoder(
            make(torch.nn.TransformerDecoderLayer, batch_first=True), 2, torch.nn.LayerNorm(8)
        ),
        [_RANDOM.standard_normal((2, n, 8)) for n in (5, 7)],
    )


class _Words(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = layer.Embedding(6, 4, padding_idx=-6)
        self.cell = layer.GRUCell(4, 5)
        self.fc = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: Tensor) -> Tensor:
        words, state = self.embedding(x), None
        for i in range(x.shape[1]):
            state = self.cell(words[:, i], state)
        return self.fc(state)


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
        losses = [net(x, y)[1].item() for _ in range(5)]
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
