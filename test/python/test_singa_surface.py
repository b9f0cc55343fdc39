"""The interface that scripts for Apache SINGA 5 use: names, arguments, defaults, conventions."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import singa as package
import singa_surface as names
from singa import (
    autograd,
    data,
    device,
    image_tool,
    initializer,
    layer,
    model,
    models,
    opt,
    sonnx,
    tensor,
    utils,
)
from singa import singa_wrap as singa

pytestmark = pytest.mark.usefixtures("training")


def _functions(where: Any, text: str) -> Iterator[tuple[Any, str, str]]:
    for name, arguments in re.findall(r"(\w+)\(((?:[^()]|\([^()]*\))*)\)", text):
        yield where, "__init__" if name == "init" else name, " ".join(arguments.split())


def _classes(module: Any, text: str) -> Iterator[tuple[str, str, str]]:
    """(class, base, methods) of each line that begins with a class."""
    yield from re.findall(r"^(\w+)\((\w*)\): (.*(?:\n    .*)*)", text, re.MULTILINE)


CLASSES = [
    (getattr(module, name), base, methods)
    for module, text in [
        (layer, names.LAYER), (model, names.MODEL), (opt, names.OPT), (data, names.DATA)
    ]
    for name, base, methods in _classes(module, text)
]  # fmt: skip
SURFACE = [
    entry
    for where, text in [
        (autograd, names.AUTOGRAD), (device, names.DEVICE), (tensor, names.TENSOR),
        (tensor.Tensor, names.METHODS), (initializer, names.INITIALIZER), (utils, names.UTILS),
        (image_tool, names.IMAGE_TOOL), (image_tool.ImageTool, names.IMAGE_TOOL_METHODS),
        *((kind, methods) for kind, _, methods in CLASSES),
    ]
    for entry in _functions(where, text)
]  # fmt: skip


def _parameters(arguments: str) -> list[inspect.Parameter]:
    """The parameters of a signature given as text."""
    function = eval(f"lambda {arguments}: None", {"float32": tensor.float32})
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize(
    ("where", "name", "arguments"), SURFACE, ids=[f"{w.__name__}.{n}" for w, n, _ in SURFACE]
)
def test_names_arguments_and_defaults(where: Any, name: str, arguments: str) -> None:
    function = getattr(where, name)
    ours = dict(inspect.signature(function).parameters)
    ours.pop("self", None)
    # A function of two of SINGA's modules takes the names of both.
    same = getattr(function, "also_named", {})
    wanted = [
        p.replace(name=same[p.name]) if same.get(p.name) in ours else p
        for p in _parameters(arguments)
    ]
    several = any(p.kind is p.VAR_POSITIONAL for p in ours.values())
    places = [p.name for p in ours.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    for place, p in enumerate(wanted):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            assert p.kind is p.VAR_KEYWORD or several  # arguments taken by **kwargs are named
            continue
        if p.name not in ours:
            assert p.default is p.empty  # passed by position only
            assert several
            continue
        own = ours.pop(p.name)
        assert own.kind is p.kind
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            assert places[place] == p.name
        if p.default is not p.empty:
            assert own.default == p.default or (own.default, p.default) == ((), [])
            assert type(own.default) is type(p.default) or p.default == []
    for own in ours.values():  # singa's additional arguments are optional
        assert own.default is not own.empty or own.kind in (own.VAR_POSITIONAL, own.VAR_KEYWORD)


def test_the_lists_were_read() -> None:
    assert len(SURFACE) > 430
    assert len(CLASSES) == 41


@pytest.mark.parametrize(
    ("kind", "base", "methods"), CLASSES, ids=[c.__name__ for c, *_ in CLASSES]
)
def test_base_classes(kind: type, base: str, methods: str) -> None:
    assert not base or base in [parent.__name__ for parent in kind.__mro__[1:]]


def test_other_names() -> None:
    assert autograd.Operation is autograd.Operator
    assert tensor.PlaceHolder is tensor.Tensor


def test_what_has_a_call_can_be_called() -> None:
    """`optimizer(loss)` and `schedule(step)` call `call`."""
    assert opt.ExponentialDecay(0.5, 1, 0.5).call(tensor.ones((1,))).numpy().tolist() == [0.25]
    assert opt.ExponentialDecay(0.5, 1, 0.5)(tensor.ones((1,))).numpy().tolist() == [0.25]
    assert callable(opt.SGD())


def test_names_on_raw_tensors() -> None:
    x = tensor.ones((1, 2, 4, 4)).data
    cpu = device.get_default_device()
    recorder = singa.SetupRecorder(x, [3, 3], [1, 1], [1, 1], 2, 3, True)
    conv = singa.ConvHandle(x, [3, 3], [1, 1], [1, 1], 2, 3)
    pooling = singa.PoolingHandle(x, [3, 3], [1, 1], [1, 1])
    for holder, text in [
        (singa, names.WRAP), (x, names.WRAP_TENSOR), (cpu, names.WRAP_DEVICE),
        (singa.Platform, names.WRAP_PLATFORM), (recorder, names.RECORDER),
        (conv, names.WRAP_CONV_HANDLE), (pooling, names.WRAP_POOLING_HANDLE),
    ]:  # fmt: skip
        assert [name for name in text.split() if not hasattr(holder, name)] == []
    assert singa.Platform.GetDefaultDevice().id() == cpu.host().id() == cpu.id()
    cpu.Reset()
    assert not cpu.graph_enabled()


def test_what_needs_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in a process without CUDA backend."""
    monkeypatch.setenv("SINGA_CUDA_LIBRARY", "/nowhere")
    subprocess.run([sys.executable, "-c", _WITHOUT_GPU], check=True)


