# Methods and attributes of raw tensors, handles and devices, for scripts written for Apache SINGA.
# Part of the module singa_wrap.


def _values(t, dtype):
    if t.empty():
        return _numpy.empty(0, DTypeName(dtype))
    return _numpy.array(Exporter(t.AsType(dtype).ToHost())).reshape(-1)


def _get_value(function, dtype):
    def value(self, size):
        _range(function, self, size)
        return _values(self, dtype)[:size]

    value.__doc__ = "The first `size` elements as an array. Raises ValueError when there are fewer."
    return value


def _repeat(self, repeats, axis):
    """Repeats each element along `axis`, by one count or a count for each position. If `axis` is
    None, or 9999 (SINGA's "no axis"), flattens first."""
    whole = -1000 if axis is None or axis == 9999 else axis  # Repeat's "no axis"
    return Repeat(self, repeats, whole)


def _copy_from_array(dtype):
    def function(self, values, offset=0):
        given = _numpy.asarray(values)
        if given.dtype.kind not in "biuf":
            raise TypeError(f"[CopyFromHostPtr] expected numbers, got {values!r:.60}")
        with _numpy.errstate(invalid="ignore", over="ignore"):
            array = _numpy.ascontiguousarray(given, dtype=dtype).reshape(-1)
        if dtype == "int32" and not _numpy.array_equal(array, _numpy.trunc(given).reshape(-1)):
            raise ValueError("[CopyIntDataFromHostPtr] values do not fit int32")
        _range("CopyFromHostPtr", self, array.size, offset)
        flat = self.Reshape((-1,))
        flat.SliceAxis(0, offset, offset + array.size).CopyFrom(from_buffer(array, False))

    function.__doc__ = f"Copies an array, as {dtype}, to the elements from `offset` on."
    return function


def _per_element(op):
    def function(self):
        total = Reduce(op, self).Item()
        return total / self.size() if self.size() else _math.nan

    function.__doc__ = "A norm of all elements, divided by their number; NaN where there is none."
    return function


def _in_place(op):
    def function(self, other):
        if not isinstance(self, Tensor):
            raise TypeError(f"[Tensor] expected a tensor, got {self!r:.60}")
        other = other if isinstance(other, Tensor) else _scalar_like(other, self)
        BinaryInto(op, self, other, self)
        return self

    function.__doc__ = "Changes its elements, by a tensor's or a number."
    return function


Tensor.__iadd__ = _in_place(BinaryOp_kAdd)
Tensor.__isub__ = _in_place(BinaryOp_kSub)
Tensor.__imul__ = _in_place(BinaryOp_kMul)
Tensor.__itruediv__ = _in_place(BinaryOp_kDiv)
Tensor.iAddFloat = Tensor.__iadd__
Tensor.iSubFloat = Tensor.__isub__
Tensor.iMulFloat = Tensor.__imul__
Tensor.iDivFloat = Tensor.__itruediv__
Tensor.GetFloatValue = _get_value("GetFloatValue", kFloat32)
Tensor.GetHalfFloatValue = _get_value("GetHalfFloatValue", kFloat16)
Tensor.GetIntValue = _get_value("GetIntValue", kInt)
Tensor.Repeat = _repeat
Tensor.L1 = _per_element(ReduceOp_kL1)
Tensor.L2 = _per_element(ReduceOp_kL2)
Tensor.CopyFloatDataFromHostPtr = _copy_from_array("float32")
Tensor.CopyHalfFloatDataFromHostPtr = _copy_from_array("float16")
Tensor.CopyIntDataFromHostPtr = _copy_from_array("int32")
Tensor.Exporter = property(lambda self: Exporter(self))
Tensor.__repr__ = lambda self: f"<singa_wrap.Tensor {self.ToString()}>"


def _host(self):
    """The default CPU device."""
    return DefaultDevice()


def _print_time_profiling(self):
    """Accepted and ignored: `singa.profile` measures times."""


def _enable_lazy_alloc(enable):
    """Accepted and ignored: memory comes from a cache, so allocating late has nothing to save."""


def _reset(self):
    """Stops recording and discards the recorded operations."""
    Device.EnableGraph(self, False)
    Device.ResetGraph(self)


def _of_recorder(kind, **names):
    for name, field in names.items():
        setattr(kind, name, property(lambda self, field=field: getattr(self.recorder, field)))


_WINDOW = {
    "batchsize": "batchsize",
    **{f"{what}_{side}": f"{what}_{side}" for what in ("kernel", "stride") for side in "hw"},
    "pad_h": "pad_top",
    "pad_w": "pad_left",
}
_of_recorder(
    ConvHandle,
    **_WINDOW,
    channels="in_channels",
    num_filters="out_channels",
    group="group",
    bias_term="bias",
)
_of_recorder(PoolingHandle, **_WINDOW, pooled_height="conv_height", pooled_width="conv_width")
PoolingHandle.is_max_pooling = property(lambda self: self.mode == PoolMode_kMax)

Device.host = _host
Device.Reset = _reset
Device.PrintTimeProfiling = _print_time_profiling
Device.EnableLazyAlloc = staticmethod(_enable_lazy_alloc)
