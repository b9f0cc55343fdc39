"""Targets for all kinds of files that singa reads."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import singa
from singa import autograd, data, layer, model, models, opt, snapshot, tensor, tuning
from singa.training import checkpoint
from targets import Finding, Target

_SUPPORT = Path(__file__).resolve().parents[1] / "python" / "support" / "calls"
#: A file of the sizes that are tried here takes a fraction of this.
_MEMORY = 256 << 20


class _Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(2, 3, padding=1)
        self.norm = layer.BatchNorm2d()
        self.fc = layer.Linear(2)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.fc(autograd.flatten(self.norm(self.conv(x))))

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> Any:
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def _net() -> _Net:
    singa.seed(3)
    net = _Net()
    net.set_optimizer(opt.SGD(0.1, momentum=0.9))
    x = tensor.from_numpy(np.ones((2, 1, 2, 2), np.float32))
    net.compile([x], is_train=True)
    net(x, tensor.from_numpy(np.int32([0, 1])))
    return net


def _everything(net: _Net) -> dict[str, Any]:
    """The state that a load may change, as bytes and numbers."""
    kept: dict[str, Any] = {k: v.numpy().tobytes() for k, v in net.get_states().items()}
    for key, value in net.optimizer.get_states().items():
        if isinstance(value, dict):
            kept |= {f"{key}/{name}": moment.numpy().tobytes() for name, moment in value.items()}
        else:
            kept[key] = value
    return kept


class _File(Target):
    memory = _MEMORY
    name = "input"
    names_file = True  # errors must name the file

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.getcwd()))
        self.path = self.folder / self.name

    def run(self, data: bytes) -> str:
        self.write(data)
        before = set(os.listdir(self.folder))
        try:
            return self.read() or "read"
        finally:
            if left := set(os.listdir(self.folder)) - before:
                raise Finding(f"reading left files behind: {sorted(left)}")

    def write(self, data: bytes) -> None:
        self.path.write_bytes(data)

    def read(self) -> str | None:
        raise NotImplementedError

    def complaint(self, error: BaseException) -> str:
        if said := super().complaint(error):
            return said
        if self.names_file and type(error) is TypeError:
            return "a TypeError for a damaged file"
        if self.names_file and self.path.name not in str(error):
            return "an exception that does not name the file"
        return ""


class _States(_File):
    """Loads into a model with an optimizer. A load that fails must not change them."""

    suffix = ""

    def __init__(self) -> None:
        super().__init__()
        self.name = f"input{self.suffix}"
        self.path = self.folder / self.name
        self.net = _net()
        self.before = _everything(self.net)

    def seeds(self) -> list[bytes]:
        self.net.save_states(str(self.path), {"step": np.arange(3), "rate": np.float64(0.5)})
        return [self.path.read_bytes()]

    def read(self) -> str | None:
        return self.loaded(self.net.load_states)

    def loaded(self, load: Any) -> str | None:
        try:
            load(str(self.path))
        except BaseException as error:
            now = _everything(self.net)
            if changed := [name for name, value in now.items() if self.before.get(name) != value]:
                self.reset()
                kind = type(error).__name__
                raise Finding(
                    f"a load that failed ({kind}) changed the model: {changed[:4]}"
                ) from error
            raise
        self.check()
        self.reset()
        return None

    def check(self) -> None:
        """Checks that a loaded model can train."""
        x = tensor.from_numpy(np.ones((2, 1, 2, 2), np.float32))
        try:
            self.net(x, tensor.from_numpy(np.int32([0, 1])))
        except Exception as error:
            self.reset()
            raise Finding(f"after a load the next step fails: {error!r:.200}") from error

    def reset(self) -> None:
        self.net = _net()


class Safetensors(_States):
    format = "safetensors"
    suffix = ".safetensors"


class Npz(_States):
    format = "zip"
    suffix = ".npz"


class Zip(_States):
    format = "zip"
    suffix = ".zip"


class Checkpoint(_States):
    format = "safetensors"
    suffix = ".safetensors"

    def seeds(self) -> list[bytes]:
        checkpoint.save(self.path, self.net, self.net.optimizer, epoch=1, loader={"batch": 2})
        return [self.path.read_bytes()]

    def read(self) -> str | None:
        def load(path: str) -> None:
            checkpoint.load(path, self.net, self.net.optimizer)

        return self.loaded(load)

    def reset(self) -> None:
        tuning.clear()
        super().reset()


class ModelFile(_File):
    """`singa.load`. Networks that are ONNX graphs are the business of the target onnx, but for one.
    The networks are small, since a change of a description ought to find room in the file."""

    format = "safetensors"
    name = "pets.singa"

    def seeds(self) -> list[bytes]:
        chain = models.Sequential(
            *(layer.Conv2d(4, 3, padding=1), layer.BatchNorm2d(), layer.ReLU(), layer.MaxPool2d(2)),
            *(layer.Flatten(), layer.Linear(8), layer.LayerNorm(8), layer.Linear(2)),
        )
        lenet = models.create("lenet", num_classes=2)
        tokens = models.Sequential(
            *(layer.Embedding(5, 4), layer.TransformerEncoderLayer(4, 2, 8), layer.Linear(2))
        )
        image, seeds = (1, 1, 16, 16), []
        transform = data.evaluation_transform(16, [0.5], [0.25])
        for net, shape in (
            (chain, image),
            (lenet, image),
            (tokens, (1, 3)),
            (_net(), (2, 1, 2, 2)),
        ):
            kind = tensor.int32 if net is tokens else tensor.float32
            net.compile([tensor.Tensor(shape, None, kind)], is_train=False)
            net.class_names = ["a", "b"]
            net.transform = transform if shape == image else None
            net.save(self.path)
            seeds.append(self.path.read_bytes())
        here = Path(__file__).resolve().parent  # a network of PyTorch, which need not be installed
        files = "torch_network.safetensors", "../golden/6ace44d/models/lenet.safetensors"
        return [*seeds, *((here / each).read_bytes() for each in files)]

    def read(self) -> str:
        net = singa.load(self.path)
        names = [type(each).__name__ for each in net.sublayers()]
        try:
            net.save(self.folder / "again.singa")
        except ValueError:
            if names:  # else an ONNX graph, which was not run: the file's inputs may not fit it
                raise Finding("what was loaded cannot be saved") from None
        finally:
            (self.folder / "again.singa").unlink(missing_ok=True)
        return f"{type(net).__name__} {names}"


class SnapshotFile(_File):
    format = "zip"
    name = "input.npz"
    declared = (ValueError, TypeError)

    def seeds(self) -> list[bytes]:
        with snapshot.Snapshot(str(self.path), True) as saved:
            saved.write("conv.W", np.ones((2, 3), np.float32))
            saved.write("step", np.arange(4))
        return [self.path.read_bytes()]

    def read(self) -> str | None:
        self.names_file = True
        values = snapshot.Snapshot(str(self.path), False)
        self.names_file = False  # a sound file may hold values that tensors do not support
        return str(len(values.read()))


class Tuning(_File):
    format = "json"
    name = "choices.json"

    def seeds(self) -> list[bytes]:
        choice = {"signature": "Conv|1|2", "candidate": "jit", "machine": "x", "measured": ""}
        tuning.add([choice, choice | {"signature": "b", "measured": "jit 1.0 ms"}])
        tuning.save(self.path)
        tuning.clear()
        return [self.path.read_bytes()]

    def read(self) -> str | None:
        before = tuning.choices()
        try:
            tuning.load(self.path)
        except Exception:
            if tuning.choices() != before:
                raise Finding("a load that failed changed the table of choices") from None
            raise
        try:
            tuning.save(self.folder / "again.json")
        except Exception as error:
            raise Finding(f"what was loaded cannot be saved: {error!r:.200}") from error
        finally:
            tuning.clear()
            (self.folder / "again.json").unlink(missing_ok=True)
        return None


class Replay(_File):
    """`python -m singa replay FILE`. Seeds are calls of each family of operations. They need a
    build with the deliberately wrong kernels of OPCHECK's tests."""

    format = "safetensors"
    name = "call.safetensors"
    memory = 1 << 30  # includes results and workspace of the operation in the file
    # RuntimeError: the results differ. MemoryError: a file may describe a large call.
    declared = (ValueError, RuntimeError, MemoryError)
    names_file = False

    def seeds(self) -> list[bytes]:
        sys.path.append(str(_SUPPORT))
        import replay_calls
        import replay_mutations

        folder = Path("replays")
        if not replay_calls.LIBRARY.exists():
            return []
        if not folder.exists():  # else an earlier worker made it; this process needs right kernels
            folder.mkdir()
            command = [sys.executable, str(_SUPPORT / "replay_calls.py"), str(folder)]
            subprocess.run(command, check=True, capture_output=True)
        seeds = []
        for path in sorted(folder.iterdir()):
            for _, file in replay_mutations.variants(path):
                replay_mutations.save(self.path, file)
                seeds.append(self.path.read_bytes())
        return seeds

    def read(self) -> str | None:
        from singa.files.replay_file import replay

        return replay(self.path)[:40]