_WITHOUT_GPU = """
import pytest
from singa import device, singa_wrap as singa, tensor


def check() -> None:
    x = tensor.ones((2, 3, 4))
    calls = [
        lambda: singa.CudnnRNNHandle(x.data, 8, 2),
        lambda: singa.GpuRNNForwardTraining(x.data, x.data, x.data, x.data, None),
        lambda: singa.GpuRNNBackwardWEx(x.data, x.data, x.data, x.data, None),
        lambda: singa.CudnnConvHandle(x.data, [3, 3], [1, 1], [0, 0], 1, 1),
        lambda: singa.Platform.CreateCudaGPUs(1),
        lambda: device.get_gpu_mem_size(0),
        lambda: device.device_query(0, True),
        lambda: device.create_cuda_gpu(),
        lambda: device.create_cuda_gpus(1),
        lambda: device.create_cuda_gpu_on(0),
        lambda: device.create_cuda_gpus_on([0]),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"no GPU can be used: |CUDA backend"):
            call()
    assert (device.get_num_gpus(), len(device.get_gpu_ids()), singa.USE_CUDA) == (0, 0, False)


check()
"""


def test_our_own_surface() -> None:
    """What the interface promises beyond SINGA's names, section by section."""
    for holder, text in [
        (
            package,
            "__version__ doctor set_num_threads get_num_threads seed plan_cache device_memory",
        ),
        (package, "layout_report opcheck tuning explain profile"),
        (package.plan_cache, "stats set_limit clear"),
        (autograd, "no_grad gradcheck autocast"),
        (models, "names create"),
        (models.create("lenet"), "load_torch set_optimizer compile eval summary memory_plan"),
        (models.create("lenet"), "save_states load_states"),
        (tensor, "from_dlpack"),
        (tensor.ones((1,)), "detach to_blocked to_plain is_blocked numpy __dlpack__ __array__"),
        (layer, "ToBlocked ToPlain"),
        (package.onnx, "load save"),
        (sonnx, "prepare SONNXModel to_onnx run_node get_op save load SingaBackend SingaRep"),
        (sonnx, "SingaFrontend OnnxNode"),
    ]:
        assert [name for name in text.split() if not hasattr(holder, name)] == []
    wanted = (
        "alexnet googlenet vgg16 vgg19 inception_bn inception_v3 inception_v4 resnet50 resnet152 "
    )
    wanted += "resnet20_cifar resnet18_cifar resnet50_cifar vgg16_cifar lenet"
    assert set(wanted.split()) <= set(models.names())
    assert {"bytes", "entries"} <= set(inspect.signature(package.plan_cache.set_limit).parameters)
    assert {"every", "ops", "action"} <= set(inspect.signature(package.opcheck).parameters)


def _of(values: Any) -> tensor.Tensor:
    return tensor.from_numpy(np.asarray(values, np.float32))


def test_losses_are_read_by_their_first_element_and_need_no_dy() -> None:
    x = _of([[4.3, 5.4], [3.3, 3.6], [5.7, 6.0]])
    t = tensor.from_numpy(np.array([[4.4, 5.3], [3.2, 3.7], [5.4, 6.3]]))
    loss = autograd.mse_loss(x, t)
    assert tensor.to_numpy(loss)[0] == pytest.approx(0.22 / 6, rel=1e-5)
    dx = loss.creator.backward()
    assert dx.shape() == (3, 2)
    truth = (x.numpy() - t.numpy()) / 3
    np.testing.assert_allclose(autograd.ctensor2numpy(dx), truth, rtol=1e-5)


def test_raw_gradients_come_in_the_order_of_the_inputs() -> None:
    cpu = device.create_cpu_device()
    x = tensor.Tensor(shape=(2, 3, 3, 3), device=cpu)
    x.gaussian(0.0, 1.0)
    W = tensor.Tensor(shape=(1, 3, 2, 2), device=cpu)
    W.gaussian(0.0, 1.0)
    b = tensor.Tensor(shape=(1,), device=cpu)
    dy = tensor.Tensor(shape=(2, 1, 2, 2), device=cpu)
    dy.gaussian(0.0, 1.0)
    handle = singa.ConvHandle(x.data, [2, 2], [1, 1], [0, 0], 3, 1, True, 1)
    y = autograd.conv2d(handle, x, W, b)
    assert y.shape == (2, 1, 2, 2)
    dx, dW, db = y.creator.backward(dy.data)
    assert (dx.shape(), dW.shape(), db.shape()) == ((2, 3, 3, 3), (1, 3, 2, 2), (1,))
    dx, dW = autograd.conv2d(handle, x, W).creator.backward(dy.data)
    assert (dx.shape(), dW.shape()) == ((2, 3, 3, 3), (1, 3, 2, 2))


