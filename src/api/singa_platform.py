# Apache SINGA's version, build options, snapshots, processes and platforms. Part of the module
# singa_wrap.

SINGA_MAJOR_VERSION, SINGA_MINOR_VERSION, SINGA_PATCH_VERSION = 5, 0, 0
#: The version of Apache SINGA that has this interface.
SINGA_VERSION = 1000 * SINGA_MAJOR_VERSION + 100 * SINGA_MINOR_VERSION + SINGA_PATCH_VERSION
USE_PYTHON = USE_DNNL = True
USE_JAVA = USE_OPENCL = False


def __getattr__(name):
    # The query opens the CUDA backend, so it is deferred until the attribute is read.
    if name in ("USE_CUDA", "USE_CUDNN"):
        return NumGpus() > 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def InitLogging(argv=""):
    """Accepted and ignored: errors are exceptions, and nothing is logged."""


class Snapshot:
    """Named raw tensors in a file, based on `singa.snapshot`.

    prefix         name of the file
    mode           kWrite or kRead
    max_param_size accepted for compatibility with SINGA and ignored
    """

    kRead, kWrite = 0, 1

    def __init__(self, prefix, mode, max_param_size=10):
        from .snapshot import Snapshot as File

        self._file = File(_os.fsdecode(prefix), bool(mode), max_param_size)

    def Write(self, key, param):
        """Adds the tensor's current values under a name."""
        from .tensor import from_raw_tensor

        name = key.decode() if isinstance(key, bytes) else key
        self._file.write(name, from_raw_tensor(param))

    def Read(self):
        """All names and tensors, in the order written."""
        values = self._file.read()
        return [(name, value.data) for name, value in dict(values).items()]

    def Close(self):
        """Writes the file. Deleting the snapshot does the same."""
        self._file.close()


class Platform:
    """Finds and creates devices. Functions for GPUs raise RuntimeError, saying what is missing, if
    no GPU is usable."""

    @staticmethod
    def GetDefaultDevice():
        """The default CPU device."""
        return DefaultDevice()

    @staticmethod
    def GetNumOpenclPlatforms():
        """Always 0: singa has no OpenCL backend."""
        return 0

    @staticmethod
    def GetNumOpenclDevices():
        """Always 0: singa has no OpenCL backend."""
        return 0

    @staticmethod
    def GetDefaultOpenclDevice():
        """Raises RuntimeError: singa has no OpenCL backend."""
        raise RuntimeError("[GetDefaultOpenclDevice] singa has no OpenCL backend; use the CPU")

    @staticmethod
    def GetNumGPUs():
        """Number of usable CUDA GPUs."""
        return NumGpus()

    @staticmethod
    def GetGPUIDs():
        """Identifiers of the usable CUDA GPUs."""
        return tuple(range(NumGpus()))

    @staticmethod
    def GetGPUMemSize(device_id):
        """Free and total memory of a GPU, in bytes."""
        gpu = GetGpuProperties(device_id)
        return gpu.free_memory, gpu.total_memory

    @staticmethod
    def DeviceQuery(device_id, verbose=False):
        """A description of a GPU."""
        gpu = GetGpuProperties(device_id)
        text = f"GPU {device_id}: {gpu.name}, {gpu.total_memory >> 20} MiB"
        if verbose:
            text += (
                f", {gpu.free_memory >> 20} MiB free, compute capability {gpu.major}.{gpu.minor}, "
                f"{gpu.multiprocessors} multiprocessors"
            )
        return text

    @staticmethod
    def CreateCudaGPUs(num_devices, init_size=0):
        """The first `num_devices` GPUs."""
        return Platform.CreateCudaGPUsOn(range(num_devices), init_size)

    @staticmethod
    def CreateCudaGPUsOn(devices, init_size=0):
        """The GPUs with these identifiers."""
        return [CreateCudaDevice(device) for device in devices]


def _needs_cudnn(function):
    raise RuntimeError(
        f"[{function}] the CUDA backend has no recurrent networks yet: RnnHandle, RnnForward and "
        "RnnBackward compute on the CPU"
    )


class CudnnRNNHandle(RnnHandle):
    """An RnnHandle for a tensor on a CUDA device; raises RuntimeError for other devices. RnnHandle,
    RnnForward and RnnBackward, which layer.CudnnRNN uses, also support the CPU."""

    def __init__(self, x, hidden_size, mode=0, num_layers=1, bias=1, dropout=0.0, bidirectional=0):
        _needs_cudnn("CudnnRNNHandle")


def _gpu_rnn(name, arguments):
    def function(*args):
        _needs_cudnn(name)

    function.__name__ = name
    function.__doc__ = (
        f"{name}({arguments}) of cuDNN; RuntimeError: the CUDA backend does not have it yet."
    )
    return function


for _name, _arguments in {
    "GpuRNNForwardTraining": "x, hx, cx, W, handle",
    "GpuRNNForwardInference": "x, hx, cx, W, handle",
    "GpuRNNBackwardx": "y, dy, dhy, dcy, W, hx, cx, handle",
    "GpuRNNBackwardW": "x, hx, y, handle",
    "GpuRNNForwardTrainingEx": "x, hx, cx, W, seq_lengths, handle",
    "GpuRNNForwardInferenceEx": "x, hx, cx, W, seq_lengths, handle",
    "GpuRNNBackwardxEx": "y, dy, dhy, dcy, W, hx, cx, seq_lengths, handle",
    "GpuRNNBackwardWEx": "x, hx, y, seq_lengths, handle",
}.items():
    globals()[_name] = _gpu_rnn(_name, _arguments)

del _name, _arguments
