"""Elementwise operators, reductions, matrix products."""

import numpy as np
from singa import autograd, tensor
from singa import singa_wrap as wrap
from wrong_call import NAN, Row, check, make, parametrize

CUBE, MATRIX, INTEGERS = make(2, 3, 4), make(2, 3), make(2, 3, dtype="int32")
BIG = 1 << 40


ROWS = [
    Row(
        "add shapes",
        lambda: autograd.add(CUBE, make(5)),
        ValueError,
        r"\[Add\] shapes do not broadcast: \(2, 3, 4\) with \(5,\)",
    ),
    Row(
        "add None",
        lambda: autograd.add(CUBE, None),
        TypeError,
        r"\[arithmetic\] a Tensor with NoneType",
    ),
    Row("add str", lambda: autograd.add(CUBE, "a"), TypeError, r"\[arithmetic\] a Tensor with str"),
    Row("+ str", lambda: CUBE + "a", TypeError, r"\[arithmetic\] a Tensor with str"),
    Row("+ None", lambda: CUBE + None, TypeError, r"\[arithmetic\] a Tensor with NoneType"),
    Row(
        "+ obj",
        lambda: CUBE + object(),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "+ shapes",
        lambda: CUBE + make(7),
        ValueError,
        r"\[Add\] shapes do not broadcast: \(2, 3, 4\) with \(7,\)",
    ),
    Row(
        "+ complex",
        lambda: CUBE + 1j,
        TypeError,
        r"\[from_buffer\] elements of format 'Zd' \(16 bytes\) are none of",
    ),
    Row(
        "+ np obj",
        lambda: CUBE + np.array([None]),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "none+none",
        lambda: autograd.add(None, None),
        TypeError,
        r"\[arithmetic\] a Tensor with NoneType",
    ),
    Row(
        "add huge bcast",
        lambda: wrap.Binary(
            wrap.BinaryOp_kAdd,
            make(1).data.Broadcast((1 << 31, 1)),
            make(1).data.Broadcast((1, 1 << 31)),
        ),
        ValueError,
        r"\[tensor\] shape \(2147483648, 2147483648\) has too many elements",
    ),
    Row(
        "iadd shape",
        lambda: CUBE.__iadd__(make(9)),
        ValueError,
        r"\[Add\] shapes do not broadcast: \(2, 3, 4\) with \(9,\)",
    ),
    Row(
        "iadd int float",
        lambda: INTEGERS.__iadd__(1.5),
        TypeError,
        r"\[add\] the result does not fit a tensor of int32, in place",
    ),
    Row(
        "iadd bcast out",
        lambda: MATRIX.__iadd__(make(4, 2, 3)),
        ValueError,
        r"\[Add\] out has to have shape \(4, 2, 3\), got \(2, 3\) float32 on cpu",
    ),
    Row(
        "Binary op 99",
        lambda: wrap.Binary(99, MATRIX.data, MATRIX.data),
        ValueError,
        r"\[Binary\] no function has number 99",
    ),
    Row(
        "Binary op -1",
        lambda: wrap.Binary(-1, MATRIX.data, MATRIX.data),
        ValueError,
        r"\[Binary\] no function has number -1",
    ),
    Row(
        "Binary None",
        lambda: wrap.Binary(0, None, MATRIX.data),
        ValueError,
        r"\[Add\] a is an empty tensor \(None\)",
    ),
    Row(
        "BinaryInto overlap view",
        lambda: wrap.BinaryInto(0, MATRIX.data, MATRIX.data, make(2, 2).data),
        ValueError,
        r"\[Add\] out has to have shape \(2, 3\), got \(2, 2\) float32 on cpu",
    ),
    Row(
        "BinaryInto bcast out",
        lambda: wrap.BinaryInto(0, MATRIX.data, MATRIX.data, make(1, 3).data.Broadcast((2, 3))),
        ValueError,
        r"\[Add\] out is a broadcast view, whose elements share memory: \(2, 3\) float32",
    ),
    Row(
        "BinaryInto int out",
        lambda: wrap.BinaryInto(0, MATRIX.data, MATRIX.data, INTEGERS.data),
        TypeError,
        r"\[Add\] a result of type float32 does not fit into out \(2, 3\) int32 on cpu",
    ),
    Row(
        "Unary op 99",
        lambda: wrap.Unary(99, MATRIX.data),
        ValueError,
        r"\[Unary\] no function has number 99",
    ),
    Row(
        "Unary None",
        lambda: wrap.Unary(0, None),
        ValueError,
        r"\[Abs\] x is an empty tensor \(None\)",
    ),
    Row(
        "UnaryBackward no xy",
        lambda: wrap.UnaryBackward(wrap.UnaryOp_kSin, MATRIX.data, None, None),
        ValueError,
        r"\[SinBackward\] x is an empty tensor \(None\)",
    ),
    Row(
        "UnaryBackward shape",
        lambda: wrap.UnaryBackward(wrap.UnaryOp_kSin, MATRIX.data, CUBE.data, None),
        ValueError,
        r"\[SinBackward\] x has to have the shape of dy \(2, 3\), got \(2, 3, 4\) float32",
    ),
    Row(
        "UnaryInto bcast out",
        lambda: wrap.UnaryInto(wrap.UnaryOp_kAbs, MATRIX.data, make(1, 3).data.Broadcast((2, 3))),
        ValueError,
        r"\[Abs\] out is a broadcast view, whose elements share memory: \(2, 3\) float32",
    ),
    Row(
        "Axpy shape",
        lambda: wrap.Axpy(1.0, MATRIX.data, CUBE.data),
        ValueError,
        r"\[Axpy\] x \(2, 3\) float32 on cpu and y \(2, 3, 4\) float32 on cpu have to be",
    ),
    Row(
        "Axpy None",
        lambda: wrap.Axpy(1.0, None, CUBE.data),
        ValueError,
        r"\[Axpy\] x is an empty tensor \(None\)",
    ),
    Row(
        "Axpy dtype",
        lambda: wrap.Axpy(0.5, MATRIX.data, INTEGERS.data),
        TypeError,
        r"\[Axpy\] alpha 0\.5 times x \(2, 3\) float32 on cpu does not fit into y \(2, 3\)",
    ),
    Row(
        "Axpy bcast",
        lambda: wrap.Axpy(1.0, MATRIX.data, make(1, 3).data.Broadcast((2, 3))),
        ValueError,
        r"\[Axpy\] y is a broadcast view, whose elements share memory: \(2, 3\) float32",
    ),
    Row(
        "exp int",
        lambda: autograd.exp(INTEGERS),
        TypeError,
        r"\[Exp\] x has to be of a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "sqrt bool",
        lambda: autograd.sqrt(make(2, dtype="bool")),
        TypeError,
        r"\[Sqrt\] x has to be of a float type, got \(2,\) bool on cpu",
    ),
    Row(
        "exp None",
        lambda: autograd.exp(None),
        TypeError,
        r"\[Exp\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "relu list",
        lambda: autograd.relu([1, 2]),
        TypeError,
        r"\[ReLU\] inputs have to be Tensors, got list",
    ),
    Row("clip nan", lambda: autograd.clip(MATRIX, NAN, 1), ValueError, r"\[Clip\] min is NaN"),
    Row(
        "clip str",
        lambda: autograd.clip(MATRIX, "a"),
        TypeError,
        r"\[Clip\] min must be a number, got str",
    ),
    Row(
        "elu alpha str",
        lambda: autograd.elu(MATRIX, "a"),
        TypeError,
        r"\[Elu\] alpha must be a number, got str",
    ),
    Row("elu alpha nan", lambda: autograd.elu(MATRIX, NAN), ValueError, r"\[Elu\] alpha is NaN"),
    Row(
        "leakyrelu None",
        lambda: autograd.leakyrelu(MATRIX, None),
        TypeError,
        r"\[LeakyRelu\] a must be a number, got NoneType",
    ),
    Row(
        "where shapes",
        lambda: autograd.where(MATRIX, make(5), make(2, 3)),
        ValueError,
        r"\[Where\] shapes do not broadcast: \(2, 3\) with \(5,\)",
    ),
    Row(
        "where cond None",
        lambda: autograd.where(MATRIX, MATRIX, None),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "where cond str",
        lambda: autograd.where(MATRIX, MATRIX, "a"),
        TypeError,
        r"\[from_buffer\] elements of format '1w' \(4 bytes\) are none of float16/32/64,",
    ),
    Row(
        "prelu shapes",
        lambda: autograd.prelu(MATRIX, make(7)),
        ValueError,
        r"\[PRelu\] shapes do not broadcast: \(2, 3\) with \(7,\)",
    ),
    Row("sum list none", lambda: autograd.sum(), ValueError, r"\[list\] needs at least one tensor"),
    Row("max none", lambda: autograd.max([]), ValueError, r"\[list\] needs at least one tensor"),
    Row(
        "and float",
        lambda: autograd._and(MATRIX, CUBE),
        ValueError,
        r"\[And\] shapes do not broadcast: \(2, 3\) with \(2, 3, 4\)",
    ),
    Row(
        "reduce axis",
        lambda: autograd.reduce_sum(CUBE, [9]),
        ValueError,
        r"\[ReduceSum\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "reduce axis dup",
        lambda: autograd.reduce_sum(CUBE, [0, 0]),
        ValueError,
        r"\[ReduceSum\] axis 0 appears twice for shape \(2, 3, 4\)",
    ),
    Row(
        "reduce axis nan",
        lambda: autograd.reduce_sum(CUBE, [NAN]),
        ValueError,
        r"\[ReduceSum\] axes must be a whole number, got nan",
    ),
    Row(
        "reduce axis 1.5",
        lambda: autograd.reduce_sum(CUBE, [1.5]),
        ValueError,
        r"\[ReduceSum\] axes must be a whole number, got 1\.5",
    ),
    Row(
        "reduce axis str",
        lambda: autograd.reduce_sum(CUBE, "0"),
        TypeError,
        r"\[ReduceSum\] axes must be integers, got str",
    ),
    Row(
        "reduce max empty",
        lambda: autograd.reduce_max(make(0, 3), [0]),
        ValueError,
        r"\[ReduceMax\] x \(0, 3\) has no elements along the reduced axes",
    ),
    Row(
        "reduce mean int",
        lambda: autograd.reduce_mean(INTEGERS),
        TypeError,
        r"\[ReduceMean\] needs a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "reduce None",
        lambda: autograd.reduce_sum(None),
        TypeError,
        r"\[ReduceSum\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "Reduce op 99",
        lambda: wrap.Reduce(99, MATRIX.data),
        ValueError,
        r"\[Reduce\] unknown reduction 99",
    ),
    Row(
        "Reduce op bw",
        lambda: wrap.ReduceBackward(0, MATRIX.data, CUBE.data, None, (0,), False),
        ValueError,
        r"\[ReduceSumBackward\] dy has to have shape \(3, 4\), got \(2, 3\) float32 on cpu",
    ),
    Row(
        "SumTo",
        lambda: wrap.SumTo(CUBE.data, (5,)),
        ValueError,
        r"\[SumTo\] shape \(5,\) does not broadcast to x \(2, 3, 4\)",
    ),
    Row(
        "SumTo bigger",
        lambda: wrap.SumTo(MATRIX.data, (2, 2, 3)),
        ValueError,
        r"\[SumTo\] shape \(2, 2, 3\) does not broadcast to x \(2, 3\)",
    ),
    Row(
        "argmax axis",
        lambda: autograd.argmax(CUBE, 7),
        ValueError,
        r"\[ArgMax\] axis 7 is outside a tensor of 3 dimensions",
    ),
    Row(
        "argmax empty",
        lambda: autograd.argmax(make(2, 0), 1),
        ValueError,
        r"\[ArgMax\] axis 1 of x \(2, 0\) has no elements",
    ),
    Row(
        "argmax nan axis",
        lambda: autograd.argmax(CUBE, NAN),
        TypeError,
        r"\[ArgMax\] axis has to be an integer, got float",
    ),
    Row(
        "argmax None axis",
        lambda: autograd.argmax(CUBE, None),
        TypeError,
        r"\[ArgMax\] axis has to be an integer, got NoneType",
    ),
    Row(
        "CountTopK label",
        lambda: wrap.CountTopK(
            MATRIX.data, tensor.Tensor(data=np.array([0, 9]), dtype="int32").data, 1
        ),
        IndexError,
        r"\[CountTopK\] label 9 of row 1 is outside \[0, 3\)",
    ),
    Row(
        "CountTopK k0",
        lambda: wrap.CountTopK(
            MATRIX.data, tensor.Tensor(data=np.array([0, 1]), dtype="int32").data, 0
        ),
        ValueError,
        r"\[CountTopK\] k has to be at least 1, got 0",
    ),
    Row(
        "CountTopK k neg",
        lambda: wrap.CountTopK(
            MATRIX.data, tensor.Tensor(data=np.array([0, 1]), dtype="int32").data, -1
        ),
        ValueError,
        r"\[CountTopK\] k has to be at least 1, got -1",
    ),
    Row(
        "CountTopK float",
        lambda: wrap.CountTopK(MATRIX.data, make(2).data, 1),
        TypeError,
        r"\[CountTopK\] labels has to be int32 or int64, got \(2,\) float32 on cpu",
    ),
    Row(
        "softmax axis",
        lambda: autograd.softmax(CUBE, 9),
        ValueError,
        r"\[Softmax\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "softmax int",
        lambda: autograd.softmax(INTEGERS),
        TypeError,
        r"\[Softmax\] x has to be of a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "softmax scalar",
        lambda: autograd.softmax(tensor.Tensor(())),
        ValueError,
        r"\[Softmax\] axis 1 is outside a tensor of 0 dimensions",
    ),
    Row(
        "softmax vec axis1",
        lambda: autograd.softmax(make(3)),
        ValueError,
        r"\[Softmax\] axis 1 is outside a tensor of 1 dimensions",
    ),
    Row(
        "logsoftmax bw",
        lambda: wrap.LogSoftmaxBackward(MATRIX.data, CUBE.data, 1),
        ValueError,
        r"\[LogSoftmaxBackward\] dy has to have the shape of y \(2, 3, 4\), got \(2, 3\)",
    ),
    Row(
        "cossim",
        lambda: autograd.cossim(MATRIX, make(2, 4)),
        ValueError,
        r"\[Mul\] shapes do not broadcast: \(2, 3\) with \(2, 4\)",
    ),
    Row(
        "matmul",
        lambda: autograd.matmul(MATRIX, MATRIX),
        ValueError,
        r"\[MatMul\] a \(2, 3\) and b \(2, 3\) do not fit: 3 columns, 2 rows",
    ),
    Row(
        "matmul batch",
        lambda: autograd.matmul(make(2, 3, 4), make(3, 4, 5)),
        ValueError,
        r"\[MatMul\] shapes do not broadcast: \(2,\) with \(3,\)",
    ),
    Row(
        "matmul scalar",
        lambda: autograd.matmul(tensor.Tensor(()), MATRIX),
        ValueError,
        r"\[MatMul\] needs vectors or matrices, got a \(\) float32 on cpu, b \(2, 3\)",
    ),
    Row(
        "matmul int",
        lambda: autograd.matmul(INTEGERS, make(3, 2, dtype="int32")),
        TypeError,
        r"\[MatMul\] a has to be of a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "matmul mix",
        lambda: autograd.matmul(MATRIX, make(3, 2, dtype="float64")),
        TypeError,
        r"\[MatMul\] a and b differ in type: \(2, 3\) float32 on cpu, \(3, 2\) float64 on",
    ),
    Row(
        "matmul None",
        lambda: autograd.matmul(MATRIX, None),
        TypeError,
        r"\[Matmul\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "matmul huge",
        lambda: wrap.MatMul(
            make(1, 1).data.Broadcast((1 << 31, 1)), make(1, 1).data.Broadcast((1, 1 << 31))
        ),
        ValueError,
        r"\[MatMul\] shape \(2147483648, 2147483648\) has too many elements",
    ),
    Row(
        "matmul huge mem",
        lambda: wrap.MatMul(
            make(1, 1).data.Broadcast((1 << 22, 1)), make(1, 1).data.Broadcast((1, 1 << 22))
        ),
        MemoryError,
        r"\[MatMul\] a tensor of \(4194304, 4194304\) float32: 67108864 MiB asked for",
    ),
    Row(
        "matmul bw",
        lambda: wrap.MatMulBackward(
            CUBE.data, MATRIX.data, make(3, 2).data, False, False, True, True
        ),
        ValueError,
        r"\[MatMulBackward\] dy has to have shape \(2, 2\), got \(2, 3, 4\) float32 on cpu",
    ),
    Row(
        "gemm C",
        lambda: autograd.gemm(MATRIX, make(3, 2), make(5)),
        ValueError,
        r"\[Gemm\] C \(5,\) does not broadcast to the result \(2, 2\)",
    ),
    Row(
        "gemm rank",
        lambda: autograd.gemm(CUBE, MATRIX),
        ValueError,
        r"\[Gemm\] needs matrices, got A \(2, 3, 4\) float32 on cpu, B \(2, 3\) float32 on",
    ),
    Row(
        "gemm alpha str",
        lambda: autograd.gemm(MATRIX, make(3, 2), alpha="a"),
        TypeError,
        r"\[Gemm\] alpha must be a number, got str",
    ),
    Row(
        "gemm alpha nan",
        lambda: autograd.gemm(MATRIX, make(3, 2), alpha=NAN),
        ValueError,
        r"\[Gemm\] alpha is NaN",
    ),
    Row(
        "linear W",
        lambda: autograd.linear(MATRIX, make(4, 5)),
        ValueError,
        r"\[LinearForward\] x \(2, 3\) has 3 features, W \(4, 5\) takes 4",
    ),
    Row(
        "linear b",
        lambda: autograd.linear(MATRIX, make(3, 5), make(4)),
        ValueError,
        r"\[LinearForward\] b has to have shape \(5,\), got \(4,\) float32 on cpu",
    ),
    Row(
        "linear int",
        lambda: autograd.linear(INTEGERS, make(3, 5)),
        TypeError,
        r"\[LinearForward\] x has to be of a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "addbias",
        lambda: autograd.add_bias(MATRIX, make(5)),
        ValueError,
        r"\[Add\] shapes do not broadcast: \(2, 3\) with \(5,\)",
    ),
    Row(
        "addbias axis",
        lambda: autograd.add_bias(MATRIX, make(3), 5),
        ValueError,
        r"\[AddBias\] axis has to be 0 \(rows\) or 1 \(columns\), got 5",
    ),
    Row(
        "addbias rank",
        lambda: autograd.add_bias(CUBE, make(2), 1),
        ValueError,
        r"\[Add\] shapes do not broadcast: \(2, 3, 4\) with \(2, 1\)",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)
