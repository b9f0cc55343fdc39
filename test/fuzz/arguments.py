"""Arguments for raw calls: most of them fit each other, and some fit nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from draw import Draw
from singa import singa_wrap as wrap

DTYPES = (
    *(wrap.kFloat32,) * 12,
    *(wrap.kFloat64, wrap.kFloat64, wrap.kInt32, wrap.kInt64),
    *(wrap.kBFloat16, wrap.kFloat16, wrap.kUInt8, wrap.kInt8, wrap.kBool),
)
# Either small, or so large that allocating that much fails at once.
_INTEGERS = (
    *(0, 1, 2, 3, 0, 1, 2, -1, -2, 4, 5, 7, 8, 16, 12, 13, -3, -1000, 100, 257, 1000, 4096, 65536),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**40),
    *(2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64),
)
_DOUBLES = (
    *(0.0, 1.0, 0.5, -1.0, 0.9, 2.0, 0.1, 1e-5, -0.0, 3.0, -0.5, 1e300, 1e-300, -1e40),
    *(float("nan"), float("inf"), -float("inf"), 2**31 + 0.5, 1e18),
)
_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40], np.float64)
_TEXTS = (
    *("constant", "reflect", "edge", "wrap", ""),
    *("fastest", "no_workspace", "limited_workspace", "autotune"),
    *("reference", "x" * 200, "\0", "ü", "%s%n", "nhwc"),
)
#: Values for any parameter that hardly any function accepts.
_WRONG = (None, "x", b"x", 1.5, 10**30, [], [None], ["x"], {}, object(), [[1]], (2, 3), True, 0, -1)

UNARY = tuple(getattr(wrap, n) for n in dir(wrap) if n.startswith("UnaryOp_k"))
BINARY = tuple(getattr(wrap, n) for n in dir(wrap) if n.startswith("BinaryOp_k"))
REDUCE = tuple(getattr(wrap, n) for n in dir(wrap) if n.startswith("ReduceOp_k"))
_POOL = (0, 1, 2, 3, -1)


class Arguments:
    """Makes the arguments for one input. `small` becomes False with the first large number; `said`
    describes the arguments so far; `tensors` has the tensors among them."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.small = draw, True
        self.said: list[str] = []
        self.tensors: list[Any] = []
        rank = draw.pick((4, 2, 1, 3, 2, 4, 5, 0))
        self._base = [draw.pick((2, 3, 1, 4, 5, 8, 16, 0, 17)) for _ in range(rank)]
        self._usual = draw.pick(DTYPES)
        self._varies = draw.chance(8)
        # One in `_hostile` arguments is from _WRONG, and one in `_odd` does not fit the others.
        self._hostile, self._odd = draw.pick(((200, 12), (16, 8), (60, 3), (250, 40)))
        self._known: dict[str, Any] = {}  # shapes of tensors by name, as a handle needs them

    def make(self, kind: str, name: str = "") -> Any:
        self._name = name
        if self.draw.chance(self._hostile):
            wrong = self.draw.pick(_WRONG)
            self.said.append(repr(wrong)[:30])
            return wrong
        maker = getattr(self, f"_{kind.lower().replace('<', '_').replace('>', '')}", None)
        if kind == "Tensor or double":
            maker = self._tensor if self.draw.chance(2) else self._double
        value = maker() if maker else self._any()
        self.said.append(self.told(value))
        return value

    def object_of(self, kind: str) -> Any:
        """The object of a method call: mostly a new object of the right class."""
        if kind == "Tensor" or self.draw.chance(12):
            return self.make("Tensor")
        device = wrap.CreateCpuDevice()
        makers = {
            "Device": lambda: device,
            "Arena": lambda: wrap.Arena(device),
            "Recording": lambda: self._started(wrap.Recording(device, None)),
            "Graph": lambda: wrap.Graph(wrap.Recording(device, None)),
            "Recorder": wrap.Recorder,
        }
        return makers[kind]()

    def _started(self, recording: Any) -> Any:
        if self.draw.chance(2):
            recording.Start([])
        return recording

    def told(self, value: Any) -> str:
        if isinstance(value, wrap.Tensor):
            text = f"{wrap.DTypeName(value.data_type())}{value.shape()}"
            return text if value.is_contiguous() else f"{text} strides {value.strides()}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.told(item) for item in value[:4])}]"
        return repr(value)[:60] if not hasattr(value, "recorder") else type(value).__name__

    # Tensors.

    def shape(self) -> list[int]:
        draw, base = self.draw, list(self._base)
        way = draw.below(12)
        if way < 6:
            return base
        if way == 6:
            base[draw.below(len(base) + 1) :] = []
        elif way == 7:
            base = base[draw.below(len(base) + 1) :]
        elif way == 8:
            base = [1 if draw.chance(2) else n for n in base]
        elif way == 9:
            base = base[::-1]
        elif way == 10 and base:
            base[draw.below(len(base))] = draw.pick((1, 2, 3, 5, 0, 33, 7))
        else:
            base = [draw.pick((1, 2, 3, 0, 4, 18)) for _ in range(draw.below(7))]
        return base

    def _tensor(self) -> Any:
        draw, name = self.draw, self._name
        if draw.chance(self._odd):
            way = draw.below(4)
            if way == 0:
                return draw.pick((None, wrap.Tensor()))
            if way == 1 and self.tensors:
                return draw.pick(self.tensors)
            tensor = self.filled(self.shape())
        else:
            tensor = self.filled(self._fitting(name), _whole(name))
        if draw.chance(6):
            tensor = self._view(tensor)
        self.tensors.append(tensor)
        return tensor

    def _fitting(self, name: str) -> Any:
        """A shape for a tensor with this name that fits the tensors made so far."""
        if name in self._known:
            return self._known[name]()
        base = self._base
        if name in ("W", "w", "B"):
            return [base[-1] if base else 1, 4]
        if name in ("indices", "t", "labels", "target") and self.draw.chance(2):
            return base[:1]
        if name in ("b", "bias", "scale") and base and self.draw.chance(2):
            return base[-1:]
        return base

    def filled(self, shape: Any, whole: bool = False) -> Any:
        draw = self.draw
        dtype = draw.pick(DTYPES) if self._varies else self._usual
        if whole and not draw.chance(8):
            dtype = draw.pick((wrap.kInt32, wrap.kInt64))
        count = int(np.prod([int(n) for n in shape]))
        if count > 1 << 20:
            self.small = False
        tensor = wrap.Tensor(tuple(shape), None, dtype)
        values = (np.arange(count) * 7 % 11 - draw.below(6)) * draw.pick((1.0, 0.25, 0.0, 30.0))
        if whole and not draw.chance(8):
            values = np.abs(values) % 2
        if count and draw.chance(6):
            values[draw.below(count)] = draw.pick(_SPECIAL)
        if dtype in (wrap.kInt32, wrap.kInt64, wrap.kUInt8, wrap.kInt8, wrap.kBool):
            values = np.nan_to_num(values, posinf=9, neginf=-9).clip(-128, 127)
        if count:
            with np.errstate(all="ignore"):
                host = values.astype(np.float64).reshape([int(n) for n in shape])
            tensor.CopyFrom(_from_numpy(host).AsType(dtype))
        return tensor

    def _view(self, tensor: Any) -> Any:
        draw = self.draw
        way = draw.below(5)
        rank = tensor.rank()
        if way == 0:
            return tensor.Transpose()
        if way == 1 and rank and tensor.shape()[0] > 1:
            return tensor.SliceAxis(draw.below(rank), 0, draw.between(0, 3), draw.pick((1, 2, -1)))
        if way == 2:
            return tensor.Broadcast((draw.pick((2, 3, 40)), *tensor.shape()))
        if way == 3 and rank == 4:
            return wrap.ToBlocked(tensor)
        return tensor.Unsqueeze([0]) if rank < 6 else tensor

    # All other arguments, by the names of C++ types.

    def _int64_t(self) -> int:
        if not self.draw.chance(4):
            small = self._name in ("axis", "start", "step", "dim") and len(self._base) > 0
            return self.draw.below(len(self._base)) if small else self.draw.below(4)
        number = self.draw.pick(_INTEGERS[:13] if not self.draw.chance(5) else _INTEGERS)
        self.small &= abs(number) <= 4096
        return number

    _int = _uint64_t = _size_t = _int64_t

    def _double(self) -> float:
        return self.draw.pick(_DOUBLES[:9] if not self.draw.chance(4) else _DOUBLES)

    def _bool(self) -> bool:
        return self.draw.chance(2)

    def _activation(self) -> Any:
        if self.draw.chance(2):
            return self.draw.chance(2)
        return self.draw.pick((0, 1, 2, 3, 4, 5, -1)), self._double(), self._double()

    def _string(self) -> str:
        return self.draw.pick(_TEXTS)

    def _dtype_(self) -> int:
        return self.draw.pick((*DTYPES, *DTYPES, 9, -1, 99))

    _datatype = _dtype = _dtype_

    def _unaryop(self) -> int:
        return self.draw.pick((*UNARY, 99, -1))

    def _binaryop(self) -> int:
        return self.draw.pick((*BINARY, 99, -1))

    def _reduceop(self) -> int:
        return self.draw.pick((*REDUCE, 99, -1))

    def _preference(self) -> int:
        return self.draw.pick((0, 1, 2, 3, 4, 5, -1))

    def _vector_int64_t(self) -> list[int]:
        if self.draw.chance(2):
            return [self._int64_t() for _ in range(self.draw.below(6))]
        if self.draw.chance(40):
            return [1] * 40
        return self.shape() if self.draw.chance(2) else [self.draw.below(3)]

    def _shape(self) -> list[int]:
        if not self.draw.chance(4):
            return list(self._fitting(self._name))
        if self.tensors and self.draw.chance(2):
            tensor = self.draw.pick(self.tensors)
            return list(tensor.shape()) if tensor is not None else []
        return self.shape() if not self.draw.chance(4) else self._vector_int64_t()

    def _vector_double(self) -> list[float]:
        return [self._double() for _ in range(self.draw.below(4))]

    def _vector_tensor(self) -> list[Any]:
        if self.draw.chance(30):
            return [self.filled(self._base)] * 14
        return [self._tensor() for _ in range(self.draw.pick((1, 1, 2, 3, 0)))]

    def _deviceptr(self) -> Any:
        return self.draw.pick((None, wrap.DefaultDevice()))

    def _updatenumbers(self) -> Any:
        return None if self.draw.chance(2) else wrap.UpdateScalars()

    def _updateconditions(self) -> Any:
        conditions = wrap.UpdateConditions()
        for name in ("squares", "loss_scale", "numbers"):
            if self.draw.chance(3):
                setattr(conditions, name, self._tensor())
        conditions.clip_norm = self._double()
        return conditions

    def _recording(self) -> Any:
        return wrap.Recording(wrap.DefaultDevice(), wrap.Arena(wrap.DefaultDevice()))

    def _any(self) -> Any:
        way = self.draw.below(11)
        if way > 8:
            return self._recording() if way == 9 else None
        if way == 8:
            return self._vector_tensor()
        if way < 3:
            return self._tensor()
        if way == 3:
            return self._vector_int64_t()
        return self._int64_t() if way < 6 else self._double()

    # Handles. Later tensors get the shapes that fit a handle's geometry.

    def _pair(self, choices: tuple[int, ...]) -> list[int]:
        if self.draw.chance(30):
            return [self._int64_t() for _ in range(self.draw.below(4))]
        return [self.draw.pick(choices) for _ in range(2)]

    def _image(self) -> Any:
        draw = self.draw
        shape = [draw.pick((2, 1, 3, 0)), draw.pick((3, 1, 4, 8, 16, 18))]
        return self.filled([*shape, draw.pick((5, 1, 4, 8, 13)), draw.pick((5, 1, 7, 8))])

    def _convhandle(self) -> Any:
        image, draw = self._image(), self.draw
        channels = image.shape()[1]
        group = draw.pick((1, 1, 1, channels, 2, 0, -1)) if draw.chance(4) else 1
        out = draw.pick((4, 1, 3, 8, 16, 17)) * max(group, 1)
        if draw.chance(20):
            channels, out = self._int64_t(), self._int64_t()
        handle = wrap.ConvHandle(
            image, self._pair((3, 1, 2, 5)), self._pair((1, 1, 2, 3)), self._pair((0, 1, 2)),
            channels, out, draw.chance(2), group, self._pair((1, 1, 1, 2)),
        )  # fmt: skip
        self._knows(handle.recorder)
        return handle

    _cudnnconvhandle = _cudnnconvhandles = _convhandle

    def _knows(self, recorder: Any) -> None:
        x, w, y = recorder.input_shape, recorder.weight_shape, recorder.output_shape
        channels = (recorder.out_channels,)
        self._known = {"x": x, "x_shape": x, "W": w, "y": y, "dy": y, "add": y, "saved": y}
        self._known["b"] = self._known["bias"] = lambda: channels

    def _recorder(self) -> Any:
        return self._convhandle().recorder

    def _convtransposehandle(self) -> Any:
        image, draw = self._image(), self.draw
        return wrap.ConvTransposeHandle(
            image, self._pair((3, 1, 2)), self._pair((1, 2, 3)), self._pair((0, 1)),
            self._pair((0, 0, 1)), image.shape()[1], draw.pick((4, 1, 8)),
        )  # fmt: skip

    def _poolinghandle(self) -> Any:
        handle = wrap.PoolingHandle(
            self._image(), self._pair((2, 3, 1)), self._pair((2, 1, 3)), self._pair((0, 0, 1)),
            self._bool(), self._bool(), self._bool(), self._pair((1, 1, 1, 2)),
        )  # fmt: skip
        self._knows(handle.recorder)
        return handle

    _cudnnpoolinghandle = _poolinghandle

    def _batchnormhandle(self) -> Any:
        image = self._image() if self.draw.chance(2) else self.filled(self._base)
        shape = image.shape()
        channels = shape[1:2] or (1,)
        self._known = dict.fromkeys(("x", "y", "dy", "add"), lambda: shape)
        names = ("scale", "bias", "mean", "var", "running_mean", "running_var")
        self._known |= dict.fromkeys(names, lambda: channels)
        return wrap.BatchNormHandle(self._double(), image, abs(self.draw.pick(_DOUBLES[:8])))

    _cudnnbatchnormhandle = _batchnormhandle

    def _interpolationhandle(self) -> Any:
        draw = self.draw
        return wrap.InterpolationHandle(
            draw.below(4), draw.below(6), draw.below(5), draw.pick((-0.75, -0.5, 0.0, 3.0)),
            self._bool(), self._bool(),
        )  # fmt: skip

    def _rnnhandle(self) -> Any:
        draw = self.draw
        x = self.filled([draw.pick((3, 1, 0)), draw.pick((2, 1, 5)), draw.pick((4, 1))])
        handle = wrap.RnnHandle(
            x, draw.pick((3, 1, 8)), draw.below(5), draw.pick((1, 2, 0)),
            self._bool(), draw.pick((0.0, 0.5, 1.0, -1.0)), self._bool(),
        )  # fmt: skip
        shape = x.shape()
        hidden = (handle.num_layers * handle.directions, shape[1], handle.hidden_size)
        output = (shape[0], shape[1], handle.hidden_size * handle.directions)
        weights = (handle.weights_size,)
        self._known = {"x": lambda: shape, "W": lambda: weights, "w": lambda: weights}
        self._known |= dict.fromkeys(("hx", "cx", "dhy", "dcy", "h0", "c0"), lambda: hidden)
        self._known |= dict.fromkeys(("y", "dy"), lambda: output)
        return handle


def _from_numpy(array: Any) -> Any:
    return wrap.from_buffer(array, True)


def _whole(name: str) -> bool:
    """True if tensors with this name hold class numbers or positions."""
    return name in ("indices", "labels", "t", "target", "index")
