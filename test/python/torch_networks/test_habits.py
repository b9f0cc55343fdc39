"""What programs of PyTorch do with networks and tensors of singa out of habit: it works, or an
error says what to write."""

import copy
from collections import OrderedDict
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import layer, models, opt, tensor

X = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
Y = np.arange(12) % 3


def own() -> Any:
    net = models.Sequential(layer.Linear(4), layer.ReLU(), layer.Linear(3))
    net.compile([X], is_train=False, use_graph=True)
    return net


def module(torch: ModuleType) -> Any:
    nn = torch.nn
    return nn.Sequential(
        OrderedDict(body=nn.Linear(5, 4), act=nn.ReLU(), fc=nn.Linear(4, 3)),
    )


@pytest.fixture(params=["own", "from_torch"])
def net(request: pytest.FixtureRequest, torch: ModuleType) -> Any:
    made = own() if request.param == "own" else singa.from_torch(module(torch), X)
    made.set_optimizer(opt.SGD(lr=0.1))
    return made


def test_networks_take_tensors_of_pytorch(torch: ModuleType, net: Any) -> None:
    net.eval()
    expected = net(X).numpy()
    np.testing.assert_array_equal(net(torch.from_numpy(X)).numpy(), expected)
    np.testing.assert_array_equal(net(torch.from_numpy(X).T.contiguous().T).numpy(), expected)
    np.testing.assert_array_equal(net.predict(torch.from_numpy(X)), expected)
    np.testing.assert_allclose(net.values(torch.from_numpy(X), [""])[0].numpy(), expected, 1e-5)
    net.train()
    before = {name: value.numpy().copy() for name, value in net.get_states().items()}
    _, loss = net(X, Y)
    net.set_states(before)
    _, same = net(torch.from_numpy(X), torch.from_numpy(Y))
    assert float(same) == float(loss)
    with pytest.raises(RuntimeError, match="requires grad"):
        net(torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y))


def test_loaders_of_pytorch(torch: ModuleType, net: Any) -> None:
    utils = torch.utils.data
    items = utils.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = utils.DataLoader(items, 4)
    net.fit(loader, epochs=2, validation=loader, metrics=["accuracy"], verbose=False)
    np.testing.assert_allclose(net.predict(loader), net.predict(X), rtol=1e-5)
    results = net.evaluate(loader, metrics=["accuracy"], verbose=False)
    right = (net.predict(X).argmax(1) == Y).mean()
    assert results["accuracy"] == pytest.approx(right)
    with pytest.raises(ValueError, match=r"the loader shuffles.*shuffle=False"):
        net.predict(utils.DataLoader(items, 4, shuffle=True))
    assert len(net.fit(items, epochs=1, batch_size=6, verbose=False)) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("torch.relu(x)", r"\[relu\] is PyTorch's, .* tensor of singa: use autograd\.relu"),
        (
            "F.cross_entropy(x, y)",
            r"use autograd\.softmax_cross_entropy.*singa\.accelerate\(module",
        ),
        ("torch.stack([x, x])", r"\[stack\] is PyTorch's.*use torch\.as_tensor\(x\)"),
        ("torch.zeros(12, 5).copy_(x)", r"\[copy_\] is PyTorch's"),
    ],
)
def test_functions_of_pytorch_on_tensors_of_singa(
    torch: ModuleType, call: str, message: str
) -> None:
    names = {"torch": torch, "F": torch.nn.functional, "x": tensor.from_numpy(X)}
    with pytest.raises(TypeError, match=message):
        eval(call, names | {"y": torch.from_numpy(Y)})


def test_conversions_and_operators_are_left_alone(torch: ModuleType) -> None:
    x = tensor.from_numpy(X)
    for convert in (torch.as_tensor, torch.from_dlpack, torch.asarray):
        np.testing.assert_array_equal(convert(x).numpy(), X)
    np.testing.assert_array_equal((torch.ones(5) + x).numpy(), X + 1)
    np.testing.assert_array_equal((x - torch.ones(5)).numpy(), X - 1)


