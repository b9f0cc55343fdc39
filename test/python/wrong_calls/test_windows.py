"""Convolution, pooling, normalisation, and their handles."""

import numpy as np
from singa import autograd
from singa import singa_wrap as wrap
from wrong_call import NAN, Row, check, make, parametrize

IMAGES, WEIGHT, BIAS = make(2, 3, 8, 8), make(4, 3, 3, 3), make(4)
SCALE, MEAN, VAR = make(3), make(3), make(3)
BIG = 1 << 40


def handle(*args):
    return wrap.ConvHandle(IMAGES.data, *args)


def transposed(*args):
    return wrap.ConvTransposeHandle(IMAGES.data, *args)


def pool(*args):
    return wrap.PoolingHandle(IMAGES.data, *args)


CONV = handle([3, 3], [1, 1], [1, 1], 3, 4, True)
NORM = wrap.BatchNormHandle(0.9, IMAGES.data)


ROWS = [
    Row(
        "conv channels",
        lambda: autograd.conv2d(CONV, make(2, 5, 8, 8), WEIGHT, BIAS),
        ValueError,
        r"\[ConvForward\] input has 5 channels; the handle was made for 3; input shape",
    ),
    Row(
        "conv W shape",
        lambda: autograd.conv2d(CONV, IMAGES, make(4, 3, 5, 5), BIAS),
        ValueError,
        r"\[ConvForward\] W has to have shape \(4, 3, 3, 3\), got \(4, 3, 5, 5\) float32",
    ),
    Row(
        "conv b shape",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, make(5)),
        ValueError,
        r"\[ConvForward\] b has to have shape \(4,\), got \(5,\) float32 on cpu",
    ),
    Row(
        "conv b 2d",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, make(4, 1)),
        ValueError,
        r"\[ConvForward\] b has to have shape \(4,\), got \(4, 1\) float32 on cpu",
    ),
    Row(
        "conv rank",
        lambda: autograd.conv2d(CONV, make(3, 8, 8), WEIGHT, BIAS),
        ValueError,
        r"\[ConvForward\] input must be \(N, C, H, W\); got shape \(3, 8, 8\)",
    ),
    Row(
        "conv int",
        lambda: autograd.conv2d(CONV, make(2, 3, 8, 8, dtype="int32"), WEIGHT, BIAS),
        TypeError,
        r"\[ConvForward\] x has to be of a float type, got \(2, 3, 8, 8\) int32 on cpu",
    ),
    Row(
        "conv all int",
        lambda: autograd.conv2d(
            CONV,
            make(2, 3, 8, 8, dtype="int32"),
            make(4, 3, 3, 3, dtype="int32"),
            make(4, dtype="int32"),
        ),
        TypeError,
        r"\[ConvForward\] x has to be of a float type, got \(2, 3, 8, 8\) int32 on cpu",
    ),
    Row(
        "conv f64 mix",
        lambda: autograd.conv2d(CONV, IMAGES, make(4, 3, 3, 3, dtype="float64"), BIAS),
        TypeError,
        r"\[ConvForward\] W has to have the type of x, float32, got \(4, 3, 3, 3\)",
    ),
    Row(
        "conv bool",
        lambda: autograd.conv2d(CONV, make(2, 3, 8, 8, dtype="bool"), WEIGHT, BIAS),
        TypeError,
        r"\[ConvForward\] x has to be of a float type, got \(2, 3, 8, 8\) bool on cpu",
    ),
    Row(
        "conv x None",
        lambda: autograd.conv2d(CONV, None, WEIGHT, BIAS),
        TypeError,
        r"\[_Conv2d\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "conv x numpy",
        lambda: autograd.conv2d(CONV, np.ones((2, 3, 8, 8), "f4"), WEIGHT, BIAS),
        TypeError,
        r"\[_Conv2d\] inputs have to be Tensors, got ndarray",
    ),
    Row(
        "conv W None",
        lambda: autograd.conv2d(CONV, IMAGES, None, BIAS),
        TypeError,
        r"\[_Conv2d\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "conv h None",
        lambda: autograd.conv2d(None, IMAGES, WEIGHT, BIAS),
        TypeError,
        r"\[ConvForward\] handle has to be a ConvHandle, got NoneType",
    ),
    Row(
        "conv h str",
        lambda: autograd.conv2d("h", IMAGES, WEIGHT, BIAS),
        TypeError,
        r"\[ConvForward\] handle has to be a ConvHandle, got str",
    ),
    Row(
        "conv h pool",
        lambda: autograd.conv2d(
            wrap.PoolingHandle(IMAGES.data, [2, 2], [2, 2], [0, 0]), IMAGES, WEIGHT, BIAS
        ),
        TypeError,
        r"\[ConvForward\] handle has to be a ConvHandle, got PoolingHandle",
    ),
    Row(
        "conv zero width",
        lambda: autograd.conv2d(CONV, make(2, 3, 8, 0), WEIGHT, BIAS),
        ValueError,
        r"\[ConvForward\] input must have at least one channel, row and column; got",
    ),
    Row(
        "conv too small",
        lambda: autograd.conv2d(
            handle([3, 3], [1, 1], [0, 0], 3, 4), make(2, 3, 2, 2), WEIGHT, BIAS
        ),
        ValueError,
        r"\[ConvForward\] kernel 3 with dilation 1 spans 3 > 2 elements of the padded",
    ),
    Row(
        "conv odd neg",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(-1, 0, 0, 0)),
        ValueError,
        r"\[_Conv2d\] odd_padding must not be negative, got -1",
    ),
    Row(
        "conv odd neg big",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(-100, 0, 0, 0)),
        ValueError,
        r"\[_Conv2d\] odd_padding must not be negative, got -100",
    ),
    Row(
        "conv odd 3",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(1, 0, 0)),
        ValueError,
        r"\[_Conv2d\] odd_padding has to be \(top, bottom, left, right\), got \(1, 0, 0\)",
    ),
    Row(
        "conv odd str",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding="SAME"),
        TypeError,
        r"\[_Conv2d\] odd_padding must be integers, got str",
    ),
    Row(
        "conv odd nan",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(NAN, 0, 0, 0)),
        ValueError,
        r"\[_Conv2d\] odd_padding must be a whole number, got nan",
    ),
    Row(
        "conv odd huge",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(BIG, 0, 0, 0)),
        MemoryError,
        r"\[Pad\] a tensor of \(2, 3, 1099511627784, 8\) float32: 201326592 MiB asked",
    ),
    Row(
        "conv odd None",
        lambda: autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=None),
        TypeError,
        r"\[_Conv2d\] odd_padding must be integers, got NoneType",
    ),
    Row(
        "ConvHandle x None",
        lambda: wrap.ConvHandle(None, [3, 3], [1, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] input is an empty tensor",
    ),
    Row(
        "ConvHandle x Tensor py",
        lambda: wrap.ConvHandle(IMAGES, [3, 3], [1, 1], [1, 1], 3, 4),
        TypeError,
        r"Wrong number or type of arguments for overloaded function",
    ),
    Row(
        "ConvHandle x rank 2",
        lambda: wrap.ConvHandle(make(3, 3).data, [3, 3], [1, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] input must be \(N, C, H, W\); got shape \(3, 3\)",
    ),
    Row(
        "ConvHandle recorder default",
        lambda: wrap.ConvHandle(wrap.Recorder()),
        ValueError,
        r"\[ConvHandle\] input must have at least one channel, row and column; got",
    ),
    Row(
        "conv default recorder",
        lambda: wrap.ConvForward(
            IMAGES.data, WEIGHT.data, BIAS.data, wrap.ConvHandle(wrap.Recorder())
        ),
        ValueError,
        r"\[ConvHandle\] input must have at least one channel, row and column; got",
    ),
    Row(
        "conv huge pad use",
        lambda: autograd.conv2d(
            handle([3, 3], [1, 1], [1000000, 1000000], 3, 4), IMAGES, WEIGHT, BIAS
        ),
        MemoryError,
        r"\[ConvForward\] a tensor of \(2, 4, 2000006, 2000006\) float32: ",
    ),
    Row(
        "SetupRecorder chan",
        lambda: wrap.SetupRecorder(IMAGES.data, [3, 3], [1, 1], [1, 1], 5, 4, True),
        ValueError,
        r"\[SetupRecorder\] input has 3 channels but in_channels is 5; input shape \(2,",
    ),
    Row(
        "SetupRecorder None",
        lambda: wrap.SetupRecorder(None, [3, 3], [1, 1], [1, 1], 3, 4, True),
        ValueError,
        r"\[SetupRecorder\] input is an empty tensor",
    ),
    Row(
        "CpuConvBackwardx dy shape",
        lambda: wrap.CpuConvBackwardx(make(2, 4, 7, 7).data, WEIGHT.data, IMAGES.data, CONV),
        ValueError,
        r"\[ConvBackward\] dy has to have shape \(2, 4, 8, 8\), got \(2, 4, 7, 7\) float32",
    ),
    Row(
        "CpuConvBackwardx dy None",
        lambda: wrap.CpuConvBackwardx(None, WEIGHT.data, IMAGES.data, CONV),
        ValueError,
        r"\[ConvBackward\] dy is an empty tensor \(None\)",
    ),
    Row(
        "CpuConvBackwardW x",
        lambda: wrap.CpuConvBackwardW(
            make(2, 4, 8, 8).data, make(3, 3, 8, 8).data, WEIGHT.data, CONV
        ),
        ValueError,
        r"\[ConvBackwardW\] dy has to have shape \(3, 4, 8, 8\), got \(2, 4, 8, 8\)",
    ),
    Row(
        "CpuConvBackwardb",
        lambda: wrap.CpuConvBackwardb(make(2, 5, 8, 8).data, BIAS.data, CONV),
        ValueError,
        r"\[ConvBackwardB\] dy has to be \(N, 4, H, W\), got \(2, 5, 8, 8\) float32 on cpu",
    ),
    Row(
        "CpuConvForward swapped",
        lambda: wrap.CpuConvForward(CONV, IMAGES.data, WEIGHT.data, BIAS.data),
        TypeError,
        r"Wrong number or type of arguments for overloaded function",
    ),
    Row(
        "ConvBackwardX xshape",
        lambda: wrap.ConvBackwardX(make(2, 4, 8, 8).data, WEIGHT.data, CONV, (2, 3, 9, 9)),
        ValueError,
        r"\[ConvBackwardX\] dy has to have shape \(2, 4, 9, 9\), got \(2, 4, 8, 8\)",
    ),
    Row(
        "ConvBackward W int",
        lambda: wrap.ConvBackward(
            make(2, 4, 8, 8).data,
            IMAGES.data,
            make(4, 3, 3, 3, dtype="int32").data,
            CONV,
            True,
            True,
            True,
        ),
        TypeError,
        r"\[ConvBackward\] W has to have the type of x, float32, got \(4, 3, 3, 3\)",
    ),
    Row(
        "GpuConvForward",
        lambda: wrap.GpuConvForward(IMAGES.data, WEIGHT.data, BIAS.data, CONV),
        TypeError,
        r"Wrong number or type of arguments for overloaded function",
    ),
    Row(
        "CudnnConvHandle",
        lambda: wrap.CudnnConvHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], 3, 4),
        RuntimeError,
        r"\[CudnnConvHandle\] input is on cpu, not on a CUDA device\. A build of singa",
        cpu="there is a GPU",
    ),
    Row(
        "InitCudnnConvHandles",
        lambda: wrap.InitCudnnConvHandles(
            IMAGES.data, wrap.SetupRecorder(IMAGES.data, [3, 3], [1, 1], [1, 1], 3, 4, True)
        ),
        RuntimeError,
        r"\[InitCudnnConvHandles\] input is on cpu, not on a CUDA device\. A build of",
        cpu="there is a GPU",
    ),
    Row(
        "convT outpad>=stride",
        lambda: transposed([3, 3], [1, 1], [1, 1], [5, 5], 3, 4),
        ValueError,
        r"\[ConvTransposeHandle\] output_padding \(5, 5\) must be at least 0 and smaller",
    ),
    Row(
        "convT outpad neg",
        lambda: transposed([3, 3], [1, 1], [1, 1], [-1, 0], 3, 4),
        ValueError,
        r"\[ConvTransposeHandle\] output_padding \(-1, 0\) must be at least 0 and",
    ),
    Row(
        "convT pad too large",
        lambda: transposed([3, 3], [1, 1], [90, 90], [0, 0], 3, 4),
        ValueError,
        r"\[ConvTransposeHandle\] padding 180 leaves nothing of the output's height;",
    ),
    Row(
        "convT chan",
        lambda: autograd.conv_transpose2d(
            transposed([3, 3], [1, 1], [1, 1], [0, 0], 3, 4), make(2, 4, 8, 8), make(3, 4, 3, 3)
        ),
        ValueError,
        r"\[ConvTransposeForward\] input has 4 channels; expected 3; input shape \(2,",
    ),
    Row(
        "convT W",
        lambda: autograd.conv_transpose2d(
            transposed([3, 3], [1, 1], [1, 1], [0, 0], 3, 4), IMAGES, make(4, 3, 3, 3)
        ),
        ValueError,
        r"\[ConvTransposeForward\] W has to have shape \(3, 4, 3, 3\), got \(4, 3, 3, 3\)",
    ),
    Row(
        "convT huge stride",
        lambda: transposed([3, 3], [1 << 31, 1], [1, 1], [0, 0], 3, 4),
        ValueError,
        r"\[ConvTransposeHandle\] stride must be between 1 and 2147483647; got",
    ),
    Row(
        "convT huge stride2",
        lambda: autograd.conv_transpose2d(
            transposed([3, 3], [(1 << 31) - 1, (1 << 31) - 1], [1, 1], [0, 0], 3, 4),
            IMAGES,
            make(3, 4, 3, 3),
        ),
        ValueError,
        r"\[ConvTransposeHandle\] shape \(2, 4, 15032385530, 15032385530\) has too many",
    ),
    Row(
        "convT stride 100000",
        lambda: autograd.conv_transpose2d(
            transposed([3, 3], [100000, 100000], [1, 1], [0, 0], 3, 4), IMAGES, make(3, 4, 3, 3)
        ),
        MemoryError,
        r"\[ConvTransposeForward\] a tensor of \(2, 4, 700001, 700001\) float32:",
    ),
    Row(
        "pool kernel0",
        lambda: pool([0, 0], [1, 1], [0, 0]),
        ValueError,
        r"\[Pooling\] kernel must be between 1 and 2147483647; got \(0, 0\)",
    ),
    Row(
        "pool stride0",
        lambda: pool([2, 2], [0, 0], [0, 0]),
        ValueError,
        r"\[Pooling\] stride must be between 1 and 2147483647; got \(0, 0\)",
    ),
    Row(
        "pool pad",
        lambda: pool([2, 2], [2, 2], [2, 2]),
        ValueError,
        r"\[Pooling\] padding \(2, 2\) leaves windows of kernel \(2, 2\) with dilation \(1,",
    ),
    Row(
        "pool kernel>in",
        lambda: pool([9, 9], [1, 1], [0, 0]),
        ValueError,
        r"\[Pooling\] kernel 9 with dilation 1 spans 9 > 8 elements of the padded",
    ),
    Row(
        "pool nan",
        lambda: pool([NAN, 2], [1, 1], [0, 0]),
        TypeError,
        r"\[PoolingHandle\] kernel has to be an integer, got float",
    ),
    Row(
        "pool 1 elem",
        lambda: pool([2], [1], [0]),
        ValueError,
        r"\[Pooling\] kernel must be \(h, w\); got \(2\)",
    ),
    Row(
        "pool chan",
        lambda: autograd.pooling_2d(pool([2, 2], [2, 2], [0, 0]), make(2, 4, 8, 8)),
        ValueError,
        r"\[PoolingForward\] input has 4 channels; the handle was made for 3; input",
    ),
    Row(
        "pool rank",
        lambda: autograd.pooling_2d(pool([2, 2], [2, 2], [0, 0]), make(8, 8)),
        ValueError,
        r"\[PoolingForward\] input must be \(N, C, H, W\); got shape \(8, 8\)",
    ),
    Row(
        "pool int",
        lambda: autograd.pooling_2d(pool([2, 2], [2, 2], [0, 0]), make(2, 3, 8, 8, dtype="int32")),
        TypeError,
        r"\[PoolingForward\] x has to be of a float type, got \(2, 3, 8, 8\) int32 on",
    ),
    Row(
        "pool mode 9",
        lambda: (lambda p: (setattr(p, "mode", 9), autograd.pooling_2d(p, IMAGES)))(
            pool([2, 2], [2, 2], [0, 0])
        ),
        AttributeError,
        r"property 'mode' of 'PoolingHandle' object has no setter",
    ),
    Row(
        "pool backward shape",
        lambda: wrap.CpuPoolingBackward(
            pool([2, 2], [2, 2], [0, 0]), make(2, 3, 5, 5).data, IMAGES.data, IMAGES.data
        ),
        ValueError,
        r"\[PoolingBackward\] dy has to have shape \(2, 3, 4, 4\), got \(2, 3, 5, 5\)",
    ),
    Row(
        "pool backward y shape",
        lambda: wrap.CpuPoolingBackward(
            pool([2, 2], [2, 2], [0, 0]), make(2, 3, 4, 4).data, IMAGES.data, make(1).data
        ),
        ValueError,
        r"\[PoolingBackward\] y has to have shape \(2, 3, 4, 4\), got \(1,\) float32 on",
    ),
    Row(
        "pool backward None",
        lambda: wrap.CpuPoolingBackward(
            pool([2, 2], [2, 2], [0, 0]), make(2, 3, 4, 4).data, None, None
        ),
        ValueError,
        r"\[PoolingBackward\] x is an empty tensor \(None\)",
    ),
    Row(
        "gap rank",
        lambda: autograd.globalaveragepool(make(2, 3)),
        ValueError,
        r"\[GlobalAveragePool\] x has to have four axes, got \(2, 3\)",
    ),
    Row(
        "gap fmt",
        lambda: autograd.globalaveragepool(IMAGES, "nchw"),
        ValueError,
        r"\[GlobalAveragePool\] data_format has to be 'channels_first' or",
    ),
    Row(
        "gap last rank",
        lambda: autograd.globalaveragepool(make(2, 3), "channels_last"),
        ValueError,
        r"\[GlobalAveragePool\] x has to have four axes, got \(2, 3\)",
    ),
    Row(
        "gap int",
        lambda: autograd.globalaveragepool(make(2, 3, 4, 4, dtype="int32")),
        TypeError,
        r"\[GlobalAveragePoolForward\] x has to be of a float type, got \(2, 3, 4, 4\)",
    ),
    Row(
        "gap zero",
        lambda: autograd.globalaveragepool(make(2, 3, 0, 4)),
        ValueError,
        r"\[GlobalAveragePoolForward\] input must have at least one channel, row and",
    ),
    Row(
        "gap bw",
        lambda: wrap.GlobalAveragePoolBackward(make(2, 3, 1, 1).data, (2, 4, 8, 8)),
        ValueError,
        r"\[GlobalAveragePoolBackward\] dy has to have shape \(2, 4, 1, 1\), got \(2, 3,",
    ),
    Row(
        "gap bw huge",
        lambda: wrap.GlobalAveragePoolBackward(make(2, 3, 1, 1).data, (2, 3, 1 << 40, 1 << 40)),
        ValueError,
        r"\[GlobalAveragePoolBackward\] shape \(2, 3, 1099511627776, 1099511627776\) has",
    ),
    Row(
        "gap bw neg",
        lambda: wrap.GlobalAveragePoolBackward(make(2, 3, 1, 1).data, (2, 3, -1, 8)),
        ValueError,
        r"\[GlobalAveragePoolBackward\] negative dimension in shape \(2, 3, -1, 8\)",
    ),
    Row(
        "bn momentum nan",
        lambda: wrap.BatchNormHandle(NAN, IMAGES.data),
        ValueError,
        r"\[BatchNorm\] momentum has to be within \[0, 1\], got nan",
    ),
    Row(
        "bn momentum 2",
        lambda: wrap.BatchNormHandle(2.0, IMAGES.data),
        ValueError,
        r"\[BatchNorm\] momentum has to be within \[0, 1\], got 2",
    ),
    Row(
        "bn momentum -1",
        lambda: wrap.BatchNormHandle(-1.0, IMAGES.data),
        ValueError,
        r"\[BatchNorm\] momentum has to be within \[0, 1\], got -1",
    ),
    Row(
        "bn momentum str",
        lambda: wrap.BatchNormHandle("a", IMAGES.data),
        TypeError,
        r"\[BatchNormHandle\] momentum has to be a number, got str",
    ),
    Row(
        "bn eps neg",
        lambda: wrap.BatchNormHandle(0.9, IMAGES.data, -1.0),
        ValueError,
        r"\[BatchNorm\] epsilon has to be finite and not negative, got -1",
    ),
    Row(
        "bn eps nan",
        lambda: wrap.BatchNormHandle(0.9, IMAGES.data, NAN),
        ValueError,
        r"\[BatchNorm\] epsilon has to be finite and not negative, got nan",
    ),
    Row(
        "bn x None",
        lambda: wrap.BatchNormHandle(0.9, None),
        ValueError,
        r"\[BatchNorm\] x is an empty tensor \(None\)",
    ),
    Row(
        "bn rank1",
        lambda: wrap.BatchNormHandle(0.9, make(3).data),
        ValueError,
        r"\[BatchNorm\] x has to have shape \(N, C\), \(N, C, L\) or \(N, C, H, W\), got",
    ),
    Row(
        "bn rank5",
        lambda: wrap.BatchNormHandle(0.9, make(2, 3, 4, 4, 4).data),
        ValueError,
        r"\[BatchNorm\] x has to have shape \(N, C\), \(N, C, L\) or \(N, C, H, W\), got \(2,",
    ),
    Row(
        "bn chan",
        lambda: autograd.batchnorm_2d(NORM, make(2, 4, 8, 8), SCALE, SCALE, MEAN, VAR),
        ValueError,
        r"\[BatchNormForwardInference\] x has 4 channels, the handle was made for 3:",
    ),
    Row(
        "bn scale shape",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, make(4), SCALE, MEAN, VAR),
        ValueError,
        r"\[BatchNormForwardInference\] scale has to have shape \(3,\), got \(4,\) float32",
    ),
    Row(
        "bn bias shape",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, make(4), MEAN, VAR),
        ValueError,
        r"\[BatchNormForwardInference\] bias has to have shape \(3,\), got \(4,\) float32",
    ),
    Row(
        "bn mean shape",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, make(4), VAR),
        ValueError,
        r"\[BatchNormForwardInference\] running_mean has to have shape \(3,\), got \(4,\)",
    ),
    Row(
        "bn mean dtype",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, make(3, dtype="float64"), VAR),
        TypeError,
        r"\[BatchNormForwardInference\] running_mean has to be float32, got \(3,\)",
    ),
    Row(
        "bn mean int",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, make(3, dtype="int32"), VAR),
        TypeError,
        r"\[BatchNormForwardInference\] running_mean has to be float32, got \(3,\) int32",
    ),
    Row(
        "bn int x",
        lambda: autograd.batchnorm_2d(
            NORM, make(2, 3, 8, 8, dtype="int32"), SCALE, SCALE, MEAN, VAR
        ),
        TypeError,
        r"\[BatchNormForwardInference\] x has to be of a float type, got \(2, 3, 8, 8\)",
    ),
    Row(
        "bn running None",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, None, None),
        ValueError,
        r"\[BatchNormForwardInference\] running_mean is an empty tensor \(None\)",
    ),
    Row(
        "bn running one None",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, MEAN, None),
        ValueError,
        r"\[BatchNormForwardInference\] running_var is an empty tensor \(None\)",
    ),
    Row(
        "bn running str",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, "m", VAR),
        TypeError,
        r"\[from_buffer\] elements of format '1w' \(4 bytes\) are none of float16/32/64,",
    ),
    Row(
        "bn running list",
        lambda: autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, [1, 2, 3], VAR),
        TypeError,
        r"\[BatchNormForwardInference\] running_mean has to be float32, got \(3,\) int32",
    ),
    Row(
        "bn backward mean",
        lambda: wrap.CpuBatchNormBackwardx(
            NORM, None, IMAGES.data, IMAGES.data, SCALE.data, SCALE.data, make(4).data, VAR.data
        ),
        ValueError,
        r"\[BatchNormBackward\] mean has to have shape \(3,\), got \(4,\) float32 on cpu",
    ),
    Row(
        "bn backward None",
        lambda: wrap.CpuBatchNormBackwardx(
            NORM, None, IMAGES.data, IMAGES.data, SCALE.data, SCALE.data, None, None
        ),
        ValueError,
        r"\[BatchNormBackward\] mean is an empty tensor \(None\)",
    ),
    Row(
        "lrn size0",
        lambda: autograd.lrn(IMAGES, 0),
        ValueError,
        r"\[LRN\] size must be at least 1, got 0",
    ),
    Row(
        "lrn size neg",
        lambda: autograd.lrn(IMAGES, -3),
        ValueError,
        r"\[LRN\] size must be at least 1, got -3",
    ),
    Row(
        "lrn size nan",
        lambda: autograd.lrn(IMAGES, NAN),
        ValueError,
        r"\[LRN\] size must be a whole number, got nan",
    ),
    Row("lrn alpha nan", lambda: autograd.lrn(IMAGES, 5, NAN), ValueError, r"\[LRN\] alpha is NaN"),
    Row(
        "lrn alpha str",
        lambda: autograd.lrn(IMAGES, 5, "a"),
        TypeError,
        r"\[LRN\] alpha must be a number, got str",
    ),
    Row(
        "lrn rank",
        lambda: autograd.lrn(make(3), 5),
        ValueError,
        r"\[LrnForward\] x has to have shape \(N, C, \.\.\.\), got \(3,\) float32 on cpu",
    ),
    Row(
        "lrn int",
        lambda: autograd.lrn(make(2, 3, 4, 4, dtype="int32"), 5),
        TypeError,
        r"\[LrnForward\] x has to be of a float type, got \(2, 3, 4, 4\) int32 on cpu",
    ),
    Row(
        "dropout neg",
        lambda: autograd.dropout(IMAGES, -0.1),
        ValueError,
        r"\[Dropout\] seed must be a whole number, got -0\.1",
    ),
    Row(
        "dropout nan",
        lambda: autograd.dropout(IMAGES, NAN),
        ValueError,
        r"\[Dropout\] seed must be a whole number, got nan",
    ),
    Row(
        "dropout str",
        lambda: autograd.dropout(IMAGES, "a"),
        TypeError,
        r"\[Dropout\] seed must be an integer, got str",
    ),
    Row(
        "dropout frac",
        lambda: autograd.dropout(IMAGES, 1.5),
        ValueError,
        r"\[Dropout\] seed must be a whole number, got 1\.5",
    ),
    Row(
        "dropout None",
        lambda: autograd.dropout(None, 0.5),
        TypeError,
        r"\[Dropout\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "ConvHandle kernel0",
        lambda: handle([0, 3], [1, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] kernel must be between 1 and 2147483647; got \(0, 3\)",
    ),
    Row(
        "ConvHandle kernel neg",
        lambda: handle([-3, 3], [1, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] kernel must be between 1 and 2147483647; got \(-3, 3\)",
    ),
    Row(
        "ConvHandle stride0",
        lambda: handle([3, 3], [0, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] stride must be between 1 and 2147483647; got \(0, 1\)",
    ),
    Row(
        "ConvHandle pad neg",
        lambda: handle([3, 3], [1, 1], [-1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] padding must be between 0 and 2147483647; got \(-1, 1\)",
    ),
    Row(
        "ConvHandle kernel nan",
        lambda: handle([NAN, 3], [1, 1], [1, 1], 3, 4),
        TypeError,
        r"\[ConvHandle\] kernel has to be an integer, got float",
    ),
    Row(
        "ConvHandle kernel float",
        lambda: handle([3.0, 3], [1, 1], [1, 1], 3, 4),
        TypeError,
        r"\[ConvHandle\] kernel has to be an integer, got float",
    ),
    Row(
        "ConvHandle kernel str",
        lambda: handle("33", [1, 1], [1, 1], 3, 4),
        TypeError,
        r"\[ConvHandle\] kernel has to be a sequence, got str",
    ),
    Row(
        "ConvHandle kernel None",
        lambda: handle(None, [1, 1], [1, 1], 3, 4),
        TypeError,
        r"\[ConvHandle\] kernel has to be a sequence, got NoneType",
    ),
    Row(
        "ConvHandle kernel scalar",
        lambda: handle(3, [1, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] kernel must be \(h, w\); got \(3\)",
    ),
    Row(
        "ConvHandle kernel 3",
        lambda: handle([3, 3, 3], [1, 1], [1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] kernel must be \(h, w\); got \(3, 3, 3\)",
    ),
    Row(
        "ConvHandle chan",
        lambda: handle([3, 3], [1, 1], [1, 1], 5, 4),
        ValueError,
        r"\[SetupRecorder\] input has 3 channels but in_channels is 5; input shape \(2,",
    ),
    Row(
        "ConvHandle out0",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 0),
        ValueError,
        r"\[SetupRecorder\] out_channels must be between 1 and 2147483647; got 0",
    ),
    Row(
        "ConvHandle out neg",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, -4),
        ValueError,
        r"\[SetupRecorder\] out_channels must be between 1 and 2147483647; got -4",
    ),
    Row(
        "ConvHandle out big",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 1 << 40),
        ValueError,
        r"\[SetupRecorder\] out_channels must be between 1 and 2147483647; got",
    ),
    Row(
        "ConvHandle out overflow",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 1 << 70),
        ValueError,
        r"\[ConvHandle\] out_channels does not fit 64 bits",
    ),
    Row(
        "ConvHandle group 2",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 2),
        ValueError,
        r"\[SetupRecorder\] group 2 must divide in_channels 3 and out_channels 4",
    ),
    Row(
        "ConvHandle group0",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 0),
        ValueError,
        r"\[SetupRecorder\] group must be at least 1; got 0",
    ),
    Row(
        "ConvHandle group neg",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, -1),
        ValueError,
        r"\[SetupRecorder\] group must be at least 1; got -1",
    ),
    Row(
        "ConvHandle group nan",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, NAN),
        TypeError,
        r"\[ConvHandle\] group has to be an integer, got float",
    ),
    Row(
        "ConvHandle dil 0",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 1, [0, 1]),
        ValueError,
        r"\[SetupRecorder\] dilation must be between 1 and 2147483647; got \(0, 1\)",
    ),
    Row(
        "ConvHandle dil big",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 1, [1 << 40, 1]),
        ValueError,
        r"\[SetupRecorder\] dilation must be between 1 and 2147483647; got",
    ),
    Row(
        "ConvHandle dil span",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 1, [31, 1]),
        ValueError,
        r"\[SetupRecorder\] kernel 3 with dilation 31 spans 63 > 10 elements of the",
    ),
    Row(
        "ConvHandle ws neg",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 1, [1, 1], -1),
        ValueError,
        r"\[ConvHandle\] workspace_byte_limit is negative or does not fit 64 bits",
    ),
    Row(
        "ConvHandle prefer",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 1, [1, 1], 1048576, "quick"),
        ValueError,
        r"\[prefer\] 'quick' is none of fastest, limited_workspace, no_workspace,",
    ),
    Row(
        "ConvHandle prefer None",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, True, 1, [1, 1], 1048576, None),
        TypeError,
        r"invalid null reference in method 'new_ConvHandle', argument 11 of type",
    ),
    Row(
        "ConvHandle bias str",
        lambda: handle([3, 3], [1, 1], [1, 1], 3, 4, "yes"),
        TypeError,
        r"\[ConvHandle\] bias has to be a bool, got str",
    ),
    Row(
        "ConvHandle pad huge",
        lambda: handle([3, 3], [1, 1], [2147483648, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] padding must be between 0 and 2147483647; got \(2147483648,",
    ),
    Row(
        "ConvHandle pad maxint",
        lambda: handle([3, 3], [1, 1], [2147483647, 2147483647], 3, 4),
        ValueError,
        r"\[SetupRecorder\] shape \(2, 4, 4294967300, 4294967300\) has too many elements",
    ),
    Row(
        "ConvHandle pad3",
        lambda: handle([3, 3], [1, 1], [1, 1, 1], 3, 4),
        ValueError,
        r"\[SetupRecorder\] padding must be \(h, w\) or \(top, left, bottom, right\); got",
    ),
    Row(
        "ConvHandle in float",
        lambda: handle([3, 3], [1, 1], [1, 1], 3.0, 4),
        TypeError,
        r"\[ConvHandle\] in_channels has to be an integer, got float",
    ),
    Row(
        "ConvHandle too few",
        lambda: handle([3, 3]),
        TypeError,
        r"Wrong number or type of arguments for overloaded function",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)
