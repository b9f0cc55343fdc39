"""A network over characters, as SINGA's example has it: an LSTM whose state outlives the batch."""

import numpy as np
import pytest
from singa import autograd, device, layer, model, opt, tensor

TEXT = "abcdabcdabcdabcdabcdabcdabcdabcd" * 4


class CharRNN(model.Model):
    def __init__(self, vocab_size, hidden_size=16):
        super().__init__()
        self.rnn = layer.LSTM(vocab_size, hidden_size)
        self.cat = layer.Cat()
        self.reshape1 = layer.Reshape()
        self.dense = layer.Linear(hidden_size, vocab_size)
        self.reshape2 = layer.Reshape()
        self.softmax_cross_entropy = layer.SoftMaxCrossEntropy()
        self.optimizer = opt.SGD(1.0, momentum=0.9)
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        self.hx = tensor.Tensor((1, self.hidden_size))
        self.cx = tensor.Tensor((1, self.hidden_size))

    def reset_states(self, dev):
        self.hx.to_device(dev)
        self.cx.to_device(dev)
        self.hx.set_value(0.0)
        self.cx.set_value(0.0)

    def forward(self, *inputs):
        x, hx, cx = self.rnn(list(inputs), (self.hx, self.cx))
        self.hx.copy_data(hx)
        self.cx.copy_data(cx)
        x = self.cat(x)
        x = self.reshape1(x, (-1, self.hidden_size))
        return self.dense(x)

    def train_one_batch(self, x, y):
        out = self.forward(*x)
        y = self.reshape2(y, (-1, self.vocab_size))
        loss = self.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def convert(batch, vocab_size, dev):
    """A row of indices → one-hot inputs, one tensor a step, and the next characters."""
    x = np.eye(vocab_size, dtype=np.float32)[batch]
    inputs = []
    for step in range(len(batch) - 1):
        t = tensor.from_numpy(x[step : step + 1])
        t.to_device(dev)
        inputs.append(t)
    labels = tensor.from_numpy(x[1:])
    labels.to_device(dev)
    return inputs, labels


def test_char_rnn() -> None:
    dev = device.get_default_device()
    dev.SetRandSeed(2)
    characters = sorted(set(TEXT))
    indices = [characters.index(c) for c in TEXT]
    net = CharRNN(len(characters))
    net.reset_states(dev)
    inputs, labels = convert(indices[:9], 4, dev)
    net.compile(inputs, is_train=True, use_graph=False)
    losses = []
    for _ in range(12):
        net.reset_states(dev)
        for start in range(0, len(indices) - 9, 8):
            inputs, labels = convert(indices[start : start + 9], 4, dev)
            out, loss = net(inputs, labels)
            losses.append(tensor.to_numpy(loss)[0])
    assert out.shape == (8, 4)
    assert losses[0] == pytest.approx(np.log(4), rel=0.05)
    assert losses[-1] < 0.2
    assert len(net.get_params()) == 4 * 4 + 2

    net.eval()  # let it write on its own
    net.reset_states(dev)
    state = "a"
    written = ""
    for _ in range(8):
        x = np.eye(4, dtype=np.float32)[[characters.index(state)]]
        y = tensor.softmax(net(tensor.from_numpy(x)))
        state = characters[int(np.argmax(tensor.to_numpy(y)))]
        written += state
    assert written == "bcdabcda"


def test_gradients_go_through_all_steps() -> None:
    autograd.training = True
    try:
        rnn = layer.RNN(3, 2)
        rng = np.random.default_rng(0)
        steps = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(3)]
        xs = [tensor.Tensor(data=x, stores_grad=True) for x in steps]
        h0 = tensor.Tensor(shape=(2, 2))
        h0.set_value(0.1)
        hs, last = rnn(xs, h0)
        grads = {id(p): g for p, g in autograd.backward(last, tensor.ones((2, 2)))}
        Wx, Wh, b = (tensor.to_numpy(p).astype(np.float64) for p in (rnn.Wx, rnn.Wh, rnn.b))
        h, kept = np.full((2, 2), 0.1), []
        for x in steps:
            h = np.tanh(x @ Wx + h @ Wh + b)
            kept.append(h)
        np.testing.assert_allclose(tensor.to_numpy(hs[1]), kept[1], atol=1e-5)
        dh = np.ones((2, 2))
        for x, h in zip(reversed(xs), reversed(kept), strict=True):
            dz = dh * (1 - h**2)
            np.testing.assert_allclose(tensor.to_numpy(grads[id(x)]), dz @ Wx.T, atol=1e-5)
            dh = dz @ Wh.T
    finally:
        autograd.training = False
