#!/usr/bin/env python3
"""Trains a small GPT on the bytes of a text file, or of a generated text, and writes more of it.

    python train.py --quick                      a short run on a generated text
    python train.py --data book.txt              trains on a file, of which the last tenth is kept
                                                 for validation
    python train.py --data book.txt --steps 5000 --width 384 --depth 6 --heads 6 --context 256
    python train.py --out runs/text --resume     continues after Ctrl-C or a crash
    python train.py --out runs/text --resume --sample 500 --prompt "The "       writes more text

The output folder (--out) gets these files:

    log.jsonl               one record per evaluation
    curves.png              a plot of the losses
    checkpoint.safetensors  state of the run, saved after each evaluation
    model.safetensors       the trained weights, for Model.load_states

A run that is resumed gives the same bits as one that was never interrupted. Ctrl-C saves a
checkpoint and stops; a second Ctrl-C stops at once.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import singa
from numpy.typing import NDArray
from singa import autograd, device, opt, tensor
from singa.models.gpt import GPT
from singa.training import JsonLinesLog, checkpoint, plot_curves
from singa.training.program import (
    StopSignals,
    add_run_arguments,
    at_least,
    choose_device,
    parse_run,
    reporting_errors,
)
from singa.training.progress import Progress

PROG = "python train.py"
SETTINGS = (
    *("data", "steps", "batch_size", "context", "width", "depth", "heads", "dropout", "lr"),
    *("warmup", "weight_decay", "clip_norm", "eval_steps", "seed", "dtype"),
)
Bytes = NDArray[np.uint8]


def parse(argv: Sequence[str] | None = None, prog: str = PROG) -> argparse.Namespace:
    """The arguments. A resumed run gets its settings from the checkpoint."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description=__doc__.replace(PROG, prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The weights depend on these, so a resumed run cannot change them.
    run = parser.add_argument_group("training (a resumed run keeps these settings)")

    def number(name: str, default: float, text: str = "", least: float = 0) -> None:
        kind = type(default)
        run.add_argument(
            name,
            type=at_least(least, kind),
            default=default,
            metavar="N" if kind is int else "X",
            help=f"{text} [%(default)s]".strip(),
        )

    run.add_argument("--data", metavar="FILE", help="a text file [a generated text]")
    number("--steps", 2000, least=1)
    number("--batch-size", 16, "pieces of text in a batch", least=1)
    number("--context", 64, "bytes that a prediction sees, at most", least=2)
    number("--width", 128, "features of each byte", least=1)
    number("--depth", 4, "blocks of attention and MLP", least=1)
    number("--heads", 4, "heads of the attention", least=1)
    number("--dropout", 0.0)
    number("--lr", 1e-3, "peak learning rate; it decays to a tenth along a cosine")
    number("--warmup", 100, "steps of linear warm-up")
    number("--weight-decay", 0.1, "of matrices")
    number("--clip-norm", 1.0, "limit of the norm of all gradients; 0: none")
    number("--eval-steps", 250, "evaluate every N steps", least=1)
    number("--seed", 0)
    run.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="type of matrix products; parameters are float32 [%(default)s]",
    )

    parser.add_argument(
        "--quick", action="store_true", help="set --steps 300 and --eval-steps 100, unless given"
    )
    parser.add_argument(
        "--sample",
        type=at_least(0, int),
        default=200,
        metavar="N",
        help="bytes of text to write at the end [%(default)s]",
    )
    parser.add_argument(
        "--prompt", default="\n", metavar="TEXT", help="what this text starts with [a newline]"
    )
    parser.add_argument(
        "--temperature",
        type=at_least(0, float),
        default=0.8,
        metavar="X",
        help="lower is more probable, 0 always the likeliest byte [%(default)s]",
    )
    parser.add_argument(
        "--top-k", type=at_least(1, int), metavar="N", help="draw from the N likeliest bytes [all]"
    )
    add_run_arguments(parser, "runs/text", "evaluations")

    given = parser.parse_args(argv)
    if given.quick:
        parser.set_defaults(steps=300, eval_steps=100)
    if not given.prompt:
        parser.error("--prompt must not be empty")
    return parse_run(parser, argv, SETTINGS, lambda args: Path("runs/text"))


def generated_text(sentences: int = 6000) -> str:
    """Sentences of a small grammar. They agree in number, which a network can learn."""
    random = np.random.default_rng(0)
    nouns = ("cat", "dog", "bird", "farmer", "teacher", "river", "tree", "boat", "song", "child")
    verbs = ("see", "find", "follow", "like", "hear", "need")
    adjectives = ("small", "old", "red", "quiet", "bright", "", "", "")

    def pick(words: Sequence[str]) -> str:
        return words[int(random.integers(len(words)))]

    def phrase(many: bool) -> str:
        noun = pick(nouns)
        plural = "children" if noun == "child" else noun + "s"
        words = (pick(("the", "some")) if many else "the", pick(adjectives), plural)
        return " ".join(filter(None, words if many else (*words[:2], noun)))

    lines = []
    for _ in range(sentences):
        many, verb = bool(random.integers(2)), pick(verbs)
        subject, thing = phrase(many), phrase(bool(random.integers(2)))
        line = f"{subject} {verb if many else verb + 's'} {thing}."
        lines.append(line[0].upper() + line[1:])
    return "\n".join(lines)


def load_text(args: argparse.Namespace) -> tuple[Bytes, Bytes]:
    """The bytes for training and for validation, the last tenth."""
    content = Path(args.data).read_bytes() if args.data else generated_text().encode()
    text = np.frombuffer(content, np.uint8)
    place = len(text) - len(text) // 10
    if len(text) - place <= args.context:
        raise ValueError(
            f"{args.data} has {len(text)} bytes; a context of {args.context} needs at least "
            f"{10 * (args.context + 1)}"
        )
    print(f"{args.data or 'generated text'}: {place:,} bytes, {len(text) - place:,} for validation")
    return text[:place], text[place:]


def batch(text: Bytes, args: argparse.Namespace, *number: int) -> tuple[tensor.Tensor, ...]:
    """Pieces of text, and the byte after each of theirs. They depend on the seed and the number
    alone, so a resumed run sees the batches that it would have seen."""
    random = np.random.default_rng([args.seed, *number])
    starts = random.integers(0, len(text) - args.context, args.batch_size)
    pieces = text[starts[:, None] + np.arange(args.context + 1)].astype(np.int32)
    dev = device.get_default_device()
    return tensor.from_numpy(pieces[:, :-1], dev), tensor.from_numpy(pieces[:, 1:], dev)


def evaluate(net: GPT, text: Bytes, args: argparse.Namespace, batches: int = 10) -> float:
    """The mean loss on `batches` batches, which are the same in each evaluation."""
    net.eval()
    total = 0.0
    with autograd.no_grad():
        for number in range(batches):
            x, y = batch(text, args, 1, number)
            total += float(net.loss(net(x), y))
    net.train()
    return total / batches


def make_network(args: argparse.Namespace) -> GPT:
    """The network with its optimizer, compiled."""
    net = GPT(256, args.context, args.width, args.depth, args.heads, args.dropout)
    decay = opt.CosineDecay(args.lr, max(args.steps - args.warmup, 1), args.lr / 10)
    net.set_optimizer(
        opt.AdamW(
            opt.WarmUp(decay, args.warmup),
            beta_2=0.95,
            weight_decay=args.weight_decay,
            groups=[opt.ParamGroup(opt.norm_and_bias, weight_decay=0.0)],
            clip_norm=args.clip_norm or None,
        )
    )
    dev = device.get_default_device()
    example = tensor.Tensor((args.batch_size, args.context), dev, tensor.int32)
    net.compile([example], is_train=True, use_graph=True, dtype=args.dtype)
    return net


def write(net: GPT, args: argparse.Namespace) -> None:
    """Prints a text that begins with the prompt."""
    start = np.frombuffer(args.prompt.encode(), np.uint8)[None]
    rows = net.generate(start, args.sample, args.temperature, args.top_k, args.seed)
    print(rows[0].astype(np.uint8).tobytes().decode(errors="replace"))


def train(args: argparse.Namespace) -> int:
    """Trains, or resumes a run; returns the exit status."""
    hardware = choose_device(args.device, args.threads)
    singa.seed(args.seed)
    text, validation = load_text(args)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.overwrite:
        args.checkpoint.unlink(missing_ok=True)
    net = make_network(args)
    parameters = sum(p.size() for p in net.get_params().values())
    print(f"GPT: {parameters:,} parameters, {args.dtype}, {hardware}")

    first, total = 0, 0.0  # first step, sum of the losses since the last evaluation
    if args.resume:
        progress = checkpoint.load(args.checkpoint, net, net.optimizer)
        first, total = net.optimizer.steps, progress["total"]
        print(f"resumed after step {first}")

    def save() -> None:
        checkpoint.save(args.checkpoint, net, net.optimizer, settings=args.settings, total=total)

    stopped = StopSignals()
    began, tokens = time.monotonic(), 0
    keep = JsonLinesLog(args.out / "log.jsonl", lambda record: record["step"] <= first)
    with keep as log, Progress(args.steps, "train", start=first) as bar:
        for step in range(first + 1, args.steps + 1):
            _, loss = net(*batch(text, args, 0, step))
            total += float(loss)
            if not math.isfinite(total):
                raise ValueError(f"the loss became {float(loss)}: a lower --lr may help")
            tokens += args.batch_size * args.context
            rate = tokens / (time.monotonic() - began)
            bar.step(loss=float(loss), **{"tokens/s": rate})
            if step % args.eval_steps == 0 or step == args.steps:
                mean = total / ((step - 1) % args.eval_steps + 1)
                record = {"step": step, "lr": net.optimizer.now("lr"), "train_loss": mean}
                record["val_loss"] = evaluate(net, validation, args)
                log.append(record, tokens_per_s=round(rate))
                print(
                    f"step {step}/{args.steps}  train loss {mean:.3f}  "
                    f"validation loss {record['val_loss']:.3f}  {rate:.0f} tokens/s",
                    flush=True,
                )
                total = 0.0
                save()
                try:
                    plot_curves(log.path, args.out / "curves.png", x="step", title="GPT")
                except ImportError as error:
                    print(error)
            elif stopped or (args.checkpoint_steps and step % args.checkpoint_steps == 0):
                save()
            if stopped:
                print(f"stopped after step {step}; --resume continues from there")
                return stopped.status
    net.save_states(args.out / "model.safetensors")
    print(f"weights, curves and log are in {args.out}")
    if args.sample:
        write(net, args)
    return 0


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Runs the program; returns the exit status."""
    return reporting_errors(prog, lambda: train(parse(argv, prog)))


if __name__ == "__main__":
    sys.exit(main())
