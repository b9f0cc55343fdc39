"""What `fit` and `Trainer.fit` keep of the data: names of classes, the transform of pictures."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import singa
from PIL import Image
from singa import __main__ as command_line
from singa import data, layer, models, opt, training

NORMALIZE = data.Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.25))
AUGMENT = data.Compose(data.RandomCrop(4), data.RandomHorizontalFlip(), NORMALIZE)
TRAIN, TEST = data.shapes("train", 20), data.shapes("test", 10)


def loader(transform: Any = None, images: Any = TRAIN) -> data.DataLoader:
    return data.DataLoader(images, 10, transform=transform)


def network(outputs: int = 10) -> models.Sequential:
    net = models.Sequential(layer.AvgPool2d(8), layer.Flatten(), layer.Linear(outputs))
    net.set_optimizer(opt.SGD(0.01))
    return net


def fitted(*args: Any, **options: Any) -> models.Sequential:
    net = network()
    net.fit(*args, verbose=False, **options)
    return net


def test_a_file_of_a_network_that_fit_has_trained_classifies_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = fitted(loader(AUGMENT), validation=loader(NORMALIZE, TEST))
    net.save(tmp_path / "shapes.singa")
    Image.fromarray(TEST.images[0].transpose(1, 2, 0)).save(tmp_path / "0.png")
    again = singa.load(tmp_path / "shapes.singa")
    assert again.class_names == list(TRAIN.classes)
    assert again.transform.transforms == (NORMALIZE,)
    files = [str(tmp_path / name) for name in ("shapes.singa", "0.png")]
    assert command_line.main(["predict", *files, "--top", "1"]) == 0
    scores = net.predict(NORMALIZE(TEST.images[:1], np.random.default_rng(0)))
    assert TRAIN.classes[scores.argmax()] in capsys.readouterr().out


def test_which_transform_is_kept() -> None:
    plain = data.Normalize((0.0,) * 3, (1.0,) * 3)
    assert fitted(loader(NORMALIZE)).transform is NORMALIZE
    assert fitted(loader(AUGMENT), validation=loader(NORMALIZE, TEST)).transform is NORMALIZE
    assert fitted(loader()).transform == plain
    assert fitted(loader(NORMALIZE), validation=loader(images=TEST)).transform == plain
    assert fitted((TRAIN.images / 255.0).astype(np.float32), TRAIN.labels).transform is None
    for others in (AUGMENT, lambda images, rng: images.astype(np.float32)):
        net = fitted(loader(others))
        assert (net.transform, net.class_names) == (None, list(TRAIN.classes))
        net.save("net.singa")
    pair = data.DataLoader((TRAIN.images, TRAIN.labels), 10, transform=NORMALIZE)
    assert (fitted(pair).transform, fitted(pair).class_names) == (NORMALIZE, None)


def test_what_the_user_has_set_stays_and_what_fit_has_set_follows_the_data() -> None:
    net = network()
    net.class_names, net.transform = [str(i) for i in range(10)], AUGMENT
    net.fit(loader(NORMALIZE), verbose=False)
    assert (net.class_names[3], net.transform) == ("3", AUGMENT)

    net = copy.deepcopy(fitted(loader(NORMALIZE)))
    other = data.Normalize((0.5,) * 3, (0.5,) * 3)
    renamed = data.ImageSet(TRAIN.images, TRAIN.labels, tuple("abcdefghij"))
    net.fit(loader(other, renamed), verbose=False)
    assert (net.class_names, net.transform) == (list("abcdefghij"), other)
    net.replace_head(3)
    few = TRAIN.take(np.flatnonzero(TRAIN.labels < 3))
    net.fit(loader(other, few), verbose=False)
    assert net.class_names is None  # the set has ten names
    net.fit(loader(other, data.ImageSet(few.images, few.labels, tuple("abc"))), verbose=False)
    assert net.class_names == list("abc")


def test_a_trainer_says_what_it_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = training.Trainer(network())
    trainer.fit(loader(NORMALIZE), 1)
    said = "the model keeps the names of 10 classes and the transform of its pictures"
    assert said in capsys.readouterr().out
    trainer.fit(loader(NORMALIZE), 1)
    assert "keeps" not in capsys.readouterr().out


def test_names_that_are_not_of_the_outputs_are_left_out() -> None:
    net = models.create("lenet", num_classes=12)
    net.set_optimizer(opt.SGD(0.01))
    grey = data.digits("train", 20)
    net.fit(data.DataLoader(grey, 10), verbose=False)
    assert net.class_names is None
    masks = data.shapes_with_masks(count=10)
    dense = models.Sequential(layer.Conv2d(len(masks.classes), 1))
    dense.set_optimizer(opt.SGD(0.01))
    dense.fit(data.DataLoader(masks, 5), verbose=False)
    assert dense.class_names is None


def test_pictures_of_a_validation_that_would_not_be_prepared() -> None:
    with pytest.raises(ValueError, match=r"\[fit\] the training's pictures have a transform"):
        network().fit(loader(AUGMENT), validation=TEST, verbose=False)
    net = fitted(loader(NORMALIZE), validation=TEST)
    want = net.evaluate(loader(NORMALIZE, TEST), verbose=False)
    assert net.evaluate(TEST, batch_size=10, verbose=False) == want


def test_a_validation_with_other_classes() -> None:
    others = (*TRAIN.classes[:8], "zebra", TRAIN.classes[8])
    wrong = data.ImageSet(TEST.images, TEST.labels, others)
    message = rf"class 8 is {TRAIN.classes[8]!r} in training and 'zebra' in the validation"
    with pytest.raises(ValueError, match=message):
        fitted(loader(NORMALIZE), validation=loader(NORMALIZE, wrong))
    fewer = data.ImageSet(TEST.images, TEST.labels % 9, TRAIN.classes[:9])
    with pytest.raises(ValueError, match="and None in the validation"):
        fitted(loader(NORMALIZE), validation=loader(NORMALIZE, fewer))


def test_data_of_pytorch(torch: Any) -> None:
    pairs = torch.utils.data.TensorDataset(
        torch.from_numpy(NORMALIZE(TRAIN.images, np.random.default_rng(0))),
        torch.from_numpy(TRAIN.labels).long(),
    )
    pairs.classes = list(TRAIN.classes)
    half = torch.utils.data.Subset(pairs, range(10))
    net = fitted(torch.utils.data.DataLoader(half, 5))
    assert (net.class_names, net.transform) == (list(TRAIN.classes), None)
