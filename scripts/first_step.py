#!/usr/bin/env python3
"""Tries an installed singa: trains a ResNet-20 for a few steps, saves it, and loads it again.

Needs only the package and NumPy, so it runs in a bare environment, on another Linux, and in an
emulator. Fails if the losses are not those of x86-64, or if the package does not use the libraries
that it contains.
"""

import tempfile
from pathlib import Path

import numpy as np
import singa
from singa import data, models, opt

IMAGES = 16
#: Losses of the steps on x86-64. Kernels and processors round differently.
LOSSES = (3.2818, 2.0899, 1.8273, 1.6883, 1.5923, 1.4995)


def check_libraries() -> None:
    """OpenMP, OpenBLAS and oneDNN must be those in the package, and OpenMP the only one."""
    report = singa.doctor()
    print(report)
    if not Path("/proc/self/maps").read_text():
        print("QEMU does not tell which libraries are loaded")
        return
    package = Path(singa.__file__).resolve().parent
    for kind in ("openmp", "blas", "onednn"):
        loaded = report[kind]
        if isinstance(loaded, list):  # not text, such as "not in this build"
            carried = [path for path in loaded if Path(path).is_relative_to(package)]
            assert carried, f"{kind}: none of {loaded} is in {package}"
    assert len(report["openmp"]) == 1, report["openmp"]


def main() -> None:
    check_libraries()
    singa.seed(0)
    normalize = data.Normalize(data.SHAPES_MEAN, data.SHAPES_STD)
    [(x, y)] = data.DataLoader(data.shapes("train", IMAGES), IMAGES, transform=normalize)
    net = models.create("resnet20_cifar")
    net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
    net.compile([x], is_train=True, use_graph=True)
    losses = [net(x, y)[1].numpy().item() for _ in LOSSES]
    print("losses", *(f"{loss:.4f}" for loss in losses))
    np.testing.assert_allclose(losses, LOSSES, rtol=0.01)

    net.eval()
    scores = net(x).numpy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.singa")
        net.save(path)
        np.testing.assert_allclose(singa.load(path)(x).numpy(), scores, rtol=1e-4, atol=1e-4)
    print(f"singa {singa.__version__}: trained, saved and loaded")


if __name__ == "__main__":
    main()
