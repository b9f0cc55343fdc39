"""examples/pets: from a folder of odd pictures to predictions and an ONNX file."""

import re

import numpy as np
import pytest
from singa.training.picture_classifier import PictureClassifier


def test_the_program_is_short(examples):
    lines = (examples / "pets" / "train.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 40


@pytest.mark.slow
def test_from_a_folder_to_predictions_and_onnx(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    for folder, options in (("pets", ("--count", "60")), ("new", ("--count", "10", "--seed", "9"))):
        made = run("pets/make_pets.py", folder, *options)
        assert made.returncode == 0, made.stderr
    pictures = [
        path.relative_to(tmp_path).as_posix()
        for name in ("cat", "dog", "fish")
        for path in sorted((tmp_path / "new" / name).glob("00*.*"))
    ]
    assert len(pictures) == 30
    done = run("pets/train.py", "pets", *pictures)
    assert done.returncode == 0, done.stderr
    for broken in ("pets/cat/cut off.jpg", "pets/dog/empty.png", "pets/dog/page.jpg"):
        assert broken in done.stderr
    shares = re.findall(r"^(?:epoch .*)? +val loss [\d.]+ accuracy ([\d.]+)%", done.stdout, re.M)
    assert float(shares[-1]) >= 80
    found = re.findall(r"^new/(\w+)/\S+: (\w+) \d+%$", done.stdout, re.M)
    assert len(found) == 30
    assert np.mean([name == predicted for name, predicted in found]) >= 0.8

    classifier = PictureClassifier.load(tmp_path / "pets.safetensors")
    decoded = [classifier.read(tmp_path / path) for path in pictures[:7]]
    session = runtime.InferenceSession(tmp_path / "pets.onnx")
    (scores,) = session.run(None, {"x": classifier.inputs(decoded)})
    expected = np.exp(scores - scores.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(classifier.probabilities(decoded), expected, atol=1e-4)
