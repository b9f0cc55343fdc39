"""Weights from files in the layouts of torchvision, timm and Hugging Face's transformers."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torchvision_networks
from foreign_weights import drawn, images, picture
from picture_folders import coloured, write_colours
from recorded import graphs
from singa import models, tensor
from singa.data import CenterCrop, Normalize, Resize
from singa.models.foreign_names import huggingface_network, timm_weights
from singa.training import pretrained
from singa.training.picture_classifier import PictureClassifier
from singa.training.pretrained import load_pretrained

safetensors = pytest.importorskip("safetensors.numpy")

#: What transformers 5.24 wrote (save_pretrained), and what its networks and image processors made
#: of weights and inputs of foreign_weights.py.
HUGGINGFACE = json.loads((Path(__file__).parent / "huggingface.json").read_text())
HALVES = (0.5, 0.5, 0.5)
LABELS = ["cat", "dog", "bird", "fish", "horse"]


def write(folder, weights, **configurations):
    folder.mkdir(exist_ok=True)
    safetensors.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name, value in configurations.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def huggingface_folder(folder, name):
    made = HUGGINGFACE[name]
    files = {each: made[each] for each in ("config", "preprocessor_config")}
    return write(folder, drawn(made["tensors"]), **files)


def expect_same(torch, classifier, theirs):
    """Expects the usual labels, and the scores of a network of PyTorch."""
    assert list(classifier.class_names) == LABELS
    x = images(64)
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(x)).numpy()
    got = classifier.net(tensor.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_16"])
def test_a_folder_of_transformers(name, tmp_path):
    made = HUGGINGFACE[name]
    classifier = load_pretrained(huggingface_folder(tmp_path / "hub", name))
    assert classifier.net.architecture == {"name": name, "arguments": {"num_classes": 5}}
    assert list(classifier.class_names) == classifier.net.class_names == LABELS
    inputs = classifier.inputs([picture()])
    assert list(inputs.shape[1:]) == made["shape"]
    step = made["shape"][1] // 4
    np.testing.assert_allclose(inputs[0, :, ::step, ::step], made["pixels"], atol=2e-5)
    scores = classifier.net(tensor.from_numpy(images(made["shape"][1]))).numpy()
    np.testing.assert_allclose(scores, made["scores"], atol=2e-4)


@pytest.mark.parametrize(
    ("name", "in_torchvision", "in_timm"),
    [
        ("convnext_tiny", "convnext_tiny", "convnext_tiny"),
        ("swin_tiny", "swin_t", "swin_tiny_patch4_window7_224"),
    ],
)
def test_names_of_transformers_and_timm_become_torchvisions(torch, name, in_torchvision, in_timm):
    torchvision = torchvision_networks.networks(torch)
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        theirs = getattr(torchvision, in_torchvision)(num_classes=5).state_dict()
        other = timm.create_model(in_timm, num_classes=5).state_dict()
    expected = {
        # Torchvision alone gives layer_scale the shape (C, 1, 1); load_torch takes both.
        n: t.shape[:1] if n.endswith("layer_scale") else tuple(t.shape)
        for n, t in theirs.items()
        if not n.endswith("relative_position_index")
    }
    made = HUGGINGFACE[name]
    given = {n: np.empty(shape, np.int8) for n, shape in made["tensors"].items()}
    for found, renamed in (
        huggingface_network(made["config"], given),
        timm_weights(in_timm, {n: np.empty(t.shape, np.int8) for n, t in other.items()}),
    ):
        assert found == name
        assert {n: t.shape for n, t in renamed.items()} == expected


@pytest.mark.parametrize(
    "name",
    [
        *("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2"),
        *("densenet121", "inception_v3"),
    ],
)
def test_timm_has_torchvisions_names(torch, name):
    """For the networks whose weights load_pretrained takes from timm as they are."""
    torchvision = torchvision_networks.networks(torch)
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        options = {"init_weights": False} if name == "inception_v3" else {}
        expected = getattr(torchvision, name)(**options).state_dict()
        got = timm.create_model(name).state_dict()
    assert timm_weights(name, got) == (name, got)
    named = {n: t.shape for n, t in expected.items() if not n.startswith("AuxLogits.")}
    assert {n: t.shape for n, t in got.items() if not n.startswith("AuxLogits.")} == named


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenetv2_100"])
def test_scores_of_timms_networks(torch, name):
    """What the names say of an inverted residual block, beside timm's own scores."""
    torchvision_networks.networks(torch)
    theirs = pytest.importorskip("timm").create_model(name, num_classes=5).eval()
    values = drawn({n: t.shape for n, t in theirs.state_dict().items()})
    theirs.load_state_dict({n: torch.from_numpy(value) for n, value in values.items()})
    ours, renamed = timm_weights(name, values)
    net = models.create(ours, num_classes=5)
    x = images(64)
    net.compile([tensor.from_numpy(x)], is_train=False)
    net.load_torch(renamed)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x)).numpy()
    got = net(tensor.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())


