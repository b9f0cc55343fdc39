"""Names of parameter groups are checked against the models that an optimizer was set on."""

import pytest
from singa import layer, models, opt, tensor

pytestmark = pytest.mark.usefixtures("training")


def trained(groups, *others):
    net = models.Sequential(layer.Linear(2), *others, loss=layer.MSELoss())
    net.set_optimizer(opt.SGD(lr=0.1, groups=groups))
    net.compile([tensor.ones((1, 3))])
    net(tensor.ones((1, 3)), tensor.zeros((1, 2)))
    return net


@pytest.mark.parametrize("names", ["hed.*", ["0.W", "hed.*"], ("hed.*",)])
def test_a_name_of_no_parameter_is_refused(names):
    with pytest.raises(ValueError, match=r"\[SGD\] a ParamGroup names 'hed\.\*'.*0\.W, 0\.b"):
        trained([opt.ParamGroup(names, lr_scale=0.5)])


def test_names_of_frozen_parameters_and_predicates_are_taken():
    net = trained([opt.ParamGroup(["0.W", "*.b"], 0.0), opt.ParamGroup(lambda name, param: False)])
    net.freeze("0.b")
    net.optimizer.groups = [opt.ParamGroup("0.b", lr_scale=0.0)]
    net(tensor.ones((1, 3)), tensor.zeros((1, 2)))
    net.optimizer.groups = [opt.ParamGroup("0.c", lr_scale=0.0)]
    with pytest.raises(ValueError, match=r"names '0\.c'"):
        net(tensor.ones((1, 3)), tensor.zeros((1, 2)))


def test_a_layer_without_parameters_yet_may_have_any_name():
    class Late(layer.Sequential):
        def forward(self, x):
            return x

    trained([opt.ParamGroup("1.0.W", lr_scale=0.5)], Late(layer.Linear(3)))
