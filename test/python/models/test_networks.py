"""The networks of network_table.py beside PyTorch's; captured steps, bfloat16 and files."""

import pytest
import torch_pairs
from network_table import CASES
from singa import models


def cases(names=CASES):
    return [
        pytest.param(name, CASES[name], marks=[pytest.mark.slow] * CASES[name].slow, id=name)
        for name in names
    ]


@pytest.mark.parametrize(("name", "case"), cases())
def test_scores_like_torch(torch, name, case):
    torch_pairs.check_scores(torch, name, case.shape, case.parameters, theirs=case.size)


@pytest.mark.parametrize(("name", "case"), cases(n for n in CASES if CASES[n].gradients))
def test_every_gradient_like_torch(torch, name, case):
    shape = case.small or case.shape
    torch_pairs.check_gradients(torch, name, shape, case.ours, case.size)


@pytest.mark.parametrize(("name", "case"), cases(n for n in CASES if CASES[n].gradients))
def test_losses_like_torch(torch, name, case):
    shape = case.small or case.shape
    torch_pairs.check_losses(torch, name, shape, case.ours, case.size, lr=case.rate)


@pytest.mark.parametrize(("name", "case"), cases())
def test_replayed_steps_give_the_same_bits(name, case):
    torch_pairs.check_replays(name, case.small or case.shape)


@pytest.mark.parametrize(("name", "case"), cases())
def test_trains_in_bfloat16(name, case):
    torch_pairs.check_bfloat16(name, case.small or case.shape, case.ours)


@pytest.mark.parametrize(("name", "case"), cases())
def test_files_and_summary(name, case, tmp_path, capsys):
    path = tmp_path / "states.safetensors"
    torch_pairs.check_files(name, case.small or case.shape, path, capsys)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("vit_tiny_16", 5_717_416), ("vit_small_16", 22_050_664)],
)
def test_sizes_of_vit(name, parameters):
    net = models.create(name)
    net.compile([torch_pairs.as_tensor(torch_pairs.inputs(net, (1, 3, 224, 224))[0], "float32")])
    assert sum(p.size() for p in net.get_params().values()) == parameters
