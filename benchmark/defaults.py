#!/usr/bin/env python3
"""Compares what `singa train` learns with no option with fastai, Keras and timm.

    python benchmark/defaults.py --others OTHERS/bin/python --cifar FOLDER --out results/
    python benchmark/defaults.py ... --sets digits --programs singa keras --seeds 0   # to try it
    python benchmark/defaults.py ... --sets digits tiles & ... --sets shapes textures # two at once

OTHERS is an environment with fastai, keras, tensorflow-cpu, timm and scikit-image, FOLDER has
CIFAR-10's data_batch_*.bin. Each run is a process and a file in `results/`; a run that has one is
not repeated. When all are there, docs/accuracy.md is written.

A set's budget is the processor time that `singa train` takes for it with the first seed, its start
and tests included. The others train for as many epochs as fit into that, found with the first seed
by trials that are not counted. All have one thread and load pictures in the process that trains, so
that what else runs on the machine hardly matters. They start from random weights, get the pictures
in their own size, and are tested after the last epoch.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import harness
from small_sets import SETS

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
SEEDS = (0, 1, 2, 3, 4)
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def singa(args: argparse.Namespace) -> dict:
    """`singa train --data FOLDER`: resnet20_cifar, one-cycle SGD, crop and flip"""
    import singa as package

    command = [sys.executable, "-m", "singa", "train", "--data", args.folder]
    command += ["--seed", str(args.seed), "--out", args.run, "--overwrite"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    records = [json.loads(line) for line in Path(args.run, "log.jsonl").read_text().splitlines()]
    seconds, epochs = used.ru_utime + used.ru_stime, len(records)
    accuracy = records[-1]["test_top1"]
    return {"accuracy": accuracy, "seconds": seconds, "epochs": epochs, "v": package.__version__}


def trained(
    args: argparse.Namespace, version: str, make: Callable[[], Callable[[int], float]]
) -> dict:
    """Trains for args.epochs, or if that is 0, for as many as fit into args.budget. make() seeds,
    and returns a function that trains a new network for so many epochs, each with a test, and
    returns the last accuracy."""

    def timed(epochs: int) -> tuple[float, float]:
        train, start = make(), time.process_time()
        return train(epochs), time.process_time() - start

    timed(1)  # what is loaded and compiled once does not count
    epochs = args.epochs
    if not epochs:
        # Some take seconds to start and milliseconds for an epoch: the trial grows until it has a
        # fifth of the budget.
        start, trial, seconds = timed(1)[1], 1, 0.0
        while seconds < args.budget / 5:
            trial *= 4
            seconds = timed(trial)[1]
        epochs = max(int(1 + (args.budget - start) * (trial - 1) / (seconds - start)), 1)
    accuracy, seconds = timed(epochs)
    return {"accuracy": accuracy, "seconds": seconds, "epochs": epochs, "v": version}


def fastai(args: argparse.Namespace) -> dict:
    """`vision_learner(dls, resnet18, pretrained=False)` and `fit_one_cycle`"""
    from torch_models import imported

    imported("torchvision")
    from fastai import __version__
    from fastai.vision import all as vision

    def make() -> Callable[[int], float]:
        vision.set_seed(args.seed)
        folders = args.folder, "train", "test"
        pictures = vision.ImageDataLoaders.from_folder(*folders, num_workers=0)
        given = {"pretrained": False, "metrics": vision.accuracy}
        learner = vision.vision_learner(pictures, vision.resnet18, **given)

        def train(epochs: int) -> float:
            with learner.no_bar(), learner.no_logging():
                learner.fit_one_cycle(epochs)
            return float(learner.recorder.values[-1][-1])

        return train

    return trained(args, __version__, make)


def keras(args: argparse.Namespace) -> dict:
    """network, augmentation and `compile` of TensorFlow's tutorial on a folder of pictures"""
    import keras as package
    from keras import layers

    def make() -> Callable[[int], float]:
        package.utils.set_random_seed(args.seed)
        train_set, test_set = (
            package.utils.image_dataset_from_directory(
                Path(args.folder, part), image_size=(args.side, args.side), seed=args.seed
            )
            for part in ("train", "test")
        )
        row = [layers.RandomFlip("horizontal"), layers.RandomRotation(0.1), layers.RandomZoom(0.1)]
        row.append(layers.Rescaling(1 / 255))
        for channels in (16, 32, 64):
            row.append(layers.Conv2D(channels, 3, padding="same", activation="relu"))
            row.append(layers.MaxPooling2D())
        row += [layers.Dropout(0.2), layers.Flatten(), layers.Dense(128, activation="relu")]
        net = package.Sequential([*row, layers.Dense(args.classes)])
        loss = package.losses.SparseCategoricalCrossentropy(from_logits=True)
        net.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
        given = {"validation_data": test_set, "verbose": 0}
        return lambda epochs: net.fit(train_set, epochs=epochs, **given).history["val_accuracy"][-1]

    return trained(args, package.__version__, make)


