"""Files and weights of models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd, tensor
from ..layer import late
from ..layer.head import replace_head
from ..raw.calls import says_what_to_write
from ..tape.assignment import checked
from ..tensor import Tensor
from .above import of_above
from .inputs import as_tensor

if TYPE_CHECKING:
    from ..files.fit import Mismatch

# files and torch_weights are imported in functions, so that a program that only computes does not
# load zipfile, json and their dependencies.


class Savable:
    """A model's weights in files, and those of other networks."""

    #: Names of the classes, in the order of the outputs. Checkpoints keep them. Loading one sets
    #: them where they are None.
    class_names: Sequence[str] | None = None
    #: What the outputs mean, of `singa.training.task`: None for a class, several labels, or
    #: numbers. `save` keeps it; `training.task.set_task` sets it with its loss.
    task: Any = None
    #: Patterns of names in PyTorch's state dict that load_torch ignores.
    torch_ignore: tuple[str, ...] = ("*.num_batches_tracked",)

    @says_what_to_write("save")
    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Saves the whole network to a file, from which `singa.load` makes it again.

        The file has the weights, how to make the network, the shapes of its inputs, `class_names`,
        `transform`, `task` and singa's version. Networks of `models.create` and
        `models.Sequential` with layers of singa are described by names and arguments, those of
        `singa.from_torch` by their graphs. Any other network is saved as its ONNX graph, which
        predicts and trains, but has no layers; this needs the package onnx. A warning says so where
        a network of the first kind has been changed, and names the layer.

        The write is atomic: a failure leaves the old file. Raises RuntimeError before compile(),
        ValueError that names the operator and its layer for a network that has no ONNX graph, and
        for another number of class names than the network has; TypeError for a transform that is
        not singa's.

        >>> net = models.create("lenet")
        >>> net.compile([tensor.zeros((1, 1, 28, 28))])
        >>> net.save("lenet.singa")
        >>> type(singa.load("lenet.singa")).__name__
        'LeNet'
        """
        of_above("save")(self, path)

    def _texts_of_use(self) -> dict[str, str]:
        """`class_names`, `transform` and `task` as the texts that an ONNX file's metadata have."""
        return of_above("_texts_of_use")(self)

    def _take_use(self, texts: Mapping[str, str]) -> None:
        """Sets what `_texts_of_use` described. Raises ValueError if it is damaged."""
        of_above("_take_use")(self, texts)

    def save_states(
        self: Any, fpath: str | os.PathLike[str], aux_states: Mapping[str, Any] | None = None
    ) -> None:
        """Saves parameters and running statistics.

        The suffix of `fpath` chooses the format: .npz, .safetensors, or SINGA's zip for any other.
        `aux_states` are further tensors, arrays or numbers to save, by name. The write is atomic:
        a failure leaves the old file. Raises RuntimeError if the model has no parameters yet,
        ValueError if `aux_states` has a name of the model's states, and TypeError for a value that
        is not numeric.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.save_states("net.safetensors", {"epoch": 3})
        >>> net.load_states("net.safetensors")["epoch"]
        Tensor(3, dtype=int32)
        """
        from ..files import state_files

        states = self._compiled_states("save_states")
        aux = {name: as_array(name, value) for name, value in (aux_states or {}).items()}
        if common := states.keys() & aux.keys():
            raise ValueError(f"[save_states] aux_states has names of the model: {sorted(common)}")
        dtypes = {name: int(value.dtype) for name, value in states.items()}
        for name, value in aux.items():
            dtypes[name] = int(tensor.as_dtype(value.dtype))
        arrays = {name: value.numpy() for name, value in states.items()}
        for name, value in late.waiting(self).items():
            arrays[name], dtypes[name] = value, int(tensor.as_dtype(value.dtype))
        state_files.save_states(fpath, arrays, aux, dtypes)

    @says_what_to_write("load_states")
    def load_states(self: Any, fpath: str | os.PathLike[str], strict: bool = True) -> LoadedStates:
        """Loads a file of `save_states`, or of SINGA's, and returns its aux_states by name.

        strict  whether the file must have all states of the model, and no others. With False, the
                result says what it lacked, and what it had besides: see LoadedStates.

        A file that was saved before the model became part of another one fits: where names differ,
        and it is clear for all of them which one ends in which, a warning lists them.

        Raises FileNotFoundError if there is no such file, RuntimeError if the model has no
        parameters yet, and ValueError if the file is damaged, for wrong shapes, and if `strict` for
        missing and unexpected names; the message lists them. The model is unchanged after an error.
        Time and memory are bounded by the sizes of the file and of the model, even for a malicious
        file.

        >>> net = models.Sequential(layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> net.save_states("net.npz")
        >>> net.load_states("net.npz")
        {}
        """
        from ..files import fit, state_files

        own = self._compiled_states("load_states")
        where = f"[load_states] {os.fspath(fpath)}"

        shapes: dict[str, Sequence[int]] = {}
        names: dict[str, str] = {}
        apart = fit.Mismatch([], [])

        def check(found: dict[str, tuple[int, ...]]) -> None:
            nonlocal shapes, names, apart
            awaited = late.awaited(self, found.keys() - own.keys())
            shapes = {name: shape for name, shape in found.items() if name not in awaited}
            names, apart = fit.fit(where, own, shapes, strict)

        room = sum(value.memsize() for value in own.values())
        states, aux = state_files.load_states(fpath, check, room)
        others = {name: as_tensor(value) for name, value in aux.items()}
        ready = checked(f"{where}:", own, {here: states[there] for here, there in names.items()})
        fit.say_renamed(where, names)
        if strict:  # a script's own set_states takes the states alone
            self.set_states(ready)
        else:
            self.set_states(ready, strict=False)
        late.give(self, {n: v for n, v in states.items() if n not in own and n not in shapes})
        return LoadedStates(others, apart.missing, apart.unexpected)

    def load_torch(
        self: Any, source: str | os.PathLike[str] | Mapping[str, Any], strict: bool = True
    ) -> Mismatch:
        """Loads weights that PyTorch saved for the same architecture.

        source  a .safetensors file or a state dict
        strict  whether all must fit (default True). With False, what does not is left out, such as
                a head for another number of classes.

        Returns the named tuple (missing, unexpected) of PyTorch's names: of weights of the model
        that were not set, and of values that were not used. A value of a wrong shape is in both.

        Raises TypeError for values that are not numeric, RuntimeError if the model has no
        parameters yet, and if `strict` ValueError that lists missing and unexpected names and wrong
        shapes, otherwise if no value fits at all. The model is unchanged after an error.

        >>> net = models.Sequential(layer.Linear(1))
        >>> net.compile([tensor.zeros((1, 2))])
        >>> net.load_torch({"0.weight": np.array([[1.0, 2.0]]), "0.bias": np.array([3.0])})
        Mismatch(missing=[], unexpected=[])
        >>> net.get_params()["0.W"]
        Tensor([[1.],
                [2.]], dtype=float32)
        """
        from ..layer.torch_weights import load_torch

        self._compiled_states("load_torch")
        return load_torch(self, source, strict)

    def torch_name(self: Any, name: str) -> str:
        """PyTorch's name of layer `name`. Models whose names differ from PyTorch's override it.

        >>> models.Sequential().torch_name("features.0")
        'features.0'
        """
        return name

    def replace_head(self: Any, num_outputs: int) -> tuple[str, ...]:
        """Gives the network's last layer, Linear or a convolution, `num_outputs` outputs, for
        training on other classes. Its parameters get new initial values; the others stay.

            net.load_torch("resnet50.safetensors")
            net.freeze()
            net.replace_head(37)  # trains

        Returns the paths of its parameters. `class_names` and `task` become None. Raises
        RuntimeError before compile(), and ValueError if the outputs come from another kind of
        layer, or the weight has a second use.

        >>> net = models.create("lenet")
        >>> net.compile([tensor.zeros((1, 1, 28, 28))])
        >>> net.replace_head(3)
        ('fc2.W', 'fc2.b')
        """
        inputs = self._examples("replace_head")
        with autograd.no_grad():
            paths = replace_head(self, num_outputs, lambda: self._infer(*inputs))
        self.class_names = None
        if self.task is not None:
            self.task = None
            vars(self).pop("loss", None)  # that of the task
        return paths

    def _compiled_states(self: Any, function: str) -> dict[str, Tensor]:
        states = self.get_states()
        if not states:
            raise RuntimeError(
                f"[{function}] {type(self).__name__} has no parameters yet: call compile() first"
            )
        return states


class LoadedStates(dict[str, Tensor]):
    """The result of `Model.load_states`: the file's aux_states by name. It is true, even without
    any.

    missing: names of states of the model that the file lacked.
    unexpected: names in the file that the model does not have.

    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> net.save_states("lenet.npz", {"epoch": 3})
    >>> loaded = net.load_states("lenet.npz")
    >>> loaded["epoch"], loaded.missing
    (Tensor(3, dtype=int32), [])
    """

    def __init__(
        self, aux: Mapping[str, Tensor], missing: Sequence[str], unexpected: Sequence[str]
    ) -> None:
        super().__init__(aux)
        self.missing = list(missing)
        self.unexpected = list(unexpected)

    def __bool__(self) -> bool:
        return True


def as_array(name: str, value: Any) -> np.ndarray:
    """The numbers of an aux state. Raises TypeError for what is not numeric."""
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "USV":
        raise TypeError(f"[save_states] aux state {name}: expected numbers, got {value!r:.60}")
    return array
