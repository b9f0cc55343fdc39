"""A character network as in SINGA's example: an LSTM over many steps, whose states are created by
the first forward and returned by `get_states`, trained in graph mode without compile()."""

import numpy as np
import pytest
from singa import autograd, compat, device, layer, model, opt, tensor

STEPS, BATCH = 24, 4
TEXT = "abcd" * 200


class CharRNN(model.Model):
    def __init__(self, vocab_size, hidden_size=16):
        super().__init__()
        self.rnn = layer.LSTM(vocab_size, hidden_size)
        self.cat = layer.Cat()
        self.reshape1 = layer.Reshape()
        self.dense = layer.Linear(hidden_size, vocab_size)
        self.reshape2 = layer.Reshape()
        self.softmax_cross_entropy = layer.SoftMaxCrossEntropy()
        self.optimizer = opt.SGD(0.5, momentum=0.9)
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size

    def reset_states(self, dev):
        for state in (self.hx, self.cx):
            state.to_device(dev)
            state.set_value(0.0)

    def initialize(self, inputs):
        batch = inputs[0].shape[0]
        self.hx = tensor.Tensor((batch, self.hidden_size))
        self.cx = tensor.Tensor((batch, self.hidden_size))
        self.reset_states(inputs[0].device)

    def forward(self, inputs):
        x, hx, cx = self.rnn(inputs, (self.hx, self.cx))
        self.hx.copy_data(hx)
        self.cx.copy_data(cx)
        x = self.cat(x)
        x = self.reshape1(x, (-1, self.hidden_size))
        return self.dense(x)

    def train_one_batch(self, x, y):
        out = self.forward(x)
        y = self.reshape2(y, (-1, 1))
        loss = self.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss

    def get_states(self):
        states = super().get_states()
        states[self.hx.name] = self.hx
        states[self.cx.name] = self.cx
        return states

    def set_states(self, states):
        self.hx.copy_from(states[self.hx.name])
        self.cx.copy_from(states[self.cx.name])
        super().set_states(states)


def batches(vocab: list[str]) -> list[np.ndarray]:
    """Batches of BATCH rows of STEPS + 1 indices."""
    indices = np.asarray([vocab.index(c) for c in TEXT], np.int32)
    rows = indices[: len(indices) // (STEPS + 1) * (STEPS + 1)].reshape(-1, STEPS + 1)
    return [rows[i : i + BATCH] for i in range(0, len(rows) - BATCH + 1, BATCH)]


def convert(batch, vocab_size, dev, inputs=None, labels=None):
    """One-hot inputs, one tensor for each step, and the next characters. They are written to the
    tensors of the last batch, if there are any."""
    y = batch[:, 1:].T.reshape((-1, 1))
    x = np.eye(vocab_size, dtype=np.float32)[batch[:, :-1]].swapaxes(0, 1)
    if labels:
        labels.copy_from_numpy(y)
        for t, values in zip(inputs, x, strict=True):
            t.copy_from_numpy(values)
        return inputs, labels
    labels = tensor.from_numpy(y)
    labels.to_device(dev)
    inputs = []
    for values in x:
        t = tensor.from_numpy(values)
        t.to_device(dev)
        inputs.append(t)
    return inputs, labels


def train(vocab, graph, reset):
    """The network, and the loss of each batch."""
    dev = device.get_default_device()
    dev.SetRandSeed(2)
    net = CharRNN(len(vocab))
    net.graph(graph, False)
    inputs = labels = None
    losses = []
    for _ in range(3):
        net.train()
        for batch in batches(vocab):
            inputs, labels = convert(batch, len(vocab), dev, inputs, labels)
            _, loss = net(inputs, labels)
            if reset:
                net.reset_states(dev)
            losses.append(tensor.to_numpy(loss)[0])
    return net, losses


def evaluate(net, vocab):
    net.eval()
    dev = device.get_default_device()
    inputs = labels = None
    total = 0.0
    for batch in batches(vocab)[:3]:
        inputs, labels = convert(batch, len(vocab), dev, inputs, labels)
        net.reset_states(dev)
        loss = autograd.softmax_cross_entropy(net(inputs), labels)[0]
        total += tensor.to_numpy(loss)[0]
    return total / 3


def sample(net, vocab, seed, count):
    """The text that the network generates after `seed`."""
    dev = device.get_default_device()
    one_hot = np.eye(len(vocab), dtype=np.float32)[:, None]
    net.reset_states(dev)
    outputs = net([tensor.from_numpy(one_hot[vocab.index(c)]) for c in seed])
    written = seed
    for _ in range(count):
        probabilities = tensor.to_numpy(tensor.softmax(outputs[-1]))[0]
        assert probabilities.sum() == pytest.approx(1.0)
        written += vocab[int(np.argmax(probabilities))]
        outputs = net([tensor.from_numpy(one_hot[vocab.index(written[-1])])])
    return written


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "carried"])
def test_char_rnn(reset: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "enabled", True)  # `if labels:`, loss[0], outputs[-1]
    vocab = sorted(set(TEXT))
    executed, expected = train(vocab, False, reset)
    net, losses = train(vocab, True, reset)
    assert losses == expected
    assert losses[0] == pytest.approx(np.log(4), rel=0.05)
    assert losses[-1] < 0.3
    assert len(net.memory_plan()["graphs"]) == 1
    states = executed.get_states()
    assert len(states) == len(net.get_params()) + 2 == 4 * 4 + 2 + 2
    for name, state in net.get_states().items():
        assert state.numpy().tobytes() == states[name].numpy().tobytes(), name
    assert evaluate(net, vocab) == pytest.approx(evaluate(executed, vocab), rel=1e-5)
    assert evaluate(net, vocab) < 0.3
    assert sample(net, vocab, "ab", 8) == "abcdabcdab"


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
