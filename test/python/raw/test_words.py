"""Words of PyTorch and Keras: taken where they mean the same, answered where they do not."""

import builtins
import copy
import importlib
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import singa
import torchvision_networks
from own_process import printed_by
from singa import autograd, data, layer, metric, model, models, opt, tensor, training
from singa.raw import words

X = tensor.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Conv2d(3, 16, kernel_size=3)", "Conv2d(3, 16, 3)"),
        ("Conv2d(in_channels=3, out_channels=16, kernel_size=3, stride=2)", "Conv2d(3, 16, 3, 2)"),
        ("Conv2d(3, out_channels=16, kernel_size=3, in_channels=3)", None),
        ("Conv2d(3, 6, 3, groups=3)", "Conv2d(3, 6, 3, group=3)"),
        ("Conv2d(3, 4, 4, padding='same')", "Conv2d(4, 4, pad_mode='SAME_UPPER')"),
        ("Conv2d(3, 4, 4, padding='valid')", "Conv2d(4, 4)"),
        ("Dropout(p=0.25)", "Dropout(0.25)"),
        ("ReLU(inplace=True)", "ReLU()"),
        ("LeakyReLU(0.1, inplace=True)", "LeakyReLU(0.1)"),
        ("Flatten(start_dim=1, end_dim=-1)", "Flatten()"),
        ("Softmax(dim=1)", "Softmax(1)"),
        ("LogSoftmax(dim=1)", "LogSoftmax(1)"),
        ("BatchNorm2d(3, affine=True)", "BatchNorm2d(3)"),
        ("Linear(in_features=8, out_features=4)", "Linear(8, 4)"),
        ("Conv2d(3, 6, 3, 1, 'same')", "Conv2d(3, 6, 3, padding=1)"),
        (
            "Conv2d(3, 6, 3, 2, 1, 2, 3, False)",
            "Conv2d(6, 3, stride=2, padding=1, dilation=2, group=3, bias=False)",
        ),
    ],
)
def test_pytorchs_keywords(theirs, ours):
    if ours is None:
        with pytest.raises(TypeError):
            eval(f"layer.{theirs}")
        return
    first, second = eval(f"layer.{theirs}"), eval(f"layer.{ours}")
    y = second(X)
    first(X)
    first.set_states(second.get_states())
    np.testing.assert_array_equal(first(X).numpy(), y.numpy())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("relu(X, inplace=True)", "relu(X)"),
        ("relu6(X, True)", "relu6(X)"),
        ("silu(X, inplace=True)", "silu(X)"),
        ("elu(X, 0.5, True)", "elu(X, 0.5)"),
        ("leakyrelu(X, 0.1, inplace=True)", "leakyrelu(X, 0.1)"),
        ("softmax(X, dim=-1)", "softmax(X, -1)"),
        ("log_softmax(X, dim=2)", "log_softmax(X, 2)"),
        ("cat([X, X], dim=1)", "cat([X, X], 1)"),
        ("sum(X, dim=1, keepdim=True)", "sum(X, axis=1, keepdims=True)"),
        ("mean(X, dim=(2, 3))", "mean(X, axis=(2, 3))"),
        ("var(X, dim=1, keepdim=True)", "var(X, 1, True)"),
        ("argmax(X, dim=1)", "argmax(X, 1)"),
        ("cumsum(X, dim=1)", "cumsum(X, 1)"),
        ("sort(X, dim=1)[0]", "sort(X, 1)[0]"),
        ("topk(X, 2, dim=1)[0]", "topk(X, 2, 1)[0]"),
        ("roll(X, 1, dim=1)", "roll(X, 1, 1)"),
        ("unsqueeze(X, dim=0)", "unsqueeze(X, 0)"),
        ("dropout(X, p=0.25)", "dropout(X, ratio=0.25)"),
        ("dropout(X, 0.25, True)", "dropout(X, ratio=0.25)"),
        ("dropout(X, 0.25, training=False)", "mul(X, 1.0)"),
        ("dropout(X, 0.25, False)", "mul(X, 1.0)"),
        ("dropout(X, 0.5)", "dropout(X)"),
    ],
)
def test_pytorchs_words_of_functions(theirs, ours):
    autograd.training = True
    try:
        found = []
        for call in (theirs, ours):
            singa.seed(3)
            found.append(eval(f"autograd.{call}").numpy())
    finally:
        autograd.training = False
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("dropout(X, 0.3)", ValueError, r"seed is the second argument.*: write ratio=0\.3"),
        ("dropout(X, p=0.3, training=True)", ValueError, "training=True in inference: call train"),
        ("dropout(X, p=0.3, ratio=0.3)", TypeError, "p and ratio are the same argument"),
        ("softmax(X, axis=1, dim=1)", TypeError, "dim and axis are the same argument"),
        ("cross_entropy(X, X[:, 0])", ValueError, r"use autograd\.softmax_cross_entropy"),
    ],
)
def test_words_of_functions_that_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        eval(f"autograd.{call}")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("CosineDecay(0.1, T_max=9, eta_min=0.01)", "CosineDecay(0.1, 9, 0.01)"),
        ("OneCycle(max_lr=0.1, total_steps=9, pct_start=0.2)", "OneCycle(0.1, 9, 0.2)"),
        ("StepDecay(0.1, 3, gamma=0.5)", "StepDecay(0.1, 3, 0.5)"),
        ("MultiStepDecay(0.1, [3], gamma=0.5)", "MultiStepDecay(0.1, [3], 0.5)"),
        ("CosineRestarts(0.1, T_0=3, T_mult=2, eta_min=0.1)", "CosineRestarts(0.1, 3, 2, 0.1)"),
        ("PolynomialDecay(0.1, total_iters=3)", "PolynomialDecay(0.1, 3)"),
        ("WarmUp(0.1, total_iters=3)", "WarmUp(0.1, 3)"),
        ("ReduceOnPlateau(0.1, min_lr=0.01)", "ReduceOnPlateau(0.1, min_value=0.01)"),
    ],
)
def test_pytorchs_keywords_of_schedules(theirs, ours):
    assert eval(f"opt.{theirs}").terms() == eval(f"opt.{ours}").terms()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("EarlyStopping(verbose=True)", r"\[EarlyStopping\] has no argument 'verbose': no keyword"),
        (
            "EarlyStopping(restore_best_weights=True)",
            r"use training\.BestModel\(file, restore=True",
        ),
        ("EarlyStopping(patients=3)", "it has monitor, patience, mode, min_delta$"),
        ("BestModel(filepath='a')", "has no argument 'filepath': use path"),
        ("BestModel('a', save_top_k=1)", "'save_top_k': no keyword: it saves the best alone"),
    ],
)
def test_words_of_callbacks(call, message):
    with pytest.raises(TypeError, match=message):
        eval(f"training.{call}")


