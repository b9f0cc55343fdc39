"""Ranks take the same kernels: what a spot check of one rank refuses, all refuse before the next
step."""

from functools import partial

import pytest
import replay_calls
import singa
from rank_training import expect_equal, made, sgd, shards, states
from ranks import in_ranks
from replay_calls import WHERE_LARGE, add_wrong_kernels
from singa import opt, singa_wrap, tensor

pytestmark = [
    pytest.mark.cpu("ranks are processes with memory on the CPU"),
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests"),
]
WORLD, STEPS = 3, 8


def steps(rank, holder, wrong, graph):
    """What is refused after each step, and the states after the last one.

    Images of rank 1 have large numbers from the third step on, for which the wrong kernel of the
    first convolution is wrong: with that of compile() its fourth run, which is checked. In the last
    step those of all ranks have, and nothing is checked.
    """
    if wrong:
        add_wrong_kernels("ConvSpec", WHERE_LARGE)
    net = made(opt.DistOpt(sgd(), holder, rank, WORLD), graph)
    refused = []
    for step in range(STEPS):
        x, y = shards(step, WORLD)[rank]
        last = step == STEPS - 1
        if last or (rank == 1 and step > 1):
            x[0, 0, 0, 0] = 200
        if last:
            singa.set_spot_checks(False)
        net(tensor.from_numpy(x), tensor.from_numpy(y))
        refused.append([(plan.call, plan.plan) for plan in singa_wrap.GetRefusedPlans()])
    return refused, states(net)


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("graph", [False, True], ids=["executed", "recorded"])
def test_what_one_rank_refuses_all_refuse(graph, node, on_nodes) -> None:
    on_nodes(node)
    right = in_ranks(WORLD, partial(steps, wrong=False, graph=graph))
    found = in_ranks(WORLD, partial(steps, wrong=True, graph=graph))
    assert all(not any(refused) for refused, _ in right)
    first, second, third = (refused for refused, _ in found)
    when = next(step for step, plans in enumerate(second) if plans)
    assert len(second[when]) == 1
    assert first[when] == third[when] == []
    assert first[when + 1 :] == second[when + 1 :] == third[when + 1 :]
    assert first[-1] == second[when]
    expect_equal([after for _, after in found], right[0][1])
