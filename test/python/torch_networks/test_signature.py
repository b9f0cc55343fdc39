"""What changes of a module an accelerated one follows, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import accelerated
import pytest
import singa
from singa.torch_networks.signature import signature

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


def _data(torch: Any, net: Any) -> None:
    net[5].weight.data = net[5].weight.detach().clone() * 2


def _transposed(torch: Any, net: Any) -> None:
    net[0].weight.data = net[0].weight.detach().contiguous(memory_format=torch.channels_last) * 2


def _in_place(torch: Any, net: Any) -> None:
    with torch.no_grad():
        net[0].weight.mul_(2)
        net[1].running_mean.add_(1)


def _loaded(torch: Any, net: Any) -> None:
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})


def _assigned(torch: Any, net: Any) -> None:
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()}, assign=True)


def _swapped(torch: Any, net: Any) -> None:
    average = torch.optim.swa_utils.AveragedModel(copy.deepcopy(net))
    for p in average.parameters():
        p.data.mul_(0.5)
    for p, other in zip(net.parameters(), average.module.parameters(), strict=True):
        p.data, other.data = other.data, p.data


def _new_head(torch: Any, net: Any) -> None:
    torch.manual_seed(3)
    net[5] = torch.nn.Linear(128, 5)


def _other_activation(torch: Any, net: Any) -> None:
    net[2] = torch.nn.GELU()


def _attribute(torch: Any, net: Any) -> None:
    net[1].eps = 0.5
    net[3].stride = 2
    net[3].kernel_size = 1


def _buffer(torch: Any, net: Any) -> None:
    net[1].running_var = net[1].running_var * 3


def _tied(torch: Any, net: Any) -> None:
    net[1].bias = net[1].weight


def _wider(torch: Any, net: Any) -> None:
    net.to(torch.float64).to(torch.float32)


CHANGES = (
    *(_data, _transposed, _in_place, _loaded, _assigned, _swapped, _new_head, _other_activation),
    *(_attribute, _buffer, _tied, _wider),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_changes_of_the_module_are_followed(
    torch: ModuleType, change: Callable[[Any, Any], None]
) -> None:
    net, plain = accelerated.pair(torch, fresh=True)
    x, y = accelerated.batch(torch)
    for _ in range(2):
        for each in (net, plain):
            each.train()
            accelerated.loss(torch, each, x, y).backward()
            each.eval()
        before = net(x)
        accelerated.same(torch, before, plain(x))
        for each in (net, plain):
            change(torch, each)
        found = net(x)
        accelerated.same(torch, found, plain(x))
        if change is not _wider:
            assert (found - before).abs().max() > 1e-3
        for each in (net, plain):
            each.train()
            each.zero_grad()
            accelerated.loss(torch, each, x, y).backward()
        accelerated.same_gradients(torch, net, plain, 1e-4)
        accelerated.same_states(torch, net, plain)
        if change in (_new_head, _other_activation, _attribute, _tied):
            return  # the second time, nothing changes


def test_a_buffer_of_no_file_is_followed(torch: ModuleType) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(3), persistent=False)
            self.table = torch.ones(3)

        def forward(self, x: Any) -> Any:
            return x * self.scale + self.table

    net = singa.accelerate(Scaled())
    x = torch.ones(2, 3)
    assert net(x).tolist() == [[2.0] * 3] * 2
    net.scale.mul_(2)
    assert net(x).tolist() == [[3.0] * 3] * 2
    net._module.table += 5
    assert net(x).tolist() == [[8.0] * 3] * 2


def test_a_signature_notices_changes(torch: ModuleType) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU())
    net.sizes, net.table, net.names = [1, [2]], {"a": {"b": 1}, "c": {}}, {1}
    net.register_buffer("scale", torch.ones(3), persistent=False)
    net.shift = torch.ones(3)
    linear, norm = net[0], net[1]
    changes: list[Callable[[], Any]] = [
        lambda: net.sizes.append(3),
        lambda: net.sizes[1].append(3),
        lambda: net.table["a"].update(b=2),
        lambda: net.table["c"].update(net.table.pop("a")),
        lambda: net.names.add(2),
        lambda: net.scale.mul_(2),
        lambda: net.shift.mul_(2),
        lambda: setattr(norm, "eps", 0.5),
        lambda: setattr(norm, "eps", 1),
        lambda: setattr(norm, "eps", True),
        lambda: setattr(linear, "note", 0),
        lambda: delattr(linear, "note"),
        lambda: linear.eval(),
        lambda: setattr(linear, "bias", None),
        lambda: setattr(linear.weight, "data", torch.ones(4, 3)),
        lambda: net.double(),
        lambda: net._modules.update({"2": torch.nn.GELU()}),
        lambda: net.append(torch.nn.ReLU()),
        lambda: net._modules.update({"0": net._modules.pop("0")}),
        lambda: net.to("meta"),
    ]
    for i, change in enumerate(changes):
        before = signature(torch, net)
        assert before.watch.unchanged()
        with torch.no_grad():
            linear.weight.mul_(1)  # values of parameters are no part of it
        assert before.watch.unchanged()
        assert signature(torch, net).key == before.key
        change()
        assert not before.watch.unchanged(), i
        if i < len(changes) - 1 and i != 4:  # sets are known by their ids alone
            assert signature(torch, net).key != before.key, i


def test_a_first_call_may_prepare_something(torch: ModuleType) -> None:
    class Prepared(torch.nn.Module):
        scale = 0

        def forward(self, x: Any) -> Any:
            if not self.scale:
                self.scale = x.shape[1]
            return x * self.scale

    net = singa.accelerate(Prepared())
    for _ in range(2):
        assert net(torch.ones(2, 3)).tolist() == [[3.0] * 3] * 2
    net._module.scale = 5
    assert net(torch.ones(2, 3)).tolist() == [[5.0] * 3] * 2


# Refusals.


def _hook_of_a_part(torch: Any) -> None:
    net, _ = accelerated.pair(torch, fresh=True)
    net[0].register_forward_hook(lambda *_: None)
    net(accelerated.batch(torch)[0])


def _backward_hook_of_a_part(torch: Any) -> None:
    net, _ = accelerated.pair(torch, fresh=True)
    net[0].register_full_backward_hook(lambda *_: None)
    net(accelerated.batch(torch)[0])


def _elsewhere(torch: Any) -> None:
    net, _ = accelerated.pair(torch, fresh=True)
    net.to("meta")(accelerated.batch(torch)[0])


def _counts(torch: Any) -> None:
    class Counting(torch.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    singa.accelerate(Counting())(torch.ones(2))


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "hook": (_hook_of_a_part, r"0 \(Conv2d\) has a forward hook"),
    "gradients": (_backward_hook_of_a_part, r"0 \(Conv2d\) has a backward hook"),
    "elsewhere": (_elsewhere, "0.weight is on meta"),
    "counts": (_counts, "changes calls"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(torch: ModuleType, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(NotImplementedError, match=message):
        call(torch)
