"""Trains a network on images: one's own pictures, CIFAR, MNIST, or generated ones.

    python -m singa train --data pets               a folder of pictures: pets/cat/1.jpg, ...
    python -m singa train --data pets --model mobilenet_v2    a network for larger pictures
    python -m singa train --data pets --weights runs/dogs     starts from trained weights
    python -m singa train --data beach.csv --multilabel       several labels for each picture
    python -m singa train --data faces.csv --regression       a number for each picture
    python -m singa train --quick                   a short run on generated images
    python -m singa train --data cifar-10 --download          downloads CIFAR-10 first
    python -m singa train --out runs/pets --resume  continues after Ctrl-C or a crash
    python -m singa train --out runs/pets --resume --epochs 80   trains longer
    python -m singa predict runs/pets cat.jpg       asks the trained network

--data takes

EXPECTED
A fifth of a folder's pictures is held out for the test. Broken files are named and left out.

With --multilabel the loss is binary cross-entropy. Each epoch prints the mean average precision
over the labels (map), the F1 score of all labels together (f1), and the share of pictures all of
whose labels are right (exact). With --regression numbers are predicted in standard deviations from
the mean of the training pictures, which the model keeps, by the mean squared error; each epoch
prints the mean absolute error in the units of the file (mae), and r2. Flipped and cropped pictures
must have the same numbers, or --no-augment is needed.

The output folder (--out) gets these files:

    log.jsonl               one record per epoch
    curves.png              plots of loss and accuracy
    checkpoint.safetensors  state of the run, saved after each epoch
    model.safetensors       the network with its classes and transforms, saved after each epoch
    environment.json        what singa.doctor() says of the machine

A run that is resumed gives the same bits as one that was never interrupted. Ctrl-C saves a
checkpoint and stops; a second Ctrl-C stops at once. With --resume, --epochs may be larger than
before, also when the run has ended. The learning rate then goes through its schedule once more over
the epochs that are added, so the loss may rise at first.

`python -m singa launch -n 2 -m singa train ...` trains on two processes, each on its part of every
batch. A run may be resumed with another number of ranks. With --virtual-ranks 4, it gives the same
bits on 1, 2 and 4 ranks.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import singa

from .. import autograd, device, distributed, models
from ..data.picture_list import is_visible
from ..launcher.command_line import command_parser, program_name, share
from ..model import Model
from ..tensor import Tensor, from_numpy
from ..training import Callback, Trainer
from ..training.picture_classifier import FILE_NAME, PictureClassifier
from ..training.program import (
    add_run_arguments,
    at_least,
    choose_device,
    parse_run,
    program,
    say,
    warnings_as_notes,
)
from ..training.recipe import (
    QUICK,
    RECIPE,
    SMALL_NETWORKS,
    add_recipe_arguments,
    compile_network,
    extended_schedule,
    make_optimizer,
    set_recipe_defaults,
)
from ..training.task import set_task
from . import decoding, picture_sets
from .run_folder import note_environment
from .start_weights import load_start

SETTINGS = (
    *("model", "data", "images", *RECIPE, "size", "split", "augment", "columns"),
    *("class_weights", "weights", "multilabel", "regression"),
)
#: Options for folders of pictures.
OF_PICTURES = ("size", "split", "augment", *SETTINGS[-5:], "cache", "workers")
#: Networks for pictures.
LARGE = tuple(name for name in models.names() if name not in ("gpt_small", "unet"))


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments. A resumed run gets its settings from the checkpoint."""
    parser = command_parser(
        "train",
        (__doc__ or "").replace("EXPECTED", picture_sets.EXPECTED),
        "[options]",
        epilog=f"Networks for CIFAR, MNIST and generated images: {', '.join(SMALL_NETWORKS)}.\n\n"
        f"Networks for pictures: {', '.join(LARGE)}.",
    )
    parser.for_words = "--data"
    count, natural = at_least(1, int), at_least(0, int)
    # The weights depend on these, so a resumed run cannot change them.
    run = parser.add_argument_group("training (a resumed run keeps these settings)")
    run.add_argument(
        "--data", metavar="PATH", help="folder or CSV file, see above [generated images]"
    )
    run.add_argument(
        "--model",
        metavar="NAME",
        default="resnet20",
        help="network, see below [resnet20; MNIST: lenet; pictures: resnet20_cifar]",
    )
    run.add_argument(
        "--images",
        type=count,
        metavar="N",
        help="use only the first N training images; pictures: about N, of all classes [all]",
    )
    add_recipe_arguments(
        run,
        epochs="15; pictures: 20, up to 60 where they are few or small",
        batch_size="128; pictures: 32",
        lr="0.1; pictures: 0.025, with --weights 0.01",
    )
    pictures = parser.add_argument_group("a folder of pictures (a resumed run keeps the first 8)")
    tasks = pictures.add_mutually_exclusive_group()
    tasks.add_argument(
        "--multilabel", action="store_true", help="the CSV file has several labels for a picture"
    )
    tasks.add_argument(
        "--regression", action="store_true", help="the CSV file has numbers, which are predicted"
    )
    pictures.add_argument(
        "--weights",
        metavar="PATH",
        help="start from trained weights, with a new last layer for other classes: another run, a "
        "file of Model.save, or what load_pretrained reads of timm, transformers and torchvision "
        "[random weights]",
    )
    pictures.add_argument(
        "--size",
        type=count,
        metavar="N",
        help="side in pixels of what the network gets [that of the pictures, if the network "
        "takes it; of larger ones its own, at least 64]",
    )
    pictures.add_argument(
        "--split",
        type=_share,
        metavar="X",
        help="share of each class that is held out for the test, if there is no folder val or test "
        "and no column that says it [0.2]",
    )
    pictures.add_argument(
        "--columns",
        metavar="FILE,LABEL",
        help="columns of the CSV file with files and classes, if it has others [by usual names]; "
        "with --multilabel and --regression there may be several of labels or numbers",
    )
    pictures.add_argument(
        "--class-weights",
        choices=("balanced",),
        help="let classes count alike in the loss, whatever their numbers of pictures",
    )
    pictures.add_argument(
        "--augment",
        choices=("standard", "trivial", "rand"),
        default="standard",
        help="random crop and flip; also TrivialAugment or RandAugment [%(default)s]",
    )
    pictures.add_argument(
        "--cache",
        metavar="DIR",
        help="folder that keeps decoded pictures; 'memory' keeps them in memory [none]",
    )
    pictures.add_argument(
        "--workers",
        type=natural,
        default=2,
        metavar="N",
        help="threads that read pictures [%(default)s]",
    )

    parser.add_argument(
        "--quick", action="store_true", help="set --epochs 5 and --images 5000, unless given"
    )
    parser.add_argument(
        "--download", action="store_true", help="download CIFAR-10 to --data if it is missing"
    )
    add_run_arguments(parser, "runs/MODEL; pictures: runs/FOLDER", "epochs")

    given = parser.parse_args(argv)
    if given.download and not given.data and not given.resume:
        parser.error("--download needs --data, the folder for CIFAR-10")
    if given.no_augment and given.augment != parser.get_default("augment"):
        parser.error("--augment is not allowed with --no-augment")
    if given.split is not None and (parts := picture_sets.parts_of(given.data)):
        names = " and ".join(part.name for part in parts)
        parser.error(f"--split: {given.data} has folders {names}, which say what is held out")
    kind = _set_defaults(parser, given)
    args = parse_run(
        parser, argv, SETTINGS, lambda args: Path("runs") / _name(args, kind), more_epochs=True
    )
    if args.resume:
        _check_quick(parser, args)
    elif (args.out / FILE_NAME).exists() and not (
        args.overwrite or distributed.environment().restart
    ):  # downloaded weights, perhaps
        parser.error(
            f"{args.out} has a {FILE_NAME}, which the run would replace: use another --out, or "
            "--overwrite"
        )
    if (args.virtual_ranks or 0) > args.batch_size:
        parser.error(
            f"--virtual-ranks {args.virtual_ranks} is more than the {args.batch_size} images of a "
            "batch, which are cut into as many parts: give a larger --batch-size"
        )
    _check_model(parser, args)
    return args


