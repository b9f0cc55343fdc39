"""PictureClassifier: a file with a network and all that it needs to classify pictures."""

import io

import numpy as np
import pytest
from picture_folders import smooth
from PIL import Image
from singa import data, layer, models, opt, tensor
from singa.files.state_files import load_safetensors, save_safetensors
from singa.training.picture_classifier import PictureClassifier

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def classifier():
    net = models.create("lenet", num_classes=4)
    net.compile([tensor.from_numpy(np.zeros((1, 3, 16, 16), np.float32))], is_train=False)
    return PictureClassifier(net, ("a", "b", "ç", "d"), data.evaluation_transform(16, MEAN, STD))


@pytest.fixture
def file(classifier, tmp_path):
    classifier.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


PICTURES = [
    np.ascontiguousarray(smooth(seed, 20 + seed, 30).transpose(2, 0, 1)) for seed in range(5)
]


def test_probabilities_are_the_softmax_of_the_scores(classifier):
    inputs = []
    for picture in PICTURES:
        image = Image.fromarray(picture.transpose(1, 2, 0))
        height, width = picture.shape[1:]
        shorter = min(height, width)
        image = image.resize((int(18 * width / shorter), int(18 * height / shorter)), 2)
        left, top = round((image.width - 16) / 2), round((image.height - 16) / 2)
        image = np.asarray(image.crop((left, top, left + 16, top + 16))) / 255.0
        inputs.append(((image - MEAN) / STD).transpose(2, 0, 1))
    classifier.net.eval()
    scores = classifier.net(tensor.from_numpy(np.array(inputs, np.float32))).numpy()
    expected = np.exp(scores.astype(np.float64))
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(classifier.probabilities(PICTURES), expected, rtol=1e-4)
    assert classifier.probabilities([]).shape == (0, 4)


def test_what_is_loaded_predicts_the_same(classifier, file):
    again = PictureClassifier.load(file)
    assert again.class_names == ("a", "b", "ç", "d")
    assert again.net.class_names == ["a", "b", "ç", "d"]
    expected = classifier.probabilities(PICTURES)
    np.testing.assert_array_equal(again.probabilities(PICTURES), expected)
    np.testing.assert_array_equal(
        PictureClassifier.load(file.parent).probabilities(PICTURES), expected
    )
    best = again.predict(PICTURES, top=3)
    for row, prediction in zip(expected, best, strict=True):
        order = np.argsort(-row)[:3]
        assert prediction == [(again.class_names[k], row[k]) for k in order]


def test_files_bytes_and_arrays_are_pictures(classifier, tmp_path):
    picture = Image.fromarray(smooth(1))
    picture.save(tmp_path / "a.png")
    array = np.asarray(picture).transpose(2, 0, 1)
    stream = io.BytesIO((tmp_path / "a.png").read_bytes())
    first, *others = classifier.predict(
        [array, tmp_path / "a.png", str(tmp_path / "a.png"), stream]
    )
    assert others == [first] * 3
    expected = pytest.approx(dict(first), rel=1e-5)
    given = [picture, stream.getvalue(), np.asarray(picture)]
    assert [dict(each) for each in classifier.predict(given)] == [expected] * 3
    stream.seek(0)
    for single in (*given, array, str(tmp_path / "a.png"), tmp_path / "a.png", stream):
        (prediction,) = classifier.predict(single)
        assert dict(prediction) == expected
    assert classifier.predict([]) == []
    with pytest.raises(ValueError, match=r"a picture \(3, H, W\) or .*the path of a file, got"):
        classifier.predict([np.zeros((8, 8), np.uint8)])
    for broken in (io.BytesIO(b"no"), b"no"):
        with pytest.raises(data.BrokenPictureError, match="the file: not a picture"):
            classifier.predict([broken])


def test_a_network_predicts_what_read_picture_takes(classifier, tmp_path):
    picture = Image.fromarray(smooth(1))
    picture.save(tmp_path / "a.png")
    file = (tmp_path / "a.png").read_bytes()
    net = models.Sequential(layer.Flatten(), layer.Linear(2))
    net.compile([np.zeros((1, 3, 16, 16), np.float32)])
    with pytest.raises(ValueError, match=r"no transform.*net\.transform = data\.evaluation_tr"):
        net.predict(tmp_path / "a.png")
    net.transform = classifier.transform
    rows = net.predict([*picture_files(tmp_path), file], batch_size=2)
    pictures = [*PICTURES, data.read_picture(file)]
    expected = net.predict(classifier.inputs(pictures))
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    for single in (tmp_path / "a.png", str(tmp_path / "a.png"), file, io.BytesIO(file), picture):
        np.testing.assert_allclose(net.predict(single), expected[-1:], rtol=1e-4, atol=1e-5)
    with pytest.raises(FileNotFoundError, match=r"cat\.jpg"):
        net.predict("cat.jpg")
    net.transform = data.Normalize(MEAN, STD)
    with pytest.raises(ValueError, match=r"shapes \(3, 20, 30\) and \(3, 21, 30\).*one size"):
        net.predict(picture_files(tmp_path))
    net.set_optimizer(opt.SGD(0.1))
    with pytest.raises(TypeError, match=r"'pets' is a name: data\.ImageFolder"):
        net.fit("pets")


def picture_files(folder):
    """PICTURES as files without loss."""
    names = [folder / f"{number}.png" for number in range(len(PICTURES))]
    for name, picture in zip(names, PICTURES, strict=True):
        Image.fromarray(picture.transpose(1, 2, 0)).save(name)
    return names


