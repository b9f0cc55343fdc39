"""A rule of singa.opt is a formula; `UpdateRule` executes, records and saves it."""

import re

import pytest
from bits import bits
from recorded import graphs
from singa import opt, singa_wrap
from singa.opt.hyperparameter import hyperparameter
from singa.opt.update_rule import UpdateRule
from small_net import trained


class HeavyBall(UpdateRule):
    """v = beta · v + g;  p -= lr · v: SGD with momentum, written as a new rule would be."""

    __module__ = "singa.opt.heavy_ball"  # rules of other packages are not recorded
    slots = ("velocity",)
    structural = ("weight_decay", "beta")
    beta = hyperparameter(below=1.0)

    def __init__(self, lr, beta=0.9, weight_decay=0.0, **kwargs):
        super().__init__(lr, **kwargs)
        self.beta = beta
        self.weight_decay = weight_decay

    def raw_update(self, lists, lr, step, behind, *recorded):
        beta = self.now("beta", step)
        singa_wrap.SgdUpdate(*lists, lr, beta, 0.0, False, False, *recorded)


def settings(scaled):
    return {
        "weight_decay": 1e-3,
        "groups": [opt.ParamGroup(opt.norm_and_bias, 0.0), opt.ParamGroup("fc*", lr_scale=0.5)],
        "clip_norm": 0.5,
        "scaler": opt.GradScaler(2.0**8, growth_interval=3) if scaled else None,
    }


def recorded_updates(net):
    return sum(
        len(re.findall(r"^  \d+ \w+Update ", g.ToString(), re.MULTILINE)) for g in graphs(net)
    )


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("use_graph", [False, True])
def test_a_new_rule_needs_its_formula_alone(use_graph, scaled):
    lr = opt.WarmUp(opt.CosineDecay(0.1, 8), 3)
    known = trained(opt.SGD(lr, momentum=0.9, **settings(scaled)), False)
    new = trained(HeavyBall(lr, **settings(scaled)), use_graph)
    assert bits(new.get_params()) == bits(known.get_params())
    states, expected = new.optimizer.get_states(), known.optimizer.get_states()
    assert bits(states["velocity"]) == bits(expected["moments"])
    assert states["step_counter"] == expected["step_counter"] == (7 if scaled else 8)
    # One call for each weight decay and each factor of the learning rate: biases, fc.W, conv.W.
    assert not use_graph or recorded_updates(new) == 3


def test_a_new_rule_is_saved_and_restored():
    first = trained(HeavyBall(0.1), False, steps=4)
    copy = HeavyBall(0.1)
    copy.set_states(first.optimizer.get_states())
    assert copy.steps == 4
    assert bits(copy.velocity) == bits(first.optimizer.velocity)
    with pytest.raises(ValueError, match="another optimizer's"):
        copy.set_states({"step_counter": 1, "moments": {}})


def test_a_rule_of_another_package_is_left_to_the_host():
    class Elsewhere(HeavyBall):
        __module__ = "my_rules"

    net = trained(Elsewhere(0.1), True)
    assert bits(net.get_params()) == bits(trained(opt.SGD(0.1, 0.9), False).get_params())
    assert recorded_updates(net) == 0
