"""What is refused of a module before or while PyTorch exports it, in words for its author."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ..networks.element_types import is_singas
from ..networks.errors import Problem, UnsupportedError

#: Functions with a gradient of their own that change none, and those of operators of libraries,
#: which the table of operators refuses.
_FUNCTIONS_WITHOUT_EFFECT = ("_NoopSaveInputs", "GeneratedBackwardFor_")
#: One export at a time, since it changes functions of PyTorch.
_EXPORTING = threading.RLock()
_VALUES = "depends on elements of a tensor"
_GRADIENTS = "write the derivative out"
_SCRIPTED = "a module of torch.jit: give the one that was scripted or traced"
_IN_INIT = "make it in __init__, or call the module once in PyTorch"
_NOT_CALLED = (
    ", which no graph calls: singa.accelerate(module) has those of parameters and of the whole "
    "module"
)
_IN_FUNC = f"a gradient inside the module (torch.func): {_GRADIENTS}"
_LENGTHS = "elements of a tensor are lengths: decide them outside of the module"
#: Singa's words for what PyTorch says, by a part of it.
_IN_WORDS = {
    "data-dependent": (
        f"what Python does {_VALUES} (a branch, a loop, a length): take torch.where, which "
        "computes both sides, or decide by shapes"
    ),
    ".numpy() is not supported": (
        "a tensor becomes an array of NumPy, in which no graph follows it: write this with "
        "operators of PyTorch"
    ),
    "unpack the object at pos": _LENGTHS,
    "Pending unbacked symbols": _LENGTHS,
    "data pointer": "Python reads where a tensor lies: leave data_ptr out",
    "quantize": "singa's networks of PyTorch are of floats: take Model.quantize afterwards",
    "_sparse": "singa has no sparse tensors: take dense ones",
    "SparseTensor": "singa has no sparse tensors: take dense ones",
}
#: PyTorch's errors whose text is the name of an operator.
_OF_AN_OPERATOR = ("DataDependentOutputException", "DynamicOutputShapeException")
#: An operator that calls functions, such as a loop.
_OF_FUNCTIONS = re.compile(r"Higher Order Operator: torch\.(?:ops\.higher_order\.)?(\w+)")
#: An axis that was to be open.
_OF_ONE_LENGTH = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\] as dynamic.* constant \((\d+)\)")
#: What PyTorch adds to every error.
_ADDED = "The error above occurred when calling torch.export"
_PYTHON = os.path.dirname(os.__file__)
_SINGA = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


#: What to take instead of a type, by the first part of its name.
_TYPES = {
    "complex": "compute with both parts",
    "float": "take bfloat16",
    "": "take int32 or int64",
}


def instead_of_type(kind: str) -> str:
    """What to take instead of an element type that singa does not have."""
    return next(words for name, words in _TYPES.items() if kind.startswith(name))


def unsupported(problems: Sequence[Problem], function: str = "from_torch") -> UnsupportedError:
    """The error for people who have written a module, and no nodes."""
    return UnsupportedError(problems, function, noun="")


def check_parts(torch: Any, module: Any, accelerated: bool = False) -> None:
    """Raises UnsupportedError for parts and tensors that no graph can have. An accelerated module
    has looked for hooks and devices itself."""
    problems: list[Problem] = []
    quantised: list[str] = []
    for path, part in module.named_modules():
        name, kind = path or "the module", type(part)
        if is_parallel(torch, part):
            reason = "it trains on several devices: give its .module; opt.DistOpt trains on ranks"
            problems.append(_problem(name, kind, reason))
        elif isinstance(part, torch.jit.ScriptModule):
            problems.append(_problem(name, kind, _SCRIPTED))
        elif path.startswith(tuple(quantised)):
            continue
        elif ".quantized" in kind.__module__:
            quantised.append(f"{path}." if path else "")
            reason = "a quantised module: give the one of floats, and take Model.quantize"
            problems.append(_problem(name, kind, reason))
        elif not accelerated and (part._backward_hooks or part._backward_pre_hooks):
            problems.append(_problem(name, kind, f"a backward hook{_NOT_CALLED}"))
    kept = module.state_dict(keep_vars=True).values() if not accelerated else ()
    saved = {*map(id, kept)}
    for name, x in (*module.named_parameters(), *module.named_buffers()):
        reason = _reason_of_tensor(torch, x, is_saved=id(x) in saved)
        if not accelerated and (x._backward_hooks or x._post_accumulate_grad_hooks):
            reason = reason or f"a hook of its gradient{_NOT_CALLED}"
        if reason:
            problems.append(_problem(name, type(x), reason))
    if problems:
        raise unsupported(problems)


def is_parallel(torch: Any, part: Any) -> bool:
    """Whether a module trains another one on several devices."""
    parallel = torch.nn.parallel
    return isinstance(part, parallel.DistributedDataParallel | parallel.DataParallel) or type(
        part
    ).__module__.startswith("torch.distributed.fsdp")


def _reason_of_tensor(torch: Any, x: Any, is_saved: bool) -> str:
    """Why a parameter or buffer is refused; "" if it is not."""
    if torch.nn.parameter.is_lazy(x):
        return "it has no elements yet: call the module once in PyTorch"
    if torch.utils._python_dispatch.is_traceable_wrapper_subclass(x):
        return (
            "it is made of other tensors: take a plain one, such as full_tensor() or dequantize()"
        )
    if x.layout != torch.strided:
        return f"it is sparse ({x.layout}): take a dense tensor"
    if x.device.type == "meta":
        return "it is on meta, without elements: take module.to_empty(device='cpu'), and fill it"
    if x.device.type != "cpu":
        return f"it is on {x.device}: call module.cpu() first, and give a device= of singa"
    if x.is_quantized:
        return "it is quantised: give the module of floats, and take Model.quantize"
    kind = str(x.dtype).removeprefix("torch.")
    if is_saved and not is_singas(kind):
        return f"singa has no tensors of type {kind}: {instead_of_type(kind)}"
    return ""


def _problem(name: str, kind: type, reason: str) -> Problem:
    return Problem(name, kind.__name__, 0, reason)


@contextmanager
def refusing(torch: Any) -> Iterator[None]:
    """Has export refuse what it would leave out: gradients that a module defines, changes or
    computes, and `inference_mode`. What PyTorch prints besides its error is left out. Other threads
    may do all of this in the meantime."""
    thread = threading.get_ident()
    package = os.path.dirname(torch.__file__)
    # Function.apply, which scripts may have bound already, calls that of its base.
    function, mode = torch.autograd.function._SingleLevelFunction, torch.inference_mode

    def apply_known(cls: Any, *args: Any, **options: Any) -> Any:
        if threading.get_ident() != thread or cls.__name__.startswith(_FUNCTIONS_WITHOUT_EFFECT):
            return super(function, cls).apply(*args, **options)
        if cls.__name__ == "CheckpointFunction":
            raise NotImplementedError("torch.utils.checkpoint: give it use_reentrant=False")
        if cls.__name__ == "CrossMapLRN2d":
            raise NotImplementedError(
                "CrossMapLRN2d, whose gradient in PyTorch is that of another result: take "
                "nn.LocalResponseNorm"
            )
        raise NotImplementedError(
            f"{cls.__name__} is a custom autograd.Function: write it with operators whose "
            "gradients PyTorch knows, such as x + (f(x) - x).detach() for f with the gradient of x"
        )

    def refused(call: Any, reason: str, refuses: Callable[..., bool]) -> Any:
        """A function that raises an error in this thread, if `refuses` holds."""

        def refuse(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != thread or not refuses(*args):
                return call(*args, **options)
            raise NotImplementedError(reason)

        return refuse

    def is_called_by_module(*args: Any) -> bool:
        return is_own(sys._getframe(2).f_code.co_filename, package)

    hook = "register_hook inside the module: give the hook to the result"
    inside = f"inside the module: {_GRADIENTS}"
    own, made = is_called_by_module, f"a call makes a Parameter: {_IN_INIT}"
    changes: list[tuple[Any, str, str, Callable[..., bool]]] = [
        (mode, "__enter__", "inference_mode: use no_grad", lambda self: self.mode),
        (torch.Tensor, "register_hook", hook, lambda *_: True),
        (torch.Tensor, "backward", f"backward {inside}", own),
        (torch.autograd, "backward", f"torch.autograd.backward {inside}", own),
        (torch.autograd, "grad", f"torch.autograd.grad {inside}", own),
        (torch.nn.Parameter, "__new__", made, own),
        (torch._functorch.eager_transforms, "grad_increment_nesting", _IN_FUNC, lambda *_: True),
    ]
    with _EXPORTING, _quiet():
        before = [(owner, name, getattr(owner, name)) for owner, name, *_ in changes]
        function.apply = classmethod(apply_known)
        for owner, name, reason, refuses in changes:
            setattr(owner, name, refused(getattr(owner, name), reason, refuses))
        try:
            yield
        finally:
            del function.apply
            for owner, name, call in before:
                setattr(owner, name, call)


@contextmanager
def without_new_state(torch: Any, module: Any) -> Iterator[None]:
    """Takes back what a call makes, since PyTorch's export leaves tensors without elements. Raises
    NotImplementedError for parameters, buffers and parts."""
    before = [
        (path, part, dict(part._parameters), {*part._buffers}, dict(part._modules), {*vars(part)})
        for path, part in module.named_modules()
    ]
    made: list[str] = []
    leaves = torch.utils._pytree.tree_leaves
    try:
        yield
    finally:
        for path, part, parameters, buffers, parts, attributes in before:
            for name in {*vars(part)} - attributes:
                if any(isinstance(x, torch.Tensor) for x in leaves(vars(part)[name])):
                    del vars(part)[name]
            for held, old in ((part._parameters, parameters), (part._modules, parts)):
                new = [name for name, value in held.items() if old.get(name) is not value]
                made += [f"{path}.{name}" for name in new]
                if new:
                    held.clear()
                    held.update(old)
            for name in {*part._buffers} - buffers:
                made.append(f"{path}.{name}")
                del part._buffers[name]
    if made:
        names = ", ".join(name.removeprefix("inner").lstrip(".") for name in made)
        raise NotImplementedError(f"a call makes {names}: {_IN_INIT}")


class _OfOthers:
    """Standard error without what one thread writes."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._thread:
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leaves out what this thread's calls of PyTorch log and print, unless TORCH_LOGS asks for
    it."""
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    thread = threading.get_ident()
    loggers = logging.root.manager.loggerDict.items()
    handlers = {
        handler
        for name, logger in list(loggers)
        if name.startswith("torch") and isinstance(logger, logging.Logger)
        for handler in logger.handlers
    }

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for handler in handlers:
        handler.addFilter(of_others)
    try:
        with contextlib.redirect_stderr(_OfOthers(sys.stderr)):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(of_others)


def refusal(torch: Any, module: Any, inputs: tuple[Any, ...], error: Exception) -> Exception:
    """The error to raise where export has raised one: that of the module, if PyTorch itself cannot
    call it with these inputs."""
    own = None if _is_of_singa(error) else own_error(torch, module, inputs)
    if own is not None:
        return own
    reason, path = _in_words(torch, module, error)
    part = module.get_submodule(path)
    name = path.removeprefix("inner").lstrip(".") or module._get_name()
    kind = "torch.export" if name == module._get_name() else type(part).__name__
    return unsupported([Problem(name, kind, 0, reason)])


def _is_of_singa(error: Exception) -> bool:
    """Whether singa has raised it."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_SINGA)


