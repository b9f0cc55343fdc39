"""What models tell of themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from .. import autograd, layer
from ..graph.memory_plan import MemoryPlan, memory_plan
from ..layer.summary import Summary, summarize
from ..raw.calls import says_what_to_write
from ..raw.process import notebook_cell
from .above import of_above
from .inputs import example
from .modes import in_mode
from .outputs import outputs_of

if TYPE_CHECKING:
    from ..drawing.svg import Picture
    from ..onnx.quantizing import QuantizedModel


class Inspectable:
    """A model's tables, pictures, outputs of layers, and its quantised form."""

    @says_what_to_write("summary")
    def summary(self: Any, file: IO[str] | None = None) -> Summary:
        """Prints a table of the layers, their output shapes and numbers of parameters.

        It also returns the table, of at most 80 columns. `file` defaults to standard output; on a
        terminal, rich prints it in colour where it is installed, and a notebook shows a table.
        Raises RuntimeError before compile().

        >>> net = models.Sequential(layer.Linear(8), layer.ReLU(), layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> table = net.summary()
        layer  type    output  parameters
        ---------------------------------
        0      Linear  (1, 8)          40
        1      ReLU    (1, 8)           0
        2      Linear  (1, 2)          18
        ---------------------------------
        Sequential: 58 parameters
        >>> table.params
        58
        """
        from ..drawing.table import show  # not loaded by a program that only computes

        inputs = self._examples("summary")
        with in_mode(False), autograd.no_grad():
            summary = summarize(self, inputs)
        if file is None and (cell := notebook_cell()) is not None:
            summary._ipython_display_()
            summary.shown_in = cell
        else:
            show(summary.table(), file)
        return summary

    def values(self: Any, inputs: Any, names: Sequence[str]) -> list[Any]:
        """The outputs of some layers for these inputs, in the order of `names`.

            middle, scores = net.values(x, ["layer3", ""])

        inputs  what `forward` takes: one tensor or array, or a list of several arguments
        names   paths of layers, as named_layers() has them; "" is the model itself

        It runs `forward` as a call after eval() does, whatever the mode, and does not record it.
        The output of a layer is what it hands on: that of a batch norm that is called with
        `relu=True` is behind the ReLU. Gradients lead through the results inside of
        `autograd.enable_grad()`.

        Raises ValueError for a name of no layer, and for a layer that does not run, or that runs
        several times; TypeError if `names` are not texts.

        >>> net = models.Sequential(layer.Linear(8), layer.ReLU(), layer.Linear(2))
        >>> net.compile([tensor.zeros((1, 4))])
        >>> hidden, out = net.values(tensor.ones((3, 4)), ["1", ""])
        >>> hidden.shape, out.shape
        ((3, 8), (3, 2))
        """
        given = inputs if isinstance(inputs, list | tuple) else [inputs]
        arguments = self._as_tensors(given)
        return outputs_of(self, names, lambda: self._infer(*arguments))

    def plot(self: Any, path: str | os.PathLike[str] | None = None) -> Picture:
        """A picture of the network: its layers with shapes, parameters, time, memory of the output
        and implementation, in frames for its blocks, and lines between layers. Equal blocks that
        follow each other are drawn once.

        Times are those of inference on what compile() was given, as explain() runs it. Notebooks
        show the picture; `path` also writes it to an SVG file. Raises RuntimeError before
        compile(), ValueError for a name that does not end in .svg.

        >>> from pathlib import Path
        >>> net = models.Sequential(layer.Linear(8), layer.ReLU())
        >>> net.compile([tensor.zeros((1, 4))])
        >>> picture = net.plot("net.svg")
        >>> Path("net.svg").stat().st_size > 1000
        True
        """
        return of_above("plot")(self, path)

    def memory_plan(self: Any) -> MemoryPlan:
        """Memory that recorded steps use, by purpose, in bytes: a dict that prints as a table.

        "by_kind" has the bytes of parameters, of statistics and other tensors that outlive a step,
        of the optimizer's state, of the arena that holds all temporaries, of results, and of the
        plans (an estimate). "planned_bytes" is their sum. "graphs" has a dict for each recorded
        step. With compile(memory_limit=) "limit" says what it takes to keep to it: the number of
        "operations" that run again, their "gflop", and the "share" of the step's time, by an
        estimate. Raises RuntimeError if no step has been recorded: compile with use_graph=True and
        run a few steps first.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = tensor.ones((4, 2)), tensor.zeros((4, 1))
        >>> net.compile([x], is_train=True, use_graph=True)
        >>> for _ in range(5):
        ...     out, loss = net(x, y)
        ...
        >>> net.memory_plan()["by_kind"]["parameters"]
        12
        """
        states = self.get_states()
        optimizer = self.optimizer.get_states() if "optimizer" in self.__dict__ else {}
        return memory_plan(self._graphs(), self.get_params(), states, optimizer)

    def quantize(
        self: Any,
        samples: Any,
        path: str | os.PathLike[str] | None = None,
        *,
        tolerance: float = 0.1,
    ) -> QuantizedModel:
        """The network with convolutions and fully connected layers of int8, for inference.

        samples    batches of inputs as in use, such as a few hundred images: an iterable of
                   tensors or arrays, or of lists of them for several inputs; without labels. Those
                   of a data.DataLoader are left out
        path       also writes an ONNX file, with pairs of QuantizeLinear and DequantizeLinear
        tolerance  largest change of the outputs: the root mean square of the differences, relative
                   to that of the outputs. While it is larger, layers that lose accuracy stay in
                   float, those first that alone change the outputs most. A warning names them, and
                   so does `float_layers` of the result.

        Batch norm is folded into convolutions. Weights have a scale for each output; activations
        are uint8 with one scale for each tensor, from their smallest to their largest number over
        all samples. The network itself is unchanged.

        Raises ExportError where the network has no form in ONNX, ValueError if it has no layers of
        float32 to quantise, without samples, and for values that are not finite. It needs the
        package onnx. See docs/onnx.md.

        >>> net = models.Sequential(layer.Linear(2))
        >>> x = tensor.random((8, 4))
        >>> net.compile([x])
        >>> net.eval()
        >>> quantized = net.quantize([x])
        >>> float((quantized(x) - net(x)).abs().max()) < 0.05
        True
        """
        return of_above("quantize")(self, samples, path, tolerance=tolerance)

    def _infer_on_examples(self: Any, function: str = "explain") -> None:
        inputs = self._examples(function)
        with self._precision(), in_mode(False), autograd.no_grad():
            layer.Layer.__call__(self, *inputs)

    def _examples(self: Any, function: str) -> list[Any]:
        """The inputs that compile() was given: zeros in the place of large ones."""
        if not self._inputs:
            raise RuntimeError(
                f"[{function}] call compile() first: output shapes depend on its inputs"
            )
        self._update_names()
        device = next((p.device for p in self.get_params().values()), None)
        return [example(x, device) for x in self._inputs]
