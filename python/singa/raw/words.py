"""Words of PyTorch, NumPy, Keras, fastai and timm that singa does not have, with what to write
instead.

One table for each place: of arguments by the function that they are given to, of attributes by the
class or module in which they are looked for.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_Class = TypeVar("_Class", bound=type)

_CLASS_WEIGHTS = "loss=layer.CrossEntropyLoss(weight=[...]), with a number for each class"
_LOADED = "singa.training.pretrained.load_pretrained(folder) for weights from a file"
_SIZE = "a transform of the DataLoader, such as data.evaluation_transform(64, ...)"
_NO_SECOND = "finite differences of input_gradients: singa has no second derivatives (roadmap)"

#: {function: {argument: what to write}}
ARGUMENTS: dict[str, dict[str, str]] = {
    "Trainer": {  # also Model.fit and evaluate
        "batch": "batch_size",
        "bs": "batch_size",
        "cbs": "callbacks",
        "class_weight": _CLASS_WEIGHTS,
        "class_weights": _CLASS_WEIGHTS,
        "criterion": "loss, a layer or a function",
        "device": "device.set_default_device(...) before the network is made",
        "learning_rate": "set_optimizer(opt.Adam(lr=...)) before it",
        "loss_fn": "loss, a layer or a function",
        "lr": "set_optimizer(opt.Adam(lr=...)) before it",
        "lr_max": "set_optimizer(opt.SGD(opt.OneCycle(lr_max, steps))) before it",
        "max_epochs": "epochs",
        "n_epoch": "epochs",
        "n_epochs": "epochs",
        "nb_epoch": "epochs",
        "num_epochs": "epochs",
        "optimizer": "set_optimizer(opt.Adam(lr=0.001)) before it",
        "sample_weight": "a loss that takes weights as targets",
        "shuffle": "a data.DataLoader(..., shuffle=True) for the data",
        "steps_per_epoch": "a data.DataLoader of the data that an epoch has",
        "valid_data": "validation, a pair (x, y)",
        "validation_data": "validation, a pair (x, y)",
        "validation_split": "validation, a pair (x, y) that you set apart",
        "val_data": "validation, a pair (x, y)",
        "workers": "a data.DataLoader(..., num_workers=2) for the data",
    },
    "compile": {
        "loss": "fit(loss=...), with a layer or a function",
        "metrics": "fit(metrics=['accuracy'])",
        "mode": "use_graph=True, which records steps",
        "optimizer": "set_optimizer(opt.Adam(lr=0.001))",
        "run_eagerly": "use_graph=False",
    },
    "input_gradients": {
        "allow_unused": "a function that uses all inputs",
        "create_graph": _NO_SECOND,
        "retain_graph": "no keyword: the function is computed anew",
    },
    "backward": {"create_graph": _NO_SECOND},
    "models.create": {
        "checkpoint_path": _LOADED,
        "classes": "num_classes",
        "drop_path_rate": "drop_path",
        "drop_rate": "dropout",
        "in_chans": "an input of so many channels, from which the first layer takes them",
        "include_top": "replace_head(number of outputs)",
        "num_labels": "num_classes",
        "pretrained": _LOADED,
        "weights": _LOADED,
    },
    "DataLoader": {
        "batch_sampler": "batch_size and shuffle",
        "batch_tfms": "transform",
        "bs": "batch_size",
        "collate_fn": "collate",
        "dataset": "data",
        "drop_remainder": "drop_last",
        "generator": "seed",
        "item_tfms": "transform",
        "persistent_workers": "num_workers alone: its workers are threads",
        "pin_memory": "device, to which the workers send batches",
        "prefetch_factor": "prefetch",
        "weights": "sampler=data.WeightedSampler(weights)",
        "timeout": "num_workers alone: its workers are threads",
        "worker_init_fn": "seed, on which all random draws depend",
    },
    "ImageFolder": {
        "batch_size": "batch_size of data.DataLoader, or of fit",
        "batch_tfms": "transform of the DataLoader",
        "bs": "batch_size of data.DataLoader, or of fit",
        "class_mode": "task",
        "class_names": "classes",
        "color_mode": "channels=3, or 1 for grey",
        "fn_col": "columns=(FILE, LABEL)",
        "image_size": _SIZE,
        "item_tfms": "transform of the DataLoader",
        "label_col": "columns=(FILE, LABEL)",
        "label_delim": "task='multilabel', which finds what separates labels",
        "label_mode": "task",
        "root": "path",
        "seed": "split(fraction, seed)",
        "shuffle": "shuffle of the DataLoader",
        "size": _SIZE,
        "subset": "split(fraction), which returns both",
        "target_size": _SIZE,
        "transform": "transform of the DataLoader",
        "valid_col": "a column is_valid, which split() follows",
        "valid_pct": "split(fraction)",
        "validation_split": "split(fraction)",
        "y_col": "columns=(FILE, LABEL)",
    },
    "split": {
        "random_state": "seed",
        "stratify": "no keyword: the share is that of each class",
        "test_size": "fraction",
        "train_size": "fraction, the share of the second set",
        "valid_pct": "fraction",
        "validation_split": "fraction",
    },
    "optimizer": {
        "amsgrad": "opt.Adam(lr=...) without it",
        "clipnorm": "clip_norm",
        "clipvalue": "clip_value",
        "decay": "a schedule, such as lr=opt.ExponentialDecay(...)",
        "global_clipnorm": "clip_norm",
        "learning_rate": "lr",
        "mom": "momentum",
        "params": "set_optimizer, which gives it the parameters of the network",
        "wd": "weight_decay",
    },
}

_OPTIMIZER = "set_optimizer(opt.SGD(lr=0.1)), which gives it all parameters"
#: Of models and layers.
LAYERS = {
    "add_module": "an attribute: self.name = layer.Linear(3)",
    "apply": "a loop over sublayers()",
    "bfloat16": "to_type('bfloat16'), or compile(dtype='bfloat16') for mixed precision",
    "buffers": "get_states(), a dict by name",
    "children": "sublayers()",
    "cpu": "device.set_default_device(None) before the network is made",
    "cuda": "device.set_default_device(device.create_cuda_gpu()) before the network is made",
    "count_params": "summary()",
    "double": "to_type('float64')",
    "evaluate_generator": "evaluate(loader)",
    "export": "save(file)",
    "fine_tune": "replace_head(outputs), freeze() and unfreeze(), and fit()",
    "fit_generator": "fit(loader)",
    "fit_one_cycle": "set_optimizer(opt.SGD(opt.OneCycle(lr, steps))), and fit(data, epochs)",
    "float": "to_type('float32')",
    "get_preds": "predict(data)",
    "get_weights": "get_states(), a dict by name",
    "half": "to_type('float16'), or compile(dtype='float16') for mixed precision",
    "load_state_dict": "set_states(states), load_states(file), or load_torch(state_dict)",
    "load_weights": "load_states(file)",
    "lr_find": "short runs of fit() with several rates: singa does not search for one",
    "modules": "named_layers()",
    "named_buffers": "get_states(), a dict by name",
    "named_children": "sublayers()",
    "named_modules": "named_layers()",
    "named_parameters": "get_params().items()",
    "parameters": "get_params().values(); set_optimizer() gives an optimizer all of them",
    "register_buffer": "an attribute that is a tensor, and state_names",
    "register_parameter": "an attribute that is a tensor with stores_grad=True",
    "predict_generator": "predict(loader)",
    "predict_on_batch": "predict(x)",
    "requires_grad_": "freeze() and unfreeze()",
    "save_model": "save(file)",
    "save_weights": "save_states(file)",
    "set_weights": "set_states(states)",
    "show_results": "training.picture_classifier.PictureClassifier(net).predict(files)",
    "state_dict": "get_states(), or save_states(file)",
    "test_on_batch": "evaluate(x, y)",
    "to": "device.set_default_device(...) before the network is made, or to_type('float16')",
    "to_fp16": "compile(dtype='float16')",
    "train_on_batch": "a call after train(): outputs, loss = net(x, y)",
    "trainable_variables": "get_params().values()",
    "validate": "evaluate(data)",
    "zero_grad": "no call: each backward makes new gradients",
}
_FUNCTION = "autograd.{}(x, ...)"
#: Of tensors.
TENSORS = {
    **{
        name: _FUNCTION.format(name)
        for name in (
            *("argsort", "cumsum", "expand", "floor", "gather", "nonzero", "roll", "round"),
            *("scatter_elements", "sign", "sort", "split", "tile", "topk", "tril", "triu"),
            *("unique", "where", "cos", "sin", "erf", "reciprocal", "rsqrt", "ceil", "log1p"),
            *(
                "isnan",
                "isinf",
                "isfinite",
                "signbit",
                "isclose",
                "count_nonzero",
                "trunc",
                "log10",
                "log2",
            ),
            *("exp2", "expm1", "fmod", "hypot", "copysign", "logaddexp", "lerp", "diff"),
            *("cumprod", "cummax", "cummin", "logcumsumexp", "diag", "diagonal", "trace"),
            *("outer", "kron", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
        )
    },
    "add_": "x += y",
    "amax": "x.max(axis)",
    "amin": "x.min(axis)",
    "bmm": "x @ y",
    "chunk": "autograd.split(x, axis, lengths)",
    "copy_": "x.copy_from(y)",
    "cuda": "x.to(device.create_cuda_gpu())",
    "div_": "x /= y",
    "fill_": "x.set_value(number)",
    "flip": "x[::-1]",
    "index_select": "autograd.gather(x, axis, indices)",
    "is_cuda": "x.device",
    "mm": "x @ y",
    "mul_": "x *= y",
    "norm": "x.square().sum().sqrt()",
    "register_hook": "autograd.backward(loss), which yields parameters with their gradients",
    "requires_grad_": "x.requires_grad = True",
    "retain_grad": "x.stores_grad = True",
    "scatter": "autograd.scatter_elements(x, indices, updates, axis)",
    "stack": "autograd.cat([autograd.unsqueeze(t, 0) for t in tensors], 0)",
    "sub_": "x -= y",
    "t": "x.transpose()",
    "type": "x.astype(dtype)",
    "zero_": "x.set_value(0)",
}
#: Of sets of pictures.
DATASETS = {
    "class_indices": "classes, in the order of their numbers",
    "class_names": "classes",
    "class_to_idx": "classes, in the order of their numbers",
    "from_folder": "data.ImageFolder(path)",
    "imgs": "paths",
    "map": "transform of data.DataLoader",
    "samples": "paths and labels",
    "show_batch": "plt.imshow(data[0][0].transpose(1, 2, 0))",
    "targets": "labels",
    "train_test_split": "split(fraction)",
    "vocab": "classes",
}
_FOLDER = "data.ImageFolder(folder), and its split(fraction)"
_BEST = "training.BestModel('best.safetensors', 'val_loss')"
#: Of modules.
MODULES: dict[str, dict[str, str]] = {
    "singa.autograd": {
        "Function": "autograd.Operator",
        "arctan2": "autograd.atan2(y, x)",
        "bitwise_invert": "autograd.bitwise_not(x)",
        "bmm": "autograd.matmul(x, y)",
        "broadcast_to": "autograd.expand(x, shape)",
        "chunk": "autograd.split(x, axis, lengths)",
        "concat": "autograd.cat(tensors, axis)",
        "concatenate": "autograd.cat(tensors, axis)",
        "ctc_loss": "another loss: singa has no connectionist temporal classification",
        "divide": "autograd.div(x, y)",
        "einsum": "tensor.einsum(equation, x, y)",
        "expand_dims": "autograd.unsqueeze(x, axis)",
        "flip": "x[::-1]",
        "grad": "autograd.input_gradients(function, inputs), without second derivatives",
        "leaky_relu": "autograd.leakyrelu(x)",
        "logical_and": "x & y, of bools",
        "logical_not": "~x, of bools",
        "logical_or": "x | y, of bools",
        "logical_xor": "x ^ y, of bools",
        "maximum": "autograd.max(x, y)",
        "minimum": "autograd.min(x, y)",
        "mm": "autograd.matmul(x, y)",
        "moveaxis": "autograd.transpose(x, axes)",
        "multiply": "autograd.mul(x, y)",
        "norm": "autograd.reduce_l2(x)",
        "one_hot": "autograd.onehot(axis, indices, depth, values)",
        "permute": "autograd.transpose(x, axes)",
        "permute_dims": "autograd.transpose(x, axes)",
        "power": "autograd.pow(x, y)",
        "prod": "autograd.reduce_prod(x, axes)",
        "remainder": "autograd.mod(x, y)",
        "set_grad_enabled": "autograd.no_grad() and autograd.enable_grad()",
        "stack": "autograd.cat([autograd.unsqueeze(t, 0) for t in tensors], 0)",
        "subtract": "autograd.sub(x, y)",
        "take": "autograd.gather(x, axis, indices)",
        "true_divide": "autograd.div(x, y)",
        "unbind": "tuple(x), along the first axis",
        "unstack": "tuple(x), along the first axis",
        "vecdot": "autograd.sum(x * y, axis=-1)",
    },
    "singa.layer": {
        "Activation": "layer.ReLU() and the like",
        "AveragePooling1D": "layer.AvgPool1d(kernel_size)",
        "AveragePooling2D": "layer.AvgPool2d(kernel_size)",
        "BCELoss": "layer.BinaryCrossEntropy()",
        "BatchNormalization": "layer.BatchNorm2d()",
        "Concatenate": "layer.Cat(axis)",
        "Conv1D": "layer.Conv1d(out_channels, kernel_size)",
        "Conv2D": "layer.Conv2d(out_channels, kernel_size)",
        "Conv2DTranspose": "layer.ConvTranspose2d(out_channels, kernel_size)",
        "Conv3D": "layer.Conv3d(out_channels, kernel_size)",
        "Dense": "layer.Linear(out_features)",
        "DepthwiseConv2D": "layer.Conv2d(channels, kernel_size, group=channels)",
        "GlobalAveragePooling2D": "layer.AdaptiveAvgPool2d(1) and layer.Flatten()",
        "GlobalMaxPooling2D": "layer.AdaptiveMaxPool2d(1) and layer.Flatten()",
        "Input": "nothing: a network learns the shape of its inputs from the first batch",
        "InputLayer": "nothing: a network learns the shape of its inputs from the first batch",
        "LayerNormalization": "layer.LayerNorm(features)",
        "MaxPooling1D": "layer.MaxPool1d(kernel_size)",
        "MaxPooling2D": "layer.MaxPool2d(kernel_size)",
        "Module": "layer.Layer, or model.Model for a network that is trained",
        "Parameter": "a tensor with stores_grad=True in an attribute",
        "Rescaling": "fit's transform: data.Normalize(mean, std)",
        "SeparableConv2D": "layer.SeparableConv2d(out_channels, kernel_size)",
        "UpSampling2D": "layer.Upsample(scale_factor=2)",
        "ZeroPadding2D": "layer.ZeroPad2d(padding)",
    },
    "singa": {
        "Learner": "models.create(name) and its fit()",
        "Model": "model.Model",
        "Sequential": "models.Sequential(layer, ...)",
        "cnn_learner": _LOADED,
        "get_float32_matmul_precision": "singa.get_float32_precision()",
        "load_learner": "training.picture_classifier.PictureClassifier.load(file)",
        "load_model": "singa.load(file)",
        "manual_seed": "singa.seed(number)",
        "save": "net.save(file)",
        "set_float32_matmul_precision": "singa.set_float32_precision('high'), or 'highest'",
        "set_seed": "singa.seed(number)",
        "vision_learner": _LOADED,
    },
    "singa.data": {
        "DataBlock": _FOLDER,
        "DataLoaders": "two data.DataLoader, for training and validation",
        "GrandparentSplitter": "data.ImageFolder of each of the two folders",
        "ImageDataGenerator": _FOLDER,
        "ImageDataLoaders": _FOLDER,
        "ImageFolderDataset": _FOLDER,
        "Lambda": "a function of images (N, C, H, W) and a NumPy generator",
        "PILImage": "data.read_picture(file)",
        "Rescaling": "data.Normalize(mean, std)",
        "RandomFlip": "data.RandomHorizontalFlip()",
        "RandomSplitter": "split(fraction) of the data",
        "Subset": "take(numbers) of the data",
        "TensorDataset": "arrays: data.DataLoader((x, y), 32)",
        "ToTensor": "nothing: pictures are arrays, and data.Normalize makes floats",
        "aug_transforms": "data.training_transform(size, mean, std)",
        "get_image_files": _FOLDER,
        "image_dataset_from_directory": _FOLDER,
        "random_split": "split(fraction) of the data",
        "read_image": "data.read_picture(file)",
        "train_test_split": "split(fraction) of the data",
    },
    "singa.metric": {
        "BinaryAccuracy": "metric.Accuracy(from_logits=True)",
        "CategoricalAccuracy": "metric.Accuracy()",
        "F1Score": "metric.F1(num_classes)",
        "SparseCategoricalAccuracy": "metric.Accuracy()",
        "accuracy": "fit(metrics=['accuracy'])",
        "error_rate": "fit(metrics=['accuracy']), which is 1 less it",
    },
    "singa.opt": {
        "CosineAnnealingLR": "opt.CosineDecay(lr, steps)",
        "LinearLR": "opt.WarmUp(schedule, steps)",
        "MultiStepLR": "opt.MultiStepDecay(lr, milestones)",
        "OneCycleLR": "opt.OneCycle(lr, steps)",
        "RMSprop": "opt.RMSProp(lr)",
        "ReduceLROnPlateau": "opt.ReduceOnPlateau(lr)",
        "StepLR": "opt.StepDecay(lr, step_size)",
    },
    "singa.training": {
        "CSVLogger": "training.CsvLog(file), in loggers of a Trainer",
        "EarlyStoppingCallback": "training.EarlyStopping('val_loss', patience=5)",
        "LearningRateScheduler": "a schedule of the optimizer, such as opt.CosineDecay(lr, steps)",
        "Learner": "training.Trainer(net)",
        "ModelCheckpoint": _BEST,
        "ReduceLROnPlateau": "opt.ReduceOnPlateau(lr) as lr of the optimizer",
        "SaveModelCallback": _BEST,
        "TensorBoard": "training.TensorBoardLog(folder), in loggers of a Trainer",
        "TerminateOnNaN": "nothing: training stops with NonFiniteLossError",
    },
    "singa.tensor": {
        "arange": "autograd.arange, or tensor.from_numpy(np.arange(...))",
        "array": "tensor.from_numpy(array)",
        "cat": "autograd.cat(tensors, axis)",
        "empty": "tensor.zeros(shape)",
        "full": "tensor.from_numpy(np.full(shape, value))",
        "isnan": "autograd.isnan(x)",
        "manual_seed": "singa.seed(number)",
        "matmul": "x @ y",
        "rand": "tensor.random(shape)",
        "randn": "tensor.zeros(shape).gaussian(0, 1)",
        "stack": "autograd.cat([autograd.unsqueeze(t, 0) for t in tensors], 0)",
        "tensor": "tensor.Tensor(data=...), or tensor.from_numpy(array)",
    },
}


def attribute_error(owner: str, name: str, words: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that `owner`, such as "'Tensor' object", does not have."""
    text = f"{owner} has no attribute {name!r}"
    if name in words:
        text += f": use {words[name]}"
    return AttributeError(text)


