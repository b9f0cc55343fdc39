"""Errors of calls that do not fit name the function, and what it takes or what to write."""

import importlib
import inspect

import numpy as np
import pytest
import singa
from singa import autograd, data, layer, metric, model, models, opt, tensor, training
from singa.raw import calls

X, Y = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
#: What users construct, by the modules that have it.
CLASSES = [
    value
    for module in (data, layer, metric, model, models, opt, training, singa)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type)
    and value is not layer.Identity  # which takes any arguments
    and not issubclass(value, BaseException)
    and inspect.isfunction(value.__init__)
    and not getattr(value, "_is_protocol", False)
]


def net():
    made = models.Sequential(layer.Linear(2))
    made.set_optimizer(opt.SGD(lr=0.1))
    return made


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_constructors_name_an_argument_that_they_do_not_have(kind):
    for count in range(4):  # those that it must have
        with pytest.raises(TypeError) as caught:
            kind(*[1] * count, no_such_argument=1)
        if "] lacks " not in str(caught.value):
            break
    assert str(caught.value).startswith(f"[{kind.__name__}] has no argument 'no_such_argument'; it")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: net().fit(X, Y, 10),
            "[fit] takes 2 arguments without a name, x and y; got 3. With a name it takes epochs, "
            "batch_size, validation, shuffle, seed, resume, overwrite",
        ),
        (
            lambda: net().predict(X, 32),
            "[predict] takes 1 argument without a name, x; got 2. With a name it takes batch_size",
        ),
        (
            lambda: net().predict(X, foo=0),
            "[predict] has no argument 'foo'; it has x, batch_size",
        ),
        (lambda: net().evaluate(X, Y, bs=2), "[evaluate] has no argument 'bs': use batch_size"),
        (lambda: net().save("a", "b"), "[save] takes 1 argument without a name, path; got 2"),
        (
            lambda: models.create("lenet", foo=1),
            "[models.create('lenet')] has no argument 'foo'; it has num_classes, label_smoothing",
        ),
        (
            lambda: models.create("resnet18", depths=1),
            "[models.create('resnet18')] has no argument 'depths'; it has num_classes, cifar, "
            "group, group_width, label_smoothing",
        ),
        (
            lambda: opt.StepDecay(0.1, 2, 0.5, 7),
            "[StepDecay] takes 3 arguments without a name, init_value and step_size and rate; "
            "got 4",
        ),
        (
            lambda: data.ArrayDataset(X, Y, batch_size=3),
            "[ArrayDataset] has no argument 'batch_size'; it has none with a name",
        ),
        (lambda: singa.load("a", foo=1), "[load] has no argument 'foo'; it has path, device"),
        (
            lambda: layer.Dropout(0.5, True, 3),
            "[Dropout] takes 1 argument without a name, ratio; got 3",
        ),
    ],
)
def test_calls_say_what_the_function_takes(call, message):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_constructors_take_no_text_for_a_truth(kind):
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if parameter.annotation in ("bool", "bool | None"):
            with pytest.raises(TypeError) as caught:
                kind(**{name: "no"})
            wanted = "True or False" + " or None" * ("None" in parameter.annotation)
            said = f"[{kind.__name__}] {name} must be {wanted}, got 'no'"
            assert str(caught.value) == said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: data.DataLoader((X, Y), 2, "no"), "[DataLoader] shuffle"),
        (lambda: data.DataLoader((X, Y), 2, drop_last=None), "[DataLoader] drop_last"),
        (lambda: layer.Linear(3, 2, "no"), "[Linear] bias"),
        (lambda: layer.Conv2d(3, 4, 3, 1, 0, 1, 1, 0.5), "[Conv2d] bias"),
        (lambda: net().fit(X, Y, shuffle=2), "[fit] shuffle"),
        (lambda: net().fit(X, Y, verbose="no"), "[Trainer] verbose"),
        (lambda: net().compile([tensor.from_numpy(X)], use_graph="no"), "[compile] use_graph"),
        (lambda: net().train("no"), "[train] mode"),
        (lambda: net().graph("no"), "[graph] mode"),
        (lambda: training.Trainer(net()).fit([], 1, resume="no"), "[Trainer.fit] resume"),
    ],
)
def test_what_is_neither_true_nor_false_is_refused(call, said):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(f"{said} must be True or False, got ")


def test_numbers_and_numpys_are_true_or_false():
    images = np.ones((4, 1, 2, 2), np.float32)
    loader = data.DataLoader((images, Y), 2, shuffle=np.True_, drop_last=0)
    assert loader.shuffle is True
    assert loader.drop_last is False
    assert not layer.Linear(2, bias=0).bias


def test_options_of_fit_are_its_own_and_those_of_a_trainer():
    with pytest.raises(TypeError) as caught:
        net().fit(X, Y, foo=1)
    said = str(caught.value)
    assert said.startswith("[fit] has no argument 'foo'; it has x, y, epochs, batch_size,")
    assert ", metrics, loss, " in said


