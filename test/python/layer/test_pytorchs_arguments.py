"""Arguments of PyTorch's constructors, by position and by name: taken, or refused by name."""

from __future__ import annotations

from collections import OrderedDict
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import layer, models, tensor

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.standard_normal((2, 4, 9, 9)).astype(np.float32)
SIGNALS = RANDOM.standard_normal((2, 4, 9)).astype(np.float32)
VOLUMES = RANDOM.standard_normal((2, 4, 5, 5, 5)).astype(np.float32)
WORDS = np.array([[1, 2, 0]])

#: Calls that mean the same in both, with an input.
SAME: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("ReLU(True)", "ReLU6(True)", "SiLU(True)", "Mish(False)", "SELU(True)"),
            *("Hardswish(True)", "Hardsigmoid(True)", "LeakyReLU(0.1, True)", "ELU(0.5, True)"),
            *("Hardtanh(-0.5, 1.5, True)", "Dropout(0.5, True)", "Dropout2d(0.5, True)"),
            *("Flatten(1, -1)", "Softmax(1)", "PReLU(4, 0.1)", "Softplus(2.0, 10.0)"),
            *("MaxPool2d(3, 2, 1, 2)", "MaxPool2d(3, 2, 1, 1, False, True)"),
            *("MaxPool2d(2, None, 0, 1, False)", "AvgPool2d(3, 2, 1, True, False)"),
            *("AvgPool2d(3, 2, 1, False, True)", "AvgPool2d(3, 2, 1, False, True, 5)"),
            *("BatchNorm2d(4, 1e-3, 0.1)", "BatchNorm2d(4, 1e-3, 0.1, False, True)"),
            *("BatchNorm2d(num_features=4, eps=1e-3)", "BatchNorm2d(4, 1e-3, momentum=0.1)"),
            *("InstanceNorm2d(4, 1e-3, 0.1)", "InstanceNorm2d(4, 1e-3, 0.1, True, False)"),
            *("GroupNorm(2, 4, 1e-3, True)", "LayerNorm(9, 1e-3, True)"),
            *("Conv2d(4, 8, 3, 2, 1, 1, 2, False)", "Conv2d(4, 8, 3, 1, 'same', 2)"),
            *("Conv2d(4, 8, 3, 1, 1, 1, 1, True, 'zeros')", "Conv2d(4, 8, 3, device=None)"),
            *("ConvTranspose2d(4, 2, 3, 2, 1, 1, 1, False, 1, 'zeros')",),
            *("AdaptiveMaxPool2d(2, False)", "Linear(9, 5, False)"),
            *("Linear(9, 5, dtype=None)", "Upsample(None, 2, 'bilinear', True)"),
        ),
        IMAGES,
    ),
    **dict.fromkeys(
        (
            *("MaxPool1d(3, 2, 1, 1, False, True)", "AvgPool1d(3, 2, 1, True, True)"),
            *(
                "Conv1d(4, 8, 3, 1, 1, 1, 1, True, 'zeros')",
                "BatchNorm1d(4, 1e-3, 0.1, True, True)",
            ),
            *("BatchNorm1d(4, bias=True)",),
        ),
        SIGNALS,
    ),
    "MaxPool3d(3, 1, 1, 1, False, True)": VOLUMES,
    "AvgPool3d(3, 2, 1, False, True, 3)": VOLUMES,
    "Embedding(10, 4, 0)": WORDS,
    "Embedding(num_embeddings=10, embedding_dim=4, padding_idx=-1)": WORDS,
    "Embedding(10, 4, None, None, 2.0, False, False)": WORDS,
}