def test_statistics_of_a_grey_image_are_lists():
    with pytest.raises(TypeError, match=r"such as \(0\.5,\) of grey images"):
        data.Normalize(0.5, 0.25)


@pytest.mark.parametrize("rule", [opt.Adam, opt.AdamW])
def test_pytorchs_keywords_of_adam(rule):
    optimizer = rule(1e-3, betas=(0.8, 0.99), eps=1e-6)
    assert [optimizer.now(name) for name in ("beta_1", "beta_2", "epsilon")] == [0.8, 0.99, 1e-6]
    with pytest.raises(TypeError, match=r"\[Adam\w?\] betas and beta_2 are the same argument"):
        rule(1e-3, betas=(0.8, 0.99), beta_2=0.9)
    with pytest.raises(TypeError, match=r"betas must be beta_1 and beta_2, got 0\.9"):
        rule(1e-3, betas=0.9)
    with pytest.raises(TypeError, match="has no argument 'fused': no keyword: all parameters are"):
        rule(1e-3, fused=True)


@pytest.mark.parametrize("parameters", [[tensor.ones((2,))], {"w": tensor.ones((2,))}.values()])
@pytest.mark.parametrize("options", [{}, {"lr": 0.1}])
def test_an_optimizer_is_not_given_parameters(parameters, options):
    with pytest.raises(
        TypeError, match=r"net\.set_optimizer\(opt\.SGD\(lr=0\.1\)\) gives an optim"
    ):
        opt.SGD(parameters, **options)