def test_a_folder_of_timm(torch, tmp_path):
    torchvision_networks.networks(torch)
    timm = pytest.importorskip("timm")
    hub = importlib.import_module("timm.models._hub")
    torch.manual_seed(0)
    theirs = timm.create_model("resnet18", num_classes=5)
    theirs.load_state_dict(
        {
            name: torch.from_numpy(value)
            for name, value in drawn({n: t.shape for n, t in theirs.state_dict().items()}).items()
        }
    )
    labels = {
        "label_names": ["n01", "n02", "n03", "n04", "n05"],
        "label_descriptions": dict(zip(["n01", "n02", "n03", "n04", "n05"], LABELS, strict=True)),
    }
    hub.save_for_hf(theirs, tmp_path, model_config=labels, safe_serialization=True)
    classifier = load_pretrained(tmp_path)
    expect_same(torch, classifier, theirs)
    data = timm.data.resolve_data_config(model=theirs)
    assert classifier.transform.transforms == (
        Resize(int(data["input_size"][1] / data["crop_pct"]), data["interpolation"]),
        CenterCrop(data["input_size"][1]),
        Normalize(data["mean"], data["std"]),
    )
    # The head for other classes, as for training.
    assert classifier.net.replace_head(3) == ("fc.W", "fc.b")
    assert classifier.net(tensor.from_numpy(images(64))).shape == (2, 3)


@pytest.mark.filterwarnings("ignore:.*so the transform is a guess")
def test_a_state_dict_of_torchvision(torch, tmp_path):
    torchvision = torchvision_networks.networks(torch)
    theirs = torchvision.shufflenet_v2_x1_0(num_classes=5)
    shapes = {name: tuple(t.shape) for name, t in theirs.state_dict().items()}
    values = drawn(shapes)
    theirs.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    file = tmp_path / "shufflenet_v2_x1_0-5666bf0f.safetensors"
    safetensors.save_file(values, file)
    said = (
        r"5666bf0f\.safetensors has no config\.json, so the transform is a guess.*Resize\(size=256"
    )
    with pytest.warns(UserWarning, match=said):
        classifier = load_pretrained(file, class_names=LABELS)
    expect_same(torch, classifier, theirs)
    other = file.rename(tmp_path / "mine.safetensors")
    assert load_pretrained(other, "shufflenet_v2_x1_0").class_names == ("0", "1", "2", "3", "4")
    with pytest.raises(ValueError, match="there is no network 'mine'"):
        load_pretrained(other)
    with pytest.raises(ValueError, match="3 class names, and the network has 5"):
        load_pretrained(other, "shufflenet_v2_x1_0", class_names=LABELS[:3])


