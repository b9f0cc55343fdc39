"""Convolution, pooling, normalisation, and their handles."""

from singa import singa_wrap as wrap
from wrong_call import make, table

IMAGES, WEIGHT, BIAS, DY = make(2, 3, 8, 8), make(4, 3, 3, 3), make(4), make(2, 4, 8, 8).data
SCALE, MEAN, VAR = make(3), make(3), make(3)


def made(kind, required, **values):
    """Calls `kind` with example arguments. `made(...)(name=value)` replaces some of them: it passes
    the required arguments, and optional ones up to the last that is named."""

    def make_one(**given):
        count = max([required, *(1 + list(values).index(name) for name in given)])
        return kind(IMAGES.data, *list((values | given).values())[:count])

    return make_one


conv = made(
    wrap.ConvHandle, 5, kernel=[3, 3], stride=[1, 1], padding=[1, 1], channels=3, filters=4,
    bias=True, group=1, dilation=[1, 1], limit=1 << 20, prefer="fastest",
)  # fmt: skip
transposed = made(
    wrap.ConvTransposeHandle, 6, kernel=[3, 3], stride=[1, 1], padding=[1, 1],
    output_padding=[0, 0], channels=3, filters=4,
)  # fmt: skip
pool = made(wrap.PoolingHandle, 3, kernel=[2, 2], stride=[2, 2], padding=[0, 0])
CONV, TRANSPOSED, POOL = conv(bias=True), transposed(), pool()
NORM = wrap.BatchNormHandle(0.9, IMAGES.data)


def geometry(x, channels):
    return wrap.SetupRecorder(x, [3, 3], [1, 1], [1, 1], channels, 4, True)


def batch_norm_backward(mean, var):
    x, scale = IMAGES.data, SCALE.data
    wrap.CpuBatchNormBackwardx(NORM, None, x, x, scale, scale, mean, var)


test_without_gpu = table(
    """
wrap.CudnnConvHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], 3, 4)
    -> RuntimeError: [CudnnConvHandle] input cpu CUDA
wrap.InitCudnnConvHandles(IMAGES.data, geometry(IMAGES.data, 3))
    -> RuntimeError: [InitCudnnConvHandles] input cpu CUDA
""",
    cpu="there is a GPU",
)

