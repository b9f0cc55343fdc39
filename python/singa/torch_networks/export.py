"""PyTorch's modules as graphs: the one file that knows `torch.export`."""

from __future__ import annotations

import inspect
import math
import os
import random  # noqa: F401 - whose state is compared
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy.random  # noqa: F401 - whose state is compared

from ..graph.drawn_lines import DrawnLine
from ..graph.tokens import Drawing, random_numbers
from ..networks.errors import Problem
from ..networks.graph import Graph, Node, ValueType
from . import guards
from .arguments import Value
from .front import NUMBERS, is_of_numbers
from .given import as_array, has_other_floats
from .operators import registry
from .promotion import write_conversions
from .refusals import (
    check_parts,
    is_own,
    own_error,
    refusal,
    refusing,
    unsupported,
    without_new_state,
)
from .views import merge_views

#: Operators that return their first argument: graphs have no operators that write.
_SAME = (
    *("alias", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "detach_copy"),
    "prims.copy_strided",
)
#: Operators that check what export has seen to hold, that tell export something, or that check
#: values, for which a step would have to wait.
_WITHOUT_RESULT = (
    *("_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"),
    *("_assert_async", "_assert_async.msg", "_linalg_check_errors"),
)
#: Calls an operator after others: its first argument and its first result are a token.
_ORDERED = "torch.ops.higher_order.with_effects"
#: Operators that draw numbers, or that have no values.
_NOT_FOLDED = re.compile(r"empty|rand|bernoulli|dropout|normal|uniform")
#: Operators whose running statistics singa updates in place: arguments 3 and 4, results 3 and 4.
_UPDATES = "_native_batch_norm_legit_functional"
#: Operators that behave as in training wherever they stand.
_OF_TRAINING = (_UPDATES, "native_dropout", "bernoulli.p", "scaled_dot_product_attention")
_SIZE = r"L\['\w+'\](?:\[\d+\])?\.size\(\)\[\d+\]"
#: That lengths of two inputs are equal, which their types say.
_EQUAL = re.compile(rf"{_SIZE} == {_SIZE}")
_RESULTS = "results are tensors, or lists or dicts of them"
#: What PyTorch warns of.
_ASSIGNED = re.compile(r"The tensor attributes? (.*) w(?:as|ere) assigned during export")
#: Most elements of a constant that is computed ahead.
_MOST_FOLDED = 1 << 24


@dataclass
class Exported:
    """A module in one mode.

    written  the buffers that a run changes: the names of their values afterwards, by their own
    outputs  the form of the result: the number of an output, or a list or dict of forms
    guards   what has to hold for the lengths of inputs; see `guards`
    assigned  attributes that a call sets to tensors, which a graph does not
    """

    graph: Graph
    written: dict[str, str] = field(default_factory=dict)
    outputs: Any = 0
    guards: list[Any] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)


def export(
    torch: Any,
    module: Any,
    inputs: tuple[Any, ...],
    training: bool,
    dynamic: Sequence[int] = (),
    accelerated: bool = False,
) -> Exported:
    """The graph of a module in one mode. `dynamic` are axes that are open besides the batch. Raises
    UnsupportedError, with what PyTorch says, for a module that it cannot export or that draws
    numbers elsewhere than in PyTorch, and the module's own error where it cannot be called with
    these inputs. An accelerated module lies in another one, and may have hooks of gradients."""
    check_parts(torch, module.inner if accelerated else module, accelerated)
    quiet = warnings.catch_warnings(record=True)
    with torch.random.fork_rng(devices=[]), _mode(module, training), quiet as said:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message=_ASSIGNED.pattern)
        if not accelerated and has_other_floats(module, inputs):
            own = own_error(torch, module, inputs)
            if own is not None:  # export does not look at types
                raise own
        before = random_numbers()
        try:
            with refusing(torch), without_new_state(torch, module):
                program, is_open = _program(torch, module, inputs, dynamic)
                now = random_numbers()
                moved = [name for name, then in now.items() if before[name] != then]
                if moved:  # once more, to see whether another thread has drawn
                    with DrawnLine(of_torch=False) as line, Drawing() as drawing:
                        program, is_open = _program(torch, module, inputs, dynamic)
                    if drawing.by_this_thread(moved):
                        raise NotImplementedError(
                            f"it draws from Python's {' and '.join(moved)}{line.place}, "
                            "which would give the same numbers in each call: take torch.rand"
                        )
        except Exception as error:  # of many kinds
            raise refusal(torch, module, inputs, error) from error
    translation = _Translation(torch, module, program, inputs, training, accelerated)
    exported = translation.result(is_open, bool(dynamic))
    found = [_ASSIGNED.match(str(each.message)) for each in said]
    exported.assigned = sorted({name for each in found if each for name in each[1].split(", ")})
    return exported