@pytest.mark.parametrize("name", sorted({*models.names()} - {"swin_tiny"} | {"swin_t"}))
def test_transforms_of_torchvision(torch, name):
    torchvision = torchvision_networks.networks(torch)
    if not hasattr(torchvision, name):
        assert "cifar" in name or name in (
            *("gpt_small", "inception_bn", "inception_v4", "lenet", "unet"),
            *("vit_small_16", "vit_tiny_16"),
        )
        return
    expected = torchvision.get_model_weights(name).IMAGENET1K_V1.transforms.keywords
    resize, crop, normalize = pretrained._of_torchvision(name, {}).transform.transforms
    kind = expected.get("interpolation")
    assert resize.size == expected.get("resize_size", 256)
    assert resize.interpolation == ("bilinear" if kind is None else kind.value)
    assert crop.size == expected["crop_size"]
    if name in ("googlenet", "inception_v3"):  # what transform_input=True makes of the images
        assert normalize.mean == normalize.std == (0.5, 0.5, 0.5)
    else:
        assert normalize.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize(
    ("prepared", "steps"),
    [
        ({}, [Resize((32, 32)), Normalize(HALVES, HALVES)]),
        ({"size": 48, "resample": 3}, [Resize((48, 48), "bicubic"), Normalize(HALVES, HALVES)]),
        (
            {
                "size": {"shortest_edge": 40},
                "do_center_crop": True,
                "crop_size": {"height": 24, "width": 32},
                "do_normalize": False,
            },
            [Resize(40), CenterCrop((24, 32)), Normalize((0.0,) * 3, (1.0,) * 3)],
        ),
        (
            {"size": {"shortest_edge": 40}, "crop_pct": 0.9, "do_resize": False},
            [Normalize(HALVES, HALVES)],
        ),
        (
            {"size": {"shortest_edge": 384}, "crop_pct": 0.9, "resample": 1},
            [Resize((384, 384), "lanczos"), Normalize(HALVES, HALVES)],
        ),
    ],
)
def test_transforms_of_transformers(prepared, steps):
    config = HUGGINGFACE["vit_tiny_16"]["config"]
    found = pretrained._of_huggingface(config, prepared, {})
    assert found.transform.transforms == tuple(steps)


@pytest.mark.parametrize("prepared", [{"rescale_factor": 1 / 127.5}, {"do_rescale": False}])
def test_pixels_on_another_scale(prepared):
    config = HUGGINGFACE["vit_tiny_16"]["config"]
    with pytest.raises(ValueError, match=r"pixels are multiplied by .* not by 1 / 255"):
        pretrained._of_huggingface(config, prepared, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "dinov2"}, "cannot read this network of transformers, a 'dinov2'"),
        ({"depths": [2, 2, 2, 3]}, "cannot read this network of transformers, a 'resnet'"),
        ({"depths": 7}, "not a configuration of timm or transformers"),
        ({"id2label": {"0": "cat"}}, "no weight has 1 outputs"),
        ({"id2label": {"1": "cat"}}, "not a configuration of timm or transformers"),
        ({"num_labels": 3}, "num_labels is 3, and id2label has 5 names"),
    ],
)
def test_a_configuration_that_does_not_fit(change, message, tmp_path):
    made = HUGGINGFACE["resnet18"]
    head = {"classifier.1.bias": np.zeros(5, np.float32)}
    folder = write(tmp_path / "hub", head, config=made["config"] | change)
    with pytest.raises(ValueError, match=message):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "resnet18",
            {"hidden_act": "gelu"},
            "hidden_act is 'gelu', and singa's network has 'relu'",
        ),
        ("resnet18", {"hidden_sizes": [64, 128, 256, 1024]}, "hidden_sizes is"),
        ("resnet18", {"downsample_in_first_stage": True}, "downsample_in_first_stage is True"),
        ("vit_tiny_16", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("vit_tiny_16", {"layer_norm_eps": 1e-3}, r"layer_norm_eps is 0\.001, .* at most 1e-06"),
        ("vit_tiny_16", {"intermediate_size": 192}, "intermediate_size is 192"),
        ("vit_tiny_16", {"qkv_bias": False}, "qkv_bias is False"),
        ("swin_tiny", {"use_absolute_embeddings": True}, "use_absolute_embeddings is True"),
        ("swin_tiny", {"layer_norm_eps": 1e-3}, r"layer_norm_eps is 0\.001"),
        ("convnext_tiny", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("convnext_tiny", {"gating": "soft"}, "singa's network has no gating, which is 'soft'"),
    ],
)
def test_another_function_of_transformers(name, change, message):
    config = HUGGINGFACE[name]["config"]
    pretrained._of_huggingface(config, {}, {})
    with pytest.raises(ValueError, match=rf"config\.json: {message}"):
        pretrained._of_huggingface(config | change, {}, {})