def test_types_of_pytorch(torch: ModuleType) -> None:
    x = tensor.from_numpy(X)
    assert x.to(torch.float64).dtype == tensor.float64
    assert tensor.zeros((2,), dtype=torch.bfloat16).dtype == tensor.bfloat16
    with pytest.raises(TypeError, match=r"torch\.complex64 is none of float32"):
        x.to(torch.complex64)


def test_layers_say_whose_tensor_they_got(torch: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"got torch\.Tensor, which tensor\.from_numpy converts"):
        layer.Linear(3)(torch.from_numpy(X))
    with pytest.raises(TypeError, match=r"got torch\.Tensor, which tensor\.from_numpy converts"):
        singa.from_torch(module(torch), X).forward(torch.from_numpy(X))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("net.fc", AttributeError, r"use get_params\(\)\['fc\.weight'\]"),
        ("net.nonsense", AttributeError, "'TorchModel' object has no attribute 'nonsense'$"),
        ("net.parameters()", AttributeError, r"use get_params\(\)"),
        ("net.values(X, ['fc'])", ValueError, "have the forward of Sequential return what you"),
        ("net.replace_head(5)", ValueError, r"before from_torch: module\.fc = torch\.nn\.Linear"),
        ("net.to_type('float64')", TypeError, r"of its module; .*: module\.double\(\)"),
        ("net(X, X)", ValueError, r"expected 1 input, got 2: call train\(\) first"),
        ("net.set_optimizer('sgd')", TypeError, r"such as opt\.SGD\(lr=0\.1\), got 'sgd'"),
        ("net.compile()", TypeError, r"\[compile\] takes examples of the inputs.*compile\(\[x\]\)"),
    ],
)
def test_networks_of_from_torch(
    torch: ModuleType, call: str, error: type[Exception], message: str
) -> None:
    net = singa.from_torch(module(torch), X)
    with pytest.raises(error, match=message):
        eval(call, {"net": net, "X": X})


def test_an_optimizer_of_pytorch(torch: ModuleType) -> None:
    theirs = torch.optim.SGD(module(torch).parameters(), 0.1)
    with pytest.raises(TypeError, match=r"opt\.SGD\(lr=0\.1\), got torch\.optim\.sgd\.SGD"):
        own().set_optimizer(theirs)


@pytest.mark.parametrize("name", ["fit", "predict", "set_optimizer", "summary", "save"])
def test_accelerated_modules_have_no_methods_of_models(torch: ModuleType, name: str) -> None:
    net = singa.accelerate(module(torch))
    assert not hasattr(net, name)
    with pytest.raises(AttributeError, match=rf"'{name}': use your own loop.*singa\.from_torch"):
        getattr(net, name)


def test_a_module_may_have_such_a_method_itself(torch: ModuleType) -> None:
    class Own(torch.nn.Linear):
        def predict(self, x: Any) -> Any:
            return self(x).argmax(1)

    assert singa.accelerate(Own(5, 3)).predict(torch.from_numpy(X)).shape == (12,)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("from_torch(net)", TypeError, r"takes a module and an example .* torch\.zeros\(1, 3"),
        ("from_torch(net, (1, 5))", TypeError, r"give an example such as torch\.zeros\(1, 5\)"),
        ("from_torch(net, X, input_size=(1, 5))", TypeError, "'input_size': use an example of"),
        ("from_torch(type(net), X)", TypeError, r"got the class Sequential: write Sequential\("),
        ("accelerate(type(net))", TypeError, r"got the class Sequential: write Sequential\("),
        ("from_torch(net, X, device='cuda')", TypeError, r"such as device\.create_cuda_gpu\(\)"),
        ("from_torch(net, X, loss='crossentropy')", ValueError, "use loss='cross_entropy'"),
        ("from_torch(net, X, loss=torch.optim.SGD)", TypeError, r"such as layer\.MSELoss\(\)"),
        ("from_torch(net, X, loss=torch.nn.CTCLoss())", TypeError, "CTCLoss of PyTorch does not"),
        ("accelerate(net)(X)", TypeError, "got numpy.ndarray, which torch.from_numpy converts"),
        ("explain(accelerate(net))", TypeError, r"needs a tensor of PyTorch .* net\(images\)"),
        ("advise(accelerate(net), X)", TypeError, r"Accelerated: singa\.from_torch\(module, x\)"),
    ],
)
def test_how_both_are_called(
    torch: ModuleType, call: str, error: type[Exception], message: str
) -> None:
    names = {"net": module(torch), "X": X, "torch": torch, "accelerate": singa.accelerate}
    with pytest.raises(error, match=message):
        eval(f"singa.{call}", names | {"singa": singa})