def test_errors_of_what_a_function_calls_are_left_alone():
    @calls.says_what_to_write("outer")
    def outer():
        return int(no_such=1)

    class Callback(training.Callback):
        def __init__(self, x):
            super().__init__()

    for call, said in ((outer, "'no_such'"), (lambda: Callback(y=1), "keyword argument 'y'")):
        with pytest.raises(TypeError, match=said) as caught:
            call()
        assert "it has" not in str(caught.value)


def test_names_of_onnx():
    onnx = importlib.import_module("singa.onnx")
    with pytest.raises(AttributeError, match=r"'export': use singa\.onnx\.save\(net, file, \[x\]"):
        _ = onnx.export
    with pytest.raises(AttributeError, match="did you mean load"):
        _ = onnx.lod


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: layer.Conv1d(4, 3),
            "[Conv1d] lacks 'kernel_size'; it takes in_channels, out_channels, kernel_size, stride",
        ),
        (lambda: layer.LSTM(6), "[LSTM] lacks 'hidden_size'; it takes input_size, hidden_size,"),
        (lambda: opt.StepDecay(0.1), "[StepDecay] lacks 'step_size'; it takes init_value, "),
        (lambda: net().fit(), "[fit] lacks 'x'; it takes x, y, epochs, "),
        (lambda: data.load_mnist(), "[load_mnist] lacks 'folder'; it takes folder, split, "),
        (
            lambda: data.load_cifar10("a", train=True),
            "[load_cifar10] has no argument 'train': use split='train', or 'test'",
        ),
    ],
)
def test_calls_say_what_they_lack(call, message):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_a_layer_that_gets_a_tuple():
    chain = models.Sequential(layer.LSTM(3, 4), layer.Linear(2))
    with pytest.raises(TypeError, match="Linear 1 gets a tuple of 2, which the layer"):
        chain.compile([np.ones((2, 5, 3), np.float32)])


def test_recurrent_layers_name_their_number_of_features():
    x = tensor.ones((5, 2, 3))
    for kind, said in (
        (layer.LSTM, r"\[LSTM\] input_size is 4, got input \(2, 3\)"),
        (layer.RNN, r"\[RNN\] input_size is 4, got input \(2, 3\)"),
        (layer.GRU, r"\[GRU\] expected three axes and 4 features, got \(5, 2, 3\)"),
    ):
        with pytest.raises(ValueError, match=said):
            kind(4, 6)(x)


def flags():
    """Public functions and methods of tensors, with each argument that is a flag by annotation."""
    for owner in (singa, autograd, tensor, tensor.Tensor):
        for name in dir(owner) if owner is tensor.Tensor else owner.__all__:
            function = getattr(owner, name, None)
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            for flag, kind in inspect.unwrap(function).__annotations__.items():
                if flag != "return" and kind in ("bool", "bool | None", "bool | int"):
                    place = f"{owner.__name__}.{name}"
                    yield pytest.param(function, place, flag, id=f"{place}.{flag}")


def ones(*shape):
    return tensor.from_numpy(np.ones(shape, np.float32))


def arguments_of(place):
    """What a function takes in front of its flags."""
    name, x, image = place.split(".")[-1], ones(2, 3), ones(1, 2, 4, 4)
    if name == "layout_report" or (name.startswith("set_") and name != "set_value"):
        return ()
    if name in ("batchnorm_2d", "sync_batchnorm_2d"):
        handle = singa.singa_wrap.BatchNormHandle(0.9, image.data)
        others = [ones(2) for _ in range(4)] + [None] * name.startswith("sync")  # communicator
        return (handle, image, *others)
    further = {
        "gemm": (ones(3, 2),),
        "linear": (ones(3, 2),),
        "isclose": (x,),
        "kl_div": (x,),
        "searchsorted": (x,),
        "topk": (2,),
        "multinomial": (2,),
        "bernoulli": (0.5,),
        "gaussian": (0, 1),
        "uniform": (0, 1),
        "set_value": (0,),
    }
    images = {
        "grid_sample": (ones(1, 2, 2, 2),),
        "interpolate": (),
        "resize": (),
        "rotary_embedding": (ones(4, 2), ones(4, 2)),
        "scaled_dot_product_attention": (image, image),
    }
    return (image, *images[name]) if name in images else (x, *further.get(name, ()))


@pytest.mark.parametrize(("function", "place", "flag"), list(flags()))
def test_functions_take_no_text_for_a_truth(function, place, flag):
    wanted = rf"{flag} must be (True or False|a bool)|has no argument '{flag}'"
    with pytest.raises(TypeError, match=wanted):
        function(*arguments_of(place), **{flag: "no"})
