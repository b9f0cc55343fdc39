"""Convolutional networks as in SINGA's examples, on arrays like MNIST and like CIFAR."""

import numpy as np
import pytest
from singa import autograd, device, initializer, layer, model, opt, tensor


class CNN(model.Model):
    def __init__(self, num_classes=10, num_channels=1):
        super().__init__()
        self.num_classes = num_classes
        self.input_size = 14
        self.dimension = 4
        self.conv1 = layer.Conv2d(num_channels, 6, 3, padding=1, activation="RELU")
        self.conv2 = layer.Conv2d(6, 12, 3, padding=1, activation="RELU")
        self.linear1 = layer.Linear(32)
        self.linear2 = layer.Linear(num_classes)
        self.pooling1 = layer.MaxPool2d(2, 2, padding=0)
        self.pooling2 = layer.MaxPool2d(2, 2, padding=0)
        self.relu = layer.ReLU()
        self.flatten = layer.Flatten()
        self.softmax_cross_entropy = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        y = self.conv1(x)
        y = self.pooling1(y)
        y = self.conv2(y)
        y = self.pooling2(y)
        y = self.flatten(y)
        y = self.linear1(y)
        y = self.relu(y)
        return self.linear2(y)

    def train_one_batch(self, x, y, dist_option, spars):
        out = self.forward(x)
        loss = self.softmax_cross_entropy(out, y)
        if dist_option == "plain":
            self.optimizer(loss)
        elif dist_option == "sparseTopK":
            self.optimizer.backward_and_sparse_update(loss, topK=True, spars=spars)
        return out, loss

    def set_optimizer(self, optimizer):
        self.optimizer = optimizer


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """One bright bar per class, with noise: images (count, 1, 14, 14) and one-hot labels."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, count)
    images = rng.normal(0, 0.3, (count, 1, 14, 14))
    for image, number in zip(images, label, strict=True):
        if number < 2:
            image[0, 3 + 6 * number] += 2
        else:
            image[0, :, 3 + 6 * (number - 2)] += 2
    return images.astype(np.float32), label.astype(np.int32)


def augmentation(x, rng):
    """Shifts each image by at most one pixel, within a frame of its edge pixels, and flips some."""
    padded = np.pad(x, [[0, 0], [0, 0], [1, 1], [1, 1]], "symmetric")
    for n in range(x.shape[0]):
        top, left = rng.integers(0, 3, 2)
        x[n] = padded[n, :, top : top + x.shape[2], left : left + x.shape[3]]
        if rng.integers(2):
            x[n] = x[n, :, ::-1, :]
    return x


def test_mnist_like_images() -> None:
    dev = device.get_default_device()
    dev.SetRandSeed(0)
    np.random.seed(0)  # noqa: NPY002 - what such scripts do
    train_x, train_y = digits(64)
    net = CNN(num_classes=4)
    sgd = opt.SGD(lr=0.05, momentum=0.9, weight_decay=1e-5, dtype=tensor.float32)
    net.set_optimizer(sgd)
    batch = 16
    tx = tensor.Tensor((batch, 1, 14, 14), dev, tensor.float32)
    ty = tensor.Tensor((batch,), dev, tensor.int32)
    tx.copy_from_numpy(train_x[:batch])
    ty.copy_from_numpy(train_y[:batch])
    net.compile([tx], is_train=True, use_graph=True, sequential=False)
    assert sorted(net.get_params()) == [
        f"{name}.{part}" for name in ("conv1", "conv2", "linear1", "linear2") for part in ("W", "b")
    ]
    idx = np.arange(train_x.shape[0], dtype=np.int32)
    correct = []
    for _ in range(5):
        np.random.shuffle(idx)  # noqa: NPY002
        right = 0
        for b in range(len(idx) // batch):
            chosen = idx[b * batch : (b + 1) * batch]
            tx.copy_from_numpy(train_x[chosen])
            ty.copy_from_numpy(train_y[chosen])
            out, loss = net(tx, ty, "plain", 0.05)
            right += (tensor.to_numpy(out).argmax(1) == train_y[chosen]).sum()
            assert np.isfinite(tensor.to_numpy(loss)[0])
        correct.append(right / len(idx))
    dev.Sync()
    dev.PrintTimeProfiling()
    assert correct[-1] > 0.95 > correct[0]
    net.eval()
    tx.copy_from_numpy(train_x[:batch])
    assert (tensor.to_numpy(net(tx)).argmax(1) == train_y[:batch]).all()


class Block(layer.Layer):
    """Layers in a list must be registered."""

    def __init__(self, planes):
        super().__init__()
        self.layers = [layer.SeparableConv2d(planes, 3, padding=1), layer.BatchNorm2d(planes)]
        self.register_layers(*self.layers)

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return x


class CifarNet(model.Model):
    """Convolution, batch norm, a shortcut, global pooling."""

    def __init__(self, num_classes=4):
        super().__init__()
        self.conv1 = layer.Conv2d(8, 3, stride=1, padding=1, bias=False)
        self.bn1 = layer.BatchNorm2d()
        self.block = Block(8)
        self.add = layer.Add()
        self.relu = layer.ReLU()
        self.pool = layer.AvgPool2d(3, 2, padding=1)
        self.dropout = layer.Dropout(0.1)
        self.fc = layer.Linear(num_classes)
        self.softmax_cross_entropy = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.add(self.block(y), y))
        y = self.pool(y)
        y = autograd.globalaveragepool(self.dropout(y))
        return self.fc(autograd.flatten(y))

    def train_one_batch(self, x, y, dist_option="plain", spars=0.05):
        out = self.forward(x)
        loss = self.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def test_cifar_like_images_with_a_decaying_rate() -> None:
    dev = device.get_default_device()
    dev.SetRandSeed(1)
    grey, label = digits(48)
    colour = np.repeat(grey, 3, axis=1)
    onehot = np.eye(4, dtype=np.float32)[label]
    lr = opt.ExponentialDecay(0.2, decay_steps=4, decay_rate=0.5, staircase=True)
    sgd = opt.SGD(lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    net = CifarNet()
    net.set_optimizer(sgd)
    tx = tensor.from_numpy(colour[:24])
    tx.to_device(dev)
    ty = tensor.from_numpy(onehot[:24])
    net.compile([tx], is_train=True, use_graph=False)
    initializer.he_uniform(net.conv1.W)
    rng = np.random.default_rng(4)
    rates, losses = [], []
    for _ in range(10):
        for start in (0, 24):
            rates.append(float(tensor.to_numpy(sgd.lr_value)[0]))
            tx.copy_from_numpy(augmentation(colour[start : start + 24].copy(), rng))
            ty.copy_from_numpy(onehot[start : start + 24])
            _, loss = net(tx, ty)
            losses.append(float(tensor.to_numpy(loss)[0]))
    np.testing.assert_allclose(rates, [0.2 * 0.5 ** (step // 4) for step in range(20)], rtol=1e-6)
    assert losses[-1] < 0.6 * losses[0]
    states = net.get_states()
    assert {"bn1.running_mean", "block.BatchNorm2d_1.running_var", "fc.b"} <= set(states)
    assert np.abs(tensor.to_numpy(states["bn1.running_mean"])).max() > 0


def test_custom_schedules_are_called_with_the_step() -> None:
    class Triangle(opt.DecayScheduler):
        def __init__(self, init_value, half):
            super().__init__(init_value)
            self.half = half

        def call(self, step):
            assert step.shape == (1,)
            distance = tensor.abs(step - self.half)
            return (1.0 - distance / self.half) * self.init_value

    w = tensor.Tensor((1,), requires_grad=True, stores_grad=True)
    w.set_value(0.0)
    w.name = "w"
    sgd = opt.SGD(Triangle(1.0, 2), momentum=0)
    seen = []
    for _ in range(4):
        before = tensor.to_numpy(w)[0]
        sgd.apply(w.name, w, tensor.ones((1,)))
        sgd.step()
        seen.append(float(before - tensor.to_numpy(w)[0]))
    assert seen == pytest.approx([0.0, 0.5, 1.0, 0.5])
