#!/usr/bin/env python3
"""Takes known networks of PyTorch by `singa.from_torch`, and compares them with PyTorch.

    PYTHONPATH=build/ci/python python scripts/torch_zoo.py [--shard 1/4] [--only PATTERN]
    PYTHONPATH=build/ci/python python scripts/torch_zoo.py --only drawn --drawn 1000
    PYTHONPATH=build/ci/python python scripts/torch_zoo.py --page
    PYTHONPATH=build/ci/python python scripts/torch_zoo.py --draw-further

The networks are a small one of each module of timm, ten further ones of each of its ten largest
modules, all of torchvision's classification and segmentation, and six architectures of
transformers, where these packages are installed, and with --drawn so many random modules
(`test/python/support/pytorch/drawn_modules`). A pattern of --only names a group (timm, further,
torchvision, transformers, drawn), or networks by package and name, such as timm/resnet*. Weights
are random, rates of dropout 0, and inputs two of the smallest size that the network takes. Small
networks come first.

Each network runs in a process of its own, first all of them in float64, then in float32. Its result
is a file in --results. With --page the script runs nothing: it puts these results into
`docs/coming_from/torch_zoo.csv`, which keeps those of earlier runs with the installed versions of
PyTorch and of the network's package, and writes the counts of the page. A run leaves out what has a
result, and what is right in the table; with --again nothing. --draw-further prints the further
networks, drawn again.

A network is right in float64 if each error is at most that of amplified rounding: then singa
computes what PyTorch does. Where it is not, rounding is measured by more runs of PyTorch, and each
step of SGD is compared apart, from the same weights. In float32 it is right if each error against
PyTorch in float64 is at most 4 times that of PyTorch in float32 for outputs and gradients, and at
most 16 times for weights and statistics after three steps of SGD, executed and recorded
(`test/python/support/pytorch/torch_oracle.py`). Where that does not hold, it is compared again in
strict mode, then with the spread of several runs of PyTorch. The exit status is 1 if a network is
wrong in float64.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import multiprocessing
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "python" / "support" / "pytorch"))

#: Longest time that a network may take, in seconds.
LIMIT = 3600
#: Sides of images: the first one that the network takes. Batch norm over two pixels would have
#: next to no gradient.
SIDES = (64, 96, 128, 224, 256, 299, 384)
#: Runs of PyTorch in float32 whose errors are its spread, and in float64 those of a second look.
FORMS, WIDE_FORMS = 6, 8
PAGE = ROOT / "docs" / "coming_from" / "torch_zoo.md"
#: The lines of the page that are written.
MARKS = "<!-- counts -->\n", "<!-- end of counts -->\n"
#: What is known of each network, from which the page is made.
TABLE = PAGE.with_suffix(".csv")
COLUMNS = ("network", "with", "inputs", "batch", "float64", "why", "float32", "float32: why")

Result = dict[str, Any]
Row = dict[str, str]


# The networks.

#: A small network of each module of timm 1.0.31 that registers names, about by size.
TIMM = """
    test_vit test_resnet test_efficientnet test_byobnet test_convnext test_mambaout test_nfnet
    test_vit_relpos test_maxvit ghostnet_050 mobilenetv4_conv_small_035 cpubone_nano mobilevit_xxs
    edgenext_xx_small dla46_c starnet_s050 efficientvit_m0 lcnetv2_small repghostnet_050 pvt_v2_b0
    regnetx_002 fasternet_t0 xcit_nano_12_p16_224 swiftformer_xs efficientformerv2_s0 iformer_t
    fastvit_t8 inception_next_atto repvit_m0_9 rexnet_100 efficientvit_b0 cspnext_tiny
    hardcorenas_a pit_ti_224 tiny_vit_5m_224 convit_tiny coat_lite_tiny deit_tiny_patch16_224
    ese_vovnet19b_slim_dw efficientvim_m1 shvit_s1 hgnetv2_b0 crossvit_tiny_240 levit_128s
    vit_tiny_r_s16_p8_224 mixer_s32_224 visformer_tiny csatv2 densenet121 cait_xxs24_224
    resnest14d eva02_tiny_patch14_224 cs3darknet_focus_s lambda_resnet26rpt_256 resnetv2_18
    legacy_seresnet18 skresnet18 efficientformer_l1 poolformer_s12 gcvit_xxtiny lowformer_b0
    hrnet_w18_small dpn68 nest_tiny hieradet_small hiera_tiny_224 mvitv2_tiny vitamin_small_224
    selecsls42 tnt_s_patch16_224 convmixer_768_32 res2net50_14w_8s twins_svt_small inception_v3
    rdnet_tiny legacy_xception xception41 sequencer2d_s volo_d1_224 nextvit_small davit_tiny
    focalnet_tiny_srf swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_224
    tresnet_m inception_v4 inception_resnet_v2 beit_base_patch16_224 naflexvit_base_patch16_gap
    pnasnet5large nasnetalarge samvit_base_patch16_224 qwen3_vit_88m vgg11 gemma4_vit_167m
    mobilenetv5_base deepseek_vit_412m
