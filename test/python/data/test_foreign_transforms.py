"""Transforms of torchvision in a DataLoader."""

import numpy as np
import pytest
import torchvision_networks
from PIL import Image
from singa import data

IMAGES = np.random.default_rng(0).integers(0, 255, (6, 3, 12, 16), np.uint8)


class Pictures:
    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return IMAGES[index], index


def batches(transform, workers=1):
    loader = data.DataLoader(Pictures(), 4, seed=1, transform=transform, num_workers=workers)
    return np.concatenate([images for images, _ in loader])


@pytest.mark.parametrize("version", ["transforms", "transforms.v2"])
def test_transforms_of_torchvision(torch, version):
    T = torchvision_networks.module(torch, version)
    is_second = version == "transforms.v2"
    convert = [T.ToImage(), T.ToDtype(torch.float32, scale=True)] if is_second else [T.ToTensor()]
    transform = T.Compose([T.Resize(8), T.CenterCrop(8), *convert])
    pictures = [Image.fromarray(image.transpose(1, 2, 0)) for image in IMAGES]
    expected = np.stack([transform(picture).numpy() for picture in pictures])
    np.testing.assert_array_equal(batches(transform), expected)


def test_random_draws_follow_the_seed(torch):
    T = torchvision_networks.module(torch, "transforms")
    transform = T.Compose([T.RandomCrop(8), T.RandomHorizontalFlip(), T.ToTensor()])
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = batches(transform)
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(batches(transform, workers=3), first)
    assert len({image.tobytes() for image in first[:, :, 0]}) == len(IMAGES)


def test_masks_are_not_left_behind(torch):
    T = torchvision_networks.module(torch, "transforms")
    loader = data.DataLoader(data.shapes_with_masks(count=4), 4, transform=T.RandomHorizontalFlip())
    with pytest.raises(TypeError, match="do not move masks"):
        next(iter(loader))


@pytest.mark.parametrize("transform", [lambda image: image, lambda: 0, lambda a, b, c: a])
def test_functions_of_other_arguments(transform):
    with pytest.raises(TypeError, match=r"transform\(images, rng\).*does not take"):
        batches(transform)