test_wrong_call = table("""
autograd.conv2d(CONV, make(2, 5, 8, 8), WEIGHT, BIAS)
    -> ValueError: [ConvForward] input 5 handle 3 (2, 5, 8, 8)
autograd.conv2d(CONV, IMAGES, make(4, 3, 5, 5), BIAS)
    -> ValueError: [ConvForward] W (4, 3, 3, 3) (4, 3, 5, 5) float32
autograd.conv2d(CONV, IMAGES, WEIGHT, make(5)) -> ValueError: [ConvForward] b (4,) (5,) float32
autograd.conv2d(CONV, IMAGES, WEIGHT, make(4, 1)) -> ValueError: [ConvForward] b (4,) (4, 1) float32
autograd.conv2d(CONV, make(3, 8, 8), WEIGHT, BIAS)
    -> ValueError: [ConvForward] input (N, C, H, W) (3, 8, 8)
autograd.conv2d(CONV, make(2, 3, 8, 8, dtype="int32"), WEIGHT, BIAS)
    -> TypeError: [ConvForward] x (2, 3, 8, 8) int32
autograd.conv2d(CONV, *(make(*x.shape, dtype="int32") for x in (IMAGES, WEIGHT, BIAS)))
    -> TypeError: [ConvForward] x (2, 3, 8, 8) int32
autograd.conv2d(CONV, IMAGES, make(4, 3, 3, 3, dtype="float64"), BIAS)
    -> TypeError: [ConvForward] W x float32 (4, 3, 3, 3) float64
autograd.conv2d(CONV, make(2, 3, 8, 8, dtype="bool"), WEIGHT, BIAS)
    -> TypeError: [ConvForward] x (2, 3, 8, 8) bool
autograd.conv2d(CONV, None, WEIGHT, BIAS) -> TypeError: [_Conv2d] NoneType
autograd.conv2d(CONV, np.ones((2, 3, 8, 8), "f4"), WEIGHT, BIAS) -> TypeError: [_Conv2d] ndarray
autograd.conv2d(CONV, IMAGES, None, BIAS) -> TypeError: [_Conv2d] NoneType
autograd.conv2d(None, IMAGES, WEIGHT, BIAS) -> TypeError: [ConvForward] handle ConvHandle NoneType
autograd.conv2d("h", IMAGES, WEIGHT, BIAS) -> TypeError: [ConvForward] handle ConvHandle str
autograd.conv2d(wrap.PoolingHandle(IMAGES.data, [2, 2], [2, 2], [0, 0]), IMAGES, WEIGHT, BIAS)
    -> TypeError: [ConvForward] handle ConvHandle PoolingHandle
autograd.conv2d(CONV, make(2, 3, 8, 0), WEIGHT, BIAS)
    -> ValueError: [ConvForward] input (2, 3, 8, 0)
autograd.conv2d(conv(padding=[0, 0]), make(2, 3, 2, 2), WEIGHT, BIAS)
    -> ValueError: [ConvForward] kernel 3 dilation 1 3 2 2
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(-1, 0, 0, 0))
    -> ValueError: [_Conv2d] odd_padding -1
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(-100, 0, 0, 0))
    -> ValueError: [_Conv2d] odd_padding -100
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(1, 0, 0))
    -> ValueError: [_Conv2d] odd_padding (top, bottom, left, right) (1, 0, 0)
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding="SAME")
    -> TypeError: [_Conv2d] odd_padding str
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(NAN, 0, 0, 0))
    -> ValueError: [_Conv2d] odd_padding nan
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=(BIG, 0, 0, 0))
    -> MemoryError: [Pad] (2, 3, 1099511627784, 8) float32 201326592
autograd.conv2d(CONV, IMAGES, WEIGHT, BIAS, odd_padding=None)
    -> TypeError: [_Conv2d] odd_padding NoneType
wrap.ConvHandle(None, [3, 3], [1, 1], [1, 1], 3, 4) -> ValueError: [SetupRecorder] input empty
wrap.ConvHandle(IMAGES, [3, 3], [1, 1], [1, 1], 3, 4) -> TypeError: arguments 'new_ConvHandle'
wrap.ConvHandle(make(3, 3).data, [3, 3], [1, 1], [1, 1], 3, 4)
    -> ValueError: [SetupRecorder] input (N, C, H, W) (3, 3)
wrap.ConvHandle(wrap.Recorder()) -> ValueError: [ConvHandle] input (0, 0, 1, 1)
wrap.ConvForward(IMAGES.data, WEIGHT.data, BIAS.data, wrap.ConvHandle(wrap.Recorder()))
    -> ValueError: [ConvHandle] input (0, 0, 1, 1)
autograd.conv2d(conv(padding=[1000000, 1000000]), IMAGES, WEIGHT, BIAS)
    -> MemoryError: [ConvForward] (2, 4, 2000006, 2000006) float32
geometry(IMAGES.data, 5) -> ValueError: [SetupRecorder] input 3 in_channels 5 (2, 3, 8, 8)
geometry(None, 3) -> ValueError: [SetupRecorder] input empty
wrap.CpuConvBackwardx(make(2, 4, 7, 7).data, WEIGHT.data, IMAGES.data, CONV)
    -> ValueError: [ConvBackward] dy (2, 4, 8, 8) (2, 4, 7, 7) float32
wrap.CpuConvBackwardx(None, WEIGHT.data, IMAGES.data, CONV) -> ValueError: [ConvBackward] dy (None)
wrap.CpuConvBackwardW(DY, make(3, 3, 8, 8).data, WEIGHT.data, CONV)
    -> ValueError: [ConvBackwardW] dy (3, 4, 8, 8) (2, 4, 8, 8) float32
wrap.CpuConvBackwardb(make(2, 5, 8, 8).data, BIAS.data, CONV)
    -> ValueError: [ConvBackwardB] dy (N, 4, H, W) (2, 5, 8, 8) float32
wrap.CpuConvForward(CONV, IMAGES.data, WEIGHT.data, BIAS.data)
    -> TypeError: arguments 'CpuConvForward'
wrap.ConvBackwardX(DY, WEIGHT.data, CONV, (2, 3, 9, 9))
    -> ValueError: [ConvBackwardX] dy (2, 4, 9, 9) (2, 4, 8, 8) float32
wrap.ConvBackward(DY, IMAGES.data, make(4, 3, 3, 3, dtype="int32").data, CONV, True, True, True)
    -> TypeError: [ConvBackward] W x float32 (4, 3, 3, 3) int32
wrap.GpuConvForward(IMAGES.data, WEIGHT.data, BIAS.data, CONV)
    -> TypeError: arguments 'GpuConvForward'
transposed(output_padding=[5, 5])
    -> ValueError: [ConvTransposeHandle] output_padding (5, 5) 0 stride (1, 1) dilation
transposed(output_padding=[-1, 0])
    -> ValueError: [ConvTransposeHandle] output_padding (-1, 0) 0 stride (1, 1)
transposed(padding=[90, 90]) -> ValueError: [ConvTransposeHandle] padding 180 (2, 3, 8, 8)
autograd.conv_transpose2d(TRANSPOSED, make(2, 4, 8, 8), make(3, 4, 3, 3))
    -> ValueError: [ConvTransposeForward] input 4 3 (2, 4, 8, 8)
autograd.conv_transpose2d(TRANSPOSED, IMAGES, make(4, 3, 3, 3))
    -> ValueError: [ConvTransposeForward] W (3, 4, 3, 3) (4, 3, 3, 3) float32
transposed(stride=[1 << 31, 1])
    -> ValueError: [ConvTransposeHandle] stride 1 2147483647 (2147483648, 1)
autograd.conv_transpose2d(transposed(stride=[(1 << 31) - 1] * 2), IMAGES, make(3, 4, 3, 3))
    -> ValueError: [ConvTransposeHandle] (2, 4, 15032385530, 15032385530)
autograd.conv_transpose2d(transposed(stride=[100000, 100000]), IMAGES, make(3, 4, 3, 3))
    -> MemoryError: [ConvTransposeForward] (2, 4, 700001, 700001) float32
pool(kernel=[0, 0], stride=[1, 1]) -> ValueError: [Pooling] kernel 1 2147483647 (0, 0)
pool(stride=[0, 0]) -> ValueError: [Pooling] stride 1 2147483647 (0, 0)
pool(padding=[2, 2]) -> ValueError: [Pooling] padding (2, 2) kernel (2, 2) dilation (1, 1)
pool(kernel=[9, 9], stride=[1, 1]) -> ValueError: [Pooling] kernel 9 dilation 1 9 8 8
pool(kernel=[NAN, 2], stride=[1, 1]) -> TypeError: [PoolingHandle] kernel float
pool(kernel=[2], stride=[1], padding=[0]) -> ValueError: [Pooling] kernel (h, w) (2,)
autograd.pooling_2d(POOL, make(2, 4, 8, 8))
    -> ValueError: [PoolingForward] input 4 handle 3 (2, 4, 8, 8)
autograd.pooling_2d(POOL, make(8, 8)) -> ValueError: [PoolingForward] input (N, C, H, W) (8, 8)
autograd.pooling_2d(POOL, make(2, 3, 8, 8, dtype="int32"))
    -> TypeError: [PoolingForward] x (2, 3, 8, 8) int32
(p := POOL, setattr(p, "mode", 9), autograd.pooling_2d(p, IMAGES))
    -> AttributeError: 'mode' 'PoolingHandle' setter
wrap.CpuPoolingBackward(POOL, make(2, 3, 5, 5).data, IMAGES.data, IMAGES.data)
    -> ValueError: [PoolingBackward] dy (2, 3, 4, 4) (2, 3, 5, 5) float32
wrap.CpuPoolingBackward(POOL, make(2, 3, 4, 4).data, IMAGES.data, make(1).data)
    -> ValueError: [PoolingBackward] y (2, 3, 4, 4) (1,) float32
wrap.CpuPoolingBackward(POOL, make(2, 3, 4, 4).data, None, None)
    -> ValueError: [PoolingBackward] x (None)
autograd.globalaveragepool(make(2, 3)) -> ValueError: [GlobalAveragePool] x axes (2, 3)
autograd.globalaveragepool(IMAGES, "nchw")
    -> ValueError: [GlobalAveragePool] data_format channels_first channels_last nchw
autograd.globalaveragepool(make(2, 3), "channels_last")
    -> ValueError: [GlobalAveragePool] x axes (2, 3)
autograd.globalaveragepool(make(2, 3, 4, 4, dtype="int32"))
    -> TypeError: [GlobalAveragePoolForward] x (2, 3, 4, 4) int32
autograd.globalaveragepool(make(2, 3, 0, 4))
    -> ValueError: [GlobalAveragePoolForward] input (2, 3, 0, 4)
wrap.GlobalAveragePoolBackward(make(2, 3, 1, 1).data, (2, 4, 8, 8))
    -> ValueError: [GlobalAveragePoolBackward] dy (2, 4, 1, 1) (2, 3, 1, 1) float32
wrap.GlobalAveragePoolBackward(make(2, 3, 1, 1).data, (2, 3, BIG, BIG))
    -> ValueError: [GlobalAveragePoolBackward] (2, 3, 1099511627776, 1099511627776)
wrap.GlobalAveragePoolBackward(make(2, 3, 1, 1).data, (2, 3, -1, 8))
    -> ValueError: [GlobalAveragePoolBackward] (2, 3, -1, 8)
wrap.BatchNormHandle(NAN, IMAGES.data) -> ValueError: [BatchNorm] momentum [0, 1] nan
wrap.BatchNormHandle(2.0, IMAGES.data) -> ValueError: [BatchNorm] momentum [0, 1] 2
wrap.BatchNormHandle(-1.0, IMAGES.data) -> ValueError: [BatchNorm] momentum [0, 1] -1
wrap.BatchNormHandle("a", IMAGES.data) -> TypeError: [BatchNormHandle] momentum str
wrap.BatchNormHandle(0.9, IMAGES.data, -1.0) -> ValueError: [BatchNorm] epsilon -1
wrap.BatchNormHandle(0.9, IMAGES.data, NAN) -> ValueError: [BatchNorm] epsilon nan
wrap.BatchNormHandle(0.9, None) -> ValueError: [BatchNorm] x (None)
wrap.BatchNormHandle(0.9, make(3).data)
    -> ValueError: [BatchNorm] x (N, C) (N, C, L) (N, C, H, W) (3,) float32
wrap.BatchNormHandle(0.9, make(2, 3, 4, 4, 4, 4).data)
    -> ValueError: [BatchNorm] x (N, C, D, H, W) (2, 3, 4, 4, 4, 4) float32
autograd.batchnorm_2d(NORM, make(2, 4, 8, 8), SCALE, SCALE, MEAN, VAR)
    -> ValueError: [BatchNormForwardInference] x 4 handle 3 (2, 4, 8, 8) float32
autograd.batchnorm_2d(NORM, IMAGES, make(4), SCALE, MEAN, VAR)
    -> ValueError: [BatchNormForwardInference] scale (3,) (4,) float32
autograd.batchnorm_2d(NORM, IMAGES, SCALE, make(4), MEAN, VAR)
    -> ValueError: [BatchNormForwardInference] bias (3,) (4,) float32
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, make(4), VAR)
    -> ValueError: [BatchNormForwardInference] running_mean (3,) (4,) float32
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, make(3, dtype="float64"), VAR)
    -> TypeError: [BatchNormForwardInference] running_mean float32 (3,) float64
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, make(3, dtype="int32"), VAR)
    -> TypeError: [BatchNormForwardInference] running_mean float32 (3,) int32
autograd.batchnorm_2d(NORM, make(2, 3, 8, 8, dtype="int32"), SCALE, SCALE, MEAN, VAR)
    -> TypeError: [BatchNormForwardInference] x (2, 3, 8, 8) int32
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, None, None)
    -> ValueError: [BatchNormForwardInference] running_mean (None)
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, MEAN, None)
    -> ValueError: [BatchNormForwardInference] running_var (None)
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, "m", VAR) -> TypeError: [tensor] <U1
autograd.batchnorm_2d(NORM, IMAGES, SCALE, SCALE, [1, 2, 3], VAR)
    -> TypeError: [BatchNormForwardInference] running_mean float32 (3,) int32
batch_norm_backward(make(4).data, VAR.data)
    -> ValueError: [BatchNormBackward] mean (3,) (4,) float32
batch_norm_backward(None, None) -> ValueError: [BatchNormBackward] mean (None)
autograd.lrn(IMAGES, 0) -> ValueError: [LRN] size 1 0
autograd.lrn(IMAGES, -3) -> ValueError: [LRN] size 1 -3
autograd.lrn(IMAGES, NAN) -> ValueError: [LRN] size nan
autograd.lrn(IMAGES, 5, NAN) -> ValueError: [LRN] alpha NaN
autograd.lrn(IMAGES, 5, "a") -> TypeError: [LRN] alpha str
autograd.lrn(make(3), 5) -> ValueError: [LrnForward] x (N, C, ...) (3,) float32
autograd.lrn(make(2, 3, 4, 4, dtype="int32"), 5) -> TypeError: [LrnForward] x (2, 3, 4, 4) int32
autograd.dropout(IMAGES, -0.1) -> ValueError: [Dropout] seed -0.1
autograd.dropout(IMAGES, NAN) -> ValueError: [Dropout] seed nan
autograd.dropout(IMAGES, "a") -> TypeError: [dropout] seed str
autograd.dropout(IMAGES, 1.5) -> ValueError: [Dropout] seed 1.5
autograd.dropout(None, 0.5) -> TypeError: [dropout] NoneType
conv(kernel=[0, 3]) -> ValueError: [SetupRecorder] kernel 1 2147483647 (0, 3)
conv(kernel=[-3, 3]) -> ValueError: [SetupRecorder] kernel 1 2147483647 (-3, 3)
conv(stride=[0, 1]) -> ValueError: [SetupRecorder] stride 1 2147483647 (0, 1)
conv(padding=[-1, 1]) -> ValueError: [SetupRecorder] padding 0 2147483647 (-1, 1)
conv(kernel=[NAN, 3]) -> TypeError: [ConvHandle] kernel float
conv(kernel=[3.0, 3]) -> TypeError: [ConvHandle] kernel float
conv(kernel="33") -> TypeError: [ConvHandle] kernel str
conv(kernel=None) -> TypeError: [ConvHandle] kernel NoneType
conv(kernel=3) -> ValueError: [SetupRecorder] kernel (h, w) (3,)
conv(kernel=[3, 3, 3]) -> ValueError: [SetupRecorder] kernel (h, w) (3, 3, 3)
conv(channels=5) -> ValueError: [SetupRecorder] input 3 in_channels 5 (2, 3, 8, 8)
conv(filters=0) -> ValueError: [SetupRecorder] out_channels 1 2147483647 0
conv(filters=-4) -> ValueError: [SetupRecorder] out_channels 1 2147483647 -4
conv(filters=BIG) -> ValueError: [SetupRecorder] out_channels 1 2147483647 1099511627776
conv(filters=1 << 70) -> ValueError: [ConvHandle] out_channels 64
conv(group=2) -> ValueError: [SetupRecorder] group 2 in_channels 3 out_channels 4
conv(group=0) -> ValueError: [SetupRecorder] group 1 0
conv(group=-1) -> ValueError: [SetupRecorder] group 1 -1
conv(group=NAN) -> TypeError: [ConvHandle] group float
conv(dilation=[0, 1]) -> ValueError: [SetupRecorder] dilation 1 2147483647 (0, 1)
conv(dilation=[BIG, 1]) -> ValueError: [SetupRecorder] dilation 1 2147483647 (1099511627776, 1)
conv(dilation=[31, 1]) -> ValueError: [SetupRecorder] kernel 3 dilation 31 63 10
conv(limit=-1) -> ValueError: [ConvHandle] workspace_byte_limit 64
conv(prefer="quick") -> ValueError: [prefer] quick fastest limited_workspace no_workspace
conv(prefer=None) -> TypeError: new_ConvHandle argument 11 std::string
conv(bias="yes") -> TypeError: [ConvHandle] bias bool str
conv(padding=[2147483648, 1]) -> ValueError: [SetupRecorder] padding 0 2147483647 (2147483648, 1)
conv(padding=[2147483647, 2147483647]) -> ValueError: [SetupRecorder] (2, 4, 4294967300, 4294967300)
conv(padding=[1, 1, 1])
    -> ValueError: [SetupRecorder] padding (h, w) (top, left, bottom, right) (1, 1, 1)
conv(channels=3.0) -> TypeError: [ConvHandle] in_channels float
wrap.ConvHandle(IMAGES.data, [3, 3]) -> TypeError: arguments 'new_ConvHandle'
""")
