"""Soak test: trains, saves, is killed, resumes, and infers in several threads, for SECONDS.

One process (`serve`) runs for the whole test. It trains, saves and loads while threads infer with
another network. The results must stay bit-identical, and memory must not grow. Other processes
(`train`) are killed at random moments, and the next one resumes. All losses and the contents of the
last checkpoint must be those of an uninterrupted run, and no other file may be left.

    python scripts/soak.py --seconds 1800

PYTHONPATH chooses the build of singa. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEPS, SAVE_EVERY = 60, 4
#: Bytes by which `serve` may grow after its first rounds.
_ROOM = 24 << 20
_THREADS = 3


def new_net() -> Any:
    """A network with all kinds of state: statistics, moments, random numbers, a schedule."""
    import singa
    from singa import autograd, layer, model, opt

    class Net(model.Model):
        def __init__(self) -> None:
            super().__init__()
            self.conv = layer.Conv2d(16, 3, padding=1)
            self.norm = layer.BatchNorm2d(momentum=0.1)
            self.pool = layer.MaxPool2d(2)
            self.drop = layer.Dropout(0.3)
            self.fc = layer.Linear(5)

        def forward(self, x: Any) -> Any:
            x = self.pool(autograd.relu(self.norm(self.conv(x))))
            return self.fc(self.drop(autograd.flatten(x)))

        def train_one_batch(self, x: Any, y: Any) -> Any:
            out = self.forward(x)
            loss = autograd.softmax_cross_entropy(out, y)
            self.optimizer(loss)
            return out, loss

    singa.seed(1)
    net = Net()
    net.set_optimizer(opt.Adam(opt.OneCycle(0.02, STEPS), clip_norm=1.0))
    net.compile([batch(0)[0]], is_train=True, use_graph=True, fuse=True)
    return net


def batch(number: int) -> tuple[Any, Any]:
    import numpy as np
    from singa import tensor

    draw = np.random.default_rng(number)
    x = draw.standard_normal((8, 3, 12, 12), np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(draw.integers(0, 5, 8, np.int32))


def trained(net: Any, path: Path, start: int) -> Iterator[str]:
    """Trains, saves every SAVE_EVERY steps, and yields the number and exact loss of each step."""
    from singa.training import checkpoint

    for step in range(start, STEPS):
        loss = float(net(*batch(step))[1].numpy().reshape(-1)[0])
        yield f"{step} {loss.hex()}"  # before the save, so that saved steps have been printed
        if (step + 1) % SAVE_EVERY == 0:
            checkpoint.save(path, net, net.optimizer, step=step + 1)


def digest(net: Any) -> str:
    """A hash of all state from which training resumes."""
    total = hashlib.sha256()
    for name, value in sorted(net.get_states().items()):
        total.update(name.encode() + value.numpy().tobytes())
    for key, value in sorted(net.optimizer.get_states().items()):
        kept = value if isinstance(value, dict) else {}
        total.update(f"{key} {'' if kept else value}".encode())
        for name, moment in sorted(kept.items()):
            total.update(name.encode() + moment.numpy().tobytes())
    return total.hexdigest()


def train(folder: Path) -> None:
    """Resumes from the checkpoint in the folder, if there is one, and prints each step."""
    from singa.training import checkpoint

    net, path, start = new_net(), folder / "last.safetensors", 0
    if path.exists():
        start = checkpoint.load(path, net, net.optimizer)["step"]
    for line in trained(net, path, start):
        print(line, flush=True)
    print("end", digest(net), flush=True)


def serve(folder: Path, seconds: float) -> None:
    """Trains, saves and loads while threads infer. Exits with an error if a result changes."""
    from singa.training import checkpoint

    end = time.monotonic() + seconds
    path = folder / "served.safetensors"
    served = new_net()
    served.eval()
    x = batch(1000)[0]
    # Replayed and fused inference rounds differently from the eager calls before recording.
    expected = {served(x).numpy().tobytes() for _ in range(6)}
    problems: list[str] = []
    done = threading.Event()
    counts = [0] * _THREADS

    def infer(number: int) -> None:
        served.eval()
        own = batch(1000)[0]
        try:
            while not done.is_set():
                if served(own).numpy().tobytes() not in expected:
                    raise AssertionError("an inference gives other bits than the first ones")
                counts[number] += 1
        except BaseException as error:
            problems.append(f"thread {number}: {error!r}")
            done.set()

    threads = [threading.Thread(target=infer, args=(n,)) for n in range(_THREADS)]
    for thread in threads:
        thread.start()
    rounds, resident, first = 0, list[int](), list[str]()
    try:
        while (time.monotonic() < end and not problems) or rounds < 3:
            net = new_net()
            lines = list(trained(net, path, 0))
            first = first or lines
            if lines != first:
                problems.append(f"round {rounds}: other losses than in the first round")
            before = digest(net)
            other = new_net()
            checkpoint.load(path, other, other.optimizer)
            if digest(other) != before:
                problems.append(f"round {rounds}: a checkpoint does not bring back what was saved")
            resident.append(_resident())
            rounds += 1
            if problems:
                break
    finally:
        done.set()
        for thread in threads:
            thread.join()
    settled = max(resident[: max(3, len(resident) // 3)])
    grown = resident[-1] - settled
    if grown > _ROOM:
        problems.append(f"memory grew by {grown >> 20} MiB over {rounds} rounds")
    path.unlink()
    print(f"{rounds} rounds, {sum(counts)} inferences, {resident[-1] >> 20} MiB resident")
    if problems:
        sys.exit("; ".join(problems))


def soak(seconds: float, seed: int) -> list[str]:
    """Runs the whole test and returns the problems that it found."""
    end = time.monotonic() + seconds
    folder = Path(tempfile.mkdtemp(prefix="singa-soak-"))
    draw = random.Random(seed)
    problems: list[str] = []
    kills = runs = 0
    (folder / "whole").mkdir()
    (folder / "served").mkdir()
    expected = _child(folder / "whole").communicate()[0].splitlines()
    if len(expected) != STEPS + 1:
        return ["the uninterrupted run failed"]
    server = _child(folder / "served", "--serve", str(seconds))
    try:
        while (time.monotonic() < end or not runs) and not problems:
            now = folder / f"run{runs}"
            now.mkdir()
            lines, finished = dict[str, str](), ""
            while not finished and not problems:
                child = _child(now)
                assert child.stdout is not None
                # Kills after a number of steps, or at any time during start, step or save.
                steps = draw.randrange(1, STEPS)
                killed = draw.random() < 0.9
                timer = threading.Timer(draw.uniform(0.0, 3.0), child.kill)
                if killed and draw.random() < 0.3:
                    timer.start()
                for count, line in enumerate(child.stdout, 1):
                    step, _, bits = line.strip().partition(" ")
                    if step == "end":
                        finished = line.strip()
                    elif lines.setdefault(step, bits) != bits:
                        problems.append(f"step {step} gave {lines[step]}, resumed {bits}")
                    if killed and count == steps:
                        time.sleep(draw.uniform(0, 0.02))
                        child.kill()
                timer.cancel()
                child.wait()
                kills += child.returncode == -9
                if child.returncode not in (0, -9):
                    problems.append(f"a resumed run ended with {child.returncode}")
            whole = [f"{step} {bits}" for step, bits in lines.items()]
            if not problems and [*sorted(whole), finished] != [
                *sorted(expected[:-1]),
                expected[-1],
            ]:
                problems.append(f"run {runs}: other bits than the uninterrupted one")
            problems += _left_behind(now)
            shutil.rmtree(now)
            runs += 1
    finally:
        said = server.communicate()[0].strip()
    if server.returncode:
        problems.append(f"serve ended with {server.returncode}")
    problems += [f"served: {name} left" for name in os.listdir(folder / "served")]
    print(f"soak: {runs} runs, {kills} kills; {said}")
    shutil.rmtree(folder)
    return problems


def _left_behind(folder: Path) -> list[str]:
    """Files that the next save does not remove, apart from the checkpoint."""
    path = folder / "last.safetensors"
    # A save removes files that killed saves left at least a minute ago.
    for left in folder.iterdir():
        if left != path:
            os.utime(left, (time.time() - 3600,) * 2)
    path.unlink()
    _child(folder).communicate()
    return [f"{left.name} left beside the checkpoint" for left in folder.iterdir() if left != path]


def _child(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--train", str(folder), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800.0, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills [%(default)s]")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.train, options.serve)
    elif options.train is not None:
        train(options.train)
    else:
        problems = soak(options.seconds, options.seed)
        for problem in problems:
            print(f"soak: {problem}", file=sys.stderr)
        return bool(problems)
    return 0


if __name__ == "__main__":
    sys.exit(main())