def _keep_constants_of_no_grad(torch: Any, program: Any) -> None:
    """Detaches the results of `no_grad`, which decompositions forget. Raises NotImplementedError
    for regions inside of one another."""
    region = torch.ops.higher_order.wrap_with_set_grad_enabled
    graphs = [each for each in program.graph_module.modules() if hasattr(each, "graph")]
    for module in graphs:
        for node in list(module.graph.nodes):
            if node.op != "call_function" or node.target is not region:
                continue
            if module is not program.graph_module:
                raise NotImplementedError(
                    "no_grad or enable_grad inside another context: take x.detach() there"
                )
            if node.args[0]:
                continue
            for user in list(node.users):
                with module.graph.inserting_after(user):
                    detached = module.graph.call_function(torch.ops.aten.detach.default, (user,))
                detached.meta = dict(user.meta)
                user.replace_all_uses_with(
                    detached, delete_user_cb=lambda each, own=detached: each is not own
                )
                program.graph_signature.replace_all_uses(user.name, detached.name)
        module.recompile()


def _program(
    torch: Any, module: Any, inputs: tuple[Any, ...], dynamic: Sequence[int]
) -> tuple[Any, bool]:
    """The exported program, with an open batch unless PyTorch refuses it, and whether it has
    not."""
    dim, is_open = torch.export.Dim, True

    def exported(batch: Any) -> Any:
        open_axes = dict.fromkeys(dynamic, dim.DYNAMIC) | {0: batch}
        shapes: Any = [{i: each for i, each in open_axes.items() if i < x.ndim} for x in inputs]
        parameters = inspect.signature(module.forward).parameters.values()
        for i, parameter in enumerate(parameters):
            if parameter.kind is parameter.VAR_POSITIONAL and i < len(shapes):  # *inputs is one
                shapes[i:] = [tuple(shapes[i:])]
        shapes = tuple(shapes)
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)

    try:
        program = exported(dim.DYNAMIC)
    except Exception:
        program, is_open = exported(dim.AUTO), False
    _keep_constants_of_no_grad(torch, program)
    # Operators without a row are written with others, where PyTorch knows how.
    table = torch.export.default_decompositions().materialize()
    without = {op: how for op, how in table.items() if registry.find(operator_name(op)) is None}
    return program.run_decompositions(without), is_open


def operator_name(op: Any) -> str:
    """The name of an operator: aten's without "aten." and ".default"."""
    return str(op).removeprefix("aten.").removesuffix(".default")


@contextmanager
def _mode(module: Any, training: bool) -> Iterator[None]:
    """The module in training, or in inference. Parts of a training module that are in inference
    stay so."""
    before = [(part, part.training) for part in module.modules()]
    try:
        if module.training != training:
            module.train(training)
        elif not training:
            module.eval()
    except NotImplementedError:  # of a program that was exported, whose mode stays
        for part, _ in before:
            part.training = training
    try:
        yield
    finally:
        for part, mode in before:
            part.training = mode


