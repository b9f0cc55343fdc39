"""Devices, settings of the process, the plan cache, OPCHECK."""

import numpy as np
import singa
from singa import autograd, device, tensor
from singa import singa_wrap as wrap
from wrong_call import NAN, Row, check, make, parametrize

# Of whatever is missing, or, where nothing is, of the number.
NO_GPU = r"\[gpu\] (no GPU can be used: |there is no GPU 99)"
CUBE, MATRIX, INTEGERS = make(2, 3, 4), make(2, 3), make(2, 3, dtype="int32")
BIG = 1 << 40
OTHER = device.create_cpu_device(separate=True)
ELSEWHERE = tensor.Tensor((2, 3), device=OTHER)


def labels(values, dtype="int32"):
    return tensor.Tensor(data=np.array(values), dtype=dtype)


def closed():
    """A device that was closed, and a tensor that was on it."""
    gone = device.create_cpu_device(separate=True)
    t = tensor.Tensor((2, 3), device=gone)
    gone.Close()
    return gone, t


def exported():
    """Closes a device while somebody holds the address of its memory."""
    busy = device.create_cpu_device(separate=True)
    held = wrap.Exporter(tensor.Tensor((3,), device=busy).data)
    try:
        busy.Close()
    finally:
        del held


def checked(**options):
    with singa.opcheck(**options):
        return autograd.exp(MATRIX)