@pytest.mark.parametrize("call", SAME)
def test_the_same_in_both(torch: ModuleType, call: str) -> None:
    theirs, x = eval(f"nn.{call}", {"nn": torch.nn}).eval(), SAME[call]
    for value in theirs.buffers():
        if value.is_floating_point():
            value.copy_(torch.from_numpy(RANDOM.uniform(0.5, 1.5, value.shape)))
    wanted = theirs(torch.from_numpy(x.copy())).detach().numpy()
    ours = models.Sequential(eval(f"layer.{call}"))
    ours.compile([tensor.from_numpy(x)], is_train=False)
    if states := theirs.state_dict():
        ours.load_torch({f"0.{name}": value for name, value in states.items()})
    np.testing.assert_allclose(ours(tensor.from_numpy(x)).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("ours", "name", "value"),
    [
        ("Dropout(0.25, True)", "ratio", 0.25),
        ("Dropout2d(0.25, True)", "p", 0.25),
        ("LeakyReLU(0.1, False)", "negative_slope", 0.1),
        ("MaxPool2d(3, 2, 1, 2, False, True)", "dilation", (2, 2)),
        ("MaxPool2d(3, 2, 1, 2, True)", "return_indices", True),
        ("MaxPool2d(3, 2, 0, 'SAME_UPPER')", "pad_mode", "SAME_UPPER"),
        ("BatchNorm2d(4, 1e-3, 0.2)", "momentum", 0.2),
        ("BatchNorm2d(4, 0.2)", "momentum", 0.2),
        ("BatchNorm2d(4, 0.01)", "momentum", 0.01),
        ("Embedding(10, 4, 'uniform')", "initializer", "uniform"),
        ("Embedding(10, 4, 3)", "padding_idx", 3),
        ("InstanceNorm2d(4, 1e-5, True)", "affine", True),
        ("InstanceNorm2d(4, 1e-5, 0.1)", "affine", False),
        ("LSTM(4, 8, 2)", "num_layers", 2),
        ("LSTM(4, 8, 1, True, True)", "batch_first", True),
        ("LSTM(4, 8, 'tanh', 2)", "num_layers", 2),
        ("Conv2d(4, 8, 3, 1, 1, 2)", "dilation", (2, 2)),
    ],
)
def test_arguments_by_position(ours: str, name: str, value: Any) -> None:
    assert getattr(eval(f"layer.{ours}"), name) == value


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("BatchNorm2d(4, 1e-5)", ValueError, r"PyTorch's is eps: write eps=1e-05 or momentum="),
        ("BatchNorm2d(4, 1e-5, 0.1, momentum=0.1)", TypeError, "momentum is given twice"),
        ("BatchNorm2d(4, 1e-5, 0.1, True, False)", ValueError, "track_running_stats must be True"),
        ("BatchNorm2d(4, 1e-5, 0.1, True, True, 3)", TypeError, "at most channels and momentum"),
        ("InstanceNorm2d(4, 1e-5, 0.1, True, True)", ValueError, "track_running_stats must be Fal"),
        ("Dropout(0.5, True, inplace=True)", TypeError, "inplace is given twice"),
        ("Embedding(10, 4, None, 1.0)", ValueError, "max_norm must be None"),
        ("Conv1d(4, 8, 3, padding_mode='reflect')", ValueError, r"\[Conv1d\] padding_mode must be"),
        ("Conv2d(4, 8, 3, 1, 1, padding=1)", TypeError, "padding is given twice"),
        ("AdaptiveMaxPool2d(2, True)", ValueError, "return_indices must be False"),
        ("LSTM(4, 8, 1, True, False, 0, False, 3)", ValueError, "proj_size must be 0"),
        ("Conv2d(4, 8, 3, device='cuda')", TypeError, r"no argument 'device': use device\.set_def"),
        ("Linear(4, 8, dtype='float64')", TypeError, r"no argument 'dtype': use to_type"),
        ("Conv1d(4, 8, 3, strides=2)", TypeError, "no argument 'strides': use stride"),
        ("GELU(tanh=True)", TypeError, r"\[GELU\] has no argument 'tanh'; it has approximate$"),
        ("Conv2d(8, 3, paddings=1)", TypeError, r"\[Conv2d\] has no argument 'paddings'; it has n"),
        (
            "Conv2d(8, 3, 2)(tensor.from_numpy(IMAGES))",  # 8 channels out, a stride of 2
            ValueError,
            r"in_channels is 8, got input \(2, 4, 9, 9\); of three arguments by position the first",
        ),
        ("Sequential([layer.ReLU()])", TypeError, r"got a list: write Sequential\(\*layers\)"),
    ],
)
def test_others_are_refused_by_name(call: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        eval(f"layer.{call}")


def test_errors_of_a_layer_of_a_program_are_its_own() -> None:
    class Wide(layer.Linear):
        def __init__(self, factor: int) -> None:
            super().__init__(4 * factor)

    with pytest.raises(TypeError, match=r"Wide\.__init__\(\) got an unexpected keyword"):
        Wide(out=3)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"\[Linear\] has no argument 'bais'; it has out_features, b"
    ):
        layer.Linear(3, bais=False)


def test_a_chain_of_named_layers_is_saved_with_its_names(tmp_path: Any) -> None:
    inner = layer.Sequential(OrderedDict(act=layer.ReLU(True), fc=layer.Linear(3)))
    net = models.Sequential(OrderedDict(fc=layer.Linear(4), tail=inner))
    x = tensor.random((5, 2))
    net.compile([x], is_train=False)
    assert list(net.get_params()) == ["fc.W", "fc.b", "tail.fc.W", "tail.fc.b"]
    net.save(tmp_path / "net.singa")
    again = singa.load(tmp_path / "net.singa")
    assert type(again) is models.Sequential
    assert list(again.get_params()) == list(net.get_params())
    np.testing.assert_array_equal(again(x).numpy(), net(x).numpy())
    for name in ("", "a.b", "loss", "forward", "_layers"):
        with pytest.raises(ValueError, match="cannot be the name of a layer"):
            models.Sequential(OrderedDict({name: layer.ReLU()}))