def own_error(torch: Any, module: Any, inputs: tuple[Any, ...]) -> Exception | None:
    """What a module raises in PyTorch for these inputs, with a note that it does."""
    try:
        module = copy.deepcopy(module)
        inputs = copy.deepcopy(inputs)
    except Exception:  # of many kinds
        return None
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            module(*inputs)
    except Exception as error:
        shapes = ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in inputs)
        mode = "training" if module.training else "eval"
        name = module._get_name()
        error.add_note(f"{name} itself raises this in PyTorch, in {mode} mode, for inputs {shapes}")
        return error
    return None


def _in_words(torch: Any, module: Any, error: Exception) -> tuple[str, str]:
    """What PyTorch says, and the path of the part that said it."""
    lines = [line for line in str(error).partition(_ADDED)[0].splitlines() if line.strip()]
    said = " ".join(lines[:3]) if lines else type(error).__name__
    package = os.path.dirname(torch.__file__)
    where, files, path = _where(torch, module, error.__traceback__, package)
    at = f"{where}: " if where else ""
    if type(error).__name__ in _OF_AN_OPERATOR:
        op = said.removeprefix("aten.").removesuffix(".default")
        return f"{at}what {op} gives {_VALUES}: write it with others, or call it outside", path
    if one := _OF_ONE_LENGTH.search(str(error)):
        return "axis {1} of {0} has one length in this module, {2}: leave it out of dynamic".format(
            *one.groups()
        ), path
    if of_functions := _OF_FUNCTIONS.search(str(error)):
        return f"{at}singa has no {of_functions[1]}: write it with others", path
    for part, words in _IN_WORDS.items():
        if part in said:
            if os.path.join(package, "distributions") in files:
                words += "; distributions decide so unless they are made with validate_args=False"
            return at + words, path
    return at + said, path


def _where(
    torch: Any, module: Any, traceback: TracebackType | None, package: str
) -> tuple[str, set[str], str]:
    """The last line outside of PyTorch and singa that leads to an error, the folders of all files
    on the way, and the path of the last part of the module."""
    where, folders, path = "", set(), ""
    paths = {id(part): path for path, part in module.named_modules()}
    while traceback is not None:
        frame = traceback.tb_frame
        file = frame.f_code.co_filename
        folders.add(os.path.dirname(file))
        path = paths.get(id(frame.f_locals.get("self")), path)
        if is_own(file, package):
            where = f"{file} line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where, folders, path


def is_own(file: str, package: str) -> bool:
    """Whether a file belongs neither to PyTorch, whose folder is `package`, nor to singa or
    Python."""
    apart = (package, _SINGA, "torch/", "<", os.path.join(os.path.dirname(package), "sympy"))
    is_pythons = file.startswith(_PYTHON) and "-packages" not in file
    return not (file.startswith(apart) or is_pythons)
