#!/usr/bin/env python3
"""Makes small pictures, and tries the service of `singa serve` as a container has it.

    ask_service.py pictures FOLDER              pictures of three classes, with Pillow
    ask_service.py ask START HEALTH PICTURE     scripts that start the service and check its health

The service must say that it is healthy, classify the picture, refuse what is no picture, count
both, and end with status 0 after SIGTERM. Needs no network but the loopback, which it turns on.
"""

import fcntl
import json
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

URL = "http://127.0.0.1:8000"


def make_pictures(folder: str) -> None:
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    colours = {"blue": (40, 60, 220), "green": (30, 200, 60), "red": (220, 40, 30)}
    for name, colour in colours.items():
        Path(folder, name).mkdir(parents=True)
        for number in range(20):
            pixels = np.clip(rng.integers(-30, 31, (20, 24, 3)) + colour, 0, 255).astype("uint8")
            Image.fromarray(pixels).save(Path(folder, name, f"{number}.png"))


def turn_on_loopback() -> None:
    """As `ip link set lo up`, which a small Debian lacks. Needs to be root."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sH14x", b"lo", 1)  # struct ifreq with IFF_UP
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS


def status_of(body: bytes) -> int:
    try:
        with urllib.request.urlopen(f"{URL}/predict", body) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def ask(start: str, health: str, picture: str) -> None:
    turn_on_loopback()
    service = subprocess.Popen(["sh", start])
    for _ in range(300):
        assert service.poll() is None, f"the service ended with status {service.returncode}"
        checked = subprocess.run(["sh", health], capture_output=True, text=True, check=False)
        if checked.returncode == 0:
            break
        time.sleep(0.2)
    else:
        service.kill()
        raise SystemExit(f"the service is not healthy after a minute: {checked.stderr}")
    print("== it is healthy")
    content = Path(picture).read_bytes()
    head = b'--X\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    form = urllib.request.Request(
        f"{URL}/predict?top=1",
        head + content + b"\r\n--X--\r\n",
        {"Content-Type": "multipart/form-data; boundary=X"},
    )
    with urllib.request.urlopen(form) as answer:
        (prediction,) = json.load(answer)["predictions"]
    print(f"== {prediction}")
    assert (prediction["file"], list(prediction["classes"])) == ("a.png", ["red"])
    assert status_of(b"no picture") == 400
    with urllib.request.urlopen(f"{URL}/metrics") as answer:
        text = answer.read().decode()
    for status in (200, 400):
        assert f'singa_requests_total{{status="{status}"}} 1\n' in text, text
    service.send_signal(signal.SIGTERM)
    assert service.wait(60) == 0, f"it stopped with status {service.returncode}"
    print("== it stopped with status 0")


if __name__ == "__main__":
    {"pictures": make_pictures, "ask": ask}[sys.argv[1]](*sys.argv[2:])
