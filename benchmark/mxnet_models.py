"""ResNet-50 in MXNet 1.9's Gluon, for `step.py --beside mxnet`.

It has the same weights as the network in singa.models and torch_models.py. MXNet's resnet50_v1 has
other strides, and biases before batch norm.
"""

from __future__ import annotations

from mxnet.gluon import nn


def _norm_relu(body: nn.HybridSequential) -> None:
    body.add(nn.BatchNorm(), nn.Activation("relu"))


class Bottleneck(nn.HybridBlock):
    def __init__(self, width: int, stride: int, project: bool) -> None:
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(width, 1, use_bias=False))
            _norm_relu(self.body)
            self.body.add(nn.Conv2D(width, 3, stride, 1, use_bias=False))
            _norm_relu(self.body)
            self.body.add(nn.Conv2D(width * 4, 1, use_bias=False), nn.BatchNorm())
            self.shortcut = nn.HybridSequential() if project else None
            if project:
                self.shortcut.add(nn.Conv2D(width * 4, 1, stride, use_bias=False), nn.BatchNorm())

    def hybrid_forward(self, F, x):
        y = self.body(x)
        return F.Activation(y + (self.shortcut(x) if self.shortcut else x), act_type="relu")


def resnet50(classes: int) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(64, 7, 2, 3, use_bias=False))
    _norm_relu(net)
    net.add(nn.MaxPool2D(3, 2, 1))
    for stage, depth in enumerate((3, 4, 6, 3)):
        for i in range(depth):
            net.add(Bottleneck(64 << stage, 2 if stage and i == 0 else 1, project=i == 0))
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(classes))
    return net


BUILDERS = {"resnet50": resnet50}