ROWS = [
    Row(
        "method of None",
        lambda: wrap.Tensor.Size(None),
        TypeError,
        r"\[Tensor_Size\] self has to be an object, got NoneType",
    ),
    Row(
        "method of None, of a class that is shared",
        lambda: wrap.Device.name(None),
        TypeError,
        r"\[Device_name\] self has to be an object, got NoneType",
    ),
    *(
        Row(
            f"{name} of what is no tensor",
            lambda name=name, rest=rest: getattr(wrap, name)(None, *rest),
            TypeError,
            rf"\[{name}\] {word} has to be a Tensor, got NoneType",
        )
        for name, word, rest in [
            ("AddRow", "v", (MATRIX.data,)),
            ("MultColumn", "v", (MATRIX.data,)),
            ("SoftMax", "t", ()),
            ("SliceOn", "t", (0, 1, 0)),
            ("Transpose", "t", ()),
            ("CopyDataToFrom", "dst", (MATRIX.data, 1)),
        ]
    ),
    Row(
        "values of None",
        lambda: wrap.Tensor.GetFloatValue(None, 1),
        TypeError,
        r"\[Tensor_size\] self has to be an object, got NoneType",
    ),
    Row(
        "operands without a tensor",
        lambda: wrap.Pow(None, 0.5),
        TypeError,
        r"\[Binary\] one of the operands has to be a Tensor, got NoneType and float",
    ),
    Row(
        "graph of None",
        lambda: wrap.Graph(None),
        ValueError,
        r"\[graph\] there is no recording",
    ),
    Row(
        "graph that lends nothing",
        lambda: wrap.Graph(wrap.Recording(None, None)).TakeBack(0),
        ValueError,
        r"\[graph\] segment 0 of 0",
    ),
    Row(
        "type beyond int",
        lambda: wrap.IsFloat(1 << 40),
        ValueError,
        r"\[IsFloat\] dtype does not fit 32 bits",
    ),
    Row(
        "member of a wrong class",
        lambda: setattr(wrap.UpdateConditions(), "squares", 3),
        TypeError,
        r"squares has to be a Tensor, got int",
    ),
    Row(
        "opcheck ops unknown",
        lambda: checked(ops=["NoSuchOperation"]),
        UserWarning,
        r"\[opcheck\] nothing named NoSuchOperation was checked",
    ),
    Row(
        "opcheck directory missing",
        lambda: checked(directory="no/such/folder"),
        FileNotFoundError,
        r"\[opcheck\] there is no folder 'no/such/folder'",
    ),
    Row(
        "mix add",
        lambda: autograd.add(MATRIX, ELSEWHERE),
        ValueError,
        r"\[Add\] b is on cpu-\d+, a on cpu",
    ),
    Row(
        "mix matmul",
        lambda: autograd.matmul(ELSEWHERE, make(3, 2)),
        ValueError,
        r"\[MatMul\] b is on cpu, a on cpu-\d+",
    ),
    Row(
        "mix linear",
        lambda: autograd.linear(ELSEWHERE, make(3, 2)),
        ValueError,
        r"\[LinearForward\] W is on cpu, x on cpu-\d+",
    ),
    Row(
        "mix where",
        lambda: autograd.where(MATRIX, ELSEWHERE, MATRIX),
        ValueError,
        r"\[Where\] y is on cpu-\d+, condition on cpu",
    ),
    Row(
        "mix cat",
        lambda: autograd.cat([MATRIX, ELSEWHERE], 0),
        ValueError,
        r"\[Concat\] a tensor is on cpu-\d+, tensor 0 on cpu",
    ),
    Row(
        "mix binaryinto",
        lambda: wrap.BinaryInto(0, MATRIX.data, MATRIX.data, ELSEWHERE.data),
        ValueError,
        r"\[Add\] out is on cpu-\d+, a on cpu",
    ),
    Row(
        "mix axpy",
        lambda: wrap.Axpy(1.0, MATRIX.data, ELSEWHERE.data),
        ValueError,
        r"\[Axpy\] x is on cpu, y on cpu-\d+",
    ),
    Row(
        "mix gather",
        lambda: wrap.Gather(MATRIX.data, 0, ELSEWHERE.data.AsType(wrap.kInt32)),
        ValueError,
        r"\[Gather\] indices is on cpu-\d+, the data on cpu",
    ),
    Row(
        "mix loss",
        lambda: wrap.SoftmaxCrossEntropyForward(
            MATRIX.data, tensor.Tensor(data=np.array([0, 1]), dtype="int32", device=OTHER).data, 0.0
        ),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t is on cpu-\d+, x on cpu",
    ),
    Row(
        "closed add",
        lambda: closed()[1] + 1,
        RuntimeError,
        r"\[block\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed numpy",
        lambda: closed()[1].numpy(),
        RuntimeError,
        r"\[tensor\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed new",
        lambda: tensor.Tensor((2,), device=closed()[0]),
        RuntimeError,
        r"\[block\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed clone",
        lambda: closed()[1].clone(),
        RuntimeError,
        r"\[block\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed fill",
        lambda: closed()[1].set_value(1.0),
        RuntimeError,
        r"\[Fill\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed to_device",
        lambda: closed()[1].to_device(device.get_default_device()),
        RuntimeError,
        r"\[tensor\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed reshape",
        lambda: closed()[1].data.Reshape((6,)).Clone(),
        RuntimeError,
        r"\[block\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed matmul",
        lambda: autograd.matmul(closed()[1], make(3, 2)),
        ValueError,
        r"\[MatMul\] b is on cpu, a on cpu-\d+",
    ),
    Row(
        "closed gaussian",
        lambda: closed()[1].gaussian(0, 1),
        RuntimeError,
        r"\[Gaussian\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "closed item",
        lambda: closed()[1].data.Item(),
        ValueError,
        r"\[item\] needs one element, got \(2, 3\) float32 on cpu-\d+",
    ),
    Row(
        "closed dlpack",
        lambda: closed()[1].__dlpack__(),
        RuntimeError,
        r"\[tensor\] device cpu-\d+ was closed; its tensors are gone",
    ),
    Row(
        "close default",
        lambda: device.get_default_device().Close(),
        ValueError,
        r"\[close\] the default device cannot be closed",
        cpu="a GPU can be closed",
    ),
    Row(
        "cuda",
        lambda: device.create_cuda_gpus_on([99]),
        (RuntimeError, ValueError),
        NO_GPU,
    ),
    Row(
        "cuda on",
        lambda: device.create_cuda_gpu_on(99),
        (RuntimeError, ValueError),
        NO_GPU,
    ),
    Row(
        "cuda query",
        lambda: device.device_query(99),
        (RuntimeError, ValueError),
        NO_GPU,
    ),
    Row(
        "opencl",
        lambda: device.create_opencl_device(),
        RuntimeError,
        r"\[create_opencl_device\] singa has no OpenCL backend; use the CPU",
    ),
    Row(
        "SetRandSeed neg",
        lambda: device.get_default_device().SetRandSeed(-1),
        ValueError,
        r"\[Device_SetRandSeed\] seed is negative or does not fit 64 bits",
    ),
    Row(
        "SetRandSeed str",
        lambda: device.get_default_device().SetRandSeed("a"),
        TypeError,
        r"\[Device_SetRandSeed\] seed has to be an integer, got str",
    ),
    Row(
        "set_random_state",
        lambda: device.get_default_device().set_random_state([1]),
        ValueError,
        r"\[random_state\] a state has two numbers, got 1",
    ),
    Row(
        "set_random_state neg",
        lambda: device.get_default_device().set_random_state([-1, 2]),
        ValueError,
        r"\[Device_set_random_state\] state is negative or does not fit 64 bits",
    ),
    Row(
        "device_memory str",
        lambda: singa.device_memory("cpu"),
        TypeError,
        r"\[device_memory\] dev has to be a Device, got str",
    ),
    Row(
        "SetPreference 99",
        lambda: wrap.SetPreference(99),
        ValueError,
        r"\[prefer\] there is no preference number 99",
    ),
    Row(
        "ParsePreference",
        lambda: wrap.ParsePreference("warp"),
        ValueError,
        r"\[prefer\] 'warp' is none of fastest, limited_workspace, no_workspace,",
    ),
    Row(
        "SetVerbosity str",
        lambda: device.get_default_device().SetVerbosity("a"),
        TypeError,
        r"\[Device_SetVerbosity\] verbosity has to be an integer, got str",
    ),
    Row(
        "Device()",
        lambda: wrap.Device(),
        AttributeError,
        r"No constructor defined - class is abstract",
    ),
    Row(
        "ReplayCall",
        lambda: wrap.ReplayCall([], [], [], []),
        ValueError,
        r"\[replay\] the file is no replay file of this version",
    ),
    Row(
        "threads 0",
        lambda: singa.set_num_threads(0),
        ValueError,
        r"\[set_num_threads\] threads must be at least 1, got 0",
    ),
    Row(
        "threads -1",
        lambda: singa.set_num_threads(-1),
        ValueError,
        r"\[set_num_threads\] threads must be at least 1, got -1",
    ),
    Row(
        "threads huge",
        lambda: singa.set_num_threads(1 << 20),
        ValueError,
        r"\[set_num_threads\] threads has to be in \[1, 1024\], got 1048576",
    ),
    Row(
        "threads overflow",
        lambda: singa.set_num_threads(1 << 70),
        ValueError,
        r"\[set_num_threads\] threads does not fit 64 bits: 1180591620717411303424",
    ),
    Row(
        "threads str",
        lambda: singa.set_num_threads("a"),
        TypeError,
        r"\[set_num_threads\] threads must be an integer, got str",
    ),
    Row(
        "threads nan",
        lambda: singa.set_num_threads(NAN),
        ValueError,
        r"\[set_num_threads\] threads must be a whole number, got nan",
    ),
    Row(
        "threads 1.5",
        lambda: singa.set_num_threads(1.5),
        ValueError,
        r"\[set_num_threads\] threads must be a whole number, got 1\.5",
    ),
    Row(
        "threads None",
        lambda: singa.set_num_threads(None),
        TypeError,
        r"\[set_num_threads\] threads must be an integer, got NoneType",
    ),
    Row("seed str", lambda: singa.seed("a"), TypeError, r"\[seed\] has to be an integer, got str"),
    Row(
        "seed nan", lambda: singa.seed(NAN), TypeError, r"\[seed\] has to be an integer, got float"
    ),
    Row(
        "seed 1.5", lambda: singa.seed(1.5), TypeError, r"\[seed\] has to be an integer, got float"
    ),
    Row(
        "seed neg",
        lambda: singa.seed(-1),
        ValueError,
        r"\[seed\] has to be in \[0, 2\*\*64\), got -1",
    ),
    Row(
        "seed huge",
        lambda: singa.seed(1 << 70),
        ValueError,
        r"\[seed\] has to be in \[0, 2\*\*64\), got 1180591620717411303424",
    ),
    Row(
        "seed None",
        lambda: singa.seed(None),
        TypeError,
        r"\[seed\] has to be an integer, got NoneType",
    ),
    Row(
        "limit neg",
        lambda: singa.plan_cache.set_limit(bytes=-1),
        ValueError,
        r"\[plan_cache\.set_limit\] bytes must not be negative, got -1",
    ),
    Row(
        "limit entries neg",
        lambda: singa.plan_cache.set_limit(entries=-1),
        ValueError,
        r"\[plan_cache\.set_limit\] entries must not be negative, got -1",
    ),
    Row(
        "limit nan",
        lambda: singa.plan_cache.set_limit(bytes=NAN),
        ValueError,
        r"\[plan_cache\.set_limit\] bytes must be a whole number, got nan",
    ),
    Row(
        "limit str",
        lambda: singa.plan_cache.set_limit(bytes="a"),
        TypeError,
        r"\[plan_cache\.set_limit\] bytes must be an integer, got str",
    ),
    Row(
        "limit 1.5",
        lambda: singa.plan_cache.set_limit(bytes=1.5),
        ValueError,
        r"\[plan_cache\.set_limit\] bytes must be a whole number, got 1\.5",
    ),
    Row(
        "limit 1<<70",
        lambda: singa.plan_cache.set_limit(bytes=1 << 70),
        ValueError,
        r"\[plan_cache\.set_limit\] bytes does not fit 64 bits: 1180591620717411303424",
    ),
    Row(
        "limit None",
        lambda: singa.plan_cache.set_limit(bytes=None),
        TypeError,
        r"\[plan_cache\.set_limit\] bytes must be an integer, got NoneType",
    ),
    Row(
        "opcheck neg",
        lambda: checked(every=-1),
        ValueError,
        r"\[opcheck\] every must not be negative, got -1",
    ),
    Row(
        "opcheck nan",
        lambda: checked(every=NAN),
        ValueError,
        r"\[opcheck\] every must be a whole number, got nan",
    ),
    Row(
        "opcheck 1.5",
        lambda: checked(every=1.5),
        ValueError,
        r"\[opcheck\] every must be a whole number, got 1\.5",
    ),
    Row(
        "opcheck str",
        lambda: checked(every="a"),
        TypeError,
        r"\[opcheck\] every must be an integer, got str",
    ),
    Row(
        "opcheck ops str",
        lambda: checked(ops="ConvForward"),
        TypeError,
        r"\[opcheck\] ops must be a list of names, got 'ConvForward'",
    ),
    Row(
        "opcheck ops int",
        lambda: checked(ops=5),
        TypeError,
        r"\[opcheck\] ops must be a list of names, got 5",
    ),
    Row(
        "opcheck ops [5]",
        lambda: checked(ops=[5]),
        TypeError,
        r"\[opcheck\] ops must be a list of names, got \[5\]",
    ),
    Row(
        "opcheck action",
        lambda: checked(action="explode"),
        ValueError,
        r"\[opcheck\] action has to be 'raise' or 'warn', got 'explode'",
    ),
    Row(
        "opcheck dir",
        lambda: checked(directory=5),
        TypeError,
        r"expected str, bytes or os\.PathLike object, not int",
    ),
    Row(
        "opcheck dir missing",
        lambda: checked(directory="/nonexistent/x"),
        FileNotFoundError,
        r"\[opcheck\] there is no folder '/nonexistent/x'",
    ),
    Row(
        "close exported",
        exported,
        ValueError,
        r"\[close\] NumPy or DLPack still hold memory of cpu-",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)


def test_norms_of_no_elements():
    nothing = tensor.Tensor((0, 3))
    assert np.isnan([nothing.l1(), nothing.l2(), nothing.data.L1(), nothing.data.L2()]).all()


def test_none_for_what_has_a_default():
    conditions = wrap.UpdateConditions()
    conditions.squares = None
    assert conditions.squares.empty()
    arena = wrap.Arena(None)
    arena.Reserve(64)
    assert arena.bytes() == 64