def module_error(module: str, name: str) -> AttributeError:
    """As attribute_error, for a module of the table."""
    return attribute_error(f"module {module!r}", name, MODULES.get(module, {}))


def missing(module: str, name: str) -> Any:
    """For `__getattr__` of a module: what SINGA's name means (`compat.names`), or the error."""
    aliases = {}
    if not name.startswith("__"):  # what Python asks for
        aliases = importlib.import_module("singa.compat.names").ALIASES
    if place := aliases.get(module, {}).get(name):
        home, _, own = place.partition(":")
        return getattr(importlib.import_module(home), own)
    raise module_error(module, name)


def argument_error(function: str, name: str, known: str) -> TypeError:
    """The error for an argument that a function does not have. `known` says which it has."""
    words = ARGUMENTS.get(function, {})
    rest = f": use {words[name]}" if name in words else f"; {known}"
    return TypeError(f"[{function}] has no argument {name!r}{rest}")


def says_what_to_write(function: str) -> Callable[[_Function], _Function]:
    """A decorator: a TypeError about an unknown argument that the table has says what to write.
    It is looked up after the error, so that a call that fits costs nothing more."""

    def decorate(wrapped: _Function) -> _Function:
        @functools.wraps(wrapped)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return wrapped(*args, **kwargs)
            except TypeError as error:
                for name in kwargs:
                    unknown = f"unexpected keyword argument {name!r}" in str(error)
                    if unknown and name in ARGUMENTS[function]:
                        raise argument_error(function, name, "") from None
                raise

        return call  # type: ignore[return-value]

    return decorate


