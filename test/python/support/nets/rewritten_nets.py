"""Networks whose recorded steps passes rewrite."""

import numpy as np
from graph_net import Net
from singa import autograd, layer, model, tensor


class Residual(model.Model):
    """Bottlenecks with residuals, as in ResNet-50."""

    def __init__(self, blocks=6, width=8):
        super().__init__()
        self.blocks = blocks
        self.stem = layer.Conv2d(4 * width, 3, padding=1, bias=False)
        self.stem_bn = layer.BatchNorm2d(momentum=0.1)
        for i in range(blocks):
            for name, channels, kernel in (("a", width, 1), ("b", width, 3), ("c", 4 * width, 1)):
                conv = layer.Conv2d(channels, kernel, padding=kernel // 2, bias=False)
                setattr(self, f"conv{i}{name}", conv)
                setattr(self, f"bn{i}{name}", layer.BatchNorm2d(momentum=0.1))
        self.fc = layer.Linear(3)

    def forward(self, x):
        x = self.stem_bn(self.stem(x), relu=True)
        for i in range(self.blocks):
            h = x
            for name in "ab":
                h = getattr(self, f"bn{i}{name}")(getattr(self, f"conv{i}{name}")(h), relu=True)
            x = getattr(self, f"bn{i}c")(getattr(self, f"conv{i}c")(h), add=x, relu=True)
        return self.fc(autograd.flatten(autograd.globalaveragepool(x)))

    train_one_batch = Net.train_one_batch


class Fusable(model.Model):
    """Convolution and ReLU with and without pooling, Linear with ReLU and dropout, a chain."""

    def __init__(self):
        super().__init__()
        self.conv1 = layer.Conv2d(16, 3, padding=1)
        self.conv2 = layer.Conv2d(16, 3, padding=1)
        self.pool = layer.MaxPool2d(2)
        self.fc1 = layer.Linear(24)
        self.fc2 = layer.Linear(3)

    def forward(self, x):
        x = self.pool(autograd.relu(self.conv1(x)))
        x = autograd.relu(self.conv2(x))
        x = autograd.mul(autograd.tanh(x), autograd.abs(x))
        x = autograd.dropout(autograd.relu(self.fc1(autograd.flatten(x))))
        return self.fc2(x)

    train_one_batch = Net.train_one_batch


class Blocks(model.Model):
    """Transformer blocks with dropout, on images as rows of tokens."""

    def __init__(self):
        super().__init__()
        self.embed = layer.Linear(16)
        for i in range(4):
            setattr(self, f"norm{i}", layer.LayerNorm(16))
            setattr(self, f"attention{i}", layer.MultiHeadAttention(16, 2))
            setattr(self, f"up{i}", layer.Linear(64))
            setattr(self, f"down{i}", layer.Linear(16))
        self.drop = layer.Dropout(0.3)
        self.fc = layer.Linear(3)

    def forward(self, x):
        n, c, h, w = x.shape
        x = self.embed(autograd.reshape(x, (n, c * h, w)))
        for i in range(4):
            x = x + self.drop(getattr(self, f"attention{i}")(getattr(self, f"norm{i}")(x)))
            up = autograd.gelu(getattr(self, f"up{i}")(x))
            x = x + self.drop(getattr(self, f"down{i}")(up))
        return self.fc(autograd.reduce_mean(x, axis=1, keepdims=False))

    train_one_batch = Net.train_one_batch


class Random(model.Model):
    """A chain of blocks drawn from a seed: convolutions of many kinds, branches, concatenations,
    views."""

    def __init__(self, seed, fused):
        super().__init__()
        self.rng_seed = seed
        self.fused = fused
        rng = np.random.default_rng([1, seed])
        self.kinds = [int(k) for k in rng.integers(0, 11, rng.integers(3, 7))]
        channels = 0
        for i, kind in enumerate(self.kinds):
            channels = int(rng.choice([3, 8, 13, 16, 32])) if kind < 4 or not channels else channels
            kernel = int(rng.choice([1, 3, 5]))
            conv = layer.Conv2d(
                channels, kernel, padding=kernel // 2, bias=bool(rng.integers(2)),
                stride=int(rng.integers(1, 3)) if kind == 1 else 1,
            )  # fmt: skip
            setattr(self, f"conv{i}", conv)
            setattr(self, f"bn{i}", layer.BatchNorm2d(momentum=0.1))
        self.pool = layer.MaxPool2d(2, 2)
        self.average = layer.AvgPool2d(3, 1, padding=1)
        self.fc = layer.Linear(4)
        self.scale = tensor.from_numpy(np.float32([0.7]))

    def normalised(self, i, x, add=None):
        bn = getattr(self, f"bn{i}")
        if self.fused:
            return bn(x, add=add, relu=True)
        y = bn(x)
        return autograd.relu(y if add is None else autograd.add(y, add))

    def forward(self, x):
        for i, kind in enumerate(self.kinds):
            h = getattr(self, f"conv{i}")(x)
            if kind == 0:
                x = self.normalised(i, h)
            elif kind == 1:
                x = autograd.relu(h)
            elif kind == 2:
                x = self.normalised(i, h, add=autograd.sigmoid(h))
            elif kind == 3:
                x = self.pool(h) if h.shape[2] >= 4 else autograd.tanh(h)
            elif kind == 4:
                x = autograd.add(autograd.relu(h), h)
            elif kind == 5:
                x = autograd.cat([autograd.relu(h), self.average(h)], 1)
            elif kind == 6:  # views, which need a plain layout
                x = autograd.transpose(autograd.transpose(h, (0, 1, 3, 2)), (0, 1, 3, 2))
            elif kind == 7:
                x = autograd.mul(h, autograd.softplus(h))
            elif kind == 8 and h.shape[2] >= 4:
                x = self.pool(autograd.relu(h))
            elif kind == 9:  # a chain of which backward reads parts, and dropout
                gate = autograd.sigmoid(autograd.mul(h, self.scale))
                x = autograd.dropout(autograd.tanh(autograd.add(h, gate)), ratio=0.3)
            else:
                size = autograd.abs(h)
                x = autograd.add(autograd.relu(h), autograd.mul(size, size))
        return self.fc(autograd.flatten(autograd.globalaveragepool(x)))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss
