#!/usr/bin/env python3
"""Takes known networks of PyTorch by `singa.from_torch`, and compares them with PyTorch.

    PYTHONPATH=build/ci/python python scripts/torch_zoo.py [--shard 1/4] [--only PATTERN]
    PYTHONPATH=build/ci/python python scripts/torch_zoo.py --page docs/coming_from/torch_zoo.md

The networks are the smallest one of each module of timm, all of torchvision's classification and
segmentation, and six architectures of transformers, where these packages are installed. Weights are
random, and rates of dropout 0. Each network runs in a process of its own, and its result is a file
in --results: a later run does those that have none, or with --again those that are not right, too.
With --taken, only outputs in inference are compared.

A network is right if each error against PyTorch in float64 is at most 4 times that of PyTorch in
float32 for outputs and gradients, and at most 16 times for weights and statistics after three steps
of SGD, executed and recorded (`test/python/support/torch_oracle.py`). With --page it runs nothing,
and writes the table. The exit status is 1 if a network is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "python" / "support"))

#: Longest time that a network may take, in seconds.
LIMIT = 3600
#: Sides of images: the first one that the network takes.
SIDES = (128, 224, 256, 299)

Result = dict[str, Any]


# The networks.


def smallest_of_timm(folder: Path) -> dict[str, str]:
    """The network of timm with the fewest parameters, by the name of its module. Counting takes
    minutes, so a file keeps it."""
    file = folder / "timm.json"
    if not file.exists():
        import torch
        from torch_models import imported

        timm = imported("timm")
        counts: dict[str, tuple[int, str]] = {}
        for name in timm.list_models():
            module = timm.models._registry._model_to_module[name]
            try:
                with torch.device("meta"):
                    net = timm.create_model(name)
            except Exception:  # some compute with weights when they are made
                continue
            count = sum(p.numel() for p in net.parameters())
            counts[module] = min(counts.get(module, (count, name)), (count, name))
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({module: name for module, (_, name) in counts.items()}))
    return dict(json.loads(file.read_text()))


def networks_of_torchvision() -> list[str]:
    """The names of classification and segmentation."""
    from torch_models import imported

    vision = imported("torchvision").models
    return vision.list_models(vision) + vision.list_models(vision.segmentation)


TRANSFORMERS = ("resnet", "vit", "swin", "convnext", "bert", "gpt2")


def names(folder: Path, pattern: str) -> list[str]:
    """The networks that a pattern matches, as "package/name"."""
    packages: dict[str, Callable[[], Iterable[str]]] = {
        "timm": lambda: sorted(smallest_of_timm(folder).values()),
        "torchvision": networks_of_torchvision,
        "transformers": lambda: TRANSFORMERS,
    }
    wanted = fnmatch.filter(packages, pattern.partition("/")[0])
    found = [f"{package}/{name}" for package in wanted for name in packages[package]()]
    return fnmatch.filter(found, pattern if "/" in pattern else f"{pattern}/*")


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A network in training, without dropout, and inputs of two rows."""
    import torch

    torch.manual_seed(0)
    package, _, own = name.partition("/")
    makers: dict[str, Callable[[Any, str], tuple[Any, Any]]]
    makers = {"timm": of_timm, "torchvision": of_torchvision, "transformers": of_transformers}
    module, inputs = makers[package](torch, own)
    without_dropout(module)
    return module.train(), inputs


def without_dropout(module: Any) -> None:
    """Sets all rates of dropout to 0."""
    for part in module.modules():
        for rate in ("p", "drop_prob", "attn_dropout_p", "dropout", "attention_dropout"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)


def of_images(torch: Any, made: Callable[[int], Any], channels: int = 3) -> tuple[Any, Any]:
    """The network, and images of the smallest size that it takes in training."""
    problem: Exception | None = None
    for side in SIDES:
        images = torch.randn(2, channels, side, side)
        try:
            module = made(side)
            with torch.no_grad():
                module.train()(images)
            torch.manual_seed(0)
            return made(side), (images,)
        except Exception as error:  # of many kinds
            problem = problem or error
    assert problem is not None
    raise problem


def of_timm(torch: Any, name: str) -> tuple[Any, Any]:
    from torch_models import imported

    timm = imported("timm")
    own = timm.models.get_pretrained_cfg(name)
    size = own.input_size if own else (3, 224, 224)

    def made(side: int) -> Any:
        if side == SIDES[0] or not (own and own.fixed_input_size):
            try:
                return timm.create_model(name, img_size=side)
            except TypeError:
                pass
        return timm.create_model(name)

    try:
        return of_images(torch, made, size[0])
    except Exception:
        return timm.create_model(name), (torch.randn(2, *size),)


def of_torchvision(torch: Any, name: str) -> tuple[Any, Any]:
    from torch_models import imported

    vision = imported("torchvision").models
    options: dict[str, Any] = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    if name in vision.list_models(vision.segmentation):
        options["weights_backbone"] = None

    def made(side: int) -> Any:
        more = {"image_size": side} if name.startswith("vit") else {}
        return vision.get_model(name, **options, **more)

    return of_images(torch, made)


