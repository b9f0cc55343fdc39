"""The networks of network_table.py beside PyTorch's; recorded steps, bfloat16 and files."""

import pytest
import torch_pairs
from network_table import ALL_NETWORKS, CASES, LARGER
from singa import models


def cases(names=CASES):
    return [
        pytest.param(name, marks=[pytest.mark.slow] * CASES[name].slow, id=name) for name in names
    ]


TRAINED = [name for name in CASES if ALL_NETWORKS or name not in LARGER]


@pytest.mark.parametrize("name", cases())
def test_scores_like_torch(torch, name):
    case = CASES[name]
    torch_pairs.check_scores(torch, name, case.shape, case.parameters, theirs=case.size)


@pytest.mark.parametrize("name", cases(n for n in CASES if CASES[n].gradients))
def test_gradients_and_losses_like_torch(torch, name):
    case = CASES[name]
    shape = case.small or case.shape
    torch_pairs.check_training(torch, name, shape, case.ours, case.size, lr=case.rate)


@pytest.fixture(scope="module", params=cases(TRAINED))
def executed(request):
    """A network that has made a few executed steps. Tests that use it run network by network."""
    case = CASES[request.param]
    return torch_pairs.train(request.param, case.small or case.shape)


def test_replayed_steps_give_the_same_bits(executed):
    torch_pairs.check_replays(executed)


def test_trains_in_bfloat16(executed):
    torch_pairs.check_bfloat16(executed, CASES[executed.name].ours)


def test_files_and_summary(executed, tmp_path, capsys):
    torch_pairs.check_files(executed, tmp_path / "states.safetensors", capsys)


@pytest.mark.parametrize(
    ("name", "parameters"), [("vit_tiny_16", 5_717_416), ("vit_small_16", 22_050_664)]
)
def test_sizes_of_vit(name, parameters):
    net = models.create(name)
    net.compile([torch_pairs.as_tensor(torch_pairs.inputs(net, (1, 3, 224, 224))[0], "float32")])
    assert sum(p.size() for p in net.get_params().values()) == parameters
