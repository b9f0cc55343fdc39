#!/usr/bin/env python3
"""Compares Winograd convolution with oneDNN's direct one, for each pass of networks' layers.

    python benchmark/winograd.py                        # all layers
    python benchmark/winograd.py --threads 2 resnet50
    python benchmark/winograd.py --dtype bfloat16 unet

Prints for each layer: milliseconds of forward, gradient of the input and gradient of the weights in
strict mode (direct) and normal mode, their ratio, and the root mean square error against float64
relative to that of the direct method. If Winograd's method does not pay off, both are direct. Times
are the minimum of several runs; nothing else should run on the machine.
"""

from __future__ import annotations

from collections.abc import Callable

import harness
import numpy as np
import singa
from singa import singa_wrap as raw
from singa import tensor
from singa.dtypes import as_dtype

# (batch, input channels, height and width, output channels[, kernel, or its height and width, if
# not 3]). Outputs have the size of the inputs.
LAYERS: dict[str, list[tuple[int, ...]]] = {
    "resnet50": [(32, 64, 56, 64), (32, 128, 28, 128), (32, 256, 14, 256), (32, 512, 7, 512)],
    "vgg16_cifar": [
        (128, 64, 32, 64),
        (128, 64, 16, 128),
        (128, 128, 16, 128),
        (128, 128, 8, 256),
        (128, 256, 8, 256),
        (128, 256, 4, 512),
        (128, 512, 4, 512),
        (128, 512, 2, 512),
    ],
    "resnet20_cifar": [(128, 16, 32, 16), (128, 32, 16, 32), (128, 64, 8, 64)],
    "lenet": [(128, 20, 12, 50, 5), (8, 20, 12, 50, 5), (1, 20, 12, 50, 5)],
    "alexnet": [(32, 64, 27, 192, 5), (32, 384, 13, 256)],
    "googlenet": [
        (32, 16, 28, 32, 5),
        (32, 24, 14, 64, 5),
        (32, 32, 14, 128, 5),
        (32, 48, 7, 128, 5),
    ],
    "densenet121": [(32, 128, size, 32) for size in (56, 28, 14, 7)],
    "unet": [
        (8, 64, 256, 64),
        (8, 64, 128, 128),
        (8, 128, 128, 128),
        (8, 256, 64, 256),
        (8, 512, 32, 512),
        (8, 1024, 32, 512),
    ],
    "inception_v4": [
        (32, 192, 17, 224, 1, 7),
        (32, 192, 17, 224, 7, 1),
        (32, 64, 35, 64, 7, 1),
        (32, 384, 8, 256, 1, 3),
        (32, 384, 8, 256, 3, 1),
        (1, 192, 17, 224, 1, 7),
        (1, 384, 8, 256, 1, 3),
    ],
}


def milliseconds(run: Callable[[], object], repeats: int) -> float:
    return min(harness.seconds_of(run, repeats)) * 1e3


def blocked(t: raw.Tensor) -> raw.Tensor:
    """Converts t to the layout of a convolution's result, which layers in a network get."""
    channels = t.shape()[1]
    handle = raw.ConvHandle(t, [1, 1], [1, 1], [0, 0], channels, channels, False)
    identity = np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1)
    weights = tensor.from_numpy(identity).data.AsType(t.data_type())
    return raw.ConvForward(t, weights, None, handle)


def numpy(t: raw.Tensor) -> np.ndarray:
    return tensor.to_numpy(tensor.from_raw_tensor(t.AsType(raw.kFloat32)))


def convolution(images: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The convolution in float64, with results of the images' size."""
    height, width = images.shape[2:]
    down, across = weights.shape[2:]
    pads = [(side // 2, side // 2) for side in (down, across)]
    padded = np.pad(images.astype(np.float64), ((0, 0), (0, 0), *pads))
    taps = weights.astype(np.float64)
    return sum(
        np.einsum("nchw,kc->nkhw", padded[:, :, i : i + height, j : j + width], taps[:, :, i, j])
        for i in range(down)
        for j in range(across)
    )


def compare(layer: tuple[int, ...], dtype: int, repeats: int) -> None:
    batch, channels, size, filters, *kernel = layer
    kernel = (kernel or [3]) * (2 if len(kernel) < 2 else 1)
    random = np.random.default_rng(0)
    images = np.maximum(random.standard_normal((batch, channels, size, size)), 0)
    shape = (filters, channels, *kernel)
    weights = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    gradients = random.standard_normal((batch, filters, size, size))
    x, w, dy = (
        tensor.from_numpy(a.astype(np.float32)).data.AsType(dtype)
        for a in (images, weights, gradients)
    )
    handle = raw.ConvHandle(
        x, kernel, [1, 1], [side // 2 for side in kernel], channels, filters, False
    )
    exact = convolution(numpy(x)[:2], numpy(w))
    x, dy = blocked(x), blocked(dy)
    times, errors = [], []
    for strict in (True, False):
        singa.set_strict(strict)
        y = raw.ConvForward(x, w, None, handle)
        errors.append(np.sqrt(np.mean((numpy(y)[:2] - exact) ** 2)))
        times.append(
            [
                milliseconds(lambda: raw.ConvForward(x, w, None, handle), repeats),
                milliseconds(
                    lambda: raw.ConvBackward(dy, x, w, handle, True, False, False), repeats
                ),
                milliseconds(
                    lambda: raw.ConvBackward(dy, x, w, handle, False, True, False), repeats
                ),
            ]
        )
    direct, other = (" ".join(f"{t:7.2f}" for t in side) for side in times)
    ratios = " ".join(f"{a / b:5.2f}" for a, b in zip(*times, strict=True))
    print(f"{layer!s:24} {direct} | {other} | {ratios} | {errors[1] / errors[0]:4.1f}", flush=True)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("networks", nargs="*", default=list(LAYERS), help=", ".join(LAYERS))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if unknown := set(args.networks) - set(LAYERS):
        parser.error(f"no layers are listed for {sorted(unknown)}")
    singa.set_num_threads(args.threads)
    print(
        "                          direct: y, dx, dW, ms   | winograd, ms            | times faster"
    )
    for network in args.networks:
        print(network)
        for layer in LAYERS[network]:
            compare(layer, as_dtype(args.dtype), args.repeats)


if __name__ == "__main__":
    main()
