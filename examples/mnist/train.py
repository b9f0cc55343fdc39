#!/usr/bin/env python3
"""Trains a small convolutional network on handwritten digits. This is the shortest complete script.

    python train.py                 trains on generated digits, which need no files
    python train.py --data MNIST    trains on the IDX files in folder MNIST, gzipped or not

The script defines the network itself. `singa.models.create("lenet")` gives the same architecture.
"""

from __future__ import annotations

import argparse
import sys

import singa
from singa import autograd, data, layer, model, opt, tensor


class LeNet(model.Model):
    """Two convolutions with pooling, two fully connected layers. After LeCun et al. 1998."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(20, 5)
        self.pool1 = layer.MaxPool2d(2)
        self.conv2 = layer.Conv2d(50, 5)
        self.pool2 = layer.MaxPool2d(2)
        self.fc1 = layer.Linear(500)
        self.fc2 = layer.Linear(10)
        self.loss = layer.CrossEntropyLoss()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        x = self.pool1(autograd.relu(self.conv1(x)))
        x = self.pool2(autograd.relu(self.conv2(x)))
        x = autograd.relu(self.fc1(autograd.flatten(x)))
        return self.fc2(x)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", metavar="DIR", help="folder with the files of MNIST [generated digits]"
    )
    parser.add_argument(
        "--images",
        type=int,
        default=sys.maxsize,
        metavar="N",
        help="use only the first N training images [all]",
    )
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="[%(default)s]")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="[%(default)s]")
    parser.add_argument(
        "--lr", type=float, default=0.01, metavar="X", help="learning rate [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="[%(default)s]")
    args = parser.parse_args()
    if min(args.images, args.epochs, args.batch_size) < 1:
        parser.error("--images, --epochs and --batch-size must be 1 or more")

    singa.seed(args.seed)
    if args.data:
        train, test = data.load_mnist(args.data), data.load_mnist(args.data, "test")
        normalize = data.Normalize(data.MNIST_MEAN, data.MNIST_STD)
    else:
        train, test = data.digits(), data.digits("test")
        normalize = data.Normalize(data.DIGITS_MEAN, data.DIGITS_STD)
    train = train.head(args.images)
    print(f"{train.name}: {len(train)} images; {test.name}: {len(test)}")
    batches = data.DataLoader(train, args.batch_size, True, args.seed, normalize)
    test_batches = data.DataLoader(test, 500, transform=normalize)

    net = LeNet()
    net.set_optimizer(opt.SGD(args.lr, momentum=0.9, weight_decay=1e-4))
    net.fit(
        batches,
        epochs=args.epochs,
        validation=test_batches,
        metrics=["accuracy"],
    )


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"train.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train.py: stopped")
