"""Networks as bits: their states, and what training makes of them, executed and recorded."""

import numpy as np
import singa
from singa import opt, tensor


def bits(of):
    """Tensors by name, or the states of a network."""
    tensors = of if isinstance(of, dict) else of.get_states()
    return {name: t.numpy().tobytes() for name, t in tensors.items()}


def everything(net):
    """The states of a network and of its optimizer."""
    found = bits(net)
    for slot, values in net.optimizer.get_states().items():
        if isinstance(values, dict):
            found |= {f"{slot}/{name}": _plain(value) for name, value in values.items()}
        else:
            found[slot] = values
    return found


def _plain(value):
    return value if isinstance(value, int) else value.numpy().tobytes()


def trained(
    make, batches, use_graph=False, optimizer=lambda: opt.SGD(0.05, momentum=0.9), **options
):
    """Losses of a step on each batch, two arrays, and the states after them. `options` are
    compile()'s."""
    singa.seed(3)
    net = make()
    net.set_optimizer(optimizer())
    net.compile([tensor.from_numpy(batches[0][0])], is_train=True, use_graph=use_graph, **options)
    losses = [net(*map(tensor.from_numpy, batch))[1].item() for batch in batches]
    assert not use_graph or len(net.memory_plan()["graphs"]) == 1
    return losses, bits(net)


def check_replays(make, batches, *ways, **options):
    """Recorded steps, compiled in each of these ways, have the bits of executed ones. Returns the
    losses."""
    executed = trained(make, batches, **options)
    assert np.isfinite(executed[0]).all()
    for way in ways or ({},):
        assert trained(make, batches, True, **options, **way) == executed, way
    return executed[0]
