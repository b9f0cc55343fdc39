"""Functions of singa_wrap, called as no operator of Python calls them."""

from singa import singa_wrap as wrap
from wrong_call import make, table

OTHER = wrap.CreateCpuDevice()
DOUBLES = make(2, 3, dtype="float64").data
LINEAR = wrap.InterpolationHandle(wrap.InterpolationMode_kLinear)
IMAGES = make(2, 3, 8, 8)
POOL = wrap.PoolingHandle(IMAGES.data, [2, 2], [2, 2], [0, 0])
MEANS = wrap.PoolingHandle(IMAGES.data, [2, 2], [2, 2], [0, 0], False)
PADDED = wrap.PoolingHandle(IMAGES.data, [2, 2], [2, 2], [1, 1], False)
NORM = wrap.BatchNormHandle(0.1, IMAGES.data)
ONES, ONES4 = make(3).data, make(4).data
CONV = wrap.ConvHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], 3, 4)
WEIGHT = make(4, 3, 3, 3).data
TRANSPOSED = wrap.ConvTransposeHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], [0, 0], 3, 4)
HEADS, SUMS, ANGLES = make(2, 4, 3, 8).data, make(2, 4, 3).data, make(3, 4).data
SEQUENCE = make(3, 2, 5).data
LSTM = wrap.RnnHandle(SEQUENCE, 4, wrap.RnnMode_kLstm)
GRU = wrap.RnnHandle(SEQUENCE, 4, wrap.RnnMode_kGru)
WEIGHTS = make(LSTM.weights_size).data

test_two_devices = table(
    """
wrap.MatMul(MATRIX.data, make(3, 4).data.ToDevice(OTHER)) -> ValueError: [MatMul] b a
wrap.PoolingBackward(POOL, make(2, 3, 4, 4).data, IMAGES.data.ToDevice(OTHER), None, None)
    -> ValueError: [PoolingBackward] x dy
wrap.Concat([MATRIX.data, MATRIX.data.ToDevice(OTHER)], 0) -> ValueError: [Concat] a tensor tensor 0
wrap.BatchNormForwardTraining(NORM, IMAGES.data, ONES.ToDevice(OTHER), ONES, ONES, ONES)
    -> ValueError: [BatchNormForwardTraining] scale x
wrap.ConvForward(IMAGES.data, WEIGHT.ToDevice(OTHER), ONES4, CONV) -> ValueError: [ConvForward] W x
wrap.ConvForward(IMAGES.data, WEIGHT, ONES4, CONV, make(2, 4, 8, 8).data.ToDevice(OTHER))
    -> ValueError: [ConvForward] add x
""",
    cpu="two devices of the CPU",
)