def type_name(dtype: Any) -> str:
    """The name of an element type."""
    return str(dtype).removeprefix("torch.")


class _Translation:
    """One exported program as a Graph. Names of nodes' values begin with %, so that none of them
    is the name of a parameter."""

    def __init__(
        self,
        torch: Any,
        module: Any,
        program: Any,
        inputs: tuple[Any, ...],
        training: bool,
        accelerated: bool,
    ) -> None:
        self.torch, self.program, self.inputs, self.training = torch, program, inputs, training
        self.module = module
        self.folded: dict[str, Any] = {}  # values that PyTorch computes here
        self.names: dict[str, str] = {}  # of values, by the names of nodes
        self.accelerated = accelerated
        self.graph = Graph(module._get_name(), [], [], [], {}, producer="PyTorch")
        self.types: dict[str, ValueType] = {}
        self.titles: set[str] = set()
        self.package = os.path.dirname(torch.__file__)

    def result(self, is_open: bool, is_dynamic: bool) -> Exported:
        """The graph. `is_open`: PyTorch has not refused an open batch; `is_dynamic`: other axes are
        open, too."""
        program = self.program
        self._leave_out_checks(program.graph)
        program.graph.eliminate_dead_code()
        merge_views(self.torch, program)
        write_conversions(self.torch, program.graph)
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs[node.name])
            elif node.op == "call_function":
                self._call(node)
        exported = Exported(self.graph)
        self._outputs(exported)
        self._keep_constants()
        self._mark_used()
        self.graph.types = {name: self.types[name] for name in self.graph.inputs}
        if is_dynamic:
            exported.guards = self._guards()
        elif not self._is_open(is_open):
            self._fix()
        return exported

    def _fix(self) -> None:
        """Has the lengths of the example in the place of open ones."""
        graph = self.graph
        lengths: dict[Any, int] = {}
        for name, x in zip(graph.inputs, self.inputs, strict=True):
            lengths.update(zip(self.types[name].shape or (), x.shape, strict=True))
            graph.types[name] = ValueType(type_name(x.dtype), tuple(x.shape))

        def fixed(each: ValueType) -> ValueType:
            if each.shape is None:
                return each
            return ValueType(each.type, tuple(lengths.get(n, n) for n in each.shape))

        for node in graph.nodes:
            node.input_types = tuple(map(fixed, node.input_types))
            node.output_types = tuple(map(fixed, node.output_types))

    def _leave_out_checks(self, graph: Any) -> None:
        for node in [*graph.nodes]:
            if node.op != "call_function":
                continue
            name = self._operator(node.target)
            if name == _ORDERED and operator_name(node.args[1]) in _WITHOUT_RESULT:
                for token in [*node.users]:
                    token.replace_all_uses_with(node.args[0])
                    graph.erase_node(token)
                graph.erase_node(node)
            elif name in _WITHOUT_RESULT:
                graph.erase_node(node)

    # Values.

    def _type(self, value: Any) -> ValueType:
        if not isinstance(value, self.torch.Tensor):
            return ValueType()
        return ValueType(type_name(value.dtype), tuple(map(self._length, value.shape)))

    def _length(self, n: Any) -> int | str:
        """A length, or the name of one that is open."""
        known = n if isinstance(n, int) else n.node.maybe_as_int()
        return str(n) if known is None else known

    def _guard_texts(self) -> list[str] | None:
        """What PyTorch has assumed of lengths; None before 2.9, which refuses to assume more than
        ranges where a length is open."""
        return getattr(self.program, "_guards_code", None)

    def _positions(self) -> dict[str, int]:
        """The positions of the module's arguments."""
        names = list(inspect.signature(self.module.forward).parameters)
        return {name: i for i, name in enumerate(names[: len(self.inputs)])}

    def _is_known(self, text: str) -> bool:
        """Whether what PyTorch has assumed of lengths follows from the types of the inputs."""
        if _EQUAL.fullmatch(text):
            return True
        try:
            guard = guards.parsed(text, self._positions())
        except ValueError:
            return False
        shapes = [self.types[name].shape or () for name in self.graph.inputs]
        return guard is None or guards.follows(guard, shapes)

    def _guards(self) -> list[Any]:
        """What has to hold for lengths. Raises UnsupportedError for what is not understood."""
        result: list[Any] = []
        for text in self._guard_texts() or ():
            try:
                guard = guards.parsed(text, self._positions())
            except ValueError as error:
                problem = Problem(self.graph.name, "dynamic", 0, f"PyTorch assumes {error}")
                raise unsupported([problem]) from None
            if guard is not None and guard not in result:
                result.append(guard)
        ranges = {str(name): each for name, each in self.program.range_constraints.items()}
        for i, input_ in enumerate(self.graph.inputs):
            for axis, n in enumerate(self.graph.types[input_].shape or ()):
                size, known = ["size", i, axis], ranges.get(str(n))
                if known is not None and int(known.lower) > 2:
                    result.append([">=", size, int(known.lower)])
                if known is not None and str(known.upper) != "int_oo":
                    result.append(["<=", size, int(known.upper)])
        return result

    def _is_open(self, is_open: bool) -> bool:
        """Whether the graph is right for any batch. What PyTorch has assumed of it ends that, but
        for a length of at least 2, which it always assumes and no operator of a graph needs."""
        lengths = {str(n) for name in self.graph.inputs for n in self.types[name].shape or ()}
        ranges = [
            each
            for name, each in self.program.range_constraints.items()
            if str(name) in lengths  # and not a value that Python reads
        ]
        texts = self._guard_texts()
        if texts is None:
            return is_open
        return all(map(self._is_known, texts)) and all(
            int(each.lower) <= 2 and str(each.upper) == "int_oo" for each in ranges
        )

    def _placeholder(self, node: Any, spec: Any) -> None:
        kind = spec.kind.name
        name = f"%{node.name}"
        self.names[node.name] = name
        if kind in ("PARAMETER", "BUFFER"):
            if kind == "PARAMETER" or spec.persistent or self._is_written(spec.target):
                self.names[node.name] = name = spec.target
            else:
                self.folded[name] = self.program.constants[spec.target].detach()
        elif kind == "CONSTANT_TENSOR":
            self.folded[name] = self.program.constants[spec.target].detach()
        elif kind == "USER_INPUT" and isinstance(node.meta.get("val"), self.torch.Tensor):
            self.graph.inputs.append(name)
        elif kind == "CUSTOM_OBJ" and spec.arg.class_fqn.endswith("Generator"):
            (user, *_) = node.users
            reason = f"a torch.Generator{self._at(user)}: leave it out, singa.seed starts them all"
            self._refuse(user.name, self._operator(user.target), reason)
        elif kind != "TOKEN":
            self._refuse(node.name, kind.lower(), "singa takes tensors as inputs alone")
        self.types[name] = self._type(node.meta.get("val"))

    def _refuse(self, node: str, operator: str, reason: str) -> NoReturn:
        raise unsupported([Problem(node, operator, 0, reason)])

    def _is_written(self, buffer: str) -> bool:
        return buffer in self.program.graph_signature.buffers_to_mutate.values()

    def _call(self, node: Any) -> None:
        target = node.target
        op = self._operator(target)
        if op == "getitem":
            source, i = node.args
            made = self._operator(source.target)
            if made == _UPDATES and i in (3, 4):
                self.names[node.name] = self.names[source.args[i].name]
            else:
                self.names[node.name] = f"%{source.name}:{i}"
                self.types.setdefault(f"%{source.name}:{i}", self._type(node.meta["val"]))
            return
        if op in _SAME:
            self.names[node.name] = self.names[node.args[0].name]
            return
        if op == _ORDERED:
            op = operator_name(node.args[1])
        if self._fold(node, op):
            return
        inputs: list[str] = []
        arguments = [self._template(x, inputs) for x in node.args]
        options = {
            name: self._template(x, inputs) for name, x in node.kwargs.items() if x is not None
        }
        options = {name: x for name, x in options.items() if name not in _PLACES}
        value = node.meta.get("val")
        outputs = [f"%{node.name}"]
        if isinstance(value, list | tuple):
            outputs = [f"%{node.name}:{i}" for i in range(len(value))]
        else:
            self.names[node.name] = outputs[0]
        if op == _UPDATES:
            outputs = outputs[:3]
        elif op == "_assert_scalar":
            outputs = []
        values = value if isinstance(value, list | tuple) else [value]
        for name, each in zip(outputs, values, strict=False):
            self.types[name] = self._type(each)
        overload = isinstance(target, self.torch._ops.OpOverload)
        number = is_of_numbers(op, of_python=not overload)
        attributes: dict[str, Any] = {"arguments": arguments, "options": options}
        if where := self._where(node):
            attributes["where"] = where
        if op in _OF_TRAINING and not self.training:
            attributes["forced"] = True
        self.graph.nodes.append(
            Node(
                self._title(node),
                op,
                NUMBERS if number else "",
                0,
                tuple(inputs),
                tuple(outputs),
                attributes,
                tuple(self.types.get(name, ValueType()) for name in inputs),
                tuple(self.types.get(name, ValueType()) for name in outputs),
            )
        )

    def _operator(self, target: Any) -> str:
        """The name of an operator, or of a function of Python."""
        if isinstance(target, self.torch._ops.OpOverload):
            return operator_name(target)
        name = getattr(target, "__name__", str(target))
        known = name == "getitem" or is_of_numbers(name, of_python=True)
        return name if known else f"{getattr(target, '__module__', 'python')}.{name}"

    def _template(self, x: Any, inputs: list[str]) -> Any:
        """An argument, in which `Value`s stand for values."""
        torch = self.torch
        if isinstance(x, torch.fx.Node):
            name = self.names[x.name]
            if name not in inputs:
                inputs.append(name)
            return Value(inputs.index(name), not isinstance(x.meta["val"], torch.Tensor))
        if isinstance(x, list | tuple):
            return [self._template(each, inputs) for each in x]
        if isinstance(x, torch.dtype):
            return type_name(x)
        if isinstance(x, torch.device | torch.layout | torch.memory_format):
            return None
        if x is None or isinstance(x, bool | int | float | str):
            return x
        return str(x)

    # What is known ahead.

    def _fold(self, node: Any, op: str) -> bool:
        """Computes a node of constants alone. Returns whether it did."""
        torch = self.torch
        value = node.meta.get("val")
        tensors = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(each, torch.Tensor) for each in tensors) or _NOT_FOLDED.search(op):
            return False
        if any(not isinstance(n, int) for each in tensors for n in each.shape):
            return False
        if sum(math.prod(each.shape) for each in tensors) > _MOST_FOLDED:
            return False
        sources = node.all_input_nodes
        if any(self.names.get(each.name) not in self.folded for each in sources):
            return False
        if not isinstance(node.target, torch._ops.OpOverload):
            return False

        def known(each: Any) -> Any:
            return self.folded[self.names[each.name]]

        args = torch.fx.node.map_arg(node.args, known)
        kwargs = torch.fx.node.map_arg(node.kwargs, known)
        with torch.no_grad():
            result = node.target(*args, **kwargs)
        # Copies that only change strides are left out, so all constants have those of their shapes.
        if isinstance(result, list | tuple):
            result = [each.contiguous() for each in result]
            for i, each in enumerate(result):
                self.folded[f"%{node.name}:{i}"] = each
                self.types[f"%{node.name}:{i}"] = self._type(each)
        else:
            self.names[node.name] = name = f"%{node.name}"
            self.folded[name] = result.contiguous()
            self.types[name] = self._type(result)
        return True

    def _keep_constants(self) -> None:
        used = {name for node in self.graph.nodes for name in node.inputs} | {*self.graph.outputs}
        for name in used & self.folded.keys():
            array = as_array(self.torch, self.folded[name])
            array.flags.writeable = False
            self.graph.constants[name] = array

    def _mark_used(self) -> None:
        read = {name for node in self.graph.nodes for name in node.inputs} | {*self.graph.outputs}
        for node in self.graph.nodes:
            node.used = tuple(name in read for name in node.outputs)

    # Outputs.

    def _outputs(self, exported: Exported) -> None:
        torch, graph = self.torch, self.graph
        program = self.program
        signature = program.graph_signature
        results = []
        for spec in signature.output_specs:
            kind = spec.kind.name
            if kind == "USER_OUTPUT" and type(spec.arg).__name__ == "TensorArgument":
                results.append(self.names[spec.arg.name])
            elif kind == "BUFFER_MUTATION":
                name = self.names[spec.arg.name]
                if name != spec.target:  # batch norm has updated the buffer itself
                    exported.written[spec.target] = name
            elif kind == "USER_OUTPUT":
                got = repr(spec.arg.value) if hasattr(spec.arg, "value") else "a length"
                what = f"{_RESULTS}, got {got}: leave the others out"
                self._refuse(graph.name, "output", what)
            elif kind != "TOKEN" and (kind != "USER_INPUT_MUTATION" or self.accelerated):
                # A network of singa leaves its inputs as they are, and computes the same.
                (node,) = [each for each in program.graph.nodes if each.name == spec.arg.name]
                instead = "outside of the module"
                if kind == "USER_INPUT_MUTATION":
                    what, instead = "an input", "to a copy of it (x.clone(), inplace=False)"
                elif kind == "PARAMETER_MUTATION":
                    name = spec.target.removeprefix("inner.") if self.accelerated else spec.target
                    what = f"its parameter {name}"
                else:
                    what = kind.lower()
                reason = f"it writes to {what}{self._at(node)}: write {instead}"
                self._refuse(graph.name, "output", reason)
        form = torch.utils._pytree.tree_unflatten(
            list(range(len(results))), program.call_spec.out_spec
        )
        exported.outputs = _form(form)
        graph.outputs = [*results, *exported.written.values()]

    # For people.

    def _title(self, node: Any) -> str:
        """The path of the module that calls a node, and the node's name if it calls several."""
        stack = node.meta.get("nn_module_stack") or {}
        paths = [str(each[0]) for each in stack.values()]
        paths = [each for each in paths if "_empty_nn_module_stack" not in each]
        path = paths[-1].removeprefix("L['self'].") if paths else ""
        if self.accelerated:
            path = path.removeprefix("inner").lstrip(".")
        title = path if path and path not in self.titles else f"{path}/{node.name}".lstrip("/")
        self.titles.add(title)
        return title

    def _where(self, node: Any) -> str:
        """The last line outside of PyTorch that leads to a node."""
        trace = node.meta.get("stack_trace") or ""
        found = re.findall(r'File "([^"]+)", line (\d+)', trace)
        own = [each for each in found if is_own(each[0], self.package)]
        return "{} line {}".format(*own[-1]) if own else ""

    def _at(self, node: Any) -> str:
        """The same, for an error."""
        where = self._where(node)
        return f" at {where}" if where else ""


#: Options that say where and how PyTorch keeps a result.
_PLACES = ("device", "layout", "memory_format", "pin_memory", "dtype_layout")


def _form(value: Any) -> Any:
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _form(each) for name, each in value.items() if each is not None}
    if isinstance(value, Sequence):
        return [_form(each) for each in value]
    reason = f"{_RESULTS}, got {type(value).__name__}: leave the others out"
    raise unsupported([Problem("a result", "output", 0, reason)])
