"""A module of PyTorch that computes in singa: `singa.accelerate`."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from .. import singa_wrap as _c
from ..graph.audits import Audits, GraphWarning, Use
from ..networks.errors import UnsupportedError
from ..networks.network import Network
from ..raw import words
from . import operators as _operators  # noqa: F401 - fills the table
from .difference import difference
from .export import export
from .front import TORCH
from .given import check_module, require_torch
from .refusals import is_parallel, unsupported
from .replays import Replays
from .runs import Graph, Run, function_class, imported
from .signature import Signature, Value, assignments, changed, signature

#: Types of results that stay as they are.
_OF_RESULTS = (bool, int, float, str, bytes, type(None))
#: Most graphs of one module: others take the places of the oldest.
_MOST_GRAPHS = 32
#: Methods of Models, which a module of PyTorch does not have.
_OF_MODELS = frozenset(
    (
        *("evaluate", "fit", "freeze", "get_params", "get_states", "load_states"),
        *("memory_plan", "predict", "save", "save_states", "set_optimizer", "summary", "unfreeze"),
    )
)
_OF_MODELS_ADVICE = (
    "your own loop, which accelerate keeps; or singa.from_torch(module, inputs), which makes a "
    "Model with this method"
)


def accelerate(module: Any) -> Any:
    """A `torch.nn.Module` that computes what `module` does, in singa, with tensors of PyTorch.

    The loop stays PyTorch's: its loss, optimizer, schedules, averages and files.

        net = singa.accelerate(torchvision.models.resnet18())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()

    Parameters, buffers, submodules and their names are those of `module`, and shared with it. A
    call runs the whole module in singa, and so does the backward of its results. The graph is made
    in the first call of each mode and of each kind of inputs, and again when an attribute of a part
    changes. Dropout follows `singa.seed`, and draws other numbers than PyTorch.
    `torch.autocast("cpu")` becomes `autograd.autocast`.

    It needs PyTorch 2.13 or newer. Raises ImportError without it, and TypeError for another object.
    Calls raise UnsupportedError for what singa or `torch.export` does not have, and
    NotImplementedError, which says what to use instead, for tensors of other devices, hooks of
    parts, DistributedDataParallel, checkpoints around the module, a second backward and second
    derivatives.
    """
    torch = require_torch("accelerate", (2, 13))
    check_module(torch, "accelerate", module)
    if is_parallel(torch, module):
        _refuse_parallel(type(module).__name__)
    if isinstance(module, torch.jit.ScriptModule):
        raise NotImplementedError(
            "[accelerate] a module of torch.jit: give the one that was scripted or traced"
        )
    kind = _module_class(torch)
    return module if isinstance(module, kind) else kind(module)


def _refuse_parallel(name: str) -> None:
    raise NotImplementedError(
        f"[accelerate] {name} is not supported: take singa.from_torch and opt.DistOpt, which train "
        "on several ranks"
    )


@functools.cache
def _module_class(torch: Any) -> Any:
    """The class of accelerated modules. Its base is known when PyTorch is there."""

    class Accelerated(torch.nn.Module):
        """See `accelerate`."""

        def __init__(self, module: Any) -> None:
            super().__init__()
            self._share(module)

        def _share(self, module: Any) -> None:
            """Has the children, parameters and buffers of `module`."""
            own = self.__dict__
            own["_module"], own["_runner"] = module, _Runner(torch, module)
            own["training"] = module.training
            for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
                own[name] = module.__dict__[name]

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if "_module" not in self.__dict__:
                    raise
            module = self.__dict__["_module"]
            if name in _OF_MODELS and not hasattr(module, name):
                kind = f"{type(module).__name__!r} object"
                raise words.attribute_error(kind, name, dict.fromkeys([name], _OF_MODELS_ADVICE))
            return getattr(module, name)

        def __getitem__(self, key: Any) -> Any:
            return self._module[key]

        def __setitem__(self, key: Any, value: Any) -> None:
            self._module[key] = value

        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            """What `isinstance` sees: trainers ask for classes of their library."""
            return type(self._module)

        @property
        def forward(self) -> Callable[..., Any]:
            """Computes what the module's own `forward` does."""
            call = functools.partial(self._run)
            return functools.update_wrapper(call, self._module.forward)

        @torch.compiler.disable
        def _run(self, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_exporting():  # as a part of another module
                return self._module(*args, **kwargs)
            _refuse_around(torch)
            self._module.training = self.training
            return self._runner(args, kwargs)

        def _get_name(self) -> str:
            return "Accelerated"

        def extra_repr(self) -> str:
            return f"singa, {type(self._module).__name__}"

        def __reduce__(self) -> Any:
            shared = ("_module", "_runner", "_parameters", "_buffers", "_modules")
            state = {k: v for k, v in self.__dict__.items() if k not in shared}
            return _accelerated, (self._module,), state

    return Accelerated


def _accelerated(module: Any) -> Any:
    """The accelerated module in a file or copy."""
    return accelerate(module)


class _Runner:
    """Runs one module: its graphs, and its tensors as singa's."""

    def __init__(self, torch: Any, module: Any) -> None:
        self.torch, self.module = torch, module
        self.graphs: OrderedDict[Any, list[Graph]] = OrderedDict()
        self.imported: dict[str, tuple[Any, _c.Tensor]] = {}
        self.last: Signature | None = None
        self.audits = Audits()
        self.replays = Replays(self.audits)
        self.lock = threading.RLock()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        torch = self.torch
        leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        inputs = [x for x in leaves if isinstance(x, torch.Tensor)]
        given = torch.is_grad_enabled()
        with self.lock:
            now = self.last
            if now is None or not now.watch.unchanged():
                now = self.last = signature(torch, self.module)
            graph = self._graph(now, leaves, spec, inputs)
            values = self._values(now.values)
        own = [value for value in now.values if value.first == value.name]
        parameters = [value for value in own if not value.is_buffer]
        tracked = [*inputs, *[value.tensor for value in parameters]]
        buffers = [value.name for value in own if value.is_buffer]
        run = Run(torch, graph, self.replays, inputs, values, buffers)
        if given and any([x.requires_grad for x in tracked]):
            run.wanted = [x.requires_grad for x in tracked]
            run.names = [value.name for value in parameters]
            outputs = function_class(torch).apply(run, *tracked)
        else:
            outputs = run.forward()
        results = [outputs[x] if is_output else x for is_output, x in graph.places]
        return torch.utils._pytree.tree_unflatten(results, graph.spec)

    # Parameters and buffers.

    def _values(self, values: Sequence[Value]) -> dict[str, _c.Tensor]:
        """The tensors that share the memory of parameters and buffers, where it lies now."""
        result: dict[str, _c.Tensor] = {}
        for name, first, value, _ in values:
            if first != name:
                result[name] = result[first]
                continue
            where = value.data_ptr(), value.shape, value.stride(), value.dtype
            kept = self.imported.get(name)
            if kept is None or kept[0] != where:
                kept = self.imported[name] = where, imported(name, value)
            result[name] = kept[1]
        return result

    # Graphs.

    def _graph(self, now: Signature, leaves: list[Any], spec: Any, inputs: list[Any]) -> Graph:
        for x in inputs:
            if x.device.type != "cpu":
                raise NotImplementedError(
                    f"[accelerate] an input is on {x.device}: give it on the CPU. "
                    "singa.from_torch computes on GPUs"
                )
            if x.layout != self.torch.strided or x.is_quantized or x.is_nested:
                kind = "nested" if x.is_nested else "quantised" if x.is_quantized else x.layout
                raise NotImplementedError(
                    f"[accelerate] an input is {kind}: give a dense tensor of numbers"
                )
        torch = self.torch
        kinds = [
            (x.dtype, x.shape[1:]) if isinstance(x, torch.Tensor) else (type(x), x) for x in leaves
        ]
        try:
            found = self.graphs.get((now.key, spec, tuple(kinds)), [])
        except TypeError as error:
            wrong = next((type(x) for x in leaves if type(x).__hash__ is None), None)
            given = str(error) if wrong is None else f"got {wrong.__module__}.{wrong.__name__}"
            if hasattr(wrong, "__array__"):
                given += ", which torch.from_numpy converts"
            raise TypeError(
                "[accelerate] arguments are tensors of PyTorch, numbers and texts, also in lists "
                f"and dicts: {given}"
            ) from None
        for graph in found:
            if graph.fits(inputs):
                if self._holds(graph, now, leaves, spec):
                    return graph
                found[:] = [each for each in found if each is not graph]
                break
        graph, after = self._exported(now, leaves, spec)
        if after.key != now.key:  # a part that prepares something in its first call
            graph, again = self._exported(after, leaves, spec)
            if again.key != after.key:
                raise NotImplementedError(
                    f"[accelerate] a call of the module changes {changed(after, again)}: only "
                    "buffers may change"
                )
        if not graph.fits(inputs):
            raise NotImplementedError(
                "[accelerate] the module does something else for a batch of 1, which torch.export "
                "does not follow"
            )
        assigned = graph.exported.assigned
        if assigned and now.trains and torch.is_grad_enabled():
            names = ", ".join(name.replace("self.inner.", "self.") for name in assigned)
            warnings.warn(
                f"[accelerate] the module sets {names} in its call. They are not set here: return "
                "the tensors, if they are needed outside",
                GraphWarning,
                stacklevel=3,
            )
        self.last = after
        self.graphs.setdefault((after.key, spec, tuple(kinds)), []).append(graph)
        while sum(map(len, self.graphs.values())) > _MOST_GRAPHS:
            self.graphs.popitem(last=False)
        return graph

    def _holds(self, graph: Graph, now: Signature, leaves: list[Any], spec: Any) -> bool:
        """Whether the module does what it did when it was exported. Now and then this looks, and
        warns where it does not."""
        use = graph.use
        use.count += 1
        if not use.is_due():
            return True
        fresh, after = self._exported(now, leaves, spec)
        if after.key != now.key:
            found = f"a call of the module changes {changed(now, after)}"
        elif (fresh.spec, fresh.places) != (graph.spec, graph.places):
            found = "other results"
        else:
            found = difference(graph.exported, fresh.exported)
        if found:
            warnings.warn(
                f"[accelerate] an audit in call {use.count} found that the module does something "
                f"else now than when it was exported: {found}{use.missed()}; it is "
                "exported again",
                GraphWarning,
                stacklevel=2,
            )
        else:
            use.held()
        use.ran(fresh.use.cost, is_audit=True)
        return not found

    def _exported(self, now: Signature, leaves: list[Any], spec: Any) -> tuple[Graph, Signature]:
        torch, begin = self.torch, perf_counter()
        seen: list[Any] = []
        with torch.inference_mode(False):  # export refuses tensors of that mode
            examples = [
                x.clone() if x.is_inference() else x.detach()
                for x in leaves
                if isinstance(x, torch.Tensor)
            ]
        if not examples:
            raise TypeError(
                "[accelerate] a call needs a tensor of PyTorch as an argument: net(images)"
            )
        call = _call_class(torch, len(examples))(self.module, leaves, spec, seen)
        call.training = now.trains
        plain = torch.inference_mode(False), torch.enable_grad()
        try:
            with plain[0], plain[1], torch.autocast("cpu", enabled=False):
                exported = _graph_of(torch, call, examples, now.trains)
            network = Network(exported.graph, TORCH)
        except UnsupportedError as error:
            raise unsupported(error.problems, "accelerate") from error.__cause__
        form, places, assigned = seen[-1]
        for part, name, value in assigned:  # which export takes back
            setattr(part, name, value)
        made = {
            name: each.type
            for node in exported.graph.nodes
            for name, each in zip(node.outputs, node.output_types, strict=False)
        }
        types = [
            getattr(torch, kind) if (kind := made.get(name)) else None
            for name in exported.graph.outputs
        ]
        after = signature(torch, self.module)
        use = Use(self.audits, free=0)
        use.count += 1
        use.ran(perf_counter() - begin, is_audit=False)
        graph = Graph(exported, network, now.trains, form, places, types, after.kept, {}, use)
        return graph, after


def _graph_of(torch: Any, call: Any, examples: list[Any], trains: bool) -> Any:
    """The graph of a call. A batch of 1 is exported as one of 2, since PyTorch takes lengths of 1
    for constants, unless the module cannot be called with that."""
    if all([x.ndim and x.shape[0] == 1 for x in examples]):
        try:
            twice = tuple([torch.cat([x, x]) for x in examples])
            return export(torch, call, twice, trains, accelerated=True)
        except UnsupportedError:
            raise
        except Exception:  # the module's own, of many kinds
            pass
    return export(torch, call, tuple(examples), trains, accelerated=True)


@functools.cache
def _call_class(torch: Any, count: int) -> Any:
    """A module of `count` arguments, which are tensors, like its results: for `torch.export`."""
    tree = torch.utils._pytree

    class Call(torch.nn.Module):
        def __init__(self, module: Any, leaves: list[Any], spec: Any, seen: list[Any]) -> None:
            super().__init__()
            self.inner = module
            self._see = seen.append
            tensors = [isinstance(x, torch.Tensor) for x in leaves]
            self._leaves = [None if t else x for x, t in zip(leaves, tensors, strict=True)]
            self._places = [i for i, is_tensor in enumerate(tensors) if is_tensor]
            self._spec = spec

        def _get_name(self) -> str:
            return type(self.inner).__name__

        def forward(self, *inputs: Any) -> Any:
            leaves = list(self._leaves)
            for i, x in zip(self._places, inputs, strict=True):
                leaves[i] = x
            args, kwargs = tree.tree_unflatten(leaves, self._spec)
            before = [(part, dict(part.__dict__)) for part in self.inner.modules()]
            results, spec = tree.tree_flatten(self.inner(*args, **kwargs))
            outputs: list[Any] = []
            places: list[tuple[bool, Any]] = []
            for x in results:
                is_output = isinstance(x, torch.Tensor)
                if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
                    raise NotImplementedError(
                        "a result is a length of an input: read it from the input, outside"
                    )
                if not is_output and type(x) not in _OF_RESULTS:
                    raise NotImplementedError(
                        f"a result of type {type(x).__name__}: return tensors, numbers and texts, "
                        "also in lists, tuples and dicts, or in a class that is registered by "
                        "torch.export.register_dataclass"
                    )
                places.append((is_output, len(outputs) if is_output else x))
                outputs += [x] * is_output
            self._see((spec, places, [x for part in before for x in assignments(*part)]))
            return tuple(outputs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = ["self", *[f"x{i}" for i in range(count)]]
    forward: Any = Call.forward  # whose shapes export wants by names
    forward.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return Call


def _refuse_around(torch: Any) -> None:
    """Refuses what cannot be around an accelerated module."""
    distributed = torch.nn.parallel.DistributedDataParallel
    if getattr(distributed, "_active_ddp_module", None) is not None:
        _refuse_parallel("DistributedDataParallel")
    if torch.jit.is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotImplementedError(
            "[accelerate] torch.jit.trace or torch.func around an accelerated module: give it the "
            "module itself"
        )
    checkpoint = sys.modules.get("torch.utils.checkpoint")
    if checkpoint is not None and _is_under(checkpoint.__file__):
        raise NotImplementedError(
            "[accelerate] torch.utils.checkpoint around an accelerated module would save no "
            "memory: take singa.from_torch and compile(recompute=True)"
        )


def _is_under(file: str | None) -> bool:
    """Whether a function of this file has called."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