"""

#: Ten further names of each of the ten modules of timm 1.0.31 with the most names, drawn with seed
#: 0 from those of at most 30 million parameters, by size: `draw_further` prints them.
FURTHER = """
    test_vit2 test_convnext3 test_coatnet test_vit3 test_vit4 lcnet_035 tf_mobilenetv3_small_075
    convnext_zepto_rms convnext_zepto_rms_ols lcnet_075 mobilenetv3_small_100 regnety_002
    convnext_atto_rms convnext_atto mobilenetv4_conv_small tf_mobilenetv3_large_075 lcnet_150
    convnext_femto_ols convnextv2_femto efficientnet_b0_gn efficientnet_es_pruned
    vit_tiny_patch16_dinov3_qkvb eva02_tiny_patch14_336 mobilenet_edgetpu_v2_s efficientnet_lite2
    tf_efficientnet_lite2 semnasnet_140 regnety_008 regnetz_005 regnetx_008 mixnet_l tf_mixnet_l
    maxvit_pico_rw_256 mobileone_s2 tf_efficientnetv2_b1 vit_xsmall_patch16_clip_224 fbnetv3_b
    nf_regnet_b0 convnext_pico convnextv2_pico mobilenetv4_conv_medium nf_regnet_b1 resnext26ts
    seresnext26ts gcresnext26ts efficientnet_el_pruned bat_resnext26ts resnetblur18
    vit_dwee_patch16_reg1_gap_256 nf_regnet_b2 mobilenetv3_large_150d mobileone_s4
    coatnet_nano_rw_224 regnetx_032 maxvit_nano_rw_256 nf_resnet26 nf_ecaresnet26
    maxxvit_rmlp_nano_rw_256 resnet32ts nf_regnet_b3 regnety_032 eca_resnet33ts regnetv_040
    regnety_040 regnety_040_sgn vit_small_patch16_dinov3 vit_small_patch16_dinov3_qkvb resnet34d
    resnetaa34d vit_pe_spatial_small_patch16_512 vit_small_patch16_rope_mixed_224
    vit_small_patch14_dinov2 flexivit_small vit_small_patch16_rope_mixed_ape_224
    vit_small_patch16_384 vit_little_patch16_reg1_gap_256 vit_little_patch16_reg4_gap_256 regnetz_d8
    maxxvitv2_nano_rw_256 vit_pe_core_small_patch16_384 eca_nfnet_l0 ecaresnet101d_pruned
    resnext50_32x4d coatnet_0_224 nf_resnet50 resnet50_gn resnetblur50 nf_ecaresnet50 gcresnet50t
    coatnet_0_rw_224 coatnet_rmlp_0_rw_224 seresnext50_32x4d nf_seresnet50 seresnet50 seresnetaa50d
    convnext_tiny_hnf vit_small_plus_patch16_dinov3 vit_small_plus_patch16_dinov3_qkvb regnetz_040_h
    maxvit_tiny_rw_256
