"""Writes golden files: what users of this version of singa have on disk.

    python test/golden/write.py [FOLDER]     # default: 67e0d72, beside this program

README.md describes the files. test/python/test_golden.py reads them, and takes networks and
recipes from here, so those of files that exist must not change.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before singa is imported, because it reads each of them once
    os.environ |= {"OMP_NUM_THREADS": "1", "SINGA_PREFER": "fastest", "SINGA_LAYOUT": "auto"}

import numpy as np
import singa
from singa import (
    autograd,
    data,
    distributed,
    layer,
    model,
    models,
    opt,
    singa_wrap,
    tensor,
    tuning,
)
from singa.tensor import Tensor
from singa.training import JsonLinesLog, checkpoint
from singa.training.picture_classifier import PictureClassifier

COMMIT = "67e0d72"
HERE = Path(__file__).parent
SUPPORT = [HERE.parent / "python" / "support" / name for name in ("calls", "jobs")]

Arrays = dict[str, np.ndarray]


def formula(shape: Sequence[int], seed: int = 0, low: float = -1.0, high: float = 1.0) -> Any:
    """Numbers from `low` to `high` that look random and have the same bits everywhere."""
    places = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64) + np.uint64(977 * seed + 1)
    shares = places * np.uint64(2654435761) % np.uint64(1 << 32) / 2**32
    return (low + (high - low) * shares).astype(np.float32).reshape(shape)


# Checkpoints.


class Net(model.Model):
    """Has everything that a checkpoint saves: parameters, running statistics, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1, bias=False)
        self.norm = layer.BatchNorm2d(momentum=0.1)
        self.drop = layer.Dropout(0.4)
        self.fc = layer.Linear(3)

    def forward(self, x: Tensor) -> Tensor:
        x = autograd.relu(self.norm(self.conv(x)))
        return self.fc(self.drop(autograd.flatten(x)))

    def train_one_batch(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        if isinstance(self.optimizer, opt.DistOpt) and self.optimizer.world_size > 1:
            self.optimizer.backward_and_sparse_update(loss, spars=0.3, topK=True)
        else:
            self.optimizer(loss)
        return out, loss


def batch(number: int) -> tuple[Tensor, Tensor]:
    """Images and classes of a step."""
    labels = (np.arange(6) + number) * 5 % 7 % 3
    x = formula((6, 2, 4, 4), number)
    return tensor.from_numpy(x), tensor.from_numpy(labels.astype(np.int32))


def _assign_sgd(net: Net) -> None:
    optimizer = net.optimizer
    cycle = opt.OneCycle(0.2, 12)
    optimizer.lr = cycle
    optimizer.momentum = cycle.momentum()
    optimizer.dampening = opt.MultiStepDecay(0.2, [3, 5], 0.5)
    optimizer.weight_decay = opt.StepDecay(0.02, 2, 0.5)


def _assign_adam(net: Net) -> None:
    optimizer = net.optimizer
    optimizer.lr = opt.WarmUp(opt.CosineDecay(0.01, 10, 0.001), 3, 0.5)
    optimizer.beta_1 = opt.ExponentialDecay(0.9, 4, 0.9, staircase=True)
    optimizer.beta_2 = opt.Constant(0.99)
    optimizer.epsilon = 1e-6


def _overflow(net: Net) -> None:
    """A step whose gradient is infinite, so that the scaler skips its update."""
    bias = net.get_params()["fc.b"]
    net.optimizer(autograd.reduce_sum(bias * 1e9))


@dataclass(frozen=True)
class Recipe:
    """How a checkpoint comes about: `steps` calls with batches from 0 on, then `save`.

    optimizer  makes the optimizer
    change     what happens after the second step
    alone      saves the model without its optimizer
    ema        also averages the weights
    tuned      whether the table of choices has an entry
    ranks      number of ranks; each trains on batches of its own
    """

    optimizer: Callable[[], Any]
    steps: int = 4
    change: Callable[[Net], None] | None = None
    alone: bool = False
    ema: bool = False
    tuned: bool = False
    ranks: int = 1


RECIPES = {
    "sgd": Recipe(
        lambda: opt.SGD(
            opt.WarmUp(opt.CosineDecay(0.1, 20), 3),
            momentum=0.9,
            weight_decay=0.01,
            groups=[
                opt.ParamGroup(opt.norm_and_bias, 0.0),
                opt.ParamGroup(["fc.*"], lr_scale=0.5),
            ],
        )
    ),
    "sgd_assigned": Recipe(lambda: opt.SGD(0.1, momentum=0.9), change=_assign_sgd),
    "sgd_ema": Recipe(lambda: opt.SGD(0.1), ema=True),
    "sgd_scaler": Recipe(
        lambda: opt.SGD(
            opt.CosineDecay(0.1, 20),
            momentum=0.9,
            scaler=opt.GradScaler(2.0**100, growth_interval=3),
        ),
        change=_overflow,
    ),
    "sgd_accumulating": Recipe(lambda: opt.SGD(0.1, momentum=0.9, accumulate=3)),
    "adam": Recipe(lambda: opt.Adam(0.01), tuned=True),
    "adam_assigned": Recipe(lambda: opt.Adam(0.1), change=_assign_adam),
    "adamw": Recipe(lambda: opt.AdamW(0.01, weight_decay=0.1, clip_norm=0.5)),
    "rmsprop": Recipe(lambda: opt.RMSProp(0.01, weight_decay=0.01)),
    "adagrad": Recipe(lambda: opt.AdaGrad(0.1)),
    "weights": Recipe(lambda: opt.SGD(0.1), alone=True),
    # This version does not save the gradients of the first call.
    "distopt_accumulating": Recipe(lambda: opt.DistOpt(opt.SGD(0.1, momentum=0.9, accumulate=3))),
    "distopt_compressed": Recipe(lambda: opt.SGD(0.1, momentum=0.9), steps=3, ranks=2),
}
PROGRESS = {
    "epoch": 2,
    "best": 0.625,
    "done": False,
    "note": "naïve",
    "loader": None,
    "settings": {"model": "small", "rates": [0.1, 1e-3]},
}


def made(optimizer: Any, seed: int, graph: bool = False) -> Net:
    """The network with its initial weights."""
    singa.seed(seed)
    net = Net()
    net.set_optimizer(optimizer)
    net.compile([batch(0)[0]], use_graph=graph)
    return net


def average(net: Net, recipe: Recipe) -> opt.EMA | None:
    """The averages of the recipe, if it has any."""
    return opt.EMA(net, decay=0.75) if recipe.ema else None


def train(net: Net, start: int, end: int, ema: opt.EMA | None = None) -> list[str]:
    """The losses of the batches from start to end; with averages, those of the averages, too."""
    ranks, rank = distributed.world_size(), distributed.rank()
    losses = []
    for number in range(start, end):
        x, y = batch(number * ranks + rank)
        losses.append(net(x, y)[1])
        if ema is not None:
            ema.update()
            net.eval()
            with ema.applied():
                losses.append(autograd.softmax_cross_entropy(net(x), y))
            net.train()
    return [float(loss.item()).hex() for loss in losses]


def arrays_of(net: Net, ema: opt.EMA | None = None) -> Arrays:
    """All tensors that a checkpoint has."""
    found = {f"model/{name}": value for name, value in net.get_states().items()}
    for slot, values in net.optimizer.get_states().items():
        if isinstance(values, dict):
            found |= {f"optimizer/{slot}/{name}": value for name, value in values.items()}
    if ema is not None:
        found |= {f"ema/{name}": value for name, value in ema.get_states()["averages"].items()}
    return {name: value.numpy() for name, value in found.items()}


def numbers_of(optimizer: Any) -> dict[str, Any]:
    """The optimizer's state besides tensors."""
    states = optimizer.get_states()
    return {key: value for key, value in states.items() if not isinstance(value, dict)}


def draws(net: Net) -> dict[str, Any]:
    """The next numbers of the random generators that a checkpoint saves."""
    x = next(iter(net.get_states().values()))
    state = x.device.random_state()
    before, autograd.training = autograd.training, True
    mask = autograd.dropout(tensor.ones((40,), x.device), ratio=0.5).numpy() != 0
    autograd.training = before
    uniform = Tensor((4,), x.device).uniform(0.0, 1.0).numpy()
    return {
        "state": [int(number) for number in state],
        "mask": "".join("01"[int(kept)] for kept in mask),
        "device": [float(number).hex() for number in uniform],
        # First the kept half of a pair of normal numbers, then a new number.
        "numpy": [
            np.random.standard_normal().hex(),  # noqa: NPY002
            np.random.random_sample().hex(),  # noqa: NPY002
        ],
        "python": [random.gauss().hex(), random.random().hex()],
    }


def _seed_others(seed: int) -> None:
    """Seeds the generators of NumPy and Python, and draws half of a pair of normal numbers."""
    random.seed(seed)
    random.gauss()
    np.random.seed(seed)  # noqa: NPY002
    np.random.standard_normal()  # noqa: NPY002


def _write_checkpoint(folder: Path, name: str, recipe: Recipe) -> dict[str, Any]:
    """Writes a checkpoint and its arrays. Returns what a restored run does."""
    seed = sum(name.encode())  # another one for each file
    net = made(recipe.optimizer(), seed)
    ema = average(net, recipe)
    _seed_others(seed)
    train(net, 0, 2, ema)
    if recipe.change is not None:
        recipe.change(net)
    train(net, 2, recipe.steps, ema)
    if recipe.tuned:
        tuning.add([_choice("Example a=1", "reference")])
    path = folder / f"{name}.safetensors"
    checkpoint.save(path, net, None if recipe.alone else net.optimizer, ema=ema, **PROGRESS)
    arrays = arrays_of(net, ema)
    numbers = numbers_of(net.optimizer)
    tuning.clear()
    np.savez(folder / f"{name}.npz", **arrays)

    net = made(recipe.optimizer(), seed=2)
    ema = average(net, recipe)
    optimizer = None if recipe.alone else net.optimizer
    checkpoint.load(path, net, optimizer, ema=ema)
    tuned = tuning.choices()
    drawn = draws(net)
    checkpoint.load(path, net, optimizer, ema=ema)
    tuning.clear()
    losses = train(net, recipe.steps, recipe.steps + 5, ema)
    return {"numbers": numbers, "tuning": tuned, "draws": drawn, "losses": losses}


def _write_checkpoint_of_ranks(folder: Path, name: str, recipe: Recipe) -> list[dict[str, Any]]:
    """As _write_checkpoint, by several ranks. Returns what each restored rank does."""
    from ranks import FailedRank, in_ranks

    path, seed = folder / f"{name}.safetensors", sum(name.encode())

    def body(rank: int, holder: Any) -> dict[str, Any]:
        optimizer = opt.DistOpt(recipe.optimizer(), holder, rank, recipe.ranks)
        net = made(optimizer, seed)
        _seed_others(seed + rank)
        train(net, 0, recipe.steps)
        checkpoint.save(path, net, optimizer, **PROGRESS)
        arrays = arrays_of(net)
        if rank == 0:
            np.savez(folder / f"{name}.npz", **arrays)
        numbers = numbers_of(optimizer)
        return {"numbers": numbers, **restored_rank(path, recipe, rank, holder)}

    results = in_ranks(recipe.ranks, body)
    if failed := [result for result in results if isinstance(result, FailedRank)]:
        raise RuntimeError(failed[0])
    return results


def restored_rank(path: Path, recipe: Recipe, rank: int, holder: Any) -> dict[str, Any]:
    """What a rank does after it has loaded the checkpoint."""
    again = singa_wrap.NcclIdHolder(f"{holder.id}-restored")
    net = made(opt.DistOpt(recipe.optimizer(), again, rank, recipe.ranks), seed=2 + rank)
    checkpoint.load(path, net, net.optimizer)
    drawn = draws(net)
    checkpoint.load(path, net, net.optimizer)
    losses = train(net, recipe.steps, recipe.steps + 5)
    return {"draws": drawn, "losses": losses}


# States.


def _aux_states() -> dict[str, Any]:
    return {
        "epoch": 7,
        "rate": 0.1,
        "mean": formula((3,)),
        "wide": np.array([0.1, -0.2], np.float64),
        "half": formula((2, 2), 1).astype(np.float16),
        "bytes": np.arange(250, 256, dtype=np.uint8),
        "seen": np.array([1 << 40, -1], np.int64),
        "flags": np.array([True, False, True]),
        "bfloat16": tensor.from_numpy(formula((4,), 2)).as_type(tensor.bfloat16),
        "scalar": tensor.from_numpy(formula((), 3)),
    }


STATE_FILES = ("weights.safetensors", "weights.npz", "weights.zip")


def _write_states(folder: Path) -> None:
    net = made(opt.SGD(0.1), seed=1)
    train(net, 0, 3)
    arrays = {f"model/{name}": value.numpy() for name, value in net.get_states().items()}
    for name in STATE_FILES:
        net.save_states(folder / name, _aux_states())
    aux = net.load_states(folder / STATE_FILES[0])
    arrays |= {f"aux/{name}": value.numpy() for name, value in sorted(aux.items())}
    np.savez(folder / "expected.npz", **arrays)


# Tuning, log.


def _choice(signature: str, candidate: str, measured: str = "") -> dict[str, str]:
    machine = singa_wrap.TuningMachine()
    return {
        "signature": signature,
        "candidate": candidate,
        "machine": machine,
        "measured": measured,
    }


def _write_tuning(path: Path) -> list[dict[str, str]]:
    """Writes choices for a step of the network: `reference` for each convolution."""
    net = made(opt.SGD(0.1), seed=1)
    tuning.clear()
    for _ in range(3):  # each choice changes the layouts of inputs of the next operation
        for entry in singa.explain(net, *batch(0)):
            if entry["op"].startswith("Conv") and entry["implementation"] != "reference":
                times = f"0.25 ms reference, 0.5 ms {entry['description']}"
                tuning.add([_choice(entry["signature"], "reference", times)])
    tuning.add([_choice("Example a=1", "reference") | {"machine": "another machine"}])
    tuning.save(path)
    choices = tuning.choices()
    tuning.clear()
    return choices


def _write_log(path: Path) -> list[dict[str, Any]]:
    """Writes a log like those of the example programs. Returns its records."""
    path.unlink(missing_ok=True)
    with JsonLinesLog(path) as log:
        for epoch in range(3):
            log.append(
                {"epoch": epoch, "train_loss": np.float32(1.5 - 0.5 * epoch), "lr": 0.1},
                test_accuracy=np.float64(0.25 * epoch),
                step=np.int64(100 * epoch),
            )
        log.append(note="naïve", top=np.array([1, 2]), ok=np.bool_(True), nested={"a": (1, 2.5)})
        log.append(train_loss=float("nan"), grad=np.array([1.0, np.inf], np.float32), none=None)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# Whole networks.


def _pictures() -> np.ndarray:
    return ((formula((3, 1, 20, 24), 5) + 1) * 127.5).astype(np.uint8)


def write_models(folder: Path) -> None:
    """Writes files with whole networks to `folder`, and beside each what it predicts."""
    folder.mkdir(parents=True)
    lenet = models.create("lenet", num_classes=3)
    lenet.compile([tensor.from_numpy(formula((1, 1, 16, 16)))], is_train=False)
    _write_model(lenet, folder / "lenet")
    if not hasattr(model.Model, "save"):  # before version 1 of "singa model"
        return
    chain = models.Sequential(
        *(layer.Conv2d(4, 3, padding=1, bias=False), layer.BatchNorm2d(), layer.ReLU()),
        *(layer.MaxPool2d(2), layer.Flatten(), layer.Linear(3)),
    )
    chain.compile([tensor.from_numpy(formula((1, 1, 16, 16)))], is_train=False)
    _write_model(chain, folder / "sequential")


def _write_model(net: model.Model, path: Path) -> None:
    states = net.get_states()
    for seed, (name, value) in enumerate(states.items()):
        low = 0.5 if name.endswith("var") else -0.1
        numbers = np.round(formula(value.shape, seed, low, low + 0.2) * 256) / 256
        value.copy_from_numpy(numbers)
    transform = data.evaluation_transform(16, [0.5], [0.25])
    classifier = PictureClassifier(net, ("a", "b", "ç"), transform, channels=1)
    classifier.save(path.with_suffix(".safetensors"))
    probabilities = classifier.probabilities(list(_pictures()))
    np.savez(path.with_suffix(".npz"), pictures=_pictures(), probabilities=probabilities)


# ONNX.


class Lenet(layer.Layer):
    """Convolutions, pooling and fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(4, 5)
        self.pool1 = layer.MaxPool2d(2)
        self.conv2 = layer.Conv2d(6, 3)
        self.pool2 = layer.MaxPool2d(2)
        self.fc1 = layer.Linear(12)
        self.fc2 = layer.Linear(10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(autograd.relu(self.conv1(x)))
        x = self.pool2(autograd.relu(self.conv2(x)))
        return self.fc2(autograd.relu(self.fc1(autograd.flatten(x))))


class Residual(layer.Layer):
    """A residual block with batch norms, three kinds of pooling, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(8, 3, stride=2, padding=1, bias=False)
        self.bn1 = layer.BatchNorm2d()
        self.maximum = layer.MaxPool2d(3, 2, 1)
        self.conv2 = layer.Conv2d(8, 3, padding=1, bias=False, group=2)
        self.bn2 = layer.BatchNorm2d()
        self.average = layer.AvgPool2d(2, 2)
        self.drop = layer.Dropout(0.3)
        self.fc = layer.Linear(5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maximum(self.bn1(self.conv1(x), relu=True))
        x = self.average(self.bn2(self.conv2(x), add=x, relu=True))
        x = self.drop(autograd.flatten(autograd.globalaveragepool(x)))
        return autograd.softmax(self.fc(x), 1)


class Sequences(layer.Layer):
    """An LSTM in both directions, attention and layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = layer.CudnnRNN(4, bidirectional=True)
        self.attention = layer.MultiHeadAttention(8, 2)
        self.norm = layer.LayerNorm(8)
        self.fc = layer.Linear(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.rnn(x)
        x = self.norm(x + self.attention(x, x, x))
        return self.fc(autograd.gelu(x))


_BATCH = {"dynamic_axes": {"x": {0: "batch"}}}
#: {name: (network, shapes of its inputs, options of singa.onnx.save)}
NETWORKS: dict[str, tuple[type[layer.Layer], list[tuple[int, ...]], dict[str, Any]]] = {
    "lenet": (Lenet, [(2, 1, 16, 16)], {}),
    "residual": (Residual, [(2, 3, 16, 12), (3, 3, 16, 12)], _BATCH),
    "sequences": (Sequences, [(2, 5, 3)], {"opset": 17}),
}


def _write_networks(folder: Path) -> None:
    import singa.onnx

    autograd.training = False
    for name, (network, shapes, options) in NETWORKS.items():
        net = network()
        with autograd.no_grad():
            net(tensor.from_numpy(formula(shapes[0])))  # creates its parameters
        for number, (key, value) in enumerate(sorted(net.get_states().items())):
            low = 0.5 if "var" in key else -0.5
            value.copy_from_numpy(formula(value.shape, number, low, low + 1))
        inputs = [formula(shape, number) for number, shape in enumerate(shapes)]
        arrays = {}
        with autograd.no_grad():
            for number, x in enumerate(inputs):
                arrays[f"input_{number}"] = x
                arrays[f"output_{number}"] = net(tensor.from_numpy(x)).numpy()
            singa.onnx.save(net, folder / f"{name}.onnx", [tensor.from_numpy(inputs[0])], **options)
        np.savez(folder / f"{name}.npz", **arrays)


# Calls that differ from `reference`.

CALLS = ["ConvForward", "LinearForward", "SgdUpdate", "Mul", "MatMul", "Relu"]


def _write_replay_files(folder: Path) -> None:
    """Saves calls that OPCHECK has found wrong. All kernels of the process are wrong then."""
    from replay_calls import add_wrong_kernels

    def array(*shape: int) -> Any:
        return singa_wrap.from_buffer(formula(shape))

    class Layers(layer.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.conv = layer.Conv2d(4, 3, padding=1)
            self.fc = layer.Linear(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(autograd.flatten(self.conv(x)))

    add_wrong_kernels()
    autograd.training = True
    singa.set_layout("plain")  # kernels of all CPUs agree on where images lie
    with singa.opcheck(action="warn", directory=folder, ops=CALLS):
        loss = autograd.reduce_sum(Layers()(tensor.from_numpy(formula((2, 2, 4, 4)))))
        opt.SGD(lr=0.1, momentum=0.9)(loss)
        singa_wrap.Binary(
            singa_wrap.BinaryOp_kMul, array(3, 4).Transpose(), array(3).Broadcast((4, 3))
        )
        bfloat16 = [array(3, 4).AsType(singa_wrap.kBFloat16), array(4, 5)]
        singa_wrap.MatMul(bfloat16[0], bfloat16[1].AsType(singa_wrap.kBFloat16))
        singa_wrap.Unary(singa_wrap.UnaryOp_kRelu, singa_wrap.ToBlocked(array(2, 20, 2, 2)))
    for path in sorted(folder.glob("opcheck-*")):
        path.rename(folder / f"{path.name.split('-')[1]}.safetensors")


def write(folder: Path) -> None:
    """Writes all files to a folder, which is made."""
    from losses import processor

    for name in ("checkpoints", "states", "onnx", "replay"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    checkpoints = folder / "checkpoints"
    expected = {
        "commit": COMMIT,
        "processor": processor(),
        "progress": PROGRESS,
        "checkpoints": {
            name: (_write_checkpoint_of_ranks if recipe.ranks > 1 else _write_checkpoint)(
                checkpoints, name, recipe
            )
            for name, recipe in RECIPES.items()
        },
        "tuning": _write_tuning(folder / "tuning.json"),
        "log": _write_log(folder / "log.jsonl"),
        "states": STATE_FILES,
        "networks": list(NETWORKS),
        "calls": CALLS,
    }
    _write_states(folder / "states")
    _write_networks(folder / "onnx")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    _write_replay_files(folder / "replay")
    write_models(folder / "models")


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes golden files.")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / COMMIT)
    parser.add_argument("--models", action="store_true", help="write only FOLDER/models")
    parser.add_argument("--calls", action="store_true", help="write only FOLDER/replay")
    arguments = parser.parse_args()
    sys.path += map(str, SUPPORT)
    if arguments.models:
        write_models(arguments.folder / "models")
    elif arguments.calls:
        (arguments.folder / "replay").mkdir(parents=True)
        _write_replay_files(arguments.folder / "replay")
    else:
        write(arguments.folder)


if __name__ == "__main__":
    main()