def test_a_preparation_that_is_not_known_is_said(tmp_path):
    folder = huggingface_folder(tmp_path / "hub", "resnet18")
    (folder / "preprocessor_config.json").unlink()
    message = (
        r"no preprocessor_config\.json, so the transform is a guess.*Resize\(size=\(224, 224\)"
    )
    with pytest.warns(UserWarning, match=message):
        load_pretrained(folder)


def test_a_file_and_the_configuration_beside_it(tmp_path):
    """It is that of the only file."""
    folder = huggingface_folder(tmp_path / "hub", "resnet18")
    file = (folder / "model.safetensors").rename(folder / "resnet18-mine.safetensors")
    classifier = load_pretrained(file)
    assert list(classifier.class_names) == LABELS
    assert repr(classifier.transform) == repr(load_pretrained(folder).transform)
    (folder / "other.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"hub has a config\.json and several \.safetensors files"):
        load_pretrained(file)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (None, "classes"),
        ("single_label_classification", "classes"),
        ("multi_label_classification", "multilabel"),
        ("regression", "regression"),
    ],
)
def test_what_outputs_of_transformers_mean(tmp_path, problem, kind):
    folder = huggingface_folder(tmp_path / "hub", "resnet18")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"problem_type": problem}))
    classifier = load_pretrained(folder)
    assert classifier.task.kind == kind
    scores = classifier.net(tensor.from_numpy(classifier.inputs([picture()]))).numpy()
    expected = {
        "classes": np.exp(scores) / np.exp(scores).sum(),
        "multilabel": 1 / (1 + np.exp(-scores)),
        "regression": scores,
    }
    np.testing.assert_allclose(classifier.values([picture()]), expected[kind], rtol=1e-4)
    with pytest.raises(ValueError, match="problem_type is 'ranking'"):
        pretrained._of_huggingface(config | {"problem_type": "ranking"}, {}, {})


def test_classes_with_one_name(tmp_path):
    """ImageNet has a crane that is a bird, and one that lifts."""
    folder = huggingface_folder(tmp_path / "hub", "resnet18")
    config = json.loads((folder / "config.json").read_text())
    names = {"0": "crane", "1": "dog", "2": "crane", "3": "fish", "4": "horse"}
    (folder / "config.json").write_text(json.dumps(config | {"id2label": names}))
    with pytest.warns(UserWarning, match=r"get their numbers: crane \(0\), crane \(2\)") as told:
        classifier = load_pretrained(folder)
    assert told[0].filename == __file__
    assert classifier.class_names == ("crane (0)", "dog", "crane (2)", "fish", "horse")


def test_one_output_is_no_class(tmp_path):
    shapes = {**HUGGINGFACE["resnet18"]["tensors"], "classifier.1.weight": [1, 512]}
    config = HUGGINGFACE["resnet18"]["config"] | {"id2label": {"0": "cat"}}
    prepared = HUGGINGFACE["resnet18"]["preprocessor_config"]
    weights = drawn({**shapes, "classifier.1.bias": [1]})
    folder = write(tmp_path / "hub", weights, config=config, preprocessor_config=prepared)
    with pytest.warns(UserWarning, match="one output, so the probability of its class is always 1"):
        load_pretrained(folder)


def test_what_timm_says_of_the_network_counts_more_than_what_it_came_from():
    """A network that was fine-tuned has its own classes beside those of its source."""
    source = {"num_classes": 1000, "label_names": ["n01"] * 1000, "input_size": [3, 224, 224]}
    own = {"architecture": "resnet18", "num_classes": 2, "label_names": ["cat", "dog"]}
    found = pretrained._of_timm("resnet18", own | {"pretrained_cfg": source}, {})
    assert (found.classes, found.class_names) == (2, ["cat", "dog"])


