"""What validations say of themselves."""

import re

import numpy as np
import pytest
from fitted_net import Affine, classes, loader
from singa import opt
from singa.training import Trainer


@pytest.mark.parametrize(
    ("decay", "calls", "said"),
    [
        (
            0.99,
            1,
            "after the 6 updates of this run, 94% of the averages of ema=0.99, which are val",
        ),
        (0.99, 2, "after the 3 updates of this run, 97% of .*: for so few a decay of 0.22 or less"),
        (0.4, 1, ""),
        (None, 1, ""),
    ],
)
def test_averages_that_lag_are_named(decay, calls, said, capsys):
    x, y = classes(32)
    net = Affine().start(x)
    net.set_optimizer(opt.SGD(0.1, accumulate=calls))
    batches = loader(x, y[:, None].astype(np.float32), 16, shuffle=False)
    Trainer(net, ema=decay).fit(batches, 3)
    assert "averages" not in capsys.readouterr().out  # nothing is validated
    Trainer(net, ema=decay).fit(batches, 3, batches)
    out = capsys.readouterr().out
    assert re.search(said, out) if said else "averages" not in out
