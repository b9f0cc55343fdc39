#!/usr/bin/env python3
"""Compares float32 products by AMX, of bfloat16 parts, with oneDNN's float32 ones.

    python benchmark/parts.py                 # errors and speed
    python benchmark/parts.py --errors        # errors alone

Prints for each product the largest and the root mean square error against float64, relative to the
sum of the magnitudes of its terms, in units of 1e-8, in strict mode (oneDNN) and normal mode (AMX),
and GFLOP/s of both. Times are the minimum of several runs, in turn; nothing else should run on the
machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import singa
from singa import singa_wrap as raw
from singa import tensor

#: (rows, columns, terms, transposed factors), with the layer that they are of.
PRODUCTS = {
    "square": (1024, 1024, 1024, ""),
    "convnext_tiny, 14 x 14": (6272, 1536, 384, "b"),
    "its gradient of x": (6272, 384, 1536, ""),
    "its gradient of W": (1536, 384, 6272, "a"),
    "alexnet, 128 images": (128, 4096, 9216, "b"),
}
SIZES = {"128 terms": 128, "512 terms": 512, "4,096 terms": 4096}


def multiply(a: tensor.Tensor, b: tensor.Tensor, trans: str, strict: bool) -> raw.Tensor:
    singa.set_strict(strict)
    try:
        return raw.MatMul(a.data, b.data, "a" in trans, "b" in trans)
    finally:
        singa.set_strict(False)


def errors(a: np.ndarray, b: np.ndarray, strict: bool) -> tuple[float, float]:
    left, right = tensor.from_numpy(a), tensor.from_numpy(b)
    got = tensor.to_numpy(tensor.Tensor(data=multiply(left, right, "", strict)))
    a, b = a.astype(np.float64), b.astype(np.float64)
    magnitude = np.abs(a) @ np.abs(b)
    error = np.abs(got - a @ b)[magnitude > 0] / magnitude[magnitude > 0]
    return float(error.max()), float(np.sqrt(np.mean(error**2)))


def factors(kind: str, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors of a product of 512 x 512 sums."""
    random = np.random.RandomState(0)
    a, b = random.randn(512, terms), random.randn(terms, 512)
    if kind == "positive":
        a, b = np.abs(a), np.abs(b)
    elif kind == "exponents of -30 to 30":
        a = np.ldexp(a, random.randint(-30, 31, a.shape))
        b = np.ldexp(b, random.randint(-30, 31, b.shape))
    elif kind == "cancelling":  # the second half takes back the first, but for a thousandth
        a[:, terms // 2 :] = -a[:, : terms // 2]
        b[terms // 2 :] = b[: terms // 2] * (1 + 1e-3 * random.randn(terms // 2, 512))
    return a.astype(np.float32), b.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares float32 products.")
    parser.add_argument("--errors", action="store_true", help="no times")
    parser.add_argument("--threads", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--repeats", type=int, default=10, help="runs [%(default)s]")
    arguments = parser.parse_args()
    singa.set_num_threads(arguments.threads)
    print("| terms | oneDNN: largest | rms | AMX: largest | rms |")
    print("|---|---|---|---|---|")
    for kind in ("normal", "positive", "exponents of -30 to 30", "cancelling"):
        for name, terms in SIZES.items():
            a, b = factors(kind, terms)
            row = [f"{1e8 * e:.2f}" for strict in (True, False) for e in errors(a, b, strict)]
            print(f"| {kind}, {name} | " + " | ".join(row) + " |")
    for name, (rows, columns, terms, trans) in {} if arguments.errors else PRODUCTS.items():
        random = np.random.RandomState(0)
        a = random.randn(*((terms, rows) if "a" in trans else (rows, terms))).astype(np.float32)
        b = random.randn(*((columns, terms) if "b" in trans else (terms, columns)))
        left, right = tensor.from_numpy(a), tensor.from_numpy(b.astype(np.float32))
        best = {True: float("inf"), False: float("inf")}
        for _ in range(arguments.repeats):
            for strict in best:
                began = time.perf_counter()
                multiply(left, right, trans, strict)
                best[strict] = min(best[strict], time.perf_counter() - began)
        speed = {
            strict: 2e-9 * rows * columns * terms / seconds for strict, seconds in best.items()
        }
        print(f"{name}: {rows} x {columns} x {terms}, oneDNN {speed[True]:.0f} GFLOP/s, AMX "
              f"{speed[False]:.0f}, ratio {speed[False] / speed[True]:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