def test_another_preparation_of_transformers():
    config = HUGGINGFACE["vit_tiny_16"]["config"]
    pretrained._of_huggingface(config, {"do_pad": False, "image_processor_type": "ViT"}, {})
    for prepared, message in (
        ({"do_pad": True}, r"preprocessor_config\.json: .* no do_pad, which is True"),
        ({"resample": 9}, r"preprocessor_config\.json: resample is 9"),
        (
            {"size": {"shortest_edge": 40, "longest_edge": 60}},
            "size: .* no longest_edge, which is 60",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            pretrained._of_huggingface(config, prepared, {})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("resnet18", {"global_pool": "max"}, "global_pool is 'max', and .* has 'avg'"),
        ("resnet18", {"model_args": {"global_pool": "max"}}, "model_args: global_pool is 'max'"),
        ("resnet18", {"model_args": {"act_layer": "gelu"}}, "model_args: act_layer is 'gelu'"),
        ("resnet18", {"model_args": {"output_stride": 8}}, "model_args: output_stride is 8"),
        ("resnet18", {"model_args": {"stem_type": "deep"}}, "no stem_type, which is 'deep'"),
        ("resnet18", {"stem_type": "deep"}, "no stem_type, which is 'deep'"),
        ("vit_tiny_patch16_224", {"global_pool": "avg"}, "global_pool is 'avg', and .* 'token'"),
    ],
)
def test_another_function_of_timm(name, change, message):
    head = {"pretrained_cfg": {"num_classes": 5, "input_size": [3, 224, 224]}}
    fitting = {"architecture": name, "model_args": {"num_classes": 5, "drop_rate": 0.1}}
    pretrained._of_timm(name, fitting | head, {})
    with pytest.raises(ValueError, match=rf"config\.json.*{message}"):
        pretrained._of_timm(name, fitting | head | change, {})


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist: .* downloads none"):
        load_pretrained(tmp_path / "nowhere")


def test_files_that_are_no_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no model.safetensors"):
        load_pretrained(tmp_path)
    (tmp_path / "resnet18.pth").write_bytes(b"\x80\x02")
    with pytest.raises(ValueError, match=r"expected a .safetensors file; convert"):
        load_pretrained(tmp_path / "resnet18.pth")
    folder = write(tmp_path / "hub", {"x": np.zeros(2, np.float32)})
    (folder / "config.json").write_text("[")
    with pytest.raises(ValueError, match=r"config.json: not JSON"):
        load_pretrained(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"not a configuration of timm or transformers"):
        load_pretrained(folder)
    (folder / "config.json").write_text('{"architecture": "regnety_002", "pretrained_cfg": {}}')
    with pytest.raises(ValueError, match=r"cannot read timm's 'regnety_002'; it reads convnext"):
        load_pretrained(folder)
    huge = {"input_size": [3, 90000, 90000], "num_classes": 2}
    config = {"architecture": "resnet18", "pretrained_cfg": huge}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"\[load_pretrained\] .*hub: size of Resize is 102857: at most 4096"
    ):
        load_pretrained(folder)


def test_the_code_of_the_page(capsys):
    """docs/fine_tuning.md, on small pictures."""
    page = (Path(__file__).parents[3] / "docs" / "fine_tuning.md").read_text()
    training, looking = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    write_colours(Path("pets"), 8)
    coloured("red", 9).save("cat.jpg")
    Path("downloads").mkdir()
    huggingface_folder(Path("downloads/resnet18"), "resnet18")
    names = {}
    assert training.count("64") == 1
    exec(training.replace("64", "32"), names)
    net = names["net"]
    frozen = [path for path, param in net.get_params().items() if not param.requires_grad]
    assert {path.partition(".")[0] for path in frozen} == {"conv1", "bn1", "layer1", "layer2"}
    assert len(graphs(net)) == 1
    classifier = PictureClassifier.load("pets.safetensors")
    assert classifier.class_names == ("blue", "green", "red")
    assert classifier.transform.transforms == names["trained"].transform.transforms
    assert np.isfinite(float(names["loss"]))
    capsys.readouterr()
    exec(looking, names)
    assert capsys.readouterr().out == "(8, 64, 8, 8)\n"
    assert names["names"][:2] == ["", "conv1"]
    assert names["features"].shape == (8, 512, 1, 1)
    assert names["gradient"].shape == (1, 3, 32, 32)
    assert np.abs(names["gradient"].numpy()).max() > 0
