"""A small network for tests of other things."""

from singa import autograd, layer, model


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1)
        self.fc = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        return self.fc(autograd.flatten(autograd.relu(self.conv(x))))