def spelled(**words: str | tuple[Any, ...]) -> Callable[[_Class], _Class]:
    """A class decorator: the constructor also takes PyTorch's keywords, for which `words` has
    singa's; or the values with which they mean what singa does without them. Others raise
    ValueError."""

    def decorate(cls: _Class) -> _Class:
        init = cls.__init__  # type: ignore[misc]

        @functools.wraps(init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            for theirs in words.keys() & kwargs.keys():
                value, ours, op = kwargs.pop(theirs), words[theirs], type(self).__name__
                if isinstance(ours, tuple):
                    if not any(value is each or value == each for each in ours):
                        accepted = " or ".join(map(repr, ours))
                        raise ValueError(
                            f"[{op}] {theirs} must be {accepted}, got {value!r}: there "
                            "is no other form"
                        )
                    continue
                if ours in kwargs:
                    raise TypeError(f"[{op}] {theirs} and {ours} are the same argument")
                kwargs[ours] = value
            init(self, *args, **kwargs)

        cls.__init__ = __init__  # type: ignore[misc]
        return cls

    return decorate


def answers(cls: _Class, words: Mapping[str, str]) -> _Class:
    """Gives the class answers to names that it does not have."""
    for name in words:
        if not hasattr(cls, name):
            setattr(cls, name, Absent(name, words))
    return cls


class Absent:
    """An attribute that is not there, which says what to write.

    It costs other attributes nothing, where a `__getattr__` of the class would.
    """

    def __init__(self, name: str, words: Mapping[str, str]) -> None:
        self._name, self._words = name, words

    def __get__(self, instance: object, owner: type) -> Any:
        raise attribute_error(f"{owner.__name__!r} object", self._name, self._words)