def test_load_states_reads_the_weights(classifier, file):
    net = models.create("lenet", num_classes=4)
    net.compile([tensor.from_numpy(np.zeros((1, 3, 16, 16), np.float32))], is_train=False)
    net.load_states(file)
    for name, value in classifier.net.get_states().items():
        np.testing.assert_array_equal(net.get_states()[name].numpy(), value.numpy())


def old(file):
    """The metadata of a file as they were before there was a file for any network."""
    arrays, metadata = load_safetensors(file)
    network = metadata["network"]
    assert network.pop("kind") == "architecture"
    kept = {key: metadata[key] for key in ("singa", "class_names", "transform")}
    kept |= {"format": "singa picture classifier", "version": 1, "channels": 3}
    return arrays, kept | {"architecture": network}


def test_files_from_before_there_was_one_for_any_network(classifier, file):
    save_safetensors(file, *old(file))
    again = PictureClassifier.load(file)
    np.testing.assert_array_equal(again.probabilities(PICTURES), classifier.probabilities(PICTURES))
    assert again.channels == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not how to use them"),
        ({"version": 9}, "version 9 of the format, and singa .* reads versions 1 and 2"),
        ({"architecture": None}, "damaged"),
        ({"architecture": {"name": "os", "arguments": {}}}, "no model 'os'"),
        ({"architecture": {"name": "lenet", "arguments": {"depth": 3}}}, "no argument 'depth'"),
        ({"architecture": {"name": "unet", "arguments": {"width": 10**9}}}, "at most 4096"),
        (
            {"architecture": {"name": "lenet", "arguments": {"num_classes": 10**12}}},
            "there are no values for parameters of this size",
        ),
        (
            {"transform": [{"name": "Resize", "arguments": {"size": [10**9, 2]}}]},
            "size of Resize is 1000000000: at most 4096",
        ),
        ({"architecture": {"name": "lenet", "arguments": {"num_classes": 3}}}, "fc|wrong shape"),
        ({"transform": [{"name": "exec", "arguments": {}}]}, "no transform 'exec'"),
        ({"transform": 5}, "damaged"),
        ({"channels": 7}, "channels must be 1 or 3, got 7"),
        ({"class_names": 5}, "damaged"),
        ({"class_names": ["a"]}, "1 class names, and the network has 4"),
    ],
)
def test_hostile_files(file, change, message):
    arrays, metadata = old(file)
    save_safetensors(file, arrays, {**metadata, **change})
    with pytest.raises(ValueError, match=message):
        PictureClassifier.load(file)


def test_damaged_and_missing_files(file, tmp_path):
    content = file.read_bytes()
    file.write_bytes(content[:-3])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        PictureClassifier.load(file)
    with pytest.raises(FileNotFoundError):
        PictureClassifier.load(tmp_path / "no.safetensors")


def test_a_blank_picture_has_the_size_of_the_network(classifier):
    height, width = classifier.net._inputs[0][0][2:]
    assert classifier.blank().shape == (classifier.channels, height, width)
    assert not classifier.blank().any()
    assert classifier.values([classifier.blank()]).shape == (1, 4)
    uncompiled = models.create("lenet", num_classes=4)
    again = PictureClassifier(uncompiled, classifier.class_names, classifier.transform)
    assert again.blank().shape == (3, 64, 64)


def test_pictures_that_stay_of_several_sizes(classifier):
    classifier.transform = data.Normalize([0.5] * 3, [0.5] * 3)
    pictures = [np.zeros((3, 8, 9), np.uint8), np.zeros((3, 7, 9), np.uint8)]
    with pytest.raises(ValueError, match=r"pictures of shapes \(3, 8, 9\) and \(3, 7, 9\)"):
        classifier.inputs(pictures)


def test_outputs_that_are_not_finite(classifier):
    """NaN would be a class, or no label, and no JSON."""
    pictures = [classifier.blank()] * 2
    bias = classifier.net.get_states()["fc2.b"]
    before = bias.numpy().copy()
    try:
        bias.copy_from_numpy(np.array([0, np.inf, 0, 0], np.float32))
        with pytest.raises(ValueError, match=r"\[.*inf.*\] for picture 1 of 2, which is no answer"):
            classifier.predict(pictures)
    finally:
        bias.copy_from_numpy(before)
    assert len(classifier.predict(pictures)) == 2


def test_names_of_classes_that_are_not_one_for_each(classifier):
    """Answers are by name."""
    net, transform = classifier.net, classifier.transform
    with pytest.raises(ValueError, match="class_names has a name twice: 'crane'"):
        PictureClassifier(net, ("crane", "b", "crane", "d"), transform)
    with pytest.raises(TypeError, match="class_names must be a list of names, got 'abcd'"):
        PictureClassifier(net, "abcd", transform)


def test_what_is_missing_or_does_not_fit(classifier):
    with pytest.raises(ValueError, match=r"no transform for pictures: set net\.transform = "):
        PictureClassifier(classifier.net, ("a",) * 4)
    with pytest.raises(ValueError, match=r"no names of classes: set net\.class_names = "):
        PictureClassifier(classifier.net, transform=classifier.transform)
    with pytest.raises(TypeError, match="no transform"):
        PictureClassifier(classifier.net, ("a",) * 4, lambda images, rng: images)
    with pytest.raises(ValueError, match="2 class names, and the network has 4"):
        PictureClassifier(classifier.net, ("a", "b"), classifier.transform)
    uncompiled = models.create("lenet", num_classes=4)
    again = PictureClassifier(uncompiled, classifier.class_names, classifier.transform)
    with pytest.raises(RuntimeError, match=r"call compile\(\) first"):
        again.save("a.safetensors")
