"""Networks that PyTorch's two exporters write, and their training beside PyTorch's."""

import contextlib
import importlib.util
import logging
import warnings

import numpy as np
import pytest
import singa.onnx
from singa import autograd, opt, tensor


@contextlib.contextmanager
def quiet():
    """The exporters warn of their own future."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def draw_statistics(torch, module):
    """Statistics of batch norms that are not 0 and 1."""
    with torch.no_grad():
        for key, buffer in module.named_buffers():
            if key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif key.endswith("running_mean"):
                buffer.normal_(0, 0.1)


def exported(torch, module, x, how, path):
    """The path of a file for any batch, by the exporter "dynamo" or "script"."""
    with quiet():
        if how == "dynamo":
            if importlib.util.find_spec("onnxscript") is None:
                pytest.skip("PyTorch's newer exporter needs onnxscript")
            shapes = ({0: torch.export.Dim.DYNAMIC},)
            torch.onnx.export(module, (x,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
            return path
        options = {"dynamo": False, "input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
        if module.training:
            training = torch.onnx.TrainingMode.TRAINING
            options |= {"training": training, "do_constant_folding": False}
        torch.onnx.export(module, (x,), str(path), **options)
    return path


def check_losses(torch, module, path, x, labels, steps, lr):
    """Losses of SGD with momentum in float64, with live batch norm, are PyTorch's, and replayed
    steps give the bits of executed ones. Scores are means over the axes behind the classes. Returns
    the losses."""

    def loss_of(out, y):
        axes = list(range(2, len(out.shape)))
        return autograd.softmax_cross_entropy(
            autograd.reduce_mean(out, axes, 0) if axes else out, y
        )

    def run(graph):
        net = singa.onnx.load(path)
        net.loss = loss_of
        net.set_optimizer(opt.SGD(lr=lr, momentum=0.9))
        given = tensor.from_numpy(x, dtype=x.dtype.name)
        y = tensor.from_numpy(labels.astype(np.int32))
        net.compile([given], is_train=True, use_graph=graph)
        losses = [net(given, y)[1].item() for _ in range(steps)]
        assert not graph or net._graphs().reasons() == []
        return losses

    executed = run(False)
    assert executed == run(True)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    for found in executed:
        optimizer.zero_grad()
        out = module(torch.tensor(x))
        scores = out.mean(list(range(2, out.ndim))) if out.ndim > 2 else out
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(labels))
        loss.backward()
        optimizer.step()
        assert abs(found - loss.item()) <= 2e-11
    return executed
