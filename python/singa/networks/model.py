"""A Model whose parameters have the names of a graph's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from .. import model
from ..tape.step_recording import is_recording_step
from ..tensor import Tensor

#: Attributes that hold parameters begin so, since a graph's values may have any name.
_PREFIX = "value/"


class NetworkModel(model.Model):
    """A Model with parameters and states by name, which need not be names of attributes."""

    has_parts = True
    not_settings: ClassVar[tuple[str, ...]] = ("_keys",)
    input_types = "fixed"
    #: Where its types come from, and how they are changed, for messages.
    types_from = "its file; use onnx.load(dtype=...)"

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, str] = {}  # name of a parameter or state: attribute

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.graph_mode and not is_recording_step():
            inputs = self._as_tensors(inputs)
            self._prepare(inputs, self.training)
        return super().__call__(*inputs, **kwargs)

    def _prepare(self, inputs: Sequence[Any], train: bool) -> None:
        """Computes what the host has to know for inputs of these shapes before a step is recorded:
        tensors of constants must outlive the step."""
        raise NotImplementedError

    def _examples(self, function: str) -> list[Any]:
        inputs = super()._examples(function)
        self._prepare(inputs, False)  # what the host computes is no layer of a summary
        return inputs

    def _values_by_name(self) -> dict[str, Tensor]:
        """The parameters and states."""
        return {name: self.__dict__[key] for name, key in self._keys.items()}

    def _put(self, name: str, value: Tensor, trained: bool) -> None:
        value.requires_grad = value.stores_grad = trained
        value.name = self._get_name_prefix() + name
        key = self._keys.setdefault(name, _PREFIX + name)
        self.__dict__[key] = value
        self.__dict__["_fits"] = None

    def _members(self) -> list[tuple[str, Any]]:
        names = {key: name for name, key in self.__dict__.get("_keys", {}).items()}
        return [(names.get(path, path), value) for path, value in super()._members()]

    def _own_states(self) -> list[tuple[str, Tensor]]:
        kept = [(name, self.__dict__[key]) for name, key in self._keys.items()]
        return [(name, value) for name, value in kept if not value.stores_grad]