"""
#: Most parameters of these.
MOST = 30_000_000

TRANSFORMERS = ("gpt2", "bert", "vit", "resnet", "convnext", "swin")


def networks_of_torchvision() -> list[str]:
    """The names of classification, then of segmentation, each by size."""
    from torch_models import imported

    vision = imported("torchvision").models

    def size(name: str) -> int:
        weights = vision.get_model_weights(name)
        return min(each.meta["num_params"] for each in weights)

    return [
        name
        for module in (vision, vision.segmentation)
        for name in sorted(vision.list_models(module), key=size)
    ]


def draw_further() -> list[str]:
    """What FURTHER lists."""
    import torch
    from torch_models import imported

    timm = imported("timm")
    modules = {module: timm.list_models(module=module) for module in timm.list_modules()}
    largest = sorted(modules, key=lambda module: (-len(modules[module]), module))[:10]
    sizes: dict[str, int] = {}
    for module in largest:
        drawn = sorted({*modules[module]} - {*TIMM.split()})
        random.Random(0).shuffle(drawn)
        found = 0
        for name in drawn:
            with torch.device("meta"):
                size = sum(p.numel() for p in timm.create_model(name).parameters())
            if size <= MOST and found < 10:
                sizes[name], found = size, found + 1
    return sorted(sizes, key=lambda name: (sizes[name], name))


#: The networks of each group, as "package/name", and its title in the page.
GROUPS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "timm": (lambda: [f"timm/{name}" for name in TIMM.split()], "timm's modules"),
    "further": (
        lambda: [f"timm/{name}" for name in FURTHER.split()],
        "timm's ten largest modules, ten further names of each",
    ),
    "torchvision": (
        lambda: [f"torchvision/{name}" for name in networks_of_torchvision()],
        "torchvision's",
    ),
    "transformers": (
        lambda: [f"transformers/{name}" for name in TRANSFORMERS],
        "transformers'",
    ),
}


def names(pattern: str, drawn: int) -> list[str]:
    """The networks that a pattern matches: of whole groups, or by package and name."""
    modules = [f"drawn/{seed}" for seed in range(drawn)]
    groups = {"drawn": lambda: modules} | {group: made for group, (made, _) in GROUPS.items()}
    if "/" not in pattern:
        return [name for group in fnmatch.filter(groups, pattern) for name in groups[group]()]
    return fnmatch.filter([name for made in groups.values() for name in made()], pattern)


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A network in training, without dropout, and inputs of two rows."""
    import torch

    torch.manual_seed(0)
    package, _, own = name.partition("/")
    makers: dict[str, Callable[[Any, str], tuple[Any, Any]]] = {
        "drawn": of_drawn,
        "timm": of_timm,
        "torchvision": of_torchvision,
        "transformers": of_transformers,
    }
    module, inputs = makers[package](torch, own)
    without_dropout(module)
    return module.train(), inputs


def without_dropout(module: Any) -> None:
    """Sets all rates of dropout to 0."""
    for part in module.modules():
        for name, value in [*vars(part).items()]:
            if isinstance(value, float) and (name == "p" or "drop" in name):
                setattr(part, name, 0.0)


def of_images(torch: Any, made: Callable[[int], Any], channels: int = 3) -> tuple[Any, Any]:
    """The network, and images of the smallest size that it takes in training."""
    problem: Exception | None = None
    for side in SIDES:
        images = torch.randn(2, channels, side, side)
        try:
            # Some have buffers of float32, whatever the default type is.
            module = made(side).to(torch.get_default_dtype()).train()
            with torch.no_grad():
                module(images)
            return module, (images,)
        except Exception as error:  # of many kinds
            problem = problem or error
    assert problem is not None
    raise problem


def of_drawn(torch: Any, seed: str) -> tuple[Any, Any]:
    import drawn_modules

    return drawn_modules.drawn(torch, int(seed))


def of_timm(torch: Any, name: str) -> tuple[Any, Any]:
    from torch_models import imported

    timm = imported("timm")
    own = timm.models.get_pretrained_cfg(name)
    size = own.input_size if own else (3, 224, 224)

    def made(side: int) -> Any:
        if not (own and own.fixed_input_size):
            return timm.create_model(name)
        try:
            return timm.create_model(name, img_size=side)
        except TypeError:
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

    sizes: dict[str, dict[str, Any]] = {
        "resnet": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64], "embedding_size": 16},
        "vit": {"image_size": 64, "hidden_size": 96, "num_hidden_layers": 3},
        "swin": {"image_size": 128, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4]},
        "convnext": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
        "bert": {"hidden_size": 96, "num_hidden_layers": 3, "vocab_size": 500},
        "gpt2": {"n_embd": 96, "n_layer": 3, "vocab_size": 500},
    }
    small = sizes[name]
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