def test_axes_and_sizes_as_pytorch_writes_them():
    x = tensor.from_numpy(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    for pair in ((1, 2), (-1, 0), (1, 1)):
        np.testing.assert_array_equal(x.transpose(*pair).numpy(), x.numpy().swapaxes(*pair))
    with pytest.raises(ValueError, match="axis 3 is outside"):
        x.transpose(3, 0)
    with pytest.raises(TypeError, match=r"use x\.shape\[1\]"):
        x.size(1)
    with pytest.raises(TypeError, match=r"use autograd\.tile"):
        x.repeat(2, 1, 1)
    with pytest.raises(TypeError, match=r"use device\.create_cuda_gpu\(\)"):
        x.to("cuda")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("Flatten(start_dim=2)", ValueError, r"\[Flatten\] start_dim must be 1, got 2"),
        ("BatchNorm2d(3, track_running_stats=False)", ValueError, "must be True, got False"),
        ("Conv2d(3, 4, 3, padding_mode='reflect')", ValueError, "padding_mode must be 'zeros'"),
        ("Conv2d(3, 4, 3, 2, padding='same')", ValueError, "needs a stride of 1"),
        ("Conv2d(3, 4, 3, padding='full')", ValueError, "'same' or 'valid', got 'full'"),
        ("Dropout(p=0.5, ratio=0.5)", TypeError, "p and ratio are the same argument"),
        ("MultiheadAttention(8, 2, add_bias_kv=True)", ValueError, "add_bias_kv must be False"),
        ("Nonsense(5)", AttributeError, "no attribute 'Nonsense'$"),
        # Keras's keywords.
        ("Linear(4, activation='relu')", TypeError, r"use a layer behind it, such as layer\.ReLU"),
        (
            "Linear(units=4)",
            TypeError,
            r"\[Linear\] has no argument 'units': use out_features, or the",
        ),
        ("Linear(4, dtype='float32')", TypeError, r"use to_type\('float64'\) of the network"),
        ("Conv2d(4, 3, strides=2)", TypeError, r"\[Conv2d\] has no argument 'strides': use stride"),
        ("Conv2d(filters=4, kernel_size=3)", TypeError, "'filters': use out_channels"),
        ("Conv2d(4, 3, kernel_initializer='he')", TypeError, "use initializer"),
        ("MaxPool2d(pool_size=2)", TypeError, "'pool_size': use kernel_size"),
        ("Dropout(rate=0.5)", TypeError, "'rate': use p"),
        ("LeakyReLU(alpha=0.1)", TypeError, "'alpha': use negative_slope"),
        ("LSTM(3, 4, return_sequences=True)", TypeError, "the first result has all steps"),
        ("Embedding(3, 4, foo=1)", TypeError, "'foo'; it has input_dim, output_dim, initializer"),
        ("Sequential([Linear(4)])", TypeError, r"got a list: write Sequential\(\*layers\)"),
        ("Sequential(ReLU)", TypeError, r"got the class ReLU: write ReLU\(\.\.\.\)"),
    ],
)
def test_what_is_not_the_same_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        eval(f"layer.{call}", {"layer": layer, "Linear": layer.Linear, "ReLU": layer.ReLU})


def test_pytorchs_word_of_resizing():
    assert data.Resize(8, antialias=True) == data.Resize(8)
    with pytest.raises(ValueError, match="antialias must be True or None, got False"):
        data.Resize(8, antialias=False)


def test_errors_of_ones_own_layers_are_left_alone():
    class Own(layer.Layer):
        def __init__(self, width):
            super().__init__()

    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'units'"):
        Own(units=3)


