"""`python -m singa serve`."""

import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial

import numpy as np
import pytest
import singa
from picture_folders import coloured
from PIL import Image
from program_in_process import run_singa

run = partial(run_singa, "serve")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_a_program(trained, tmp_path, number):
    coloured("red", 77).save(tmp_path / "a.png")
    command = [sys.executable, "-W", "error", "-m", "singa", "serve", str(trained), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
        ask = f"to ask it: curl -F image=@PICTURE {address}/predict\n"
        assert process.stdout.readline() == ask
        body = (tmp_path / "a.png").read_bytes()
        with urllib.request.urlopen(f"{address}/predict?top=1", body) as answer:
            (best,) = json.load(answer)["predictions"]
        assert list(best["classes"]) == ["red"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/predict", b"no picture")
        with refused.value as answer:
            assert answer.status == 400
            assert json.load(answer)["error"].startswith("the body: not a picture")
        with urllib.request.urlopen(address) as answer:
            model = json.load(answer)["model"]
        content = (trained / "model.safetensors").read_bytes()
        assert model == {"path": str(trained), "sha256": hashlib.sha256(content).hexdigest()}
        process.send_signal(number)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    texts = [line.split(" ", 1)[1] for line in error.splitlines()]
    assert texts[0].startswith(f"singa {singa.__version__} serves {trained}: ")
    assert texts[0].endswith(f"; sha256 {model['sha256']}")
    assert '"POST /predict HTTP/1.1" 400 ' in texts[1]
    assert texts[2:] == ["told to stop: requests that were taken are answered", "stopped"]


def test_warnings_are_lines_of_the_log(trained, tmp_path):
    Image.fromarray(np.full((20, 20), 4000, np.uint16)).save(tmp_path / "a.png")
    command = [sys.executable, "-m", "singa", "serve", str(trained), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().strip()
        for _ in range(2):
            body = (tmp_path / "a.png").read_bytes()
            urllib.request.urlopen(f"{address}/predict?top=1", body).close()
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    (line,) = [line for line in error.splitlines() if "65535" in line]
    assert line.split(" ", 1)[1].startswith("note: [read_picture] the file: no level is above 4000")


def test_a_second_signal_stops_at_once(trained):
    """Also while a request arrives, for which the first one waits."""
    command = [sys.executable, "-m", "singa", "serve", str(trained), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        assert " serves " in process.stderr.readline()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
            text = b""
            while b"in_progress 1\n" not in text:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = answer.read()
            process.send_signal(signal.SIGTERM)
            assert "told to stop" in process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.endswith(" stopped before all requests were answered\n")
    assert error.count("\n") == 1


def test_a_port_that_is_taken(trained, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert run(trained, "--port", port, "--batch", 1) == 1
    message = f"--port {port}: Address already in use; give another --port, or 0 for a free one\n"
    assert capsys.readouterr().err.endswith(message)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("no",), 1, "[load] no does not exist"),
        (("RUN", "--host", "256.0.0.1", "--port", "0"), 1, "--host 256.0.0.1 --port 0"),
        (("RUN", "--port", "70000"), 1, "--port 70000"),
        (("RUN", "--batch", "0"), 2, "--batch"),
        (("RUN", "--timeout", "0"), 2, "--timeout"),
    ],
)
def test_errors(trained, capsys, arguments, status, message):
    assert run(*[trained if each == "RUN" else each for each in arguments]) == status
    assert message in capsys.readouterr().err