def _check_quick(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exits with an error if a run is resumed with a --quick that it did not have."""
    for name, value in (QUICK if args.quick else {}).items():
        if name not in args.given and getattr(args, name) != value:
            parser.error(
                f"--quick: the run in {args.out} began with --{name} {getattr(args, name)}: leave "
                "out --quick"
            )


def _share(text: str) -> float:
    value = share(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, got {text}")
    return value


def _set_defaults(parser: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    """Sets the defaults that depend on the data and on other options; returns the kind of data."""
    # What is wrong with the data is said before options are called wrong for them.
    kind = picture_sets.kind_of(given.data, given.download)
    if kind == "mnist":
        parser.set_defaults(model="lenet")
    if kind == "pictures":
        parser.set_defaults(model="resnet20_cifar", epochs=None, batch_size=32, lr=0.025)
        if given.weights:
            parser.set_defaults(model=None, epochs=20, lr=0.01)
    set_recipe_defaults(parser, given)
    return kind


def _name(args: argparse.Namespace, kind: str) -> str:
    """The name of the default output folder."""
    if kind != "pictures":
        return args.model
    path = Path(args.data)
    return path.stem if path.is_file() else path.resolve().name


def _check_model(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Chooses the architecture. Exits with an error for a model that the data do not have."""
    kind = picture_sets.kind_of(args.data, args.download)
    if kind == "pictures":
        _check_places(parser, args)
    task = picture_sets.task_name(args)
    for name in ("class_weights", "label_smoothing"):
        if task != "classes" and getattr(args, name):
            parser.error(f"--{name.replace('_', '-')} is for classes, not for --{task}")
    known = LARGE if kind == "pictures" else tuple(SMALL_NETWORKS)
    if args.weights and kind == "pictures":  # they say which network it is
        args.architecture = args.model
        return
    if args.model not in known:
        parser.error(
            f"argument --model: invalid choice: {args.model!r} (choose from {', '.join(known)})"
        )
    args.architecture = args.model if kind == "pictures" else SMALL_NETWORKS[args.model]
    if kind == "pictures":
        return
    for name in OF_PICTURES:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} is for a folder of pictures")


