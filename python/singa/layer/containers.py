"""Lists and dicts of layers that are layers themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import overload

from .base import Layer, checked_layer


class _Container(Layer):
    """Layers by name, in order. It computes nothing itself."""

    def _checked(self, layer: Layer) -> Layer:
        return checked_layer(type(self).__name__, layer)

    def _replace(self, layers: Mapping[str, Layer]) -> None:
        """Makes these the layers."""
        for name in list(self._layers):
            delattr(self, name)
        for name, layer in layers.items():
            self._adopt(name, layer)

    def __len__(self) -> int:
        return len(self._layers)


class ModuleList(_Container):
    """A list of layers, named "0", "1", ..., as torch.nn.ModuleList. Slices are plain lists.

    A plain list does as well: its layers are trained, saved and frozen. This one has the methods of
    layers, too, such as `get_params` and `freeze`. Raises TypeError for what is no layer.

        self.blocks = layer.ModuleList([layer.Linear(8) for _ in range(4)])

    >>> blocks = layer.ModuleList([layer.Linear(4), layer.Linear(4)])
    >>> x = tensor.ones((1, 4))
    >>> for block in blocks:
    ...     x = block(x)
    ...
    >>> list(blocks.get_params())
    ['0.W', '0.b', '1.W', '1.b']
    """

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        super().__init__()
        self.extend(layers)

    def append(self, layer: Layer) -> ModuleList:
        """Adds a layer at the end.

        >>> blocks = layer.ModuleList()
        >>> len(blocks.append(layer.Linear(4)))
        1
        """
        self._adopt(str(len(self)), self._checked(layer))
        return self

    def extend(self, layers: Iterable[Layer]) -> ModuleList:
        """Adds several layers at the end.

        >>> blocks = layer.ModuleList()
        >>> len(blocks.extend([layer.Linear(4), layer.ReLU()]))
        2
        """
        for layer in [self._checked(layer) for layer in layers]:
            self.append(layer)
        return self

    def insert(self, index: int, layer: Layer) -> None:
        """Inserts a layer before the one at `index`. Later ones get the next names.

        >>> blocks = layer.ModuleList([layer.Linear(4)])
        >>> blocks.insert(0, layer.ReLU())
        >>> type(blocks[0]).__name__
        'ReLU'
        """
        layers = list(self)
        layers.insert(index, self._checked(layer))
        self._number(layers)

    def pop(self, index: int = -1) -> Layer:
        """Removes a layer and returns it. Later ones get the names before.

        >>> blocks = layer.ModuleList([layer.Linear(4), layer.ReLU()])
        >>> type(blocks.pop()).__name__, len(blocks)
        ('ReLU', 1)
        """
        layers = list(self)
        layer = layers.pop(index)
        self._number(layers)
        return layer

    def _number(self, layers: Iterable[Layer]) -> None:
        self._replace({str(i): layer for i, layer in enumerate(layers)})

    def __iter__(self) -> Iterator[Layer]:
        return iter(list(self._layers.values()))

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Layer]: ...
    def __getitem__(self, index: int | slice) -> Layer | list[Layer]:
        return list(self)[index]

    def __setitem__(self, index: int, layer: Layer) -> None:
        layers = list(self)
        layers[index] = self._checked(layer)
        self._number(layers)

    def __delitem__(self, index: int | slice) -> None:
        layers = list(self)
        del layers[index]
        self._number(layers)

    def __iadd__(self, layers: Iterable[Layer]) -> ModuleList:
        return self.extend(layers)


class ModuleDict(_Container):
    """A dict of layers by name, as torch.nn.ModuleDict.

    A plain dict does as well; this one has the methods of layers, too. Raises TypeError for what is
    no layer, and for names that are no text; ValueError for names with a dot, and for those of
    attributes that layers have, such as "forward".

        self.heads = layer.ModuleDict({"left": layer.Linear(3), "right": layer.Linear(5)})

    >>> heads = layer.ModuleDict({"age": layer.Linear(1), "kind": layer.Linear(3)})
    >>> heads["kind"](tensor.ones((2, 8))).shape
    (2, 3)
    >>> list(heads.get_params())
    ['kind.W', 'kind.b']
    """

    def __init__(self, layers: Mapping[str, Layer] | Iterable[tuple[str, Layer]] = ()) -> None:
        super().__init__()
        self.update(layers)

    def update(self, layers: Mapping[str, Layer] | Iterable[tuple[str, Layer]]) -> None:
        """Adds layers, and replaces those of the same names.

        >>> heads = layer.ModuleDict()
        >>> heads.update({"age": layer.Linear(1)})
        >>> list(heads.keys())
        ['age']
        """
        for name, layer in dict(layers).items():
            self[name] = layer

    def pop(self, name: str) -> Layer:
        """Removes a layer and returns it. Raises KeyError if there is none.

        >>> heads = layer.ModuleDict({"age": layer.Linear(1)})
        >>> type(heads.pop("age")).__name__, len(heads)
        ('Linear', 0)
        """
        layer = self[name]
        del self[name]
        return layer

    def clear(self) -> None:
        """Removes all.

        >>> heads = layer.ModuleDict({"age": layer.Linear(1)})
        >>> heads.clear()
        >>> len(heads)
        0
        """
        self._replace({})

    def keys(self) -> Iterable[str]:
        """The names.

        >>> list(layer.ModuleDict({"age": layer.Linear(1)}).keys())
        ['age']
        """
        return self._layers.keys()

    def values(self) -> Iterable[Layer]:
        """The layers.

        >>> [type(each).__name__ for each in layer.ModuleDict({"age": layer.Linear(1)}).values()]
        ['Linear']
        """
        return self._layers.values()

    def items(self) -> Iterable[tuple[str, Layer]]:
        """(name, layer) of all.

        >>> heads = layer.ModuleDict({"age": layer.Linear(1)})
        >>> [(name, type(each).__name__) for name, each in heads.items()]
        [('age', 'Linear')]
        """
        return self._layers.items()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._layers))

    def __contains__(self, name: object) -> bool:
        return name in self._layers

    def __getitem__(self, name: str) -> Layer:
        return self._layers[name]

    def __setitem__(self, name: str, layer: Layer) -> None:
        if not isinstance(name, str):
            raise TypeError(f"[ModuleDict] expected names, got {name!r:.80}")
        if not name or self.sep in name or (name not in self._layers and hasattr(self, name)):
            raise ValueError(f"[ModuleDict] a layer cannot have the name {name!r}")
        self._adopt(name, self._checked(layer))

    def __delitem__(self, name: str) -> None:
        if name not in self._layers:
            raise KeyError(name)
        delattr(self, name)