test_wrong_call = table("""
wrap.Unary(wrap.UnaryOp_kAddScalar, INTEGERS.data, 0.5)
    -> TypeError: [AddScalar] 0.5 0 x (2, 3) int32
wrap.UnaryBackward(wrap.UnaryOp_kRelu, INTEGERS.data, INTEGERS.data, None)
    -> TypeError: [ReluBackward] dy a (2, 3) int32
wrap.UnaryBackward(wrap.UnaryOp_kLeakyRelu, MATRIX.data, None, MATRIX.data, -1.0)
    -> ValueError: [LeakyReluBackward] x tensor (None)
wrap.UnaryInto(wrap.UnaryOp_kExp, MATRIX.data, make(3).data)
    -> ValueError: [Exp] out x (2, 3) (3,) float32
wrap.UnaryInto(wrap.UnaryOp_kExp, MATRIX.data, INTEGERS.data)
    -> TypeError: [Exp] out x float32 (2, 3) int32
wrap.BinaryBackward(wrap.BinaryOp_kLess, MATRIX.data, MATRIX.data, MATRIX.data, None, True,
    True)
    -> TypeError: [LessBackward]
wrap.BinaryBackward(wrap.BinaryOp_kMul, MATRIX.data, INTEGERS.data, MATRIX.data, None, True,
    True)
    -> TypeError: [MulBackward] a a (2, 3) int32
wrap.BinaryBackward(wrap.BinaryOp_kMul, make(3).data, MATRIX.data, MATRIX.data, None, True,
    True)
    -> ValueError: [MulBackward] dy (2, 3) (3,) float32
wrap.Softmax(None, 1) -> ValueError: [Softmax] x tensor (None)
wrap.LogSoftmax(INTEGERS.data, 1) -> TypeError: [LogSoftmax] x a (2, 3) int32
wrap.Softmax(MATRIX.data, -3) -> ValueError: [Softmax] axis -3 a tensor 2 dimensions
wrap.SoftmaxBackward(make(3, 2).data, MATRIX.data, 1)
    -> ValueError: [SoftmaxBackward] dy y (2, 3) (3, 2) float32
wrap.LogSoftmaxBackward(DOUBLES, MATRIX.data, 1)
    -> TypeError: [LogSoftmaxBackward] dy y float32 (2, 3) float64
wrap.LrnForward(None, 5, 1e-4, 0.75, 1.0, True) -> ValueError: [LrnForward] x tensor (None)
wrap.LrnBackward(make(2, 3, 8, 7).data, IMAGES.data, None, None, 5, 1e-4, 0.75, 1.0)
    -> ValueError: [LrnBackward] dy x (2, 3, 8, 8) (2, 3, 8, 7) float32
wrap.LrnBackward(IMAGES.data, IMAGES.data, None, make(4).data, 5, 1e-4, 0.75, 1.0)
    -> ValueError: [LrnBackward] saved (2, 3, 8, 8) (4,) float32
wrap.MatMul(None, MATRIX.data) -> ValueError: [MatMul] a tensor (None)
wrap.MatMul(MATRIX.data, make(3, 4).data, True) -> ValueError: [MatMul] a (2, 3) b (3, 4) 2 3
wrap.MatMul(MATRIX.data, make(3, 4, dtype="float64").data)
    -> TypeError: [MatMul] a b (2, 3) float32 (3, 4) float64
wrap.Gemm(MATRIX.data, make(3, 4).data, make(1, 2, 4).data, 1.0, 1.0)
    -> ValueError: [Gemm] C (1, 2, 4) (2, 4)
wrap.GemmBackward(make(2, 4).data, MATRIX.data, make(3, 4).data, (5,), 1.0, 1.0, False, False,
    False, False, True)
    -> ValueError: [GemmBackward] C (5,) (2, 4)
wrap.LinearForward(make(3).data, make(3, 4).data, None)
    -> ValueError: [LinearForward] x (N, in) (3,) float32
wrap.LinearForward(MATRIX.data, make(3).data, None)
    -> ValueError: [LinearForward] W (in, out) (3,) float32
wrap.LinearForward(MATRIX.data, make(3, 4).data, None, True)
    -> ValueError: [LinearForward] x (2, 3) 3 features W (3, 4) 4
wrap.LinearBackward(MATRIX.data, MATRIX.data, make(3, 4).data, False, True, True, True)
    -> ValueError: [LinearBackward] dy (2, 4) (2, 3) float32
wrap.SoftmaxCrossEntropyForward(MATRIX.data, None, 0.0)
    -> ValueError: [SoftmaxCrossEntropyForward] t tensor (None)
wrap.SoftmaxCrossEntropyForward(MATRIX.data, MATRIX.data, 1.5)
    -> ValueError: [SoftmaxCrossEntropyForward] smoothing 1.5 [0, 1]
wrap.SoftmaxCrossEntropyBackward(make(1).data, MATRIX.data, labels([0, 5]).data, 0.0)
    -> IndexError: [SoftmaxCrossEntropyBackward] 5 1 [0, 3)
wrap.CrossEntropyForward(INTEGERS.data, MATRIX.data)
    -> TypeError: [CrossEntropyForward] p a (2, 3) int32
wrap.CrossEntropyBackward(MATRIX.data, MATRIX.data, MATRIX.data)
    -> ValueError: [CrossEntropyBackward] dy (2, 3) float32
wrap.RankingLossBackward(MATRIX.data, MATRIX.data, MATRIX.data, 0.2)
    -> ValueError: [RankingLossBackward] dy (2, 3) float32
wrap.PoolingHandle(None, [2, 2], [2, 2], [0, 0]) -> ValueError: [Pooling] x tensor (None)
wrap.PoolingHandle(make(1, 1, 4, 4, dtype="int32").data, [2, 2], [2, 2], [0, 0])
    -> TypeError: [Pooling] x a (1, 1, 4, 4) int32
wrap.PoolingBackward(POOL, make(2, 3, 4, 4).data, make(2, 3, 8, 8, dtype="float64").data, None,
    None)
    -> TypeError: [PoolingBackward] x float32 (2, 3, 8, 8) float64
wrap.PoolingBackward(POOL, make(2, 3, 4, 4).data, IMAGES.data, None, labels([0]).data)
    -> ValueError: [PoolingBackward] saved (2, 3, 4, 4) (1,) int32
wrap.PoolingBackward(POOL, make(2, 3, 4, 4).data, IMAGES.data, None, make(2, 3, 4, 4).data)
    -> TypeError: [PoolingBackward] saved int32 (2, 3, 4, 4) float32
wrap.AdaptivePoolForward(make(2, 3, 7).data, [2, 2], True)
    -> ValueError: [AdaptivePoolForward] output_size (w) (2, 2)
wrap.AdaptivePoolForward(MATRIX.data, [2], True)
    -> ValueError: [AdaptivePoolForward] (N, C, L) (N, C, H, W) (N, C, D, H, W) (2, 3)
wrap.AdaptivePoolBackward(make(2, 3, 3).data, (2, 3, 7), True, None, None)
    -> ValueError: [AdaptivePoolBackward] x saved tensors (None)
wrap.AdaptivePoolBackward(MATRIX.data, (2, 3, 7), False, None, None)
    -> ValueError: [AdaptivePoolBackward] dy axes x (2, 3, 7) (2, 3) float32
wrap.AdaptivePoolBackward(make(2, 3, 3).data, (2, 3, 7), False, make(2, 3, 3).data, None)
    -> ValueError: [AdaptivePoolBackward] x (2, 3, 7) (2, 3, 3) float32
wrap.AdaptivePoolForward(make(2, 3, 7, dtype="int32").data, [2], True)
    -> TypeError: [AdaptivePoolForward] x a (2, 3, 7) int32
wrap.LpPoolForward(MEANS, IMAGES.data, 0.0) -> ValueError: [LpPoolForward] p 0 0
wrap.LpPoolForward(MEANS, IMAGES.data, INF) -> ValueError: [LpPoolForward] p 0 inf
wrap.LpPoolForward(MEANS, IMAGES.data, NAN) -> ValueError: [LpPoolForward] p 0 nan
wrap.LpPoolForward(POOL, IMAGES.data, 2.0) -> ValueError: [LpPoolForward] handle
wrap.LpPoolForward(PADDED, IMAGES.data, 2.0)
    -> ValueError: [LpPoolForward] handle (2, 3, 8, 8) kernel (2, 2) (2, 2) (1, 1, 1, 1) dilation
    (1, 1) group 3 bias (2, 3, 5, 5)
wrap.LpPoolBackward(MEANS, make(2, 3, 4, 4).data, IMAGES.data, None, 2.0)
    -> ValueError: [LpPoolBackward] y tensor (None)
wrap.Concat([make().data], 0) -> ValueError: [Concat]
wrap.Slice(MATRIX.data, [0, 0], [1, 1], [1, -1], [1, 1]) -> ValueError: [Slice] axis 1 x (2, 3)
wrap.Slice(MATRIX.data, [0, 0, 0], [1, 1, 1]) -> ValueError: [Slice] 3 x (2, 3)
wrap.SliceBackward(MATRIX.data, (2, 3), [0], [1], [], [])
    -> ValueError: [SliceBackward] dy (1, 3) (2, 3) float32
wrap.SliceBackward(INTEGERS.data, (2, 3), [0], [2], [], [])
    -> TypeError: [SliceBackward] dy a (2, 3) int32
wrap.Gather(MATRIX.data, 0, make(1).data * INF)
    -> IndexError: [Gather] 9223372036854775807 0 [-2, 2)
wrap.Gather(make(0, 3).data, 0, labels([0]).data) -> IndexError: [Gather] 0 0 [0, 0)
wrap.Gather(None, 0, LABELS.data) -> ValueError: [Gather] x tensor (None)
wrap.Gather(MATRIX.data, 0, None) -> ValueError: [Gather] indices tensor (None)
wrap.Gather(make(*[1] * 12).data, 0, labels([[0]]).data)
    -> ValueError: [Gather] (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) indices (1, 1) 12 dimensions
wrap.GatherBackward(make(1, 3).data, (2, 3), 0, labels([2]).data)
    -> IndexError: [GatherBackward] 2 0 [-2, 2)
wrap.GatherBackward(MATRIX.data, (2, 3), 0, labels([1]).data)
    -> ValueError: [GatherBackward] dy (1, 3) (2, 3) float32
wrap.ScatterElements(MATRIX.data, labels([[0, 1, 1]]).data, make(1, 3, dtype="float64").data, 1)
    -> TypeError: [ScatterElements] updates float32 (1, 3) float64
wrap.ScatterElements(make(2, 2).data, labels([[0, 1, 1]]).data, make(1, 3).data, 0)
    -> ValueError: [ScatterElements] indices (1, 3) x (2, 2) axis 0
wrap.ScatterElementsBackward(INTEGERS.data, labels([[0, 1, 1]]).data, 1)
    -> TypeError: [ScatterElements] dy a (2, 3) int32
wrap.GatherND(MATRIX.data, labels([[0, 0, 0]]).data)
    -> ValueError: [GatherND] axis indices (1, 3) 1 2 axes x (2, 3) 0
wrap.ScatterND(make(2, 3, dtype="bool").data, labels([[0]]).data, make(1, 3, dtype="bool").data,
    wrap.ScatterReduction_kAdd)
    -> TypeError: [ScatterND] a reduction (2, 3) bool
wrap.ScatterND(MATRIX.data, labels([[0]]).data, make(1, 3).data, 7)
    -> ValueError: [ScatterND] reduction 7
wrap.ScatterNDBackward(MATRIX.data, labels([[0]]).data, wrap.ScatterReduction_kMul, None, None,
    None)
    -> ValueError: [ScatterND] x tensor (None)
wrap.OneHot(make(1).data * 0.5, 2, 0.0, 1.0, 0, wrap.kFloat32) -> ValueError: [OneHot] 0.5 0 a
wrap.NonZero(None) -> ValueError: [NonZero] x tensor (None)
wrap.Tile(MATRIX.data, [(1 << 63) - 1, 1])
    -> ValueError: [Tile] repeats (9223372036854775807, 1) x (2, 3)
wrap.Tile(MATRIX.data, [1] * 13) -> ValueError: [Tile] 13 repeats a tensor 12 dimensions
wrap.TileBackward(MATRIX.data, (2, 3), [2, 1])
    -> ValueError: [TileBackward] dy (4, 3) (2, 3) float32
wrap.Repeat(MATRIX.data, [1, 1, -1], 1) -> ValueError: [Repeat] repeats 0 -1 2
wrap.Repeat(MATRIX.data, [], 0) -> ValueError: [Repeat] axis 0 x (2, 3) 0
wrap.Pad(MATRIX.data, "edge", [(1 << 63) - 1, 0, 1, 0])
    -> ValueError: [Pad] pads 9223372036854775807 1 axis 0 out
wrap.PadBackward(MATRIX.data, (2, 3), "constant", [1, 0, 0, 0])
    -> ValueError: [PadBackward] dy (3, 3) (2, 3) float32
wrap.Upsample(MATRIX.data, [2, 0]) -> ValueError: [Upsample] scales (2, 0) 1
wrap.UpsampleBackward(MATRIX.data, [1, 2])
    -> ValueError: [UpsampleBackward] scale 2 axis 1 dy (2, 3)
wrap.EmbeddingForward(make(1, dtype="bool").data, MATRIX.data)
    -> TypeError: [EmbeddingForward] x (1,) bool
wrap.EmbeddingForward(labels([1e30], "float32").data, MATRIX.data)
    -> IndexError: [EmbeddingForward] 9223372036854775807 0 [0, 2)
wrap.EmbeddingForward(None, MATRIX.data) -> ValueError: [EmbeddingForward] x tensor (None)
wrap.EmbeddingForward(LABELS.data, None) -> ValueError: [EmbeddingForward] W tensor (None)
wrap.EmbeddingBackward(MATRIX.data, labels([1]).data, (4, 3))
    -> ValueError: [EmbeddingBackward] dy (1, 3) (2, 3) float32
wrap.EmbeddingBackward(make(1, 3).data, labels([9]).data, (4, 3))
    -> IndexError: [EmbeddingBackward] 9 0 [0, 4)
wrap.EmbeddingBackward(make(1, 3).data, labels([1]).data, (4,))
    -> ValueError: [EmbeddingBackward] W (vocabulary, width) (4,)
wrap.EmbeddingBackward(make(1, 3, dtype="int32").data, labels([1]).data, (4, 3))
    -> TypeError: [EmbeddingBackward] dy a (1, 3) int32
wrap.Interpolate(LINEAR, MATRIX.data, [0], [1, 2], [])
    -> ValueError: [Interpolate] axes sizes scales 1 2 0
wrap.Interpolate(LINEAR, MATRIX.data, [2], [1], [])
    -> ValueError: [Interpolate] axis 2 a tensor 2 dimensions
wrap.Interpolate(LINEAR, MATRIX.data, [0], [-1], []) -> ValueError: [Interpolate] axis 0 x (2, 3) -1
wrap.Interpolate(LINEAR, MATRIX.data, [0], [2], [0.0]) -> ValueError: [Interpolate] scales 0
wrap.Interpolate(LINEAR, make(0).data, [0], [2], []) -> ValueError: [Interpolate] axis 0 x (0,) 2
wrap.InterpolateBackward(LINEAR, MATRIX.data, (2, 4, 1), [1], [])
    -> ValueError: [InterpolateBackward] dy (2, 3) x (2, 4, 1)
wrap.InterpolateBackward(LINEAR, MATRIX.data, (1, 4), [1], [])
    -> ValueError: [InterpolateBackward] dy (1, 3) (2, 3) float32
wrap.InterpolationHandle(4) -> ValueError: [Interpolate] mode 4
wrap.Reduce(wrap.ReduceOp_kSum, MATRIX.data, [-3], False)
    -> ValueError: [ReduceSum] axis -3 a tensor 2 dimensions
wrap.Reduce(wrap.ReduceOp_kSum, None, [], False) -> ValueError: [ReduceSum] x tensor (None)
wrap.Reduce(wrap.ReduceOp_kL2, INTEGERS.data, [], False) -> TypeError: [ReduceL2] a (2, 3) int32
wrap.ReduceBackward(wrap.ReduceOp_kSum, INTEGERS.data, INTEGERS.data, INTEGERS.data, [], False)
    -> TypeError: [ReduceSumBackward] x a (2, 3) int32
wrap.ReduceBackward(wrap.ReduceOp_kMax, make(2).data, MATRIX.data, None, [1], False)
    -> ValueError: [ReduceMaxBackward] y tensor (None)
wrap.ArgMin(make(2).data, 1) -> ValueError: [ArgMin] axis 1 a tensor 1 dimensions
wrap.ArgMin(None, 0) -> ValueError: [ArgMin] x tensor (None)
wrap.TopK(MATRIX.data, -1) -> ValueError: [TopK] k [0, 3] axis -1 x (2, 3) -1
wrap.TopK(None, 1) -> ValueError: [TopK] x tensor (None)
wrap.AttentionForward(None, HEADS, HEADS, None, 1.0)
    -> ValueError: [AttentionForward] q tensor (None)
wrap.AttentionForward(make(2, 4, 3, 8, dtype="int64").data, HEADS, HEADS, None, 1.0)
    -> TypeError: [AttentionForward] q a (2, 4, 3, 8) int64
wrap.AttentionForward(make(4, 3, 8).data, HEADS, HEADS, None, 1.0)
    -> ValueError: [AttentionForward] q (B, H, N, D) (4, 3, 8) float32
wrap.AttentionForward(HEADS, make(2, 2, 5, 7).data, HEADS, None, 1.0)
    -> ValueError: [AttentionForward] k (2, 2, 5, 8) q (2, 4, 3, 8) k (2, 2, 5, 7) (2, 2, 5, 7)
    float32
wrap.AttentionForward(HEADS, HEADS, make(2, 2, 4, 6).data, None, 1.0)
    -> ValueError: [AttentionForward] v (2, 4, 3, 6) q (2, 4, 3, 8) k (2, 4, 3, 8) (2, 2, 4, 6)
    float32
wrap.AttentionForward(HEADS, make(2, 3, 5, 8).data, make(2, 3, 5, 6).data, None, 1.0)
    -> ValueError: [AttentionForward] 3 k v 4 q
wrap.AttentionForward(HEADS, make(2, 4, 3, 8, dtype="float64").data, HEADS, None, 1.0)
    -> TypeError: [AttentionForward] k float32 (2, 4, 3, 8) float64
wrap.AttentionForward(HEADS, HEADS, HEADS, make(3, 3, dtype="uint8").data, 1.0)
    -> TypeError: [AttentionForward] mask bool a uint8
wrap.AttentionForward(HEADS, HEADS, HEADS, make(3, 4).data, 1.0)
    -> ValueError: [AttentionForward] (3, 4) (1, 4, 3, 3)
wrap.AttentionForward(HEADS, HEADS, HEADS, make(1, 2, 4, 3, 3).data, 1.0)
    -> ValueError: [AttentionForward] mask (2, 4, 3, 3) (1, 2, 4, 3, 3) float32
wrap.AttentionForward(HEADS, HEADS, HEADS, None, INF) -> ValueError: [AttentionForward] scale inf
wrap.AttentionForward(HEADS, HEADS, HEADS, None, 1.0, True, 0, 1.0)
    -> ValueError: [AttentionForward] dropout 1 [0, 1)
wrap.AttentionForward(HEADS, HEADS, HEADS, None, 1.0, True, 1 << 60, 0.0)
    -> ValueError: [AttentionForward] first_query 1152921504606846976 [-2^53, 2^53]
wrap.AttentionBackward(make(2, 4, 3, 7).data, HEADS, HEADS, HEADS, None, HEADS, SUMS, None, 1.0)
    -> ValueError: [AttentionBackward] dy y (2, 4, 3, 8) (2, 4, 3, 7) float32
wrap.AttentionBackward(HEADS, HEADS, HEADS, HEADS, None, HEADS, HEADS, None, 1.0)
    -> ValueError: [AttentionBackward] logsumexp (2, 4, 3) (2, 4, 3, 8) float32
wrap.AttentionBackward(HEADS, HEADS, HEADS, HEADS, None, HEADS, SUMS, None, 1.0, False, 0, 0.5)
    -> ValueError: [AttentionBackward] draw tensor (None)
wrap.AttentionBackward(HEADS, HEADS, HEADS, HEADS, None, HEADS, SUMS, None, 1.0, False, 0, 0.0,
    True, True, True, True)
    -> ValueError: [AttentionBackward] mask tensor (None)
wrap.AttentionBackward(HEADS, HEADS, HEADS, HEADS, make(3, 3, dtype="bool").data, HEADS, SUMS,
    None, 1.0, False, 0, 0.0, True, True, True, True)
    -> TypeError: [AttentionBackward] mask a (3, 3) bool
wrap.Rotary(None, ANGLES, ANGLES, False) -> ValueError: [Rotary] x tensor (None)
wrap.Rotary(make(2, 4, 3, 8, dtype="int32").data, ANGLES, ANGLES, False)
    -> TypeError: [Rotary] x a (2, 4, 3, 8) int32
wrap.Rotary(make(4, 3, 8).data, ANGLES, ANGLES, False)
    -> ValueError: [Rotary] x (B, H, N, D) (4, 3, 8) float32
wrap.Rotary(HEADS, make(3, 5).data, ANGLES, False)
    -> ValueError: [Rotary] cos (N, R / 2) (B, N, R / 2) features x (2, 4, 3, 8) (3, 5)
wrap.Rotary(HEADS, ANGLES, make(4, 4).data, False)
    -> ValueError: [Rotary] sin (N, R / 2) (B, N, R / 2) features x (2, 4, 3, 8) (4, 4)
wrap.Rotary(HEADS, make(5, 3, 4).data, ANGLES, False)
    -> ValueError: [Rotary] cos (N, R / 2) (B, N, R / 2) features x (2, 4, 3, 8) (5, 3, 4)
wrap.Rotary(HEADS, make(3, 3).data, ANGLES, False) -> ValueError: [Rotary] cos sin (3, 3) (3, 4)
wrap.RotaryBackward(ANGLES, ANGLES, ANGLES, False)
    -> ValueError: [RotaryBackward] dy (B, H, N, D) (3, 4) float32
wrap.LayerNormForward(CUBE.data, make(6).data, None, -1, 1e-5, True)
    -> ValueError: [LayerNorm] scale (4,) (6,) float32
wrap.LayerNormForward(CUBE.data, make(4).data, None, 1, 1e-5, True)
    -> ValueError: [LayerNorm] scale (3, 4) (4,) float32
wrap.LayerNormForward(CUBE.data, None, None, -1, -1.0, True) -> ValueError: [LayerNorm] epsilon -1
wrap.LayerNormForward(CUBE.data, make(4, dtype="float64").data, None, -1, 1e-5, True)
    -> TypeError: [LayerNorm] scale float32 (4,) float64
wrap.LayerNormForward(INTEGERS.data, None, None, -1, 1e-5, True)
    -> TypeError: [LayerNorm] x a (2, 3) int32
wrap.GroupNormForward(CUBE.data, 2, None, None) -> ValueError: [GroupNorm] groups 3 x 2
wrap.GroupNormForward(CUBE.data, 0, None, None) -> ValueError: [GroupNorm] groups 3 x 0
wrap.ChannelNormForward(make(3).data, None, None)
    -> ValueError: [ChannelNorm] x (N, C, ...) (3,) float32
wrap.GroupNormBackward(CUBE.data, CUBE.data, 3, None, make(4).data, make(4).data)
    -> ValueError: [GroupNorm] mean (6,) (4,) float32
wrap.GroupNormBackward(MATRIX.data, CUBE.data, 3, None, make(6).data, make(6).data)
    -> ValueError: [GroupNorm] dy x (2, 3, 4) (2, 3) float32
wrap.BatchNormHandle(0.1, make(2, 3, dtype="int32").data) -> TypeError: [BatchNorm] x a (2, 3) int32
wrap.BatchNormForwardTraining(NORM, make(2, 4, 8, 8).data, ONES, ONES, ONES, ONES)
    -> ValueError: [BatchNormForwardTraining] x 4 handle 3 (2, 4, 8, 8) float32
wrap.BatchNormForwardTraining(NORM, IMAGES.data, ONES, make(3, 1).data, ONES, ONES)
    -> ValueError: [BatchNormForwardTraining] bias (3,) (3, 1) float32
wrap.BatchNormForwardTraining(NORM, IMAGES.data, ONES, ONES, make(1, 4, 1, 1).data, ONES)
    -> ValueError: [BatchNormForwardTraining] running_mean (3,) (1, 4, 1, 1) float32
wrap.BatchNormForwardTraining(NORM, IMAGES.data, make(3, dtype="float64").data, ONES, ONES,
    ONES)
    -> TypeError: [BatchNormForwardTraining] scale float32 (3,) float64
wrap.BatchNormForwardTraining(NORM, IMAGES.data, ONES, ONES,
    make(3).data.AsType(wrap.kBFloat16), ONES)
    -> TypeError: [BatchNormForwardTraining] running_mean float32 (3,) bfloat16
wrap.BatchNormForwardTraining(NORM, IMAGES.data, ONES, ONES, ONES, make(6).data.SliceAxis(0, 0,
    6, 2))
    -> ValueError: [BatchNormForwardTraining] running_var (3,) float32 (2,)
wrap.BatchNormBackward(NORM, make(2, 3, 8, 7).data, IMAGES.data, ONES, ONES, ONES)
    -> ValueError: [BatchNormBackward] dy x (2, 3, 8, 8) (2, 3, 8, 7) float32
wrap.BatchNormBackward(NORM, make(2, 3, 8, 8, dtype="float64").data, IMAGES.data, ONES, ONES,
    ONES)
    -> TypeError: [BatchNormBackward] dy x float32 (2, 3, 8, 8) float64
wrap.BatchNormBackward(NORM, IMAGES.data, IMAGES.data, ONES, ONES, None)
    -> ValueError: [BatchNormBackward] var tensor (None)
wrap.BatchNormForwardTraining(NORM, IMAGES.data, ONES, ONES, ONES, ONES, make(2, 3, 8, 1).data)
    -> ValueError: [BatchNormForwardTraining] add x (2, 3, 8, 8) (2, 3, 8, 1) float32
wrap.BatchNormForwardInference(NORM, IMAGES.data, ONES, ONES, ONES, ONES,
    IMAGES.data.AsType(wrap.kBFloat16))
    -> TypeError: [BatchNormForwardInference] add x float32 (2, 3, 8, 8) bfloat16
wrap.BatchNormBackward(NORM, IMAGES.data, IMAGES.data, ONES, ONES, ONES, True, True, True, ONES,
    None, True)
    -> ValueError: [BatchNormBackward] y tensor (None)
wrap.BatchNormBackward(NORM, IMAGES.data, IMAGES.data, ONES, ONES, ONES, True, True, True, None,
    MATRIX.data)
    -> ValueError: [BatchNormBackward] y x (2, 3, 8, 8) (2, 3) float32
wrap.ConvForward(None, WEIGHT, ONES4, CONV) -> ValueError: [ConvForward] x tensor (None)
wrap.ConvForward(IMAGES.data, None, ONES4, CONV) -> ValueError: [ConvForward] W tensor (None)
wrap.ConvForward(IMAGES.data, WEIGHT, ONES4.AsType(wrap.kFloat16), CONV)
    -> TypeError: [ConvForward] b x float32 (4,) float16
wrap.ConvForward(IMAGES.data, WEIGHT, ONES4, CONV, IMAGES.data)
    -> ValueError: [ConvForward] add (2, 4, 8, 8) (2, 3, 8, 8) float32
wrap.ConvForward(IMAGES.data, WEIGHT, ONES4, CONV, make(1, 4, 1, 1).data)
    -> ValueError: [ConvForward] add (2, 4, 8, 8) (1, 4, 1, 1) float32
wrap.ConvForward(IMAGES.data, WEIGHT, ONES4, CONV, make(2, 4, 8, 8, dtype="float64").data)
    -> TypeError: [ConvForward] add x float32 (2, 4, 8, 8) float64
wrap.ConvBackwardX(make(2, 4).data, WEIGHT, CONV)
    -> ValueError: [ConvBackwardX] dy (2, 4, 8, 8) (2, 4) float32
wrap.ConvBackward(make(2, 4, 8, 8).data, IMAGES.data, None, CONV, True, False, False)
    -> ValueError: [ConvBackward] W tensor (None)
wrap.ConvTransposeHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], [0], 3, 4)
    -> ValueError: [ConvTransposeHandle] output_padding (h, w)
wrap.ConvTransposeHandle(IMAGES.data, [3], [1, 1], [1, 1], [0, 0], 3, 4)
    -> ValueError: [ConvTransposeHandle] kernel dilation (h, w)
wrap.ConvTransposeHandle(IMAGES.data, [0, 3], [1, 1], [1, 1], [0, 0], 3, 4)
    -> ValueError: [ConvTransposeHandle] kernel 0 dilation 1 out
wrap.ConvTransposeHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], [0, 0], 5, 4)
    -> ValueError: [ConvTransposeHandle] 3 5 (2, 3, 8, 8)
wrap.ConvTransposeHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], [0, 0], 3, 4, True, 2)
    -> ValueError: [ConvTransposeHandle] group 2 1 3 out_channels 4
wrap.ConvTransposeHandle(IMAGES.data, [3, 3], [1, 1], [1, 1], [0, 0], 3, 0)
    -> ValueError: [ConvTransposeHandle] out_channels 1 2147483647 0
wrap.ConvTransposeHandle(IMAGES.data, [1 << 30, 3], [1, 1], [1, 1], [0, 0], 3, 4, True, 1, [4,
    1])
    -> ValueError: [ConvTransposeHandle] kernel 1073741824 dilation 4 out
wrap.ConvTransposeForward(None, make(3, 4, 3, 3).data, None, TRANSPOSED)
    -> ValueError: [ConvTransposeForward] x tensor (None)
wrap.ConvTransposeForward(IMAGES.data, make(3, 4, 3, 3).data, make(3).data, TRANSPOSED)
    -> ValueError: [ConvTransposeForward] b (4,) (3,) float32
wrap.ConvTransposeForward(IMAGES.data, make(3, 4, 3, 3, dtype="float64").data, None, TRANSPOSED)
    -> TypeError: [ConvTransposeForward] W x float32 (3, 4, 3, 3) float64
wrap.ConvTransposeBackward(IMAGES.data, IMAGES.data, make(3, 4, 3, 3).data, TRANSPOSED, True,
    True, True)
    -> ValueError: [ConvTransposeBackward] dy (2, 4, 8, 8) (2, 3, 8, 8) float32
wrap.RnnHandle(make(3, 2, 0).data, 4, wrap.RnnMode_kGru)
    -> ValueError: [RnnHandle] x 1 16777216 features 0
wrap.RnnForward(LSTM, SEQUENCE, None, None, None, None, False)
    -> ValueError: [RnnForward] W tensor (None)
wrap.RnnForward(LSTM, SEQUENCE, None, None, make(LSTM.weights_size, dtype="float64").data, None,
    False)
    -> TypeError: [RnnForward] W float32 (176,) float64
wrap.RnnForward(LSTM, make(3, 2, 5, dtype="int32").data, None, None, WEIGHTS, None, False)
    -> TypeError: [RnnForward] x a (3, 2, 5) int32
wrap.RnnForward(LSTM, SEQUENCE, None, None, WEIGHTS, make(2).data, False)
    -> TypeError: [RnnForward] seq_lengths int32 (2,) float32
wrap.RnnForward(GRU, SEQUENCE, None, make(1, 2, 4).data, make(GRU.weights_size).data, None,
    False)
    -> ValueError: [RnnForward] a cx
wrap.RnnBackward(LSTM, make(3, 2, 4).data, None, None, SEQUENCE, None, None, WEIGHTS, make(3, 2,
    4).data, None, None)
    -> ValueError: [RnnBackward] saved tensor (None)
""")
