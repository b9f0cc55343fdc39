"""Devices, settings of the process, the plan cache, OPCHECK."""

import numpy as np
import singa
from singa import autograd, device, tensor
from singa import singa_wrap as wrap
from wrong_call import make, table

device.get_num_gpus()  # loads the library for GPUs, which takes memory that no wrong call takes

DEVICE, OTHER = device.get_default_device(), device.create_cpu_device(separate=True)
ELSEWHERE = tensor.Tensor((2, 3), device=OTHER)
HERE, THERE = DEVICE.name(), OTHER.name()


def closed():
    """A closed device, and a tensor that was on it."""
    gone = device.create_cpu_device(separate=True)
    t = tensor.Tensor((2, 3), device=gone)
    gone.Close()
    return gone, t


def exported():
    """Closes a device while the address of its memory is in use."""
    busy = device.create_cpu_device(separate=True)
    held = wrap.Exporter(tensor.Tensor((3,), device=busy).data)
    try:
        busy.Close()
    finally:
        del held


def checked(**options):
    with singa.opcheck(**options):
        return autograd.exp(make(2, 3))


test_two_devices = table(f"""
autograd.add(MATRIX, ELSEWHERE) -> ValueError: [Add] b {THERE} a {HERE}
autograd.matmul(ELSEWHERE, make(3, 2)) -> ValueError: [MatMul] b {HERE} a {THERE}
autograd.linear(ELSEWHERE, make(3, 2)) -> ValueError: [LinearForward] W {HERE} x {THERE}
autograd.where(MATRIX, ELSEWHERE, MATRIX) -> ValueError: [Where] y {THERE} condition {HERE}
autograd.cat([MATRIX, ELSEWHERE], 0) -> ValueError: [Concat] {THERE} 0 {HERE}
wrap.BinaryInto(0, MATRIX.data, MATRIX.data, ELSEWHERE.data)
    -> ValueError: [Add] out {THERE} a {HERE}
wrap.Axpy(1.0, MATRIX.data, ELSEWHERE.data) -> ValueError: [Axpy] x {HERE} y {THERE}
wrap.Gather(MATRIX.data, 0, ELSEWHERE.data.AsType(wrap.kInt32))
    -> ValueError: [Gather] indices {THERE} {HERE}
wrap.SoftmaxCrossEntropyForward(MATRIX.data, LABELS.data.ToDevice(OTHER), 0.0)
    -> ValueError: [SoftmaxCrossEntropyForward] t {THERE} x {HERE}
autograd.matmul(closed()[1], make(3, 2)) -> ValueError: [MatMul] b {HERE} a cpu-
""")

test_default_device = table(
    "DEVICE.Close() -> ValueError: [close] default", cpu="a GPU can be closed"
)