def judged(name: str, kind: str) -> Result:
    """What a network is, and its verdict in "float64" or "float32"."""
    import singa
    import torch
    import torch_oracle
    from singa.onnx import UnsupportedError

    warnings.simplefilter("ignore")
    begin = time.monotonic()
    if kind == "float64":
        torch.set_default_dtype(torch.float64)
    module, inputs = make(name)
    result: Result = {
        "name": name,
        "inputs": [list(x.shape) for x in inputs],
        "parameters": sum(p.numel() for p in module.parameters()),
    }
    verdict: Result = {}
    try:
        compared = torch_oracle.Comparison(torch, module, *inputs, wide=kind == "float64")
        del module  # which may be large
        result["open"] = compared.net.has_open_batch
        verdict = compared_parts(compared)
        if verdict["wrong"] and kind == "float64":
            compared.forms, compared.apart = WIDE_FORMS, True
            verdict = compared_parts(compared) | {"at first": verdict["wrong"]}
        elif verdict["wrong"]:
            singa.set_strict(True)
            verdict["strict"] = compared_parts(compared)
            if verdict["strict"]["wrong"]:
                compared.forms = FORMS
                verdict["spread"] = compared_parts(compared)
    except UnsupportedError as error:
        verdict |= {"verdict": "refused", "reason": str(error)}
    except AssertionError as error:
        verdict |= {"verdict": "wrong", "reason": str(error)[:2000]}
    verdict["seconds"] = round(time.monotonic() - begin, 1)
    return result | {kind: verdict}


def compared_parts(compared: Any) -> Result:
    """The worst finding of each part, and those that are wrong."""
    result: Result = {}
    wrong = []
    parts = {
        "inference": compared.inference,
        "training": compared.training,
        "steps": lambda: compared.steps(3),
    }
    for part, findings in parts.items():
        found = list(findings())
        worst = max(found, key=lambda each: each.ratio)
        result[part] = [worst.what, worst.error, worst.own, worst.ratio]
        result[f"of {part}"] = len(found)
        wrong += [each for each in found if each.ratio > 1]
    wrong.sort(key=lambda each: -each.ratio)
    result["wrong"] = [[each.what, each.error, each.own, each.ratio] for each in wrong[:50]]
    result["of wrong"] = len(wrong)
    result["verdict"] = "wrong" if wrong else "right"
    return result


def _child(name: str, kind: str, file: Path) -> None:
    try:
        result = judged(name, kind)
    except Exception:
        reason = traceback.format_exc()[-2000:]
        result = {"name": name, kind: {"verdict": "failed", "reason": reason}}
    file.write_text(json.dumps(result))


def run(name: str, kind: str, limit: int) -> Result:
    """The result of a network, judged by a process that has this one's packages. What crashes or
    hangs there is a result, too."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result")
        child = multiprocessing.get_context("fork").Process(target=_child, args=(name, kind, file))
        child.start()
        child.join(limit)
        if child.is_alive():
            child.kill()
            child.join()
            reason = f"not done after {limit} s"
        elif file.exists():
            return dict(json.loads(file.read_text()))
        else:
            reason = f"exit status {child.exitcode}"
    return {"name": name, kind: {"verdict": "failed", "reason": reason}}


# What is known.


def versions(name: str) -> str:
    """The installed versions that a result depends on."""
    package = name.partition("/")[0]
    packages = ["torch"] if package == "drawn" else ["torch", package]
    return ", ".join(f"{each} {version(each).partition('+')[0]}" for each in packages)


def stored(folder: Path, name: str) -> tuple[Path, Result]:
    """The file of a network, and what is in it, if it is a result with the installed versions."""
    file = folder / (re.sub(r"\W", "-", name) + ".json")
    result = json.loads(file.read_text()) if file.exists() else {}
    return file, result if result.get("with") == versions(name) else {}


def read_table() -> dict[str, Row]:
    """The rows of the table with the installed versions, by network."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        rows = {row["network"]: row for row in csv.DictReader(file)}
    return {name: row for name, row in rows.items() if row["with"] == versions(name)}


def row_of(result: Mapping[str, Any], before: Row) -> Row:
    """The row of a result. What was not compared again stays as before."""
    shapes = ", ".join(" x ".join(map(str, shape)) for shape in result.get("inputs", ()))
    row = {
        "network": result["name"],
        "with": result["with"],
        "inputs": shapes,
        "batch": {True: "open", False: "fixed"}.get(result.get("open", ""), ""),
    }
    for kind, reason in (("float64", "why"), ("float32", "float32: why")):
        if kind in result:
            row |= {kind: verdict(result, kind), reason: why(result[kind])}
        else:
            row |= {kind: before.get(kind) or "not tried", reason: before.get(reason, "")}
    return row


