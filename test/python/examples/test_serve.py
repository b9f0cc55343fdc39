"""examples/serve/serve.py: requests from many threads, answered in batches."""

import http.client
import importlib.util
import io
import json
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from picture_folders import coloured, smooth
from singa import data, models, tensor
from singa.training.picture_classifier import PictureClassifier


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    net = models.create("lenet", num_classes=3)
    net.compile([tensor.from_numpy(np.zeros((1, 3, 16, 16), np.float32))], is_train=False)
    transform = data.evaluation_transform(16, data.IMAGENET_MEAN, data.IMAGENET_STD)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    PictureClassifier(net, ("a", "b", "c"), transform).save(path)
    return path


@pytest.fixture(scope="module")
def serve(examples):
    spec = importlib.util.spec_from_file_location("serve", examples / "serve" / "serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def png(picture):
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def ask(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/", body)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


def announce(port, length):
    """Announces a body of this length, and does not send it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


PICTURES = [png(coloured("red", seed, 20 + seed, 30)) for seed in range(12)]


def test_concurrent_requests_are_answered_in_batches(serve, model):
    classifier = PictureClassifier.load(model)
    expected = [
        dict(prediction)
        for prediction in classifier.predict([io.BytesIO(p) for p in PICTURES], top=3)
    ]
    batches = serve.Batches(classifier, most=4, patience_s=5.0)  # a batch of 4 does not wait
    service = serve.Service(("127.0.0.1", 0), batches)
    running = threading.Thread(target=service.serve_forever)
    running.start()
    answers = [None] * 12

    def request(number):
        answers[number] = ask(service.server_port, PICTURES[number])

    threads = [threading.Thread(target=request, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (status, content), wanted in zip(answers, expected, strict=True):
        assert status == 200
        assert json.loads(content) == pytest.approx(wanted, abs=2e-6)
    assert batches.sizes == [4, 4, 4]
    port = service.server_port
    for (found, content), status, reason in (
        (ask(port, b"no picture"), 400, "not a picture"),
        (announce(port, "0"), 411, "send a picture"),
        (announce(port, "many"), 411, "send a picture"),
        (announce(port, serve.LARGEST + 1), 413, "20 MB at most"),
    ):
        assert found == status
        assert reason in json.loads(content)["error"]
    service.shutdown()
    running.join()
    service.server_close()
    batches.close()


def test_an_error_reaches_those_who_asked_and_the_service_goes_on(serve, model):
    classifier = PictureClassifier.load(model)
    batches = serve.Batches(classifier, most=1)
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        batches.probabilities(np.zeros((4, 4), np.uint8))
    picture = np.ascontiguousarray(smooth(0).transpose(2, 0, 1))
    assert sum(batches.probabilities(picture).values()) == pytest.approx(1.0)
    batches.close()


def test_as_a_program(examples, model):
    command = [sys.executable, str(examples / "serve" / "serve.py"), str(model), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)\n", process.stdout.readline())[1])
    status, content = ask(port, PICTURES[0])
    assert status == 200
    assert sorted(json.loads(content)) == ["a", "b", "c"]
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
    done = subprocess.run([*command[:2], "no"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "serve.py: " in done.stderr
    assert "'no'" in done.stderr