def test_singas_behaviour_keeps_its_positions():
    """SINGA's scripts: BatchNorm2d(channels, momentum), and keywords of Linear that it ignores."""
    singa.compat.enabled = True
    try:
        assert layer.BatchNorm2d(3, 0.2).momentum == 0.2
        with pytest.warns(UserWarning, match=r"\[Linear\] ignores weight_filler, name"):
            linear = layer.Linear(3, weight_filler=None, name="fc", bias=False)
        assert not linear.bias
    finally:
        singa.compat.enabled = False


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("training.EarlyStopping(restore_best_weights=True)", r"use training\.BestModel\(file"),
        ("training.EarlyStopping(foo=1)", "'foo'; it has monitor, patience, mode, min_delta"),
        ("training.BestModel('a', save_best_only=True)", "no keyword: it saves the best alone"),
        ("training.CsvLog('a.csv', append=True)", "a run that is resumed continues the file"),
        ("opt.Adam(beta1=0.9)", "use beta_1"),
    ],
)
def test_keywords_of_callbacks_and_optimizers(call, message):
    with pytest.raises(TypeError, match=message):
        eval(call)


def test_statistics_of_levels_are_refused_for_pixels_that_are_scaled():
    normalize = data.Normalize([123.675], [58.395])
    with pytest.raises(ValueError, match=r"mean \[123\.675\] is of levels 0 to 255.* by 255"):
        normalize(np.zeros((1, 1, 2, 2), np.uint8))
    levels = np.full((1, 1, 2, 2), 123.675, np.float32)
    assert not normalize(levels).any()


@pytest.mark.parametrize(
    ("owner", "name", "advice"),
    [
        (models.Sequential(layer.Linear(2)), "parameters", r"use get_params\(\)"),
        (models.Sequential(layer.Linear(2)), "state_dict", r"use get_states\(\)"),
        (layer.Linear(2), "parameters", r"use get_params\(\)"),
        (autograd, "grad", r"use autograd\.input_gradients.*without second derivatives"),
        (autograd, "einsum", r"use tensor\.einsum"),
        (tensor, "cat", r"use autograd\.cat"),
        (tensor.ones((2,)), "flip", r"use x\[::-1\]"),
        (tensor.ones((2,)), "cumsum", r"use autograd\.cumsum"),
        (tensor.Tensor, "isnan", r"use autograd\.isnan"),
        (singa, "set_float32_matmul_precision", r"use singa\.set_float32_precision"),
        (tensor, "isnan", r"use autograd\.isnan"),
    ],
)
def test_names_that_are_not_there(owner, name, advice):
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match=f"has no attribute {name!r}: {advice}"):
        getattr(owner, name)


@pytest.mark.parametrize(
    ("module", "name", "end"),
    [
        (models, "Sequentail", "did you mean Sequential?"),
        (models, "resnet50", "use models.create('resnet50')"),
        (models, "ResNet_18", "use models.create('resnet18')"),
        (layer, "Lineer", "did you mean Linear?"),
        (layer, "Batchnorm2d", "did you mean BatchNorm2d?"),
        (layer, "conv2d", "use autograd.conv2d"),
        (singa, "Linear", "use layer.Linear"),
        (data, "EarlyStopping", "use training.EarlyStopping"),
        (models, "ResNet18_Weights", "use singa.training.pretrained.load_pretrained(folder)"),
        (autograd, "softmx", "did you mean softmax?"),
        (data, "Dataloader", "did you mean DataLoader?"),
        (opt, "adamw", "did you mean AdamW?"),
        (metric, "Acuracy", "did you mean Accuracy?"),
        (training, "EarlyStoping", "did you mean EarlyStopping?"),
        (tensor, "from_numpi", "did you mean from_numpy?"),
        (singa, "from_trch", "did you mean from_torch?"),
        (singa, "initialiser", "did you mean initializer?"),
        (singa, "nonsense", "has no attribute 'nonsense'"),
        (singa, "__nonsense__", "has no attribute '__nonsense__'"),
    ],
)
def test_misspelled_names_of_modules(module, name, end):
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value).endswith(end)
    assert caught.value.name == name  # so Python adds no guess of its own
    assert caught.value.obj is None