def verdict(result: Mapping[str, Any], kind: str) -> str:
    """The verdict for a table, with more words than "wrong" in float32."""
    found = result.get(kind, {})
    word = str(found.get("verdict", ""))
    if kind == "float32" and word == "wrong":
        for way, words in (("strict", "strict mode"), ("spread", "in the spread")):
            if found.get(way, {}).get("verdict") == "right":
                return words
        return "beyond"
    return word


def why(found: Mapping[str, Any]) -> str:
    """The reason of a refusal, or the largest error of a network that is not right, or was not at
    first, for a table. `found` is what was found in one type."""
    for way, words in (("wrong", ""), ("at first", "at a second look; at first ")):
        if found.get(way):
            what, error, own, _ = found[way][0]
            return f"{words}{what}: {error:.1e} beside {own:.1e} of PyTorch"
    lines = found.get("reason", "").strip().splitlines()
    return lines[-1].strip()[:200] if lines else ""


# The page.


def write_page(folder: Path) -> None:
    """Puts the results of a folder into the table, and writes the counts of the page."""
    every, rows = names("*", 0), read_table()
    for name in every:
        result = stored(folder, name)[1]
        if result:
            rows[name] = row_of(result, rows.get(name, {}))
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(every) if name in rows)
    before, first, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(before + first + "\n" + counts(rows) + "\n" + MARKS[1] + after)


def counts(rows: Mapping[str, Row]) -> str:
    """The counts of verdicts in Markdown, and the networks without one."""
    lines = [
        "| networks | all | tried | right in float64 | wrong | refused | failed | float32: right "
        "| in strict mode | in the spread | beyond |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    missing: list[str] = []
    for made, title in GROUPS.values():
        own = made()
        missing += sorted(name for name in own if name not in rows)
        tried = [rows[name] for name in own if name in rows]
        wide, narrow = (Counter(row[kind] for row in tried) for kind in ("float64", "float32"))
        numbers = [len(own), len(tried) - wide["not tried"]]
        numbers += [wide[each] for each in ("right", "wrong", "refused", "failed")]
        numbers += [narrow[each] for each in ("right", "strict mode", "in the spread", "beyond")]
        lines.append(f"| {title} | " + " | ".join(map(str, numbers)) + " |")
    if missing:
        lines += ["", f"Not tried ({len(missing)}): {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


# The program.


def _prepare() -> None:
    """Loads what the processes of networks need, which they would load again otherwise."""
    import drawn_modules  # noqa: F401
    import singa
    import torch
    import torch_oracle  # noqa: F401
    from torch_models import imported

    imported("torchvision")
    imported("timm")
    torch.set_num_threads(1)  # threads would not be there after a fork
    norm = torch.nn.BatchNorm2d(2)
    singa.from_torch(torch.nn.Sequential(norm, torch.nn.Flatten()), torch.zeros(2, 2, 2, 2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "torch_zoo")
    parser.add_argument("--shard", default="1/1", help="part/parts")
    parser.add_argument("--only", default="*", help="a pattern of names, such as timm/*")
    parser.add_argument("--types", default="float64,float32", help="what to compute in, in order")
    parser.add_argument("--drawn", type=int, default=0, help="the number of random modules")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for a network")
    parser.add_argument("--page", action="store_true", help="write the table and the page")
    parser.add_argument("--draw-further", action="store_true", help="print the further networks")
    options = parser.parse_args()
    if options.draw_further:
        print(*draw_further())
        return 0
    if options.page:
        write_page(options.results)
        return 0
    part, parts = map(int, options.shard.split("/"))
    chosen = names(options.only, options.drawn)[part - 1 :: parts]
    options.results.mkdir(parents=True, exist_ok=True)
    _prepare()
    table, wrong = read_table(), 0
    for kind in options.types.split(","):
        for name in chosen:
            file, result = stored(options.results, name)
            known = result.get(kind, {}).get("verdict")
            if not known and table.get(name, {}).get(kind) == "right":
                known = "right"
            if options.again or not known:
                result |= run(name, kind, options.limit) | {"with": versions(name)}
                file.with_suffix(".part").write_text(json.dumps(result, indent=1))
                file.with_suffix(".part").replace(file)
                known = result[kind]["verdict"]
                print(kind, name, known, why(result[kind]), flush=True)
            wrong += kind == "float64" and known == "wrong"
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
