"""Images from a folder, a classifier, and its snapshot."""

from pathlib import Path

import numpy as np
import pytest
from singa import data, device, image_tool, layer, model, opt, snapshot, tensor

Image = pytest.importorskip("PIL.Image")

COLOURS = ((200, 30, 30), (30, 200, 30), (30, 30, 200))


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1)
        self.relu = layer.ReLU()
        self.pool = layer.AvgPool2d(4, 4)
        self.flatten = layer.Flatten()
        self.fc = layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.fc(self.flatten(self.pool(self.relu(self.conv(x)))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss


def test_images_and_snapshot(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for number in range(24):
        pixels = rng.normal(COLOURS[number % 3], 20, (10, 10, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png {number % 3}\n")
    (tmp_path / "list.txt").write_text("".join(lines))

    tool = image_tool.ImageTool()

    def image_transform(path):
        return tool.load(path).resize_by_list([8]).get()

    batches = data.ImageBatchIter(
        str(tmp_path / "list.txt"),
        8,
        image_transform,
        shuffle=True,
        delimiter=" ",
        image_folder=str(tmp_path),
        capacity=2,
    )
    dev = device.get_default_device()
    dev.SetRandSeed(0)
    net = Net()
    net.set_optimizer(opt.Adam(lr=0.02))
    tx = tensor.Tensor((8, 3, 8, 8), dev)
    ty = tensor.Tensor((8,), dev, tensor.int32)
    net.compile([tx], is_train=True, use_graph=False)
    batches.start()
    assert batches.num_samples == 24
    try:
        for _ in range(12):
            for _ in range(batches.num_samples // batches.batch_size):
                imgs, labels = next(batches)
                tx.copy_from_numpy(np.array(imgs, dtype=np.float32) / 255 - 0.5)
                ty.copy_from_numpy(np.array(labels, dtype=np.int32))
                out, loss = net(tx, ty)
    finally:
        batches.end()
    assert tensor.to_numpy(loss)[0] < 0.3
    assert (tensor.to_numpy(out).argmax(1) == labels).mean() > 0.8

    shot = snapshot.Snapshot(str(tmp_path / "shot"), True)
    for name, param in net.get_params().items():
        shot.write(name, param)
    del shot
    read = dict(snapshot.Snapshot(str(tmp_path / "shot"), False).read())
    assert sorted(read) == ["conv.W", "conv.b", "fc.W", "fc.b"]
    net.eval()
    scores = tensor.to_numpy(net(tx))
    for param in net.get_params().values():
        param.set_value(0.0)
    assert not tensor.to_numpy(net(tx)).any()
    net.set_params({name: tensor.from_numpy(tensor.to_numpy(t)) for name, t in read.items()})
    np.testing.assert_array_equal(tensor.to_numpy(net(tx)), scores)

    net.save_states(
        str(tmp_path / "net.zip"), aux_states={"epoch": tensor.from_numpy(np.array([12]))}
    )
    other = Net()
    other.compile([tx], is_train=False)
    aux = other.load_states(str(tmp_path / "net.zip"))
    assert tensor.to_numpy(aux["epoch"]).tolist() == [12]
    np.testing.assert_array_equal(tensor.to_numpy(other(tx)), scores)
