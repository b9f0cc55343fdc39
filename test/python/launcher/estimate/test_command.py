"""The command line: a script that is recorded, the table, and the picture."""

import subprocess
import sys

import pytest
from singa.__main__ import main
from singa.launcher.estimate.step_profile import Compute, Gather, Start, StepProfile, Wait, read

# A network with a batch norm; 4 · 5 + 4 + 4 · 2 + 4 · 3 + 3 parameters, and 8 statistics.
SCRIPT = """
import sys
import numpy as np
from singa import layer, models, opt
net = models.Sequential(layer.Linear(4), layer.BatchNorm2d(), layer.ReLU(), layer.Linear(3))
net.set_optimizer({optimizer})
x = np.zeros((6, 5), np.float32)
net.compile([net._as_tensors(x)], use_graph=True)
for step in range(int(sys.argv[1])):
    net(x, np.zeros(6, np.int32))
print("not ended")
"""


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "step.json"
    events = (Compute(0.1), Start(1 << 17), Gather(1000), Wait(0), Compute(0.1))
    StepProfile("net", events, 100 << 20).write(path)
    return path


def _launch(*arguments):
    return main(["launch", "--estimate", *map(str, arguments)])


def test_a_table(profile, capsys):
    assert _launch("--profile", profile, "--mbit", 100, "--measured", "2=250") == 0
    title, heads, *rows, note = capsys.readouterr().out.splitlines()
    assert title == "net: 0.1 MB of gradients, 100 Mbit/s, 0.1 ms, chain"
    assert heads.split()[:3] == ["ranks", "step", "ms"]
    assert [row.split()[0] for row in rows] == [str(1 << n) for n in range(1, 11)]
    # One chunk there and back, and the statistics. 100 MiB of the process, 4 of shared memory.
    first = " ".join(rows[0].split())
    assert first == "2 221.5 90 % 21.5 0 % 104 250.0 (-11 %)"
    assert note == "All figures but measured ones are simulated."


def test_a_picture(profile, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.svg"
    options = ("--per-machine", 256, "--measured", "512=300", "--picture", path)
    assert _launch("--profile", profile, *options) == 0
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()[2:-1]] == ["512", "1024"]
    assert "</svg>" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--profile"),
        (("--profile", "a", "none.py"), "there is no file none.py"),
        (("--profile", "a", "--mbit", "0"), "must be a positive number"),
        (("--profile", "a", "--measured", "1=3"), "one rank exchanges nothing"),
        (("--profile", "a", "--measured", "4"), "must be a positive number"),
        (("--profile", "a", "--picture", "a.bmp"), "must end in .png, .svg, .pdf"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        _launch(*arguments)
    assert message in capsys.readouterr().err


def test_no_file(tmp_path, capsys):
    assert _launch("--profile", tmp_path / "none.json") == 1
    assert "none.json" in capsys.readouterr().err


@pytest.mark.parametrize("optimizer", ["opt.SGD(lr=0.1)", "opt.DistOpt(virtual_ranks=2)"])
def test_a_script(optimizer, tmp_path):
    script, path = tmp_path / "train.py", tmp_path / "step.json"
    script.write_text(SCRIPT.format(optimizer=optimizer))
    command = [sys.executable, "-m", "singa", "launch", "--estimate", "--profile", path, script]
    done = subprocess.run([*command, "60"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not ended" not in done.stdout
    assert done.stdout.startswith("train.py 60: 0.0 MB of gradients, 1000 Mbit/s")
    found = read(path)
    assert found.title == "train.py 60"
    assert found.gradients == 4 * (5 * 4 + 4 + 4 * 2 + 4 * 3 + 3)
    kinds = [type(event) for event in found.events]
    assert kinds == [Compute, Start, Compute, Gather, Wait, Compute, Compute]
    # Of six parameters, as ranks describe them to each other.
    (text,) = [event.text for event in found.events if isinstance(event, Start)]
    assert text == len("0.W (5, 4) float32\n0.b (4,) float32\n1.scale (4,) float32\n") + len(
        "1.bias (4,) float32\n3.W (4, 3) float32\n3.b (3,) float32\n"
    )
    assert found.memory > 1 << 20


def test_a_script_that_ends_early(tmp_path):
    script, path = tmp_path / "train.py", tmp_path / "step.json"
    script.write_text(SCRIPT.format(optimizer="opt.SGD(lr=0.1)"))
    command = [sys.executable, "-m", "singa", "launch", "--estimate", "--profile", path, script]
    done = subprocess.run([*command, "3"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "train.py ended before 15 updates of its model were recorded" in done.stderr
    assert not path.exists()
