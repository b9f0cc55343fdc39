"""What configurations of timm and transformers may say of a network: for each architecture, the
fields that singa reads, the values that its network has, and fields that change no output.

Everything else is refused by name, since the network would compute another function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

#: Fields of any network of transformers that change no output in inference.
_HARMLESS = frozenset(
    [
        *("_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path"),
        *("architectures", "attention_probs_dropout_prob", "chunk_size_feed_forward"),
        *("drop_path_rate", "dtype", "encoder_stride", "finetuning_task", "hidden_dropout_prob"),
        *("initializer_range", "label2id", "layer_scale_init_value", "num_labels"),
        *("out_features", "out_indices", "output_attentions", "output_hidden_states"),
        *("pooler_act", "pooler_output_size", "problem_type", "return_dict", "stage_names"),
        *("torch_dtype", "torchscript", "transformers_version", "use_cache", "use_return_dict"),
    ]
)
_ALWAYS_READ = frozenset(["id2label", "image_size", "model_type"])


@dataclass(frozen=True, eq=False)
class _AtMost:
    """Equal to any number from 0 to `most`: for an `eps` that disappears beside the network's."""

    most: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and 0 <= other <= self.most

    def __repr__(self) -> str:
        return f"at most {self.most:g}"


#: model_type: (fields that `huggingface_network` reads, values that the network has).
_TRANSFORMERS: dict[str, tuple[frozenset[str], dict[str, Any]]] = {
    "resnet": (
        frozenset(["depths", "downsample_in_bottleneck", "layer_type"]),
        {
            "downsample_in_first_stage": False,
            "embedding_size": 64,
            "hidden_act": "relu",
            "num_channels": 3,
        },
    ),
    "vit": (
        frozenset(["hidden_size", "num_attention_heads", "num_hidden_layers", "patch_size"]),
        {"hidden_act": "gelu", "layer_norm_eps": _AtMost(1e-6), "num_channels": 3}
        | {"qkv_bias": True},
    ),
    "convnext": (
        frozenset(["depths", "hidden_sizes"]),
        {"hidden_act": "gelu", "layer_norm_eps": _AtMost(1e-6), "num_channels": 3}
        | {"num_stages": 4, "patch_size": 4},
    ),
    "swin": (
        frozenset(["depths", "embed_dim", "num_heads", "window_size"]),
        {"hidden_act": "gelu", "hidden_size": 768, "layer_norm_eps": 1e-5, "mlp_ratio": 4}
        | {"num_channels": 3, "num_layers": 4, "patch_size": 4, "path_norm": True}
        | {"qkv_bias": True, "use_absolute_embeddings": False},
    ),
}
_PREPARED_READ = frozenset(
    [
        *("crop_pct", "crop_size", "do_center_crop", "do_normalize", "do_rescale", "do_resize"),
        *("image_mean", "image_std", "resample", "rescale_factor", "size"),
    ]
)
_PREPARED_HARMLESS = frozenset(
    [
        *("_valid_processor_keys", "data_format", "device", "disable_grouping", "do_convert_rgb"),
        *("feature_extractor_type", "image_processor_type", "input_data_format"),
        *("processor_class", "return_tensors"),
    ]
)

#: Fields of timm's pretrained_cfg, all of which are read or change no output.
_TIMM_FIELDS = frozenset(
    [
        *("architecture", "classifier", "crop_mode", "crop_pct", "custom_load", "description"),
        *("file", "first_conv", "fixed_input_size", "hf_hub_filename", "hf_hub_id", "input_size"),
        *("interpolation", "label_descriptions", "label_names", "label_offset", "license", "mean"),
        *("min_input_size", "notes", "num_classes", "num_features", "origin_url", "paper_ids"),
        *("paper_name", "pool_size", "source", "state_dict", "std", "tag", "test_crop_pct"),
        *("test_input_size", "test_pool_size", "url"),
    ]
)
#: Arguments of timm's networks that change no output in inference.
_TIMM_HARMLESS = frozenset(
    [
        *("attn_drop_rate", "drop_block_rate", "drop_path_rate", "drop_rate", "num_classes"),
        *("pos_drop_rate", "pretrained", "proj_drop_rate"),
    ]
)
#: Activations of timm's networks by the beginning of their names.
_TIMM_ACTIVATIONS = {
    "convnext": "gelu",
    "efficientnet": "silu",
    "mobilenet": "relu6",
    "swin": "gelu",
    "vit": "gelu",
}


def check_transformers(config: Mapping[str, Any]) -> None:
    """Raises ValueError for a field with which singa's network would compute another function."""
    if config["model_type"] not in _TRANSFORMERS:
        return  # refused by its name
    read, expected = _TRANSFORMERS[config["model_type"]]
    expected = dict(expected)
    if config["model_type"] == "resnet":
        scale = 1 if config["layer_type"] == "basic" else 4
        expected["hidden_sizes"] = [scale * width for width in (64, 128, 256, 512)]
    if config["model_type"] == "vit":
        expected["intermediate_size"] = 4 * config["hidden_size"]
    _check(config, read | _ALWAYS_READ | _HARMLESS, expected, "config.json")


def check_prepared(prepared: Mapping[str, Any]) -> None:
    """Raises ValueError for a step of preprocessor_config.json that singa does not have."""
    given = {name: value for name, value in prepared.items() if value is not False}
    where = "preprocessor_config.json"
    _check(given, _PREPARED_READ | _PREPARED_HARMLESS, {}, where)
    for name, step in (("size", "do_resize"), ("crop_size", "do_center_crop")):
        if isinstance(prepared.get(name), Mapping) and prepared.get(step, name == "size"):
            _check(prepared[name], ("height", "width", "shortest_edge"), {}, f"{where}, {name}")


def check_timm(name: str, config: Mapping[str, Any]) -> None:
    """As check_transformers, for the configuration of timm's network `name`."""
    pool = "token" if name.startswith("vit") else "avg"
    expected: dict[str, Any] = {"global_pool": pool}
    fields = {**config["pretrained_cfg"], **config}
    arguments = {**(fields.pop("model_args", None) or {})}
    fields.pop("pretrained_cfg")
    _check(fields, _TIMM_FIELDS, expected, "config.json")
    activation = next(
        (act for begin, act in _TIMM_ACTIVATIONS.items() if name.startswith(begin)), "relu"
    )
    expected |= {"act_layer": activation, "in_chans": 3, "output_stride": 32}
    _check(arguments, _TIMM_HARMLESS, expected, "config.json, model_args")


def _check(
    given: Mapping[str, Any], allowed: Collection[str], expected: Mapping[str, Any], where: str
) -> None:
    for name, value in given.items():
        if name in expected:
            if value is not None and expected[name] != value:
                raise ValueError(
                    f"[load_pretrained] {where}: {name} is {value!r}, and singa's network has "
                    f"{expected[name]!r}"
                )
        elif name not in allowed and value is not None:
            raise ValueError(
                f"[load_pretrained] {where}: singa's network has no {name}, which is {value!r}"
            )