def test_modules_list_what_they_import_on_first_use():
    assert "Sequential" in dir(models)
    assert {"from_torch", "layer", "tensor"} <= {*dir(singa)}


def test_modules_are_imported_when_they_are_asked_for():
    program = (
        "from singa import training, data, layer\n"
        "print(training.picture_classifier.PictureClassifier.__name__, data.loader.__name__)\n"
        "print(hasattr(training, 'nonsense'), hasattr(layer, '_nonsense'))"
    )
    assert printed_by(program).split() == ["PictureClassifier", "singa.data.loader", *["False"] * 2]


def test_numbers_of_things():
    assert words.counted(1, "thread") == "1 thread"
    assert words.counted(2000, "class", "classes") == "2,000 classes"
    assert words.counted(0, "picture") == "0 pictures"


def test_tensors_are_copied_as_before():
    x = tensor.ones((2,))
    for again in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(again.numpy(), [1, 1])


def test_the_table_names_what_exists():
    """What the answers begin with is there, and the names that they answer are not."""
    modules = autograd, data, layer, metric, models, opt, tensor, training
    places = {module.__name__.partition(".")[2]: module for module in modules}
    owners = [
        (words.LAYERS, models.Sequential(layer.Linear(2))),
        (words.LAYERS | words.PARTS, layer.Linear(2)),
        (words.TENSORS, tensor.Tensor),
        (words.DATASETS, data.ImageFolder),
        (words.OPTIMIZERS, opt.SGD(0.1)),
        (words.SCHEDULES, opt.CosineDecay(0.1, 10)),
        (words.AVERAGES, opt.EMA(layer.Linear(2))),
        (words.SCALERS, opt.GradScaler()),
        (words.LOADERS, data.DataLoader(data.shapes("train", 10), 5)),
        (words.PROFILES, singa.profile()),
        (words.METRICS, metric.Accuracy()),
        (words.DATASETS, data.shapes("train", 10)),
        (words.UNASSIGNED["Layer"], layer.Linear(2)),
        (words.UNASSIGNED["Optimizer"], opt.SGD(0.1)),
        (words.UNASSIGNED["DataLoader"], data.DataLoader(data.shapes("train", 10), 5)),
    ]
    tables = [table for table, _ in owners] + [*words.MODULES.values(), *words.ARGUMENTS.values()]
    for table in tables:
        for answer in table.values():
            module, dot, rest = answer.partition(".")
            name = re.match(r"\w*", rest)[0]
            if dot and module in places and name:
                assert hasattr(places[module], name), answer
    for table, owner in owners:
        for name, answer in table.items():
            with pytest.raises(AttributeError, match=re.escape(words.advice(answer))):
                getattr(owner, name)
            first = answer.partition("(")[0]
            if first.isidentifier() and "(" in answer and not hasattr(builtins, first):
                assert hasattr(owner, first) or hasattr(models.Sequential, first), answer
    for module, names in words.MODULES.items():
        for name, answer in names.items():
            with pytest.raises(AttributeError, match=re.escape(f"{name!r}{words.advice(answer)}")):
                getattr(importlib.import_module(module), name)


#: Names of PyTorch that need no answer: of its own devices, formats and internals.
_INTERNAL = (
    r"ipu|xpu|mtia|to_empty|(get|set)_extra_state|register_\w*state_dict\w*_hook|\w+_pre_hook"
    r"|profile_hook_step|swap_in_\w+|_.*|.*DataPipe|DataChunk|runtime_\w+|argument_validation"
    r"|default_convert|functional_datapipe|\w+_determinis\w+|assert_int_or_pair|\w*grouped_mm"
    r"|scaled_mm|multi_head_attention_forward|max_unpool\dd|NestedIOFunction|set_multi\w+"
    r"|enforce_grad_layout_policy|variable|\w+_loss|feature_alpha_dropout|T_destination|\w+_"
    r"|call_super_init|dump_patches|Optimizer\w*Hook|boolean_dispatch|\w+_torch_function\w*"
)

