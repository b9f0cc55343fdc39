"""Merging of steps: what singa computes in one operation.

`Fusion` is the mechanism, `patterns.py` has the patterns. A front end says which part each of its
nodes may play in them: `part_of`. Only values that nothing else reads are left out. Identity, by
which exporters give equal weights several names, is left out everywhere. A merged step is of the
domain `MERGED`, so no pattern matches it again.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .graph import Graph, ValueType, subgraphs

if TYPE_CHECKING:
    from .network import CompiledNode, Execution

#: Domain of the operators of merged steps.
MERGED = "singa"


@dataclass(frozen=True)
class Part:
    """A node as patterns see it.

    kind      what it computes, such as "add"; `patterns.py` lists the kinds
    operands  names of values; or numbers, which a call states
    options   what the kind has besides
    """

    kind: str
    operands: tuple[str | float, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


class Fusion:
    """Merges the steps of a graph. `make` creates a step; `constants` are known values."""

    def __init__(
        self,
        steps: Sequence[CompiledNode],
        graph: Graph,
        constants: Mapping[str, Any],
        make: Callable[..., CompiledNode],
    ) -> None:
        steps = _without_identities(steps, graph, make)
        self.steps: list[CompiledNode | None] = list(steps)
        self.graph, self.constants, self.make = graph, constants, make
        self.uses: Counter[str] = Counter(graph.outputs)
        self.makers: dict[str, int] = {}
        self._parts: dict[int, Part | None] = {}
        for i, step in enumerate(steps):
            self.uses.update(name for name in step.node.inputs if name)
            for inner in subgraphs(step.node):
                self.uses.update(inner.free_names())
            for name in step.node.outputs:
                self.makers[name] = i

    def part_of(self, step: CompiledNode) -> Part | None:
        """What a node is in patterns; None if it is in none. A front end says it."""
        raise NotImplementedError

    def rules(self) -> Sequence[Mapping[str, Callable[[int], bool]]]:
        """Tables of rules, the longer patterns first: a kind, and the function that merges the
        steps of a pattern that ends with a step of this kind."""
        return ()

    def run(self) -> list[CompiledNode]:
        """The merged steps."""
        for rule in self.rules():
            for i, step in enumerate(self.steps):
                if step is not None and self.is_one(i, *rule):
                    rule[self.part(i).kind](i)
        return [step for step in self.steps if step is not None]

    # What the rules ask.

    def is_one(self, i: int, *kinds: str) -> bool:
        """Whether step i is a node of the graph of one of these kinds, of which one result is read,
        and which is not evaluated on the host."""
        step = self.steps[i]
        if step is None or step.node.domain or (step.reader is not None and step.reader.evaluated):
            return False
        if i not in self._parts:
            self._parts[i] = self.part_of(step)
        part = self._parts[i]
        if part is None or part.kind not in kinds:
            return False
        return not any(self.uses[name] for name in step.node.outputs[1:] if name)

    def part(self, i: int) -> Part:
        """What step i is, for which `is_one` holds."""
        part = self._parts[i]
        assert part is not None
        return part

    def operands(self, i: int) -> tuple[Any, ...]:
        """The operands of step i, for which `is_one` holds."""
        return self.part(i).operands

    def only(self, value: str | float, *kinds: str, uses: int = 1) -> int | None:
        """The step that makes a value which is read `uses` times, if it is of one of these
        kinds."""
        i = self.makers.get(value) if isinstance(value, str) else None
        if i is None or self.uses[str(value)] != uses:
            return None
        return i if self.is_one(i, *kinds) else None

    def step(self, i: int) -> CompiledNode:
        """Step i, which has not been merged into a later one."""
        step = self.steps[i]
        assert step is not None
        return step

    def number(self, value: str | float) -> float | None:
        """A number that a call states; or a constant of one element, with no more than one axis:
        others add axes to results."""
        if not isinstance(value, str):
            return float(value)
        array = self.constants.get(value)
        if array is None or array.size != 1 or array.ndim > 1:
            return None
        return float(array.reshape(-1)[0])

    def is_known(self, value: str | float) -> bool:
        """Whether a value depends on constants and shapes alone."""
        known = not isinstance(value, str) or value in self.constants
        return known or value in self._sources[0]

    def is_given(self, value: str | float) -> bool:
        """Whether a value depends on inputs, constants and shapes alone, and not on parameters."""
        return self.is_known(value) or value in self._sources[1]

    @functools.cached_property
    def _sources(self) -> tuple[set[str], set[str]]:
        """The values of steps that are known, and others that are given."""
        known, given = {"", *self.constants}, set(self.graph.inputs)
        for step in self.steps:
            if step is None:
                continue
            used = set(step.node.inputs)
            for inner in subgraphs(step.node):
                used |= inner.free_names()
            if step.of_shape or used <= known:
                known.update(step.node.outputs)
            elif used <= known | given:
                given.update(step.node.outputs)
        return known, given

    def merge(
        self,
        steps: Sequence[int],
        lead: CompiledNode,
        inputs: Sequence[str],
        compute: Any,
        op: str = "",
    ) -> bool:
        """Puts one step in the place of several, of which the last one makes the result. Its
        operator has their names unless it is given one."""
        *gone, last = steps
        types = dict(zip(lead.node.inputs, lead.node.input_types, strict=False))
        node = replace(
            lead.node,
            op=op or "+".join(self.step(i).node.op for i in sorted(steps)),
            domain=MERGED,
            inputs=tuple(inputs),
            outputs=self.step(last).node.outputs,
            input_types=tuple(types.get(name, ValueType()) for name in inputs),
            used=(),
        )
        merged = self.make(node, lead.reader, compute)
        for i in gone:
            self.steps[i] = None
        self.steps[last] = merged
        return True

    def apart(self, numbers_: Sequence[int], names: Sequence[str]) -> Callable[..., Any]:
        """Steps as one function of the values `names` that computes one after the other. Constants
        need not be among them."""
        steps = [self.step(i) for i in sorted(numbers_)]
        output = steps[-1].node.outputs[0]
        read = {name for step in steps for name in step.node.inputs}
        constants = {name: self.constants[name] for name in read if name in self.constants}

        def compute(run: Execution, *arguments: Any) -> Any:
            known = {**constants, **dict(zip(names, arguments, strict=True))}
            for step in steps:
                given = [known[name] if name else None for name in step.node.inputs]
                known.update(zip(step.node.outputs, step.run(run, given), strict=False))
            return known[output]

        return compute


def _without_identities(
    steps: Sequence[CompiledNode], graph: Graph, make: Callable[..., CompiledNode]
) -> list[CompiledNode]:
    """The steps without Identity, but where the graph or a subgraph needs its name."""
    needed = {*graph.outputs}
    for step in steps:
        for inner in subgraphs(step.node):
            needed |= inner.free_names()
    sources: dict[str, str] = {}
    rest = []
    for step in steps:
        node = step.node
        if not sources.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple([sources.get(name, name) for name in node.inputs]))
            step = make(node, step.reader, step.compute)
        if node.op == "Identity" and not node.domain and node.outputs[0] not in needed:
            sources[node.outputs[0]] = node.inputs[0]
        else:
            rest.append(step)
    return rest