test_wrong_call = table("""
wrap.Tensor.Size(None) -> TypeError: [Tensor_Size] self NoneType
wrap.Device.name(None) -> TypeError: [Device_name] self NoneType
wrap.AddRow(None, MATRIX.data) -> TypeError: [AddRow] v Tensor NoneType
wrap.MultColumn(None, MATRIX.data) -> TypeError: [MultColumn] v Tensor NoneType
wrap.SoftMax(None) -> TypeError: [SoftMax] t Tensor NoneType
wrap.SliceOn(None, 0, 1, 0) -> TypeError: [SliceOn] t Tensor NoneType
wrap.Transpose(None) -> TypeError: [Transpose] t Tensor NoneType
wrap.CopyDataToFrom(None, MATRIX.data, 1) -> TypeError: [CopyDataToFrom] dst Tensor NoneType
wrap.Tensor.GetFloatValue(None, 1) -> TypeError: [Tensor_size] self NoneType
wrap.Pow(None, 0.5) -> TypeError: [Binary] NoneType float
wrap.Graph(None) -> ValueError: [graph] recording
wrap.Graph(wrap.Recording(None, None)).TakeBack(0) -> ValueError: [graph] segment 0 0
wrap.IsFloat(BIG) -> ValueError: [IsFloat] dtype 32
setattr(wrap.UpdateConditions(), "squares", 3) -> TypeError: squares int
checked(ops=["NoSuchOperation"]) -> UserWarning: [opcheck] NoSuchOperation
checked(directory="no/such/folder") -> FileNotFoundError: [opcheck] no/such/folder
closed()[1] + 1 -> RuntimeError: [block] cpu-
closed()[1].numpy() -> RuntimeError: [tensor] cpu-
tensor.Tensor((2,), device=closed()[0]) -> RuntimeError: [block] cpu-
closed()[1].clone() -> RuntimeError: [block] cpu-
closed()[1].set_value(1.0) -> RuntimeError: [Fill] cpu-
closed()[1].to_device(DEVICE) -> RuntimeError: [tensor] cpu-
closed()[1].data.Reshape((6,)).Clone() -> RuntimeError: [block] cpu-
closed()[1].gaussian(0, 1) -> RuntimeError: [Gaussian] cpu-
closed()[1].data.Item() -> ValueError: [item] (2, 3) float32 cpu-
closed()[1].__dlpack__() -> RuntimeError: [tensor] cpu-
device.create_cuda_gpus_on([99]) -> RuntimeError|ValueError: [gpu]
device.create_cuda_gpu_on(99) -> RuntimeError|ValueError: [gpu]
device.device_query(99) -> RuntimeError|ValueError: [gpu]
device.create_opencl_device() -> RuntimeError: [create_opencl_device] OpenCL
DEVICE.SetRandSeed(-1) -> ValueError: [Device_SetRandSeed] seed 64
DEVICE.SetRandSeed("a") -> TypeError: [Device_SetRandSeed] seed str
DEVICE.set_random_state([1]) -> ValueError: [random_state] state two 1
DEVICE.set_random_state([-1, 2]) -> ValueError: [Device_set_random_state] state 64
singa.device_memory("cpu") -> TypeError: [device_memory] device cpu
wrap.SetPreference(99) -> ValueError: [prefer] preference 99
wrap.SetFloat32Precision(2) -> ValueError: [float32 precision] precision 2
wrap.ParsePreference("warp") -> ValueError: [prefer] warp fastest limited_workspace no_workspace
DEVICE.SetVerbosity("a") -> TypeError: [Device_SetVerbosity] verbosity str
wrap.Device() -> AttributeError: constructor abstract
wrap.ReplayCall([], [], [], []) -> ValueError: [replay] file version
singa.set_num_threads(0) -> ValueError: [set_num_threads] threads 1 0
singa.set_num_threads(-1) -> ValueError: [set_num_threads] threads 1 -1
singa.set_num_threads(1 << 20) -> ValueError: [set_num_threads] threads [1, 1024] 1048576
singa.set_num_threads(1 << 70) -> ValueError: [set_num_threads] threads 64 1180591620717411303424
singa.set_num_threads("a") -> TypeError: [set_num_threads] threads str
singa.set_num_threads(NAN) -> ValueError: [set_num_threads] threads nan
singa.set_num_threads(1.5) -> ValueError: [set_num_threads] threads 1.5
singa.set_num_threads(None) -> TypeError: [set_num_threads] threads NoneType
singa.set_float32_precision("medium")
    -> ValueError: [set_float32_precision] precision 'highest' 'high' 'medium'
singa.set_float32_precision(None) -> ValueError: [set_float32_precision] precision None
singa.set_float32_precision([]) -> ValueError: [set_float32_precision] precision []
singa.seed("a") -> TypeError: [seed] str
singa.seed(NAN) -> TypeError: [seed] float
singa.seed(1.5) -> TypeError: [seed] float
singa.seed(-1) -> ValueError: [seed] [0, 2**64) -1
singa.seed(1 << 70) -> ValueError: [seed] [0, 2**64) 1180591620717411303424
singa.seed(None) -> TypeError: [seed] NoneType
singa.plan_cache.set_limit(bytes=-1) -> ValueError: [plan_cache.set_limit] bytes -1
singa.plan_cache.set_limit(entries=-1) -> ValueError: [plan_cache.set_limit] entries -1
singa.plan_cache.set_limit(bytes=NAN) -> ValueError: [plan_cache.set_limit] bytes nan
singa.plan_cache.set_limit(bytes="a") -> TypeError: [plan_cache.set_limit] bytes str
singa.plan_cache.set_limit(bytes=1.5) -> ValueError: [plan_cache.set_limit] bytes 1.5
singa.plan_cache.set_limit(bytes=1 << 70)
    -> ValueError: [plan_cache.set_limit] bytes 64 1180591620717411303424
singa.plan_cache.set_limit(bytes=None) -> TypeError: [plan_cache.set_limit] bytes NoneType
checked(every=-1) -> ValueError: [opcheck] every -1
checked(every=NAN) -> ValueError: [opcheck] every nan
checked(every=1.5) -> ValueError: [opcheck] every 1.5
checked(every="a") -> TypeError: [opcheck] every str
checked(ops="ConvForward") -> TypeError: [opcheck] ops ConvForward
checked(ops=5) -> TypeError: [opcheck] ops 5
checked(ops=[5]) -> TypeError: [opcheck] ops [5]
checked(action="explode") -> ValueError: [opcheck] action raise warn explode
checked(directory=5) -> TypeError: os.PathLike int
checked(directory="/nonexistent/x") -> FileNotFoundError: [opcheck] /nonexistent/x
exported() -> ValueError: [close] NumPy DLPack cpu-
""")


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