#: Methods of PyTorch's tensors that programs use.
_METHODS = (
    "add addmm all amax argmax argsort backward bool bmm chunk clamp clone contiguous "
    "copy_ cos cpu cuda cumsum data detach device dim double dtype eq exp expand "
    "expand_as fill_ flatten flip float floor gather ge grad gt half index_select int "
    "is_contiguous is_cuda isnan item le log long lt masked_fill masked_fill_ "
    "masked_select matmul max mean min mm mul mul_ ndim ne neg new_ones new_zeros nonzero "
    "norm normal_ numel numpy permute pow prod relu relu_ repeat requires_grad "
    "requires_grad_ reshape retain_grad round scatter scatter_ scatter_add select shape "
    "sigmoid sign sin softmax sort split sqrt square squeeze std stride sub sum t tanh to "
    "tolist topk transpose tril triu type type_as unbind unfold uniform_ unique unsqueeze "
    "unsqueeze_ var view view_as where zero_"
)
#: What PyTorch's programs look for in `torch`.
_OF_TORCH = (
    "nn optim cuda no_grad Tensor tensor zeros ones cat stack randn save load manual_seed compile "
    "relu softmax DataLoader float32 amp jit profiler"
)


def test_names_of_pytorch_are_there_or_answered(torch):
    """Those of modules, optimizers, schedules, averages, data, transforms, functions and losses,
    and the methods of tensors that programs use."""
    utils, functional = torch.utils.data, torch.nn.functional
    swa, schedules = torch.optim.swa_utils, torch.optim.lr_scheduler
    transforms = torchvision_networks.module(torch, "transforms.transforms")
    owners = [
        (models.Sequential(layer.Linear(2)), dir(torch.nn.Module)),
        (layer.Linear(2), dir(torch.nn.Module)),
        (opt.SGD(0.1), [*dir(torch.optim.Optimizer), "param_groups"]),
        (opt.CosineDecay(0.1, 10), ["step", "get_last_lr", "state_dict"]),
        (opt.EMA(layer.Linear(2)), ["update_parameters", "module", "state_dict"]),
        (opt.GradScaler(), ["scale", "step", "unscale_"]),
        (data.DataLoader(data.shapes("train", 10), 5), ["dataset", "collate_fn", "batch_size"]),
        (singa.profile(), ["key_averages", "export_chrome_trace"]),
        (tensor.ones((2,)), _METHODS.split()),
        (layer, torch.nn.modules.__all__),
        (opt, [*torch.optim.__all__, *schedules.__all__, *swa.__all__]),
        (data, [*utils.__all__, *transforms.__all__]),
        (autograd, [n for n, f in vars(functional).items() if callable(f) and n.islower()]),
        (autograd, [*torch.autograd.__all__]),
        (singa, _OF_TORCH.split()),
    ]
    silent = []
    for owner, names in owners:
        for name in names:
            if re.fullmatch(_INTERNAL, name) or hasattr(owner, name):
                continue
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            if str(caught.value).endswith(f"no attribute {name!r}"):
                silent.append((type(owner).__name__, name))
    assert silent == []


def test_what_is_answered_is_not_listed():
    """By `dir`, which completes names."""
    assert {"parameters", "to"}.isdisjoint(dir(layer.Linear(2)))
    listed = {*dir(tensor.ones((2,)))}
    assert {"cumsum", "relu_"}.isdisjoint(listed)
    assert {"relu", "numpy"} <= listed

    class Own(layer.Layer):
        def parameters(self):
            return []

    assert "parameters" in dir(Own())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: autograd.input_gradients(lambda t: t.sum(), x, create_graph=True),
        lambda x: x.sum().backward(create_graph=True),
        lambda x: autograd.backward(x.sum(), create_graph=True),
        lambda x: autograd.gradients(x.sum(), create_graph=True),
    ],
)
def test_there_are_no_second_derivatives(call):
    with pytest.raises(TypeError, match=r"'create_graph': use .*has no second derivatives"):
        call(tensor.ones((2,)))


