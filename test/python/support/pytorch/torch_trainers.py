"""Trainers of other libraries around a network of PyTorch: each returns the losses of its steps.

`change` gets the network, and returns what the trainer trains: the same network, the network in
another order in memory, with its weights rounded otherwise, or accelerated. Rates of dropout are 0.
"""

from __future__ import annotations

import logging
import runpy
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import singa
import torch
from torch_models import imported

Change = Callable[[Any], Any]
#: Rows of a batch, and steps of an epoch.
ROWS, BATCHES = 8, 4


def channels_last(module: Any) -> Any:
    """The network with filters in another order, which images follow: other sums."""
    return module.to(memory_format=torch.channels_last)


def rounded(seed: int) -> Change:
    """The network with each weight off by at most a unit of its last place."""

    def change(module: Any) -> Any:
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in module.parameters():
                off = torch.randint(-1, 2, p.shape, generator=random)
                p.mul_(1 + off * torch.finfo(p.dtype).eps)
        return module

    return change


def images(rows: int = ROWS * BATCHES, side: int = 64) -> tuple[Any, Any]:
    """Images of four classes, and these."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % 4
    means = torch.randn(4, 3, 1, 1, generator=random)
    return torch.randn(rows, 3, side, side, generator=random) * 0.5 + means[labels], labels


def with_lightning(change: Change, epochs: int = 2) -> list[float]:
    """Lightning's Trainer: clips gradients, adds those of two batches, evaluates, saves."""
    vision = imported("torchvision").models
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            block = vision.resnet.BasicBlock
            self.net = change(vision.ResNet(block, [1, 1, 1, 1], num_classes=4))
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train", loss)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
            return [optimizer], [schedule]

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*images()), ROWS)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        net = Classifier()
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=1.0,
            accumulate_grad_batches=2,
            default_root_dir=folder,
            callbacks=[ModelCheckpoint(folder, monitor="loss", save_last=True)],
        )
        trainer.fit(net, data, data)
        saved = torch.load(Path(folder) / "last.ckpt", weights_only=False)["state_dict"]
        assert [*saved] == [*net.state_dict()]
        return [*net.losses, float(trainer.callback_metrics["loss"])]


def with_transformers(change: Change, epochs: int = 2, name: str = "resnet") -> list[float]:
    """transformers' Trainer: adds gradients of two batches, evaluates, saves; the network computes
    the loss."""
    imported("torchvision")  # which transformers imports
    import transformers

    torch.manual_seed(0)
    if name == "resnet":
        config = transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], num_labels=4
        )
        module = transformers.ResNetForImageClassification(config)
        x, y = images()
        rows = [{"pixel_values": a, "labels": b} for a, b in zip(x, y, strict=True)]
    else:
        config = transformers.GPT2Config(
            n_embd=32, n_layer=2, n_head=2, vocab_size=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
        config.use_cache = False
        module = transformers.GPT2LMHeadModel(config)
        x = torch.randint(0, 64, (ROWS * BATCHES, 12))
        rows = [{"input_ids": a, "labels": a} for a in x]
    losses: list[float] = []

    class Noting(transformers.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            losses.extend(value for key, value in (logs or {}).items() if key in wanted)

    wanted = ("loss", "eval_loss")
    with tempfile.TemporaryDirectory() as folder, _quiet():
        options = transformers.TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=ROWS // 2,
            per_device_eval_batch_size=ROWS,
            gradient_accumulation_steps=2,
            learning_rate=1e-3,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            change(module), options, train_dataset=rows, eval_dataset=rows, callbacks=[Noting()]
        )
        with mock.patch("builtins.print"):
            trainer.train()
    return losses


def with_timm(change: Change, script: str | Path, epochs: int = 2) -> list[float]:
    """The training script of timm's repository, with an average of weights and a test of each
    epoch, on images in a folder."""
    timm = imported("timm")
    task = imported("timm.task").ClassificationTask
    from PIL import Image

    losses: list[float] = []
    create, forward = timm.models.create_model, task.forward

    def created(*args: Any, **kwargs: Any) -> Any:
        torch.manual_seed(0)
        return change(create(*args, **kwargs))

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = forward(self, *args, **kwargs)
        losses.append(result["loss"].item())
        return result

    with tempfile.TemporaryDirectory() as folder, _quiet():
        x, y = images()
        for split in ("train", "validation"):
            for i, (image, label) in enumerate(zip(x, y, strict=True)):
                place = Path(folder) / split / str(int(label))
                place.mkdir(parents=True, exist_ok=True)
                pixels = (image.permute(1, 2, 0).clamp(-3, 3) * 40 + 128).to(torch.uint8).numpy()
                Image.fromarray(np.ascontiguousarray(pixels)).save(place / f"{i}.png")
        arguments = [
            *(
                str(script),
                folder,
                "--model",
                "test_resnet",
                "--num-classes",
                "4",
                "--workers",
                "0",
            ),
            *("--input-size", "3", "64", "64", "-b", str(ROWS), "--epochs", str(epochs)),
            *("--device", "cpu", "--no-prefetcher", "--lr", "0.02", "--warmup-epochs", "0"),
            *("--sched", "cosine", "--clip-grad", "1.0", "--model-ema", "--output", folder),
            *("--cooldown-epochs", "0", "--opt", "momentum", "--drop", "0", "--no-aug"),
        ]
        with (
            mock.patch.object(timm.models, "create_model", created),
            mock.patch.object(task, "forward", noted),
            mock.patch.object(sys, "argv", arguments),
        ):
            runpy.run_path(str(script), run_name="__main__")
        summary = next(Path(folder).rglob("summary.csv")).read_text().splitlines()
        column = summary[0].split(",").index("eval_loss")
        return [*losses, *[float(line.split(",")[column]) for line in summary[1:]]]


class _quiet(warnings.catch_warnings):  # noqa: N801 - a context manager
    """Without warnings and logs of trainers."""

    def __enter__(self) -> Any:
        found = super().__enter__()
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        return found

    def __exit__(self, *error: Any) -> None:
        logging.disable(logging.NOTSET)
        super().__exit__(*error)


def compared(
    train: Callable[[Change], list[float]], seeds: int
) -> tuple[list[float], list[float], float]:
    """The losses of PyTorch, of the accelerated network, and PyTorch's own noise: the largest
    difference between its losses and those with other rounding."""
    wanted, found = train(lambda module: module), train(singa.accelerate)
    noise = 0.0
    for change in (channels_last, *map(rounded, range(seeds))):
        noise = max(noise, *[abs(a - b) for a, b in zip(wanted, train(change), strict=True)])
    return wanted, found, noise
