"""What is refused of a module before or while PyTorch exports it, in words for its author."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ..networks.errors import Problem, UnsupportedError

#: Functions with a gradient of their own that change none.
_FUNCTIONS_WITHOUT_EFFECT = ("_NoopSaveInputs",)
#: Singa's words for what PyTorch says, by a part of it.
_IN_WORDS = {
    "data-dependent": (
        "what Python does depends on elements of a tensor (a branch, a loop, a length): take "
        "torch.where, which computes both sides, or decide by shapes"
    ),
    ".numpy() is not supported": (
        "a tensor becomes an array of NumPy, in which no graph follows it: write this with "
        "operators of PyTorch"
    ),
    "unpack the object at pos": (
        "elements of a tensor are lengths: decide them outside of the module"
    ),
    "TensorWrapper": "a gradient inside the module (torch.func): write the derivative out",
    "_sparse": "singa has no sparse tensors: take dense ones",
    "SparseTensor": "singa has no sparse tensors: take dense ones",
}
#: What PyTorch adds to every error.
_ADDED = "The error above occurred when calling torch.export"
_SINGA = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def check_parts(torch: Any, module: Any, accelerated: bool = False) -> None:
    """Raises UnsupportedError for parts and tensors that no graph can have. An accelerated module
    has looked for hooks and devices itself."""
    problems: list[Problem] = []
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.parallel.DataParallel)
    quantised: list[str] = []
    for path, part in module.named_modules():
        name, kind = path or "the module", type(part)
        if isinstance(part, parallel):
            problems.append(_problem(name, kind, "give its .module; opt.DistOpt trains on ranks"))
        elif isinstance(part, torch.jit.ScriptModule):
            problems.append(_problem(name, kind, "give the module that was scripted or traced"))
        elif path.startswith(tuple(quantised)):
            continue
        elif ".quantized" in kind.__module__:
            quantised.append(f"{path}." if path else "")
            reason = "a quantised module: give the one of floats, and take Model.quantize"
            problems.append(_problem(name, kind, reason))
        elif not accelerated and (part._backward_hooks or part._backward_pre_hooks):
            problems.append(_problem(name, kind, "a backward hook, which a graph does not call"))
    for name, x in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(x):
            reason = "it has no elements yet: call the module once in PyTorch"
        elif x.layout != torch.strided:
            reason = f"it is sparse ({x.layout}): take a dense tensor"
        elif x.device.type == "meta":
            reason = "it is on meta, without elements"
        elif x.device.type != "cpu":
            reason = f"it is on {x.device}: call module.cpu() first, and give a device= of singa"
        elif not accelerated and x._backward_hooks:
            reason = "a hook of a gradient"
        else:
            continue
        problems.append(_problem(name, type(x), reason))
    if problems:
        raise UnsupportedError(problems, "from_torch")


def _problem(name: str, kind: type, reason: str) -> Problem:
    return Problem(name, kind.__name__, 0, reason)


@contextmanager
def refusing(torch: Any) -> Iterator[None]:
    """Has export refuse what it would leave out: gradients that a module defines, changes or
    computes, and `inference_mode`. What PyTorch prints besides its error is left out."""
    # Function.apply, which scripts may have bound already, calls that of its base.
    function, mode = torch.autograd.function._SingleLevelFunction, torch.inference_mode
    before = mode.__enter__, torch.Tensor.register_hook, torch.autograd.grad

    def apply_known(cls: Any, *args: Any, **options: Any) -> Any:
        if cls.__name__ in _FUNCTIONS_WITHOUT_EFFECT:
            return super(function, cls).apply(*args, **options)
        raise NotImplementedError(
            f"{cls.__name__} is a custom autograd.Function: write it with operators whose "
            "gradients PyTorch knows, such as x + (f(x) - x).detach() for f with the gradient of x"
        )

    def refuse_hook(x: Any, hook: Any) -> Any:
        raise NotImplementedError("register_hook: a hook of a gradient")

    def refuse_mode(self: Any) -> Any:
        if self.mode:
            raise NotImplementedError("inference_mode: use no_grad")
        return before[0](self)

    def refuse_gradients(*args: Any, **options: Any) -> Any:
        if not is_own(sys._getframe(1).f_code.co_filename, os.path.dirname(torch.__file__)):
            return before[2](*args, **options)
        raise NotImplementedError("torch.autograd.grad inside the module: write the derivative out")

    function.apply = classmethod(apply_known)
    mode.__enter__, torch.Tensor.register_hook = refuse_mode, refuse_hook
    torch.autograd.grad = refuse_gradients
    try:
        with _quiet():
            yield
    finally:
        del function.apply
        mode.__enter__, torch.Tensor.register_hook, torch.autograd.grad = before


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
    own = _error_of_call(torch, module, inputs)
    if own is not None:
        shapes = ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in inputs)
        own.add_note(f"{module._get_name()} itself raises this in PyTorch, for inputs {shapes}")
        return own
    return UnsupportedError(
        [Problem(module._get_name(), "torch.export", 0, _in_words(torch, error))], "from_torch"
    )


def _error_of_call(torch: Any, module: Any, inputs: tuple[Any, ...]) -> Exception | None:
    try:
        module = copy.deepcopy(module)
        inputs = copy.deepcopy(inputs)
    except Exception:  # of many kinds
        return None
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            module(*inputs)
    except Exception as error:
        return error
    return None


def _in_words(torch: Any, error: Exception) -> str:
    lines = [line for line in str(error).partition(_ADDED)[0].splitlines() if line.strip()]
    said = " ".join(lines[:3]) if lines else type(error).__name__
    package = os.path.dirname(torch.__file__)
    where, files = _where(error.__traceback__, package)
    at = f"{where}: " if where else ""
    for part, words in _IN_WORDS.items():
        if part in said:
            if os.path.join(package, "distributions") in files:
                words += "; distributions decide so unless they are made with validate_args=False"
            return at + words
    return at + said


def _where(traceback: TracebackType | None, package: str) -> tuple[str, set[str]]:
    """The last line outside of PyTorch and singa that leads to an error, and the folders of all
    files on the way."""
    where, folders = "", set()
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        folders.add(os.path.dirname(file))
        if is_own(file, package):
            where = f"{file} line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where, folders


def is_own(file: str, package: str) -> bool:
    """Whether a file belongs neither to PyTorch, whose folder is `package`, nor to singa."""
    apart = (package, _SINGA, "torch/", "<", os.path.join(os.path.dirname(package), "sympy"))
    return not file.startswith(apart)