@pytest.mark.parametrize("page", ["keras", "fastai"])
def test_the_names_on_a_page_are_answered(page):
    """Names in the first column of the page's table are singa's too, or an error says what to
    write."""
    text = (Path(__file__).parents[3] / "docs" / "coming_from" / f"{page}.md").read_text()
    tables = [words.LAYERS, words.DATASETS, *words.MODULES.values(), *words.ARGUMENTS.values()]
    answered = {name for table in tables for name in table}
    modules = [data, layer, metric, model, models, opt, training]
    answered |= {name for owner in (*modules, model.Model, training.Trainer) for name in dir(owner)}
    rows = re.findall(r"^\| (`.*?) \| ", text.partition("## Names")[2], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 20
    for name in set(names) - {"dense.trainable = False", "mixed_bfloat16"}:  # not names to call
        word = re.match(r"(?:\w+\.)*(\w+)", name)[1]
        assert word in answered, name


@pytest.mark.parametrize(
    ("owner", "name", "advice"),
    [
        (models.Sequential(layer.Linear(2)), "trainable", r"use freeze\(\) and unfreeze\(\)"),
        (layer.Linear(2), "trainable", r"use freeze\(\) and unfreeze\(\)"),
        (layer.Linear(2), "requires_grad", r"use freeze\(\) and unfreeze\(\)"),
        (models.Sequential(layer.Linear(2)), "stop_training", r"use trainer\.should_stop = True"),
        (opt.Adam(0.1), "learning_rate", "use optimizer.lr, which may be assigned"),
        (opt.Adam(0.1), "param_groups", "use optimizer.lr"),
        (data.DataLoader(data.ArrayDataset(np.ones(3)), 2), "collate_fn", "use collate"),
    ],
)
def test_what_nothing_would_read_cannot_be_assigned(owner, name, advice):
    assert not hasattr(owner, name)
    for access in (lambda: setattr(owner, name, False), lambda: getattr(owner, name)):
        with pytest.raises(AttributeError, match=f"has no attribute {name!r}: {advice}"):
            access()


def test_pytorchs_words_are_attributes_too():
    dropout = layer.Dropout(0.5)
    dropout.p = 0.25
    assert (dropout.ratio, dropout.p) == (0.25, 0.25)
    assert layer.Softmax(dim=2).dim == 2
    assert layer.Conv2d(3, 6, 3, groups=3).groups == 3
    assert opt.StepDecay(0.1, 10, gamma=0.5).gamma == 0.5


def test_what_is_a_number_in_numpy_is_one_and_may_be_called():
    """`if x.ndim == 4` was false for all tensors."""
    x = tensor.zeros((2, 3, 4))
    assert (x.ndim, x.ndim(), x.size, x.size(), np.ndim(x)) == (3, 3, 24, 24, 3)
    assert x.ndim == 3
    assert type(x.ndim()) is int
    assert pickle.loads(pickle.dumps(x.size)) == 24
    with pytest.raises(TypeError, match=r"\[size\] .* use x\.shape\[1\]"):
        x.size(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tensor.Tensor(np.ones((2, 3))), r"\[Tensor\] shape .* tensor\.Tensor\(data=x\)"),
        (lambda: tensor.Tensor([[1, 2], [3, 4]]), r"shape must be integers, got list: values are"),
        (lambda: tensor.ones(3), r"shape must be a sequence of integers, got 3: write \(3,\)"),
        (lambda: tensor.zeros(2, 3), r"\[zeros\] device .* got int; a shape is one tuple"),
        (
            lambda: tensor.from_numpy(np.array(["a"])),
            r"does not hold <U1: x\.astype\(np\.float32\)",
        ),
        (lambda: tensor.from_numpy(np.array([1, None])), "does not hold object"),
        (lambda: tensor.from_numpy(np.ones(2, "complex64")), "does not hold complex64"),
    ],
)
def test_shapes_and_values_that_are_none(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_tensors_of_other_libraries_are_indices(torch):
    x = tensor.from_numpy(np.arange(6.0).reshape(3, 2))
    for index in (torch.tensor([2, 0]), torch.tensor([True, False, True])):
        np.testing.assert_array_equal(x[index].numpy(), x.numpy()[index.numpy()])
