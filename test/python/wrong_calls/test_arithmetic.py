"""Elementwise operators, reductions, matrix products."""

from wrong_call import make, table


def wide(*shape):
    """A broadcast view of one row, one column or one element."""
    return make(*(3 if n == 3 else 1 for n in shape)).data.Broadcast(shape)


test_wrong_call = table("""
autograd.add(CUBE, make(5)) -> ValueError: [Add] (2, 3, 4) (5,)
autograd.add(CUBE, None) -> TypeError: [arithmetic] NoneType
autograd.add(CUBE, "a") -> TypeError: [arithmetic] str
CUBE + "a" -> TypeError: [arithmetic] str
CUBE + None -> TypeError: [arithmetic] NoneType
CUBE + object() -> TypeError: [tensor] object
CUBE + make(7) -> ValueError: [Add] (2, 3, 4) (7,)
CUBE + 1j -> TypeError: [tensor] complex128
CUBE + np.array([None]) -> TypeError: [tensor] object
autograd.add(None, None) -> TypeError: [arithmetic] NoneType
wrap.Binary(wrap.BinaryOp_kAdd, wide(1 << 31, 1), wide(1, 1 << 31))
    -> ValueError: [tensor] (2147483648, 2147483648)
CUBE.__iadd__(make(9)) -> ValueError: [Add] (2, 3, 4) (9,)
INTEGERS.__iadd__(1.5) -> TypeError: [add] int32
make(2, dtype="bool").__iadd__(1) -> TypeError: [add] bool
make(2, dtype="bool") - make(2, dtype="bool") -> TypeError: [Sub] bools
-make(2, dtype="bool") -> TypeError: [Negative] bools
INTEGERS & make(2, 3) -> TypeError: [And] & int32 float32
make(2, dtype="bool") | 1.5 -> TypeError: [Or] | bool float64
make(2, dtype="bool") << make(2, dtype="bool") -> TypeError: [ShiftLeft] bool
INTEGERS >> 1.5 -> TypeError: [ShiftRight] float32
autograd.bitwise_and(INTEGERS, MATRIX) -> TypeError: [BitAnd] float32
autograd.bitwise_not(MATRIX) -> TypeError: [BitNot] float32
make(2, dtype="bool") ^ make(2) -> TypeError: [Xor] ^ float32
~MATRIX -> TypeError: [BitNot] ~ float32
autograd.celu(MATRIX, 0) -> ValueError: [Celu] alpha 0
wrap.Binary(wrap.BinaryOp_kHypot, INTEGERS.data, INTEGERS.data) -> TypeError: [Hypot] int32
INTEGERS ** -1 -> ValueError: [PowScalar] -1
INTEGERS + (1 << 63) -> ValueError: [fill] 9223372036854775808
tensor.result_type() -> TypeError: [result_type]
wrap.Compare(wrap.BinaryOp_kAdd, MATRIX.data, MATRIX.data) -> ValueError: [Add] comparison
MATRIX.data.Fill((1 << 53) + 1) -> ValueError: value double
MATRIX.__iadd__(make(4, 2, 3)) -> ValueError: [Add] out (4, 2, 3) (2, 3) float32
wrap.Binary(99, MATRIX.data, MATRIX.data) -> ValueError: [Binary] 99
wrap.Binary(-1, MATRIX.data, MATRIX.data) -> ValueError: [Binary] -1
wrap.Binary(0, None, MATRIX.data) -> ValueError: [Add] a (None)
wrap.BinaryInto(0, MATRIX.data, MATRIX.data, make(2, 2).data)
    -> ValueError: [Add] out (2, 3) (2, 2) float32
wrap.BinaryInto(0, MATRIX.data, MATRIX.data, wide(2, 3)) -> ValueError: [Add] out (2, 3) float32
wrap.BinaryInto(0, MATRIX.data, MATRIX.data, INTEGERS.data)
    -> TypeError: [Add] float32 out (2, 3) int32
wrap.Unary(99, MATRIX.data) -> ValueError: [Unary] 99
wrap.Unary(0, None) -> ValueError: [Abs] x (None)
wrap.UnaryBackward(wrap.UnaryOp_kSin, MATRIX.data, None, None) -> ValueError: [SinBackward] x (None)
wrap.UnaryBackward(wrap.UnaryOp_kSin, MATRIX.data, CUBE.data, None)
    -> ValueError: [SinBackward] x dy (2, 3) (2, 3, 4) float32
wrap.UnaryInto(wrap.UnaryOp_kAbs, MATRIX.data, wide(2, 3)) -> ValueError: [Abs] out (2, 3) float32
wrap.Axpy(1.0, MATRIX.data, CUBE.data) -> ValueError: [Axpy] x (2, 3) float32 y (2, 3, 4) float32
wrap.Axpy(1.0, None, CUBE.data) -> ValueError: [Axpy] x (None)
wrap.Axpy(0.5, MATRIX.data, INTEGERS.data)
    -> TypeError: [Axpy] alpha 0.5 x (2, 3) float32 y (2, 3) int32
wrap.Axpy(1.0, MATRIX.data, wide(2, 3)) -> ValueError: [Axpy] y (2, 3) float32
autograd.exp(INTEGERS) -> TypeError: [Exp] x (2, 3) int32
autograd.sqrt(make(2, dtype="bool")) -> TypeError: [Sqrt] x (2,) bool
autograd.exp(None) -> TypeError: [exp] a NoneType
autograd.relu([1, 2]) -> TypeError: [ReLU] list
autograd.clip(MATRIX, NAN, 1) -> ValueError: [Clip] min NaN
autograd.clip(MATRIX, "a") -> TypeError: [Clip] min str
autograd.elu(MATRIX, "a") -> TypeError: [Elu] alpha str
autograd.elu(MATRIX, NAN) -> ValueError: [Elu] alpha NaN
autograd.leakyrelu(MATRIX, None) -> TypeError: [LeakyRelu] a NoneType
autograd.where(MATRIX, make(5), make(2, 3)) -> ValueError: [Where] (2, 3) (5,)
autograd.where(MATRIX, MATRIX, None) -> TypeError: [tensor] object
autograd.where(MATRIX, MATRIX, "a") -> TypeError: [tensor] <U1
autograd.prelu(MATRIX, make(7)) -> ValueError: [PRelu] (2, 3) (7,)
autograd.sum() -> ValueError: [list] one tensor
autograd.max([]) -> ValueError: [list] one tensor
autograd._and(MATRIX, CUBE) -> ValueError: [And] (2, 3) (2, 3, 4)
autograd.reduce_sum(CUBE, [9]) -> ValueError: [ReduceSum] axis 9 3
autograd.reduce_sum(CUBE, [0, 0]) -> ValueError: [ReduceSum] axis 0 (2, 3, 4)
autograd.reduce_sum(CUBE, [NAN]) -> ValueError: [ReduceSum] axes nan
autograd.reduce_sum(CUBE, [1.5]) -> ValueError: [ReduceSum] axes 1.5
autograd.reduce_sum(CUBE, "0") -> TypeError: [ReduceSum] axes str
autograd.reduce_max(make(0, 3), [0]) -> ValueError: [ReduceMax] x (0, 3) axes
autograd.reduce_mean(INTEGERS) -> TypeError: [ReduceMean] (2, 3) int32
autograd.reduce_sum(None) -> TypeError: [ReduceSum] NoneType
wrap.Reduce(99, MATRIX.data) -> ValueError: [Reduce] 99
wrap.ReduceBackward(0, MATRIX.data, CUBE.data, None, (0,), False)
    -> ValueError: [ReduceSumBackward] dy (3, 4) (2, 3) float32
wrap.SumTo(CUBE.data, (5,)) -> ValueError: [SumTo] (5,) x (2, 3, 4)
wrap.SumTo(MATRIX.data, (2, 2, 3)) -> ValueError: [SumTo] (2, 2, 3) x (2, 3)
autograd.argmax(CUBE, 7) -> ValueError: [ArgMax] axis 7 3
autograd.argmax(make(2, 0), 1) -> ValueError: [ArgMax] axis 1 x (2, 0)
autograd.argmax(CUBE, NAN) -> TypeError: [ArgMax] axis float
autograd.argmax(CUBE) -> ValueError: [ArgMax] (2, 3, 4) axis=-1 axis=None
autograd.argmin(CUBE) -> ValueError: [ArgMin] (2, 3, 4) axis=-1 axis=None
autograd.reduce_sum(CUBE, 0, axis=1) -> TypeError: [reduce_sum] axes axis
autograd.sum(CUBE, CUBE, axis=0) -> TypeError: [sum] axis one
autograd.max(CUBE, CUBE, keepdims=True) -> TypeError: [max] keepdims list
CUBE.softmax() -> ValueError: [softmax] (2, 3, 4) x.softmax(-1) x.softmax(1)
CUBE.log_softmax() -> ValueError: [log_softmax] (2, 3, 4) x.log_softmax(-1) x.log_softmax(1)
tensor.sum(CUBE) -> ValueError: [sum] t.sum() SINGA_COMPAT=1
tensor.softmax(CUBE) -> ValueError: [softmax] (2, 3, 4) SINGA_COMPAT=1
tensor.transpose(CUBE, axes=(0, 1, 2), shape=(0, 1, 2)) -> TypeError: [transpose] axes shape
wrap.CountTopK(MATRIX.data, labels([0, 9]).data, 1) -> IndexError: [CountTopK] label 9 row 1 [0, 3)
wrap.CountTopK(MATRIX.data, LABELS.data, 0) -> ValueError: [CountTopK] k 1 0
wrap.CountTopK(MATRIX.data, LABELS.data, -1) -> ValueError: [CountTopK] k 1 -1
wrap.CountTopK(MATRIX.data, make(2).data, 1)
    -> TypeError: [CountTopK] labels int32 int64 (2,) float32
autograd.softmax(CUBE, 9) -> ValueError: [Softmax] axis 9 3
autograd.softmax(INTEGERS) -> TypeError: [Softmax] x (2, 3) int32
autograd.softmax(tensor.Tensor(())) -> ValueError: [Softmax] axis 1 0
autograd.softmax(make(3)) -> ValueError: [Softmax] axis 1 1
wrap.LogSoftmaxBackward(MATRIX.data, CUBE.data, 1)
    -> ValueError: [LogSoftmaxBackward] dy y (2, 3, 4) (2, 3) float32
autograd.cossim(MATRIX, make(2, 4)) -> ValueError: [Mul] (2, 3) (2, 4)
autograd.matmul(MATRIX, MATRIX) -> ValueError: [MatMul] a (2, 3) b (2, 3) 3 2
autograd.matmul(make(2, 3, 4), make(3, 4, 5)) -> ValueError: [MatMul] (2,) (3,)
autograd.matmul(tensor.Tensor(()), MATRIX) -> ValueError: [MatMul] a () float32 b (2, 3) float32
autograd.matmul(INTEGERS, make(3, 2)) -> TypeError: [MatMul] a (2, 3) int32
autograd.matmul(INTEGERS, make(2, dtype="int32")) -> ValueError: [MatMul] (2, 3) (2,)
autograd.matmul(MATRIX, make(3, 2, dtype="int32")) -> TypeError: [MatMul] b (3, 2) int32
autograd.matmul(MATRIX, None) -> TypeError: [Matmul] NoneType
wrap.MatMul(wide(1 << 31, 1), wide(1, 1 << 31)) -> ValueError: [MatMul] (2147483648, 2147483648)
wrap.MatMul(wide(1 << 22, 1), wide(1, 1 << 22))
    -> MemoryError: [MatMul] (4194304, 4194304) float32 67108864
wrap.MatMulBackward(CUBE.data, MATRIX.data, make(3, 2).data, False, False, True, True)
    -> ValueError: [MatMulBackward] dy (2, 2) (2, 3, 4) float32
autograd.gemm(MATRIX, make(3, 2), make(5)) -> ValueError: [Gemm] C (5,) (2, 2)
autograd.gemm(CUBE, MATRIX) -> ValueError: [Gemm] A (2, 3, 4) float32 B (2, 3) float32
autograd.gemm(MATRIX, make(3, 2), alpha="a") -> TypeError: [Gemm] alpha str
autograd.gemm(MATRIX, make(3, 2), alpha=NAN) -> ValueError: [Gemm] alpha NaN
autograd.linear(MATRIX, make(4, 5)) -> ValueError: [LinearForward] x (2, 3) 3 W (4, 5) 4
autograd.linear(MATRIX, make(3, 5), make(4)) -> ValueError: [LinearForward] b (5,) (4,) float32
autograd.linear(INTEGERS, make(3, 5)) -> TypeError: [LinearForward] x (2, 3) int32
autograd.add_bias(MATRIX, make(5)) -> ValueError: [Add] (2, 3) (5,)
autograd.add_bias(MATRIX, make(3), 5) -> ValueError: [AddBias] axis 0 1 5
autograd.add_bias(CUBE, make(2), 1) -> ValueError: [Add] (2, 3, 4) (2, 1)
""")
