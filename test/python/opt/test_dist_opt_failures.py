"""What the ranks of a DistOpt report when one of them fails, and wrong arguments."""

import inspect
import os
import re
import signal
import time
from functools import partial

import numpy as np
import pytest
from rank_training import FAULTS, Net, check_fault, killed, made, sgd, shards
from ranks import Job, in_ranks, succeed
from singa import distributed, opt, singa_wrap, tensor
from singa.opt.hyperparameter import settings_of
from updates import RULES

pytestmark = [
    pytest.mark.cpu("ranks are processes with memory on the CPU"),
    pytest.mark.usefixtures("one_thread"),
]


def run_and_fail(rank, holder, fault, graph):
    net = made(opt.DistOpt(sgd(), holder, rank, 3), graph)
    for step in range(8):
        x, y = (tensor.from_numpy(v) for v in shards(step, 3)[rank])
        if step == 5 and rank == 1:
            fault(net)
        net(x, y)
    return "nothing was raised"


def other_momentum(net):
    net.optimizer.momentum = 0.5


def limited(net):
    net.optimizer.clip_norm = 1.0


EVERY_FAULT = FAULTS | {
    other_momentum: r"ranks 0 and 2: momentum 0.9; rank 1: momentum 0.5$",
    limited: r"ranks 0 and 2: clip_norm None; rank 1: clip_norm 1.0$",
}


@pytest.mark.parametrize("node", [0, 1, 2])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("fault", EVERY_FAULT, ids=lambda fault: fault.__name__)
def test_a_fault_in_one_rank_is_one_error_in_all(fault, graph, node, on_nodes):
    on_nodes(node)
    results = in_ranks(3, partial(run_and_fail, fault=fault, graph=graph))
    one_text = fault is not killed or node != 1  # rank 1 is between the others
    check_fault(results, fault, EVERY_FAULT[fault], one_text)


@pytest.mark.parametrize("node", [1, 2])
def test_all_nodes_name_the_rank_that_is_stopped(node, monkeypatch, on_nodes):
    """Each rank of a job of its own."""
    on_nodes(node)
    monkeypatch.setenv("SINGA_TIMEOUT", "2")

    def body(rank, holder, stopped):
        communicator = singa_wrap.Communicator(rank, 4, holder, 0)
        distributed.use(communicator)
        values = tensor.from_numpy(np.ones(300000, np.float32)).data
        communicator.all_reduce([values])
        pids = distributed.gather(os.getpid())
        if rank == stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        before = time.monotonic()
        with pytest.raises(RuntimeError) as raised:
            communicator.all_reduce([values])
        waited = time.monotonic() - before
        if rank == (stopped + 1) % 4:
            time.sleep(1)  # the others report, too
            os.kill(pids[stopped], signal.SIGCONT)
        return str(raised.value), waited

    jobs = [Job(4, partial(body, stopped=stopped)) for stopped in range(4)]
    for stopped, job in enumerate(jobs):
        for rank, (text, waited) in enumerate(job.results()):
            named = rf"\[distributed\] rank {stopped} \(process \d+\) is stopped"
            assert re.match(named, text), text
            assert rank == stopped or 1 < waited < 5


@pytest.mark.parametrize("node", [0, 1])
def test_a_stopped_rank_is_named_at_the_deadline(monkeypatch, node, on_nodes):
    on_nodes(node)
    monkeypatch.setenv("SINGA_TIMEOUT", "2")

    def body(rank, holder):
        communicator = singa_wrap.Communicator(rank, 2, holder, 0)
        communicator.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
            communicator.barrier()
        with pytest.raises(RuntimeError) as raised:
            communicator.barrier()
        stopped = re.search(r"rank 1 \(process (\d+)\) is stopped", text := str(raised.value))
        os.kill(int(stopped[1]), signal.SIGCONT)
        return text

    one, other = in_ranks(2, body)
    assert "it gave no sign of life for" in one
    assert one.endswith("in barrier 2")
    assert other == one