def test_operators_over_lists_and_pieces() -> None:
    a, b = _of([[1.0, 5.0]]), _of([[3.0, 2.0]])
    for function, values, first in [
        (autograd.sum, [[4, 7]], [[1, 1]]),
        (autograd.mean, [[2, 3.5]], [[0.5, 0.5]]),
        (autograd.max, [[3, 5]], [[0, 1]]),
        (autograd.min, [[1, 2]], [[1, 0]]),
    ]:
        y = function(a, b)
        np.testing.assert_array_equal(tensor.to_numpy(y), values)
        da, _ = y.creator.backward(_of([[1.0, 1.0]]).data)
        np.testing.assert_array_equal(tensor.to_numpy(tensor.from_raw_tensor(da)), first)
    x = _of(np.arange(12.0).reshape(2, 6))
    pieces = autograd.split(x, 1, (2, 1, 3))
    dx = pieces[0].creator.backward(*[p.data for p in pieces])
    np.testing.assert_array_equal(autograd.ctensor2numpy(dx), x.numpy())


def test_onehot_takes_arrays() -> None:
    indices = tensor.from_numpy(np.array([[1, 9], [2, 4]], np.float32))
    values = np.array([1, 3], np.float32)
    result = autograd.onehot(1, indices, np.array([10], np.float32), values)
    truth = (np.arange(10)[None, :, None] == indices.numpy()[:, None, :]) * 2.0 + 1.0
    np.testing.assert_array_equal(tensor.to_numpy(result), truth)


def test_embedding_gives_the_indices_zeros() -> None:
    x = tensor.Tensor(data=np.array([[0, 1, 2, 3], [9, 8, 7, 6]]))
    w = tensor.Tensor((10, 3), stores_grad=True)
    w.gaussian(0.0, 1.0)
    y = autograd.embedding(x, w)
    dx, dW = y.creator.backward(tensor.ones((2, 4, 3)).data)
    assert dx.shape() == (2, 4)
    assert not autograd.ctensor2numpy(dx).any()
    assert autograd.ctensor2numpy(dW).sum(1).tolist() == [3, 3, 3, 3, 0, 0, 3, 3, 3, 3]


def test_numerical_gradients_as_singas_scripts_take_them() -> None:
    """Parameters are changed in place, by tensors, while the tape records."""
    x, t = _of(np.random.default_rng(0).standard_normal((4, 3))), _of(np.eye(4)[:, :2])
    w = tensor.Tensor((3, 2), stores_grad=True)
    w.gaussian(0.0, 1.0)

    def loss() -> tensor.Tensor:
        return autograd.mse_loss(autograd.sigmoid(autograd.matmul(x, w)), t)

    grads = autograd.gradients(loss())
    h = 1e-2
    for i in range(3):
        step = np.zeros((3, 2), np.float32)
        step[i, 1] = h
        change = tensor.from_numpy(step)
        w += change
        above = tensor.to_numpy(loss())[0]
        w -= change
        w -= change
        below = tensor.to_numpy(loss())[0]
        w += change
        numeric = (above - below) / (2 * h)
        assert numeric == pytest.approx(tensor.to_numpy(grads[id(w)])[i, 1], abs=1e-4)


def test_a_training_loop() -> None:
    """A network with two layers learns whether points lie above a line."""
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (256, 2)).astype(np.float32)
    labels = (points[:, 1] > 0.5 * points[:, 0]).astype(np.int32)
    inputs, targets = tensor.from_numpy(points), tensor.from_numpy(np.eye(2)[labels])
    parameters = []
    for shape in [(2, 8), (8,), (8, 2), (2,)]:
        p = tensor.Tensor(shape=shape, requires_grad=True, stores_grad=True)
        if len(shape) == 2:
            p.copy_from_numpy(random.standard_normal(shape).astype(np.float32) * 0.5)
        parameters.append(p)
    w0, b0, w1, b1 = parameters
    losses = []
    for _ in range(200):
        h = autograd.relu(autograd.add_bias(autograd.matmul(inputs, w0), b0))
        x = autograd.add_bias(autograd.matmul(h, w1), b1)
        loss = autograd.softmax_cross_entropy(x, targets)
        losses.append(tensor.to_numpy(loss)[0])
        for p, gp in autograd.backward(loss):
            gp.to_type(tensor.float32)
            p -= 0.5 * gp
    assert losses[-1] < 0.2 * losses[0]
    assert (tensor.to_numpy(x).argmax(1) == labels).mean() > 0.95
