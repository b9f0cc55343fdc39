#!/usr/bin/env python3
"""From a folder of pictures to predictions and an ONNX file: python train.py FOLDER PICTURE..."""

import sys

import singa
from singa import data, device, models, opt
from singa.training.picture_classifier import PictureClassifier

SIZE, EPOCHS, MEAN, STD = 32, 12, data.IMAGENET_MEAN, data.IMAGENET_STD


def main(folder: str, *pictures: str) -> None:
    singa.seed(1)
    train, test = data.ImageFolder(folder, on_error="skip", cache="memory").split(0.2, seed=1)
    prepare = data.evaluation_transform(SIZE, MEAN, STD)
    augment = data.training_transform(SIZE, MEAN, STD, scale=(0.6, 1.0))
    dev = device.get_default_device()
    batches = data.DataLoader(train, 16, True, 1, augment, drop_last=True, device=dev)
    tests = data.DataLoader(test, 16, transform=prepare, device=dev)

    net = models.create("resnet20_cifar", num_classes=len(train.classes))
    net.set_optimizer(opt.SGD(opt.OneCycle(0.05, EPOCHS * len(batches)), momentum=0.9))
    net.fit(batches, epochs=EPOCHS, validation=tests, metrics=["accuracy"])

    classifier = PictureClassifier(net, train.classes, prepare)
    classifier.save("pets.safetensors")
    for picture, prediction in zip(pictures, classifier.predict(pictures, top=1), strict=True):
        print(f"{picture}: {prediction[0][0]} {prediction[0][1]:.0%}")
    singa.onnx.save(net, "pets.onnx", [next(iter(tests))[0]], dynamic_axes={"x": {0: "N"}})


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else sys.exit(__doc__)