#: An argument of each kind, and what the ranks report where only rank 1 has it.
OTHER_ARGUMENTS = [
    (opt.SGD, {"lr": 0.2}, "update 0, call 0, learning rate 0.2"),
    (opt.SGD, {"weight_decay": 0.1}, "weight_decay 0.1"),
    (opt.SGD, {"momentum": 0.9, "nesterov": True}, "momentum 0.9"),
    (opt.SGD, {"momentum": opt.StepDecay(0.9, 5)}, "momentum 0.9"),
    (opt.SGD, {"norm_type": 1.0}, "norm_type 1.0"),
    (opt.SGD, {"clip_value": 2.0}, "clip_value 2.0"),
    (opt.SGD, {"groups": [opt.ParamGroup(["*.b"])]}, "weight_decay None, lr_scale 1.0: classify.b"),
    (opt.Adam, {"beta_1": 0.5}, "beta_1 0.5"),
    (opt.Adam, {"epsilon": 1e-3}, "epsilon 0.001"),
    (opt.Adam, {"amsgrad": True}, "amsgrad True"),
    (opt.RMSProp, {"centered": True}, "centered True"),
]


@pytest.mark.parametrize(("kind", "arguments", "text"), OTHER_ARGUMENTS)
def test_ranks_with_other_hyperparameters_are_told_before_an_update(kind, arguments, text):
    def body(rank, holder):
        inner = kind(**({"lr": 0.1} | arguments if rank else {"lr": 0.1}))
        net = made(opt.DistOpt(inner, holder, rank, 2))
        before = net.classify.W.numpy().copy()
        x, y = (tensor.from_numpy(v) for v in shards(0, 2)[rank])
        with pytest.raises(RuntimeError, match="the ranks disagree") as raised:
            net(x, y)
        np.testing.assert_array_equal(net.classify.W.numpy(), before)
        return str(raised.value)

    for found in succeed(in_ranks(2, body)):
        assert re.search(f"; rank 1: {re.escape(text)}$", found), found


#: Arguments of which ranks hear in another way, or that change nothing.
NOT_SETTINGS = {"lr", "groups", "accumulate", "dtype"}
VALUES = {
    "nesterov": True,
    "centered": True,
    "amsgrad": True,
    "scaler": opt.GradScaler(growth_interval=3),
}


@pytest.mark.parametrize("kind", RULES)
def test_every_argument_is_a_setting(kind):
    names = {*inspect.signature(kind).parameters, *inspect.signature(opt.Optimizer).parameters}
    for name in names - NOT_SETTINGS - {"kwargs"}:
        given = {"momentum": 0.5} if name == "nesterov" else {}
        plain = settings_of(kind(**given))
        assert settings_of(kind(**given, **{name: VALUES.get(name, 0.25)})) != plain, name


def test_wrong_arguments():
    holder = singa_wrap.NcclIdHolder()
    with pytest.raises(ValueError, match="rank must be from 0 to 1, got 2"):
        opt.DistOpt(sgd(), holder, 2, 2)
    with pytest.raises(TypeError, match="nccl_id must be an NcclIdHolder"):
        opt.DistOpt(sgd(), "id", 0, 2)
    with pytest.raises(TypeError, match="opt must be an Optimizer"):
        opt.DistOpt("sgd")
    with pytest.raises(ValueError, match="accumulate=3"):
        opt.DistOpt(sgd(accumulate=2), virtual_ranks=3)
    with pytest.raises(AttributeError, match="follows from virtual_ranks"):
        opt.DistOpt(sgd()).accumulate = 2
    with pytest.raises(AttributeError, match="nothing"):
        opt.DistOpt(sgd()).nothing  # noqa: B018
    net = Net()
    net.set_optimizer(opt.DistOpt(sgd(), virtual_ranks=2))
    with pytest.raises(RuntimeError, match=r"call compile\(\) first"):
        net(*(tensor.from_numpy(v) for v in shards(0, 1)[0]))