class _Cifar(_File):
    def read(self) -> str | None:
        images = data.load_cifar10(self.folder)
        if len(images.labels) != len(images.images):
            raise Finding("a set with other numbers of labels and images")
        return None


class CifarPickle(_Cifar):
    format = "pickle"
    name = "data_batch_1"

    def seeds(self) -> list[bytes]:
        images = np.zeros((2, 3072), np.uint8)
        values = {b"data": images, b"labels": [0, 1], b"batch_label": b"x", "more": (None, 1.5)}
        made = [pickle.dumps(values, protocol) for protocol in (2, 3, 4, 5)]
        return [*made, pickle.dumps({b"data": images[:1], b"labels": [3]}, 0)]


class CifarBinary(_Cifar):
    name = "data_batch_1.bin"

    def seeds(self) -> list[bytes]:
        return [bytes([label]) + bytes(3072) for label in (0, 9, 10)]


class Mnist(_File):
    """An IDX file of images, or of labels if its fourth byte is 1, gzipped or not."""

    format = "gzip"
    images = bytes((0, 0, 8, 3)) + struct.pack(">III", 2, 3, 4) + bytes(24)
    labels = bytes((0, 0, 8, 1)) + struct.pack(">I", 2) + b"\3\4"
    name = "idx"

    def seeds(self) -> list[bytes]:
        return [self.images, self.labels, gzip.compress(self.images, mtime=0)]

    def write(self, data: bytes) -> None:
        for path in self.folder.iterdir():
            path.unlink()
        packed = data[:2] == b"\x1f\x8b"
        labels = (gzip_head(data) if packed else data)[3:4] == b"\1"
        names = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
        self.path = self.folder / f"{names[labels]}{'.gz' if packed else ''}"
        self.path.write_bytes(data)
        (self.folder / names[not labels]).write_bytes(self.images if labels else self.labels)

    def read(self) -> str | None:
        return str(data.load_mnist(self.folder).images.ndim)


def gzip_head(content: bytes) -> bytes:
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(content)).read(4)
    except Exception:  # a damaged file, which the reader must reject
        return b""