LOSSES = {
    "CrossEntropyLoss(label_smoothing=0.1)": "classes",
    "CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]), ignore_index=2)": "classes",
    "CrossEntropyLoss(reduction='sum')": "classes",
    "MSELoss()": "numbers",
    "L1Loss()": "numbers",
    "HuberLoss(delta=0.3)": "numbers",
    "SmoothL1Loss(beta=0.3)": "numbers",
    "BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0]))": "shares",
    "KLDivLoss(reduction='batchmean')": "shares",
    "functional.cross_entropy": "classes",
    "functional.mse_loss": "numbers",
}


@pytest.mark.parametrize("written", LOSSES)
def test_losses_of_pytorch(torch: ModuleType, written: str) -> None:
    """`from_torch`, `fit` and Sequential take singa's in their place."""
    loss = eval(f"torch.nn.{written}", {"torch": torch})
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(3), 12).astype(np.float32)
    y = {"classes": Y, "numbers": shares * 4 - 2, "shares": shares}[LOSSES[written]]
    net = singa.from_torch(module(torch), X, loss=loss)
    scores = torch.from_numpy(net.predict(X))
    expected = loss(scores, torch.from_numpy(y)).item()
    found = net.loss(tensor.from_numpy(scores.numpy()), tensor.from_numpy(y))
    assert float(found) == pytest.approx(expected, rel=1e-5)
    assert isinstance(net.loss, layer.Layer)
    assert type(models.Sequential(layer.Linear(3), loss=loss).loss) is type(net.loss)
    if "sum" not in written:
        result = net.evaluate(X, y, loss=loss, verbose=False)["loss"]
        assert result == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_modules_of_16_bits(torch: ModuleType, name: str) -> None:
    """`module.to(torch.bfloat16)`: batch norms have statistics of that type, too."""
    torch.manual_seed(0)
    nn, kind = torch.nn, getattr(torch, name)
    parts = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
    plain = nn.Sequential(*parts).to(kind)
    x, y = torch.randn(16, 3, 6, 6).to(kind), torch.arange(16) % 4
    net = singa.accelerate(copy.deepcopy(plain))
    own = singa.from_torch(plain, x, loss=nn.CrossEntropyLoss())
    own.set_optimizer(opt.SGD(0.05))
    own.compile([x], use_graph=True)
    optimizers = [torch.optim.SGD(each.parameters(), 0.05) for each in (plain, net)]
    for _ in range(5):
        losses = []
        for each, optimizer in zip((plain, net), optimizers, strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(each(x).float(), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses.append(float(own(x, y)[1]))
        np.testing.assert_allclose(losses[1:], losses[0], rtol=0.02)
    for found in (net.state_dict(), own.state_dict()):
        for key, value in plain.state_dict().items():
            assert found[key].dtype == value.dtype
            if "running" in key:
                np.testing.assert_allclose(found[key].float(), value.float(), 0.02, 1e-3)
    plain.eval()
    net.eval()
    wanted = plain(x).float().detach()
    np.testing.assert_allclose(net(x).float().detach(), wanted, 0.05, 0.05)
    np.testing.assert_allclose(own.predict(x).astype(np.float32), wanted, 0.05, 0.05)
