"""opt.lr_by_depth."""

import numpy as np
import pytest
from singa import autograd, layer, models, opt, tensor
from small_net import Net


def compiled(name, *shape):
    net = models.create(name)
    net.compile([tensor.Tensor(shape)], is_train=False)
    return net


def scales(net, groups):
    """{name: lr_scale} of the first group that matches, as the optimizer takes it."""
    return {
        name: next(group for group in groups if group.matches(name, param)).lr_scale
        for name, param in net.get_params().items()
    }


def test_blocks_of_a_resnet():
    net = compiled("resnet20_cifar", 1, 3, 8, 8)
    found = scales(net, opt.lr_by_depth(net, 0.5))
    # The stem with its norm, nine blocks, the head.
    assert found["fc.W"] == found["fc.b"] == 1
    assert found["conv1.W"] == found["bn1.scale"] == 0.5**10
    assert found["layer1.0.conv2.W"] == found["layer1.0.bn1.bias"] == 0.5**9
    assert found["layer3.2.conv1.W"] == 0.5
    assert len(set(found.values())) == 11


def test_parameters_of_the_model_itself_are_in_the_first_block():
    net = compiled("vit_tiny_cifar", 1, 3, 8, 8)
    found = scales(net, opt.lr_by_depth(net, 0.75))
    assert found["cls_token"] == found["pos_embed"] == found["patch_embed.proj.W"] == 0.75**13
    assert found["blocks.0.norm1.weight"] == 0.75**12
    assert found["norm.weight"] == found["blocks.11.mlp.fc2.W"] == 0.75
    assert found["head.W"] == 1


def test_blocks_by_patterns_and_weight_decay():
    net = compiled("resnet20_cifar", 1, 3, 8, 8)
    blocks = [["conv1.*", "bn1.*"], "layer[12].*", "layer3.*", "*"]
    groups = opt.lr_by_depth(net, 0.1, blocks, no_decay=opt.norm_and_bias)
    assert len(groups) == 8
    for name, param in net.get_params().items():
        (group,) = [each for each in groups if each.matches(name, param)]
        assert group.weight_decay == (None if name.endswith("W") else 0.0)
    found = scales(net, groups)
    assert found["layer2.1.conv1.W"] == pytest.approx(0.01)
    assert found["layer3.0.bn1.scale"] == pytest.approx(0.1)
    assert found["fc.W"] == 1


def test_training_like_torch(torch):
    net, rate = Net(), 0.1
    x = np.random.default_rng(0).standard_normal((4, 3, 4, 4)).astype(np.float32)
    y = np.array([0, 1, 2, 0], np.int32)
    net.compile([tensor.from_numpy(x)])
    theirs = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()),
        torch.nn.Linear(64, 3),
    )
    names = {"0": "conv", "3": "fc"}
    net.load_torch(
        {names[n[0]] + n[1:]: value for n, value in theirs.state_dict().items()},
    )
    net.set_optimizer(opt.SGD(lr=rate, groups=opt.lr_by_depth(net, 0.3)))
    other = torch.optim.SGD(
        [
            {"params": theirs[0].parameters(), "lr": 0.3 * rate},
            {"params": theirs[3].parameters(), "lr": rate},
        ]
    )
    for _ in range(3):
        net(tensor.from_numpy(x), tensor.from_numpy(y))
        other.zero_grad()
        out = theirs(torch.from_numpy(x))
        torch.nn.functional.cross_entropy(out, torch.from_numpy(y.astype(np.int64))).backward()
        other.step()
    np.testing.assert_allclose(net.conv.W.numpy(), theirs[0].weight.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(net.fc.W.numpy(), theirs[3].weight.detach().numpy().T, atol=1e-6)
    autograd.training = False


def test_errors():
    net = Net()
    with pytest.raises(RuntimeError, match=r"\[lr_by_depth\] the model has no parameters yet"):
        opt.lr_by_depth(net, 0.5)
    net.compile([tensor.Tensor((1, 3, 4, 4))])
    for decay in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"\[lr_by_depth\] decay"):
            opt.lr_by_depth(net, decay)
    with pytest.raises(ValueError, match=r"block 'cnov.\*' selects no parameter"):
        opt.lr_by_depth(net, 0.5, ["cnov.*", "fc.*"])
    with pytest.raises(ValueError, match=r"in no block: fc.W, fc.b$"):
        opt.lr_by_depth(net, 0.5, ["conv.*"])
    single = layer.Linear(2)
    single(tensor.Tensor((1, 2)))
    with pytest.raises(ValueError, match=r"Linear has no layers: give blocks"):
        opt.lr_by_depth(single, 0.5)