def of_transformers(torch: Any, name: str) -> tuple[Any, Any]:
    from torch_models import imported

    imported("torchvision")  # which transformers imports
    import transformers

    small = {
        "resnet": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64], "embedding_size": 16},
        "vit": {"image_size": 64, "hidden_size": 96, "num_hidden_layers": 3},
        "swin": {"image_size": 128, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4]},
        "convnext": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
        "bert": {"hidden_size": 96, "num_hidden_layers": 3, "vocab_size": 500},
        "gpt2": {"n_embd": 96, "n_layer": 3, "vocab_size": 500},
    }[name]
    own = {"vit": "num_attention_heads", "bert": "num_attention_heads", "gpt2": "n_head"}
    config = transformers.AutoConfig.for_model(
        name, **small, **({own[name]: 4} if name in own else {})
    )
    kind = {
        "bert": transformers.AutoModelForSequenceClassification,
        "gpt2": transformers.AutoModelForCausalLM,
    }.get(name, transformers.AutoModelForImageClassification)
    if name == "gpt2":
        config.use_cache = False

    class Logits(torch.nn.Module):
        """The network, which returns no more than its logits."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = kind.from_config(config)

        def forward(self, x: Any) -> Any:
            return self.inner(x).logits

    side = small.get("image_size", 64)
    if name in ("bert", "gpt2"):
        return Logits(), (torch.randint(0, 500, (2, 24)),)
    return Logits(), (torch.randn(2, 3, side, side),)


# One network.


def judged(name: str, only_taken: bool) -> Result:
    """Whether a network is taken and right."""
    import torch
    import torch_oracle
    from singa.onnx import UnsupportedError

    warnings.simplefilter("ignore")
    module, inputs = make(name)
    result: Result = {
        "name": name,
        "inputs": [list(x.shape) for x in inputs],
        "parameters": sum(p.numel() for p in module.parameters()),
    }
    begin = time.monotonic()
    try:
        compared = torch_oracle.Comparison(torch, module, *inputs)
    except UnsupportedError as error:
        return result | {"verdict": "refused", "reason": str(error)}
    result |= {"open": compared.net.has_open_batch}
    parts = {"inference": compared.inference}
    if not only_taken:
        parts |= {"training": compared.training, "steps": lambda: compared.steps(3)}
    wrong = []
    for part, findings in parts.items():
        found = list(findings())
        worst = max(found, key=lambda each: each.ratio)
        result[part] = [worst.what, worst.error, worst.own, worst.ratio]
        wrong += [[each.what, each.error, each.own, each.ratio] for each in found if each.ratio > 1]
        result[f"of {part}"] = len(found)
    wrong.sort(key=lambda each: -each[-1])
    verdict = "wrong" if wrong else "taken" if only_taken else "right"
    seconds = round(time.monotonic() - begin, 1)
    return result | {"verdict": verdict, "wrong": wrong[:50], "seconds": seconds}


def run(name: str, only_taken: bool, limit: int) -> Result:
    """The result of a network, judged by another process."""
    command = [sys.executable, __file__, "--one", name, *(["--taken"] if only_taken else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"name": name, "verdict": "failed", "reason": f"not done after {limit} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    reason = done.stderr.strip()[-2000:] or f"exit status {done.returncode}"
    return {"name": name, "verdict": "failed", "reason": reason}


# The page.


def page(results: Iterable[Mapping[str, Any]]) -> str:
    """The table of results in Markdown."""
    results = sorted(results, key=lambda each: each["name"])
    count = Counter(each["verdict"] for each in results)
    lines = [
        "# Networks of PyTorch that were compared",
        "",
        "Written by `.ci/run torch_zoo`; `scripts/torch_zoo.py` says what right means.",
        f"{len(results)} networks: "
        + ", ".join(f"{n} {verdict}" for verdict, n in sorted(count.items()))
        + ".",
        "",
        "| network | inputs | result | batch | why |",
        "|---|---|---|---|---|",
    ]
    for each in results:
        shapes = ", ".join(" x ".join(map(str, shape)) for shape in each.get("inputs", ()))
        batch = {True: "open", False: "fixed"}.get(each.get("open", ""), "")
        lines.append(f"| {each['name']} | {shapes} | {each['verdict']} | {batch} | {why(each)} |")
    return "\n".join(lines) + "\n"


def why(result: Mapping[str, Any]) -> str:
    """The reason of a refusal, or the largest error of a wrong network, for a table."""
    if result.get("wrong"):
        what, error, own, _ = result["wrong"][0]
        return f"{what}: {error:.1e} beside {own:.1e} of PyTorch's float32"
    lines = result.get("reason", "").strip().splitlines()
    return lines[-1].strip().replace("|", "\\|")[:200] if lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "torch_zoo")
    parser.add_argument("--shard", default="1/1", help="part/parts")
    parser.add_argument("--only", default="*", help="a pattern of names, such as timm/*")
    parser.add_argument("--again", action="store_true", help="also those that were not right")
    parser.add_argument("--taken", action="store_true", help="only outputs in inference")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for a network")
    parser.add_argument("--page", type=Path, help="the page to write")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        try:
            print(json.dumps(judged(options.one, options.taken)))
        except Exception:
            reason = traceback.format_exc()[-2000:]
            print(json.dumps({"name": options.one, "verdict": "failed", "reason": reason}))
        return 0
    if options.page:
        files = sorted(options.results.glob("*-*.json"))
        options.page.write_text(page([json.loads(file.read_text()) for file in files]))
        return 0
    part, parts = map(int, options.shard.split("/"))
    chosen = names(options.results, options.only)[part - 1 :: parts]
    wrong = 0
    for name in chosen:
        file = options.results / (re.sub(r"\W", "-", name) + ".json")
        before = json.loads(file.read_text()) if file.exists() else {}
        good = before.get("verdict") in (("right", "taken") if options.taken else ("right",))
        if not (good or (before and not options.again and before.get("verdict") != "taken")):
            before = run(name, options.taken, options.limit)
            file.with_suffix(f".{os.getpid()}").write_text(json.dumps(before, indent=1))
            file.with_suffix(f".{os.getpid()}").replace(file)
            print(name, before["verdict"], before.get("reason", "")[:200], flush=True)
        wrong += before["verdict"] == "wrong"
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
