"""Parameters and states of layers, by their paths."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..tape.assignment import checked, write_all
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..files.fit import Mismatch
    from .base import Layer


class Parameterized:
    """Tensors of a layer and its sublayers: those that are trained, and others that are saved."""

    name: str | None
    #: Whether set_params and set_states take what fits, where `strict` is not given.
    _sets_parts: ClassVar[bool] = False

    def get_params(self: Any) -> dict[str, Tensor]:
        """{path: tensor} of all parameters of this layer and its sublayers, each once.

        Raises ValueError if two of them have the same path, as the keys 1 and "1" of a dict give.

        >>> net = layer.Sequential(layer.Linear(2), layer.ReLU())
        >>> y = net(tensor.ones((1, 3)))
        >>> {name: param.shape for name, param in net.get_params().items()}
        {'0.W': (3, 2), '0.b': (2,)}
        """
        return each_once(self._by_path("get_params"))

    def set_params(
        self: Any, parameters: Mapping[str, Any], strict: bool | None = None
    ) -> Mismatch:
        """Copies values (tensors or arrays) to the parameters of the same names.

        strict  whether each parameter needs a value, and each value a parameter (default True). A
                parameter with several paths needs one of them.

        Returns the named tuple (missing, unexpected): names of parameters that got no value, and of
        values that were not used. With `strict` False only they tell what was left out.

        Raises ValueError for a wrong shape, and if `strict` for missing and unexpected names, which
        it lists; TypeError for values that are not numeric. Nothing is changed after an error. With
        SINGA's behaviour (`singa.compat`) the default sets what fits, and raises ValueError if
        nothing does.

        >>> linear = layer.Linear(1, bias=False)
        >>> y = linear(tensor.ones((1, 2)))
        >>> linear.set_params({"W": np.array([[1.0], [2.0]])})
        Mismatch(missing=[], unexpected=[])
        >>> linear.W
        Tensor([[1.],
                [2.]], dtype=float32)
        """
        return self._assign("set_params", "get_params", parameters, strict)

    def get_states(self: Any) -> dict[str, Tensor]:
        """{path: tensor} of all parameters, and of tensors that are saved but not trained, such as
        running means. A tensor that has several paths is under each of them.

        Raises ValueError as get_params does.

        >>> norm = layer.BatchNorm2d()
        >>> y = norm(tensor.ones((1, 2, 1, 1)))
        >>> list(norm.get_states())
        ['scale', 'bias', 'running_mean', 'running_var']
        """
        return self._by_path("get_states")

    def set_states(self: Any, states: Mapping[str, Any], strict: bool | None = None) -> Mismatch:
        """As set_params, for all tensors that get_states returns.

        >>> norm = layer.BatchNorm2d()
        >>> y = norm(tensor.ones((1, 2, 1, 1)))
        >>> norm.set_states({"running_mean": np.array([1.0, 2.0])}, strict=False).missing
        ['scale', 'bias', 'running_var']
        >>> norm.running_mean
        Tensor([1., 2.], dtype=float32)
        """
        return self._assign("set_states", "get_states", states, strict)

    def _assign(
        self: Any, function: str, getter: str, values: Mapping[str, Any], strict: bool | None
    ) -> Mismatch:
        from ..files import fit  # not loaded by a program that only computes

        own = self._by_path(getter)
        if getattr(type(self), getter) is not getattr(Parameterized, getter):
            own |= getattr(self, getter)()
        if not isinstance(values, Mapping):
            raise TypeError(f"[{function}] expected a dict by name, got {type(values).__name__}")
        ready, apart = checked(f"[{function}]", own, values), fit.mismatch(own, values)
        if strict is None and self._sets_parts:
            if values and not ready:
                raise ValueError(
                    f"[{function}] {self.title} has none of these names: {', '.join(values):.200}"
                )
        elif strict or strict is None:
            fit.check(f"[{function}] the dict for {self.title}", apart)
        write_all(f"[{function}]", own, ready)
        return apart

    def freeze(self: Any, pattern: str | Iterable[str] | bool = "*", frozen: bool = True) -> None:
        """Stops training of parameters, or resumes it with frozen=False. No gradient is computed
        for frozen parameters.

        pattern  which ones (default: all of this layer and its sublayers): names as get_params has
                 them, in which * and ? match as in file names, such as "layer1.*"; or several in a
                 list

            net.freeze()                     # all
            net.freeze(["conv1.*", "bn1.*"])
            net.unfreeze("*.bias")           # biases train again
            net.unfreeze()                   # so does everything

        Batch norms of frozen layers still follow the batches: see `layer.freeze_statistics`.

        Call it after compile() or the first call, since parameters do not exist before. Raises
        ValueError for a pattern other than "*" that selects none, and TypeError if it is no text.

        >>> net = layer.Sequential(layer.Linear(2), layer.Linear(2))
        >>> y = net(tensor.ones((1, 3)))
        >>> net.freeze("0.*")
        >>> [name for name, param in net.get_params().items() if param.requires_grad]
        ['1.W', '1.b']
        """
        if isinstance(pattern, bool):
            frozen, pattern = pattern, "*"
        patterns = [pattern] if isinstance(pattern, str) else pattern
        if not isinstance(patterns, Iterable) or not all(isinstance(p, str) for p in patterns):
            raise TypeError(f"[freeze] pattern must be text, or a list of texts: {pattern!r:.80}")
        params = self._by_path("get_params")
        selected = []
        for each in patterns:
            matching = [p for name, p in params.items() if fnmatch.fnmatchcase(name, each)]
            if not matching and each != "*":
                raise ValueError(f"[freeze] no parameter matches {each!r} in {self.title}")
            selected += matching
        for param in selected:
            param.requires_grad = not frozen

    def unfreeze(self: Any, pattern: str | Iterable[str] = "*") -> None:
        """Has parameters train again: `freeze(pattern, False)`.

        >>> net = layer.Sequential(layer.Linear(2), layer.Linear(2))
        >>> y = net(tensor.ones((1, 3)))
        >>> net.freeze()
        >>> net.unfreeze("*.b")
        >>> [name for name, param in net.get_params().items() if param.requires_grad]
        ['0.b', '1.b']
        """
        self.freeze(pattern, False)

    def _by_path(self: Any, function: str) -> dict[str, Tensor]:
        """What `get_params` or `get_states` of this layer finds, under all paths."""
        found: list[tuple[str, Tensor]] = []
        self._collect(function, "", (id(self),), found)
        named = dict(found)
        if len(named) < len(found):
            for path, value in found:
                if named[path] is not value:
                    raise ValueError(
                        f"[{function}] {self.title} has two tensors of the name {path}"
                    )
        return named

    def _collect(
        self: Any,
        function: str,
        prefix: str,
        above: tuple[int, ...],
        found: list[tuple[str, Tensor]],
    ) -> None:
        """Appends (path, tensor) of what `function` finds: own tensors first, then those of
        sublayers.

        `above` are the identities of the layers around, which an attribute may refer to.
        """
        members = self._members()
        found += [(prefix + path, value) for path, value in self._params_among(members)]
        if function == "get_states":
            found += [(prefix + path, value) for path, value in self._own_states()]
        for path, child in members:
            if not isinstance(child, Parameterized) or id(child) in above:
                continue
            inside = f"{prefix}{path}{self.sep}"
            if getattr(type(child), function) is getattr(Parameterized, function):
                child._collect(function, inside, (*above, id(child)), found)
            else:  # a script's own, which may return names such as `self.W.name`
                full = f"{child.name}{self.sep}"
                named = getattr(child, function)().items()
                found += [(inside + name.removeprefix(full), value) for name, value in named]

    def _params_among(
        self: Any, members: Sequence[tuple[str, Layer | Tensor]]
    ) -> list[tuple[str, Tensor]]:
        apart = self.state_names
        return [
            (path, value)
            for path, value in members
            if isinstance(value, Tensor)
            and value.stores_grad
            and not (apart and path.partition(self.sep)[0] in apart)
        ]

    def _own_params(self: Any) -> list[tuple[str, Tensor]]:
        """(path, tensor) of the parameters in the attributes of this layer."""
        return self._params_among(self._members())


def each_once(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each once, under the first of its names."""
    first: dict[int, str] = {}
    for name, value in named.items():
        first.setdefault(id(value), name)
    return {name: named[name] for name in first.values()}