def timm(args: argparse.Namespace) -> dict:
    """resnet18 with the defaults of timm's `train.py`, but for the size of the pictures"""
    import torch
    from torch_models import imported

    package = imported("timm")
    from timm import data, loss, optim, scheduler, utils

    def make() -> Callable[[int], float]:
        utils.random_seed(args.seed)
        net = package.create_model("resnet18", num_classes=args.classes)
        config = data.resolve_data_config({"input_size": (3, args.side, args.side)}, model=net)
        config |= {"batch_size": 128, "device": torch.device("cpu")}
        config |= {"num_workers": 0, "persistent_workers": False}
        sets = [data.create_dataset("", args.folder, split=part) for part in ("train", "test")]
        tests = data.create_loader(sets[1], **config)
        config |= {"is_training": True, "interpolation": "random"}
        loader = data.create_loader(sets[0], **config)
        optimizer = optim.create_optimizer_v2(net, "sgd", 0.1 * 128 / 256, 2e-5, 0.9)
        criterion = loss.LabelSmoothingCrossEntropy(0.1)

        def train(epochs: int) -> float:
            given = {"warmup_t": 5, "warmup_lr_init": 1e-5}
            schedule = scheduler.CosineLRScheduler(optimizer, epochs, **given)
            for epoch in range(epochs):
                schedule.step(epoch)
                net.train()
                for images, labels in loader:
                    optimizer.zero_grad()
                    criterion(net(images), labels).backward()
                    optimizer.step()
                net.eval()
                with torch.inference_mode():
                    right = sum(int((net(x).argmax(1) == y).sum()) for x, y in tests)
            return right / len(sets[1])

        return train

    return trained(args, package.__version__, make)


PROGRAMS = {f.__name__: f for f in (singa, fastai, keras, timm)}


def mean(runs: list[dict], field: str) -> float:
    return statistics.mean(run[field] for run in runs)


def error(runs: list[dict]) -> float:
    """The standard error of the mean accuracy."""
    return statistics.stdev(run["accuracy"] for run in runs) / math.sqrt(len(runs))


def page(counts: dict[str, dict], results: dict[str, dict[str, list[dict]]]) -> str:
    """The page. results: set, program, runs of all seeds."""
    accuracy, costs, ahead = [], [], []
    for name, programs in results.items():
        rows = {"set": name}, {"set": name} | {k: str(v) for k, v in counts[name].items()}
        for program, runs in programs.items():
            rows[0][program] = f"{100 * mean(runs, 'accuracy'):.1f} ± {100 * error(runs):.1f}"
            rows[1][program] = f"{mean(runs, 'epochs'):.0f}, {mean(runs, 'seconds'):.0f} s"
            points = mean(runs, "accuracy") - mean(programs["singa"], "accuracy")
            if points > 2 * math.hypot(error(runs), error(programs["singa"])):
                ahead.append(f"- {name}: {program} is ahead by {100 * points:.1f} points.")
        accuracy.append(rows[0])
        costs.append(rows[1])
    text = f"""Accuracy in percent: mean and standard error of {len(SEEDS)} seeds. All train for the
        processor time that singa takes with the first seed, with one thread, on the same machine
        and from random weights, and are tested after the last epoch. A program is ahead if the
        difference is more than two standard errors. Measured on {harness.cpu_name()} by
        `benchmark/defaults.py`."""
    versions = {p: runs[0]["v"] for p, runs in next(iter(results.values())).items()}
    programs = [f"- {p} {v}: {PROGRAMS[p].__doc__}." for p, v in versions.items()]
    parts = (
        "# Accuracy on small sets",
        "What `singa train` learns with no option, compared with fastai, Keras and timm.",
        textwrap.fill(" ".join(text.split()), 120),
        harness.table(accuracy),
        "\n".join(ahead) or "No other program is ahead in any of them.",
        "fastai and timm are mostly used with trained weights, which no run has here.",
        "## Programs and sets",
        "\n".join(programs),
        "\n".join(f"- {name}: {SETS[name].__doc__}" for name in results),
        "Numbers of pictures, classes, pixels of a side; epochs and seconds of each program:",
        harness.table(costs),
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--others", required=True, help="interpreter with the other programs")
    add("--cifar", required=True, help="folder with CIFAR-10's data_batch_*.bin")
    add("--out", type=Path, required=True, help="folder for sets and results")
    add("--sets", nargs="+", choices=SETS, default=list(SETS))
    add("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    add("--seeds", nargs="+", type=int, default=list(SEEDS))
    args = parser.parse_args()
    here, out = Path(__file__).resolve(), args.out.resolve()
    os.environ |= dict.fromkeys(THREADS, "1")

    def kept(name: str, command: list[str]) -> dict:
        """What a command prints; it runs unless there is a file of what it printed."""
        file = out / f"{name}.json"
        if not file.exists():
            harness.save(file, harness.run_child(command))
        return json.loads(file.read_text())

    def run(name: str, program: str, seed: int, **given: object) -> dict:
        one = f"{name}-{program}-{seed}"
        given |= {
            "folder": str(out / name),
            "program": program,
            "seed": seed,
            "run": str(out / one),
        }
        interpreter = sys.executable if program == "singa" else args.others
        result = kept(one, harness.command(str(here), interpreter, **given))
        print(one, result, flush=True)
        return result

    counts, results = {}, {}
    for name in args.sets:
        maker = sys.executable if name == "shapes" else args.others
        script = str(here.with_name("small_sets.py"))
        counts[name] = kept(name, [maker, script, name, str(out / name), args.cifar])
        results[name] = {program: [] for program in args.programs}
        given = counts[name] | {"budget": run(name, "singa", SEEDS[0])["seconds"]}
        for seed in args.seeds:
            for program, runs in results[name].items():
                epochs = runs[0]["epochs"] if runs else 0
                runs.append(run(name, program, seed, epochs=epochs, **given))
    if (args.sets, args.programs, args.seeds) == (list(SETS), list(PROGRAMS), list(SEEDS)):
        PAGE.write_text(page(counts, results))
        print(f"{PAGE} is written; docs/guides/index.md should list it")


if __name__ == "__main__":
    harness.main(main, lambda args: PROGRAMS[args.program](args))