def _check_places(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exits with an error if the pictures of the run or its cache would lie among those of the
    data, as another class. A run that is resumed stays where it is."""
    roots = picture_sets.parts_of(args.data) or (Path(args.data),)
    for name in ("cache",) if args.resume else ("out", "cache"):
        place = getattr(args, name)
        for root in roots if place and place != "memory" and Path(args.data).is_dir() else ():
            with contextlib.suppress(ValueError):  # it lies elsewhere
                inner = Path(place).resolve().relative_to(root.resolve())
                if all(map(is_visible, inner.parts)):
                    parser.error(
                        f"--{name} {place} lies in {root}, where its pictures would be a class: "
                        f"give another --{name}"
                    )


def train(args: argparse.Namespace) -> int:
    """Trains, or resumes a run; returns the exit status."""
    hardware = choose_device(args.device, args.threads)
    with warnings_as_notes():
        start = load_start(args.weights, args.model) if args.weights else None
    if start is not None:
        args.model = args.settings["model"] = start.name
        args.size = args.settings["size"] = args.size or start.side
    picture_sets.choose_by_pictures(args)  # before the seed is set: it may draw
    singa.seed(args.seed)
    sets = picture_sets.load(args, None if start is None else start.statistics)
    loader, test_loader = sets.loaders(args)
    classes = len(sets.classes)
    if start is None:
        net: Model = models.create(
            args.architecture, num_classes=classes, label_smoothing=args.label_smoothing
        )
    else:
        net = start.net
        done = start.for_classes(sets.classes, args.label_smoothing, sets.task)
        say(f"starts from {args.weights} {done}")
    net.class_names, net.transform = list(sets.classes), sets.for_prediction()
    if net.task is None and sets.task.kind != "classes":
        set_task(net, sets.task)
    net.set_optimizer(make_optimizer(args, len(loader)))
    if args.class_weights:
        vars(net)["loss"] = _balanced_loss(sets, args.label_smoothing)
    try:
        compile_network(net, args, (sets.channels, sets.size, sets.size), hardware)
    except ValueError as error:
        if "size" not in args.given:
            raise
        made_for = "" if start is None else f", which was made for {start.side} x {start.side},"
        raise ValueError(
            f"--size {sets.size}: {args.model}{made_for} does not take such pictures: {error}"
        ) from error
    classifier = PictureClassifier(net, channels=sets.channels)

    def save_model() -> None:
        distributed.on_main(lambda: classifier.save(args.out / FILE_NAME), "save_model")

    trainer = Trainer(
        net,
        metrics=classifier.task.metrics(classes),
        callbacks=[
            _FilesOfRun(args.out, save_model),
            _MoreEpochs(args, len(loader)),
            *([] if args.cache else [_CacheAdvice(sets.train)]),
        ],
        out=args.out,
        checkpoint_steps=args.checkpoint_steps,
        settings=args.settings,
        title=args.model,
        validation_name="test",
    )
    trainer.resume_with = "--resume"
    resume = {"resume": args.resume, "overwrite": args.overwrite}
    records = trainer.fit(loader, [args.epochs, *args.extended][-1], test_loader, **resume)
    if trainer.exit_status:
        return trainer.exit_status
    if not records:  # the run may have been killed before it saved the model
        save_model()
        say("the run has had all its epochs: --epochs N, with a larger N, trains it longer")
    say(f"weights, curves and log are in {args.out}")
    if sets.kind == "pictures":
        say(f"to look at it: {program_name('report')} {args.out}")
        say(f"to use it: {program_name('predict')} {args.out} PICTURE...")
    return 0


def _balanced_loss(
    sets: picture_sets.PictureSets, smoothing: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """Softmax cross-entropy in which classes weigh alike: each picture by all / (classes · those of
    its class)."""
    counts = np.bincount(sets.train.labels, minlength=len(sets.classes))
    shares = len(sets.train) / (len(counts) * np.maximum(counts, 1))
    weight = from_numpy(shares.astype(np.float32), device.get_default_device())
    weight.requires_grad = False

    def loss(out: Tensor, y: Tensor) -> Tensor:
        if not out.shape[0]:  # a rank may have no part of a short batch
            return autograd.reduce_sum(out)
        return autograd.softmax_cross_entropy(out, y, smoothing, weight)

    return loss


class _MoreEpochs(Callback):
    """Of a run that was extended, the schedule of the learning rate is the first one, and then that
    of the epochs that were added."""

    def __init__(self, args: argparse.Namespace, steps_per_epoch: int) -> None:
        self.args, self.steps_per_epoch = args, steps_per_epoch

    def on_train_begin(self, trainer: Trainer) -> None:
        if self.args.extended:
            own = getattr(trainer.optimizer, "opt", trainer.optimizer)
            own.lr = extended_schedule(self.args, self.steps_per_epoch)


class _CacheAdvice(Callback):
    """Says after the first epoch of a call if a cache would help."""

    def __init__(self, pictures: Any) -> None:
        self.pictures = pictures

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        pictures, self.pictures = self.pictures, None
        rate = record["images_per_s"] / distributed.world_size()
        if pictures is None or not distributed.is_main() or not rate:
            return
        found = decoding.measure(pictures)
        if found is not None and found.is_long(1 / rate):
            say(decoding.sentence(found, 1 / rate))


class _FilesOfRun(Callback):
    """Notes the environment when training begins, and saves the model with each epoch's
    checkpoint."""

    def __init__(self, folder: Path, save_model: Callable[[], None]) -> None:
        self.folder = folder
        self.save_model = save_model

    def on_train_begin(self, trainer: Trainer) -> None:
        distributed.on_main(lambda: note_environment(self.folder), "note_environment")

    def on_checkpoint(self, trainer: Trainer, record: dict[str, Any] | None) -> None:
        if record is not None:
            self.save_model()


main = program("train", parse, train)
