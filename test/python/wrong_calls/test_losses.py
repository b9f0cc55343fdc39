"""Losses, indexing, random numbers, recurrent layers, sums over products."""

import numpy as np
from singa import autograd, tensor
from singa import singa_wrap as wrap
from wrong_call import INF, NAN, Row, check, make, parametrize

CUBE, MATRIX, INTEGERS = make(2, 3, 4), make(2, 3), make(2, 3, dtype="int32")
BIG = 1 << 40
SEQUENCE, STATE = make(5, 2, 3), make(1, 2, 4)
RNN = wrap.RnnHandle(SEQUENCE.data, 4, wrap.RnnMode_kLstm)
WEIGHTS = make(RNN.weights_size)


def labels(values, dtype="int32"):
    return tensor.Tensor(data=np.array(values), dtype=dtype)


ROWS = [
    Row(
        "sce label",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 3])),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[1\] is 3, no class number in \[0, 3\)",
    ),
    Row(
        "sce label neg",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, -1])),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[1\] is -1, no class number in \[0, 3\)",
    ),
    Row(
        "sce label frac",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 1.5], "float32")),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[1\] is 1\.5, no class number in \[0, 3\)",
    ),
    Row(
        "sce label nan",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, NAN], "float32")),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[1\] is nan, no class number in \[0, 3\)",
    ),
    Row(
        "sce label float big",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 1e30], "float32")),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[1\] is 1e\+30, no class number in \[0, 3\)",
    ),
    Row(
        "sce label 2^40",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, BIG], "int64")),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[1\] is 1\.09951e\+12, no class number in \[0,",
    ),
    Row(
        "sce count",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 1, 2])),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t has to be class numbers \(2\) or",
    ),
    Row(
        "sce soft shape",
        lambda: autograd.softmax_cross_entropy(MATRIX, make(2, 4)),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t has to be class numbers \(2\) or",
    ),
    Row(
        "sce x rank",
        lambda: autograd.softmax_cross_entropy(make(3), labels([0])),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] x has to be \(N, C\) with C > 0, got \(3,\)",
    ),
    Row(
        "sce x rank3",
        lambda: autograd.softmax_cross_entropy(CUBE, labels([0, 1])),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] x has to be \(N, C\) with C > 0, got \(2, 3, 4\)",
    ),
    Row(
        "sce int x",
        lambda: autograd.softmax_cross_entropy(INTEGERS, labels([0, 1])),
        TypeError,
        r"\[SoftmaxCrossEntropyForward\] x has to be of a float type, got \(2, 3\) int32",
    ),
    Row(
        "sce smoothing",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 1]), 1.5),
        ValueError,
        r"\[SoftMaxCrossEntropy\] smoothing must lie in \[0, 1\], got 1\.5",
    ),
    Row(
        "sce smoothing neg",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 1]), -0.1),
        ValueError,
        r"\[SoftMaxCrossEntropy\] smoothing must lie in \[0, 1\], got -0\.1",
    ),
    Row(
        "sce smoothing nan",
        lambda: autograd.softmax_cross_entropy(MATRIX, labels([0, 1]), NAN),
        ValueError,
        r"\[SoftMaxCrossEntropy\] smoothing is NaN",
    ),
    Row(
        "sce t None",
        lambda: autograd.softmax_cross_entropy(MATRIX, None),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "sce t str",
        lambda: autograd.softmax_cross_entropy(MATRIX, "a"),
        TypeError,
        r"\[from_buffer\] elements of format '1w' \(4 bytes\) are none of float16/32/64,",
    ),
    Row(
        "sce zero classes",
        lambda: autograd.softmax_cross_entropy(make(2, 0), labels([0, 0])),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] x has to be \(N, C\) with C > 0, got \(2, 0\)",
    ),
    Row(
        "ce shape",
        lambda: autograd.cross_entropy(MATRIX, make(2, 4)),
        ValueError,
        r"\[CrossEntropyForward\] t has to have the shape of p \(2, 3\), got \(2, 4\)",
    ),
    Row(
        "ce label",
        lambda: autograd.cross_entropy(MATRIX, labels([0, 7])),
        ValueError,
        r"\[CrossEntropyForward\] t has to have the shape of p \(2, 3\), got \(2,\) int32",
    ),
    Row(
        "bce shape",
        lambda: autograd.binary_cross_entropy(MATRIX, make(5)),
        ValueError,
        r"\[BinaryCrossEntropyForward\] t has to have the shape of p \(2, 3\), got \(5,\)",
    ),
    Row(
        "mse shape",
        lambda: autograd.mse_loss(MATRIX, make(5)),
        ValueError,
        r"\[MeanSquareErrorForward\] t has to have the shape of x \(2, 3\), got \(5,\)",
    ),
    Row(
        "mse int",
        lambda: autograd.mse_loss(INTEGERS, INTEGERS),
        TypeError,
        r"\[MeanSquareErrorForward\] x has to be of a float type, got \(2, 3\) int32 on",
    ),
    Row(
        "mse None",
        lambda: autograd.mse_loss(MATRIX, None),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "rank shape",
        lambda: autograd.ranking_loss(MATRIX, make(5)),
        ValueError,
        r"\[RankingLossForward\] negative has to have the shape of positive \(2, 3\),",
    ),
    Row(
        "rank M",
        lambda: autograd.ranking_loss(MATRIX, MATRIX, NAN),
        ValueError,
        r"\[RankingLoss\] M is NaN",
    ),
    Row(
        "SCE bw",
        lambda: wrap.SoftmaxCrossEntropyBackward(
            make(5).data, MATRIX.data, labels([0, 1]).data, 0.0
        ),
        ValueError,
        r"\[SoftmaxCrossEntropyBackward\] dy has to have one element, got \(5,\) float32",
    ),
    Row(
        "gather range",
        lambda: autograd.gather(CUBE, 0, [5]),
        IndexError,
        r"\[Gather\] index 5 at position 0 is outside \[-2, 2\)",
    ),
    Row(
        "gather axis",
        lambda: autograd.gather(CUBE, 9, [0]),
        ValueError,
        r"\[Gather\] axis 9 is outside a tensor of 3 dimensions",
    ),
    Row(
        "gather frac",
        lambda: autograd.gather(CUBE, 0, [0.5]),
        ValueError,
        r"\[Gather\] indices have to be whole numbers, got \[0\.5\]",
    ),
    Row(
        "gather nan",
        lambda: autograd.gather(CUBE, 0, [NAN]),
        ValueError,
        r"\[Gather\] indices have to be whole numbers, got \[nan\]",
    ),
    Row(
        "gather big",
        lambda: autograd.gather(CUBE, 0, np.array([BIG])),
        IndexError,
        r"\[Gather\] index 1099511627776 at position 0 is outside \[-2, 2\)",
    ),
    Row(
        "gather None",
        lambda: autograd.gather(CUBE, 0, None),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "gather str",
        lambda: autograd.gather(CUBE, 0, "a"),
        TypeError,
        r"\[from_buffer\] elements of format '1w' \(4 bytes\) are none of float16/32/64,",
    ),
    Row(
        "gather bool",
        lambda: autograd.gather(CUBE, 0, [True, False]),
        TypeError,
        r"\[Gather\] indices has to hold numbers, got \(2,\) bool on cpu",
    ),
    Row(
        "gather tensor frac",
        lambda: autograd.gather(CUBE, 0, make(2) * 0.5),
        ValueError,
        r"\[Gather\] indices have to be whole numbers, got \[0\.5, 0\.5\]",
    ),
    Row(
        "scatter range",
        lambda: autograd.scatter_elements(MATRIX, [[0, 1, 9]], [[1.0, 1, 1]]),
        IndexError,
        r"\[ScatterElements\] index 9 at position 2 is outside \[-2, 2\)",
    ),
    Row(
        "scatter shape",
        lambda: autograd.scatter_elements(MATRIX, [[0, 1]], [[1.0, 1, 1]]),
        ValueError,
        r"\[ScatterElements\] updates has to have shape \(1, 2\), got \(1, 3\) float32 on",
    ),
    Row(
        "scatter axis",
        lambda: autograd.scatter_elements(MATRIX, [[0, 1, 1]], [[1.0, 1, 1]], 5),
        ValueError,
        r"\[ScatterElements\] axis 5 is outside a tensor of 2 dimensions",
    ),
    Row(
        "scatter bigger",
        lambda: autograd.scatter_elements(MATRIX, np.zeros((2, 9), int), np.ones((2, 9), "f4"), 0),
        ValueError,
        r"\[ScatterElements\] indices \(2, 9\) has to be of the rank of x \(2, 3\) and no",
    ),
    Row(
        "scatter none",
        lambda: autograd.scatter_elements(MATRIX, [[0, 1, 1]], None),
        TypeError,
        r"\[from_buffer\] elements of format 'O' \(8 bytes\) are none of float16/32/64,",
    ),
    Row(
        "embedding range",
        lambda: autograd.embedding(labels([5]), MATRIX),
        IndexError,
        r"\[EmbeddingForward\] index 5 at position 0 is outside \[0, 2\)",
    ),
    Row(
        "embedding neg",
        lambda: autograd.embedding(labels([-1]), MATRIX),
        IndexError,
        r"\[EmbeddingForward\] index -1 at position 0 is outside \[0, 2\)",
    ),
    Row(
        "embedding float",
        lambda: autograd.embedding(make(2) * 0.5, MATRIX),
        ValueError,
        r"\[EmbeddingForward\] index 0\.5 at position 0 is not a whole number",
    ),
    Row(
        "embedding nan",
        lambda: autograd.embedding(labels([NAN], "float32"), MATRIX),
        ValueError,
        r"\[EmbeddingForward\] index nan at position 0 is not a whole number",
    ),
    Row(
        "embedding w rank",
        lambda: autograd.embedding(labels([0]), CUBE),
        ValueError,
        r"\[EmbeddingForward\] W has to be \(vocabulary, width\), got \(2, 3, 4\) float32",
    ),
    Row(
        "onehot depth neg",
        lambda: autograd.onehot(-1, labels([0]), -3, [0, 1]),
        ValueError,
        r"\[OneHot\] depth must not be negative, got -3",
    ),
    Row(
        "onehot depth huge",
        lambda: autograd.onehot(-1, labels([0]), 1 << 61, [0, 1]),
        ValueError,
        r"\[tensor\] shape \(1, 2305843009213693952\) has too many elements",
    ),
    Row(
        "onehot depth mem",
        lambda: autograd.onehot(-1, labels([0]), 1 << 40, [0, 1]),
        MemoryError,
        r"\[OneHot\] a tensor of \(1, 1099511627776\) float32: 4194304 MiB asked for",
    ),
    Row(
        "onehot depth nan",
        lambda: autograd.onehot(-1, labels([0]), NAN, [0, 1]),
        ValueError,
        r"\[OneHot\] depth must be a whole number, got nan",
    ),
    Row(
        "onehot values",
        lambda: autograd.onehot(-1, labels([0]), 3, [0, 1, 2]),
        ValueError,
        r"\[OneHot\] takes one depth and two values \(off, on\), got \(3,\) and \[0, 1, 2\]",
    ),
    Row(
        "onehot axis",
        lambda: autograd.onehot(9, labels([0]), 3, [0, 1]),
        ValueError,
        r"\[OneHot\] axis 9 is outside a tensor of 2 dimensions",
    ),
    Row(
        "nonzero None",
        lambda: autograd.nonzero(None),
        TypeError,
        r"\[NonZero\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "gaussian std neg",
        lambda: MATRIX.gaussian(0, -1),
        ValueError,
        r"\[Gaussian\] mean 0 and std -1 have to be finite, std not negative",
    ),
    Row("gaussian nan", lambda: MATRIX.gaussian(NAN, 1), ValueError, r"\[gaussian\] mean is NaN"),
    Row(
        "gaussian int",
        lambda: INTEGERS.gaussian(0, 1),
        TypeError,
        r"\[Gaussian\] out has to be of a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "gaussian str",
        lambda: MATRIX.gaussian("a", 1),
        TypeError,
        r"\[gaussian\] mean must be a number, got str",
    ),
    Row(
        "uniform high<low",
        lambda: MATRIX.uniform(1, 0),
        ValueError,
        r"\[Uniform\] low 1 and high 0 have to be finite, low not above high",
    ),
    Row("uniform nan", lambda: MATRIX.uniform(0, NAN), ValueError, r"\[uniform\] high is NaN"),
    Row(
        "uniform inf",
        lambda: MATRIX.uniform(0, INF),
        ValueError,
        r"\[Uniform\] low 0 and high inf have to be finite, low not above high",
    ),
    Row(
        "bernoulli 2",
        lambda: MATRIX.bernoulli(2),
        ValueError,
        r"\[Bernoulli\] p 2 is not in \[0, 1\]",
    ),
    Row("bernoulli nan", lambda: MATRIX.bernoulli(NAN), ValueError, r"\[bernoulli\] p is NaN"),
    Row(
        "rnn hidden0",
        lambda: wrap.RnnHandle(SEQUENCE.data, 0, 2),
        ValueError,
        r"\[RnnHandle\] hidden_size has to be between 1 and 16777216, got 0",
    ),
    Row(
        "rnn hidden huge",
        lambda: wrap.RnnHandle(SEQUENCE.data, 1 << 40, 2),
        ValueError,
        r"\[RnnHandle\] hidden_size has to be between 1 and 16777216, got",
    ),
    Row(
        "rnn hidden huge2",
        lambda: wrap.RnnHandle(SEQUENCE.data, 1 << 61, 2),
        ValueError,
        r"\[RnnHandle\] hidden_size has to be between 1 and 16777216, got",
    ),
    Row(
        "rnn layers0",
        lambda: wrap.RnnHandle(SEQUENCE.data, 4, 2, 0),
        ValueError,
        r"\[RnnHandle\] num_layers has to be between 1 and 1024, got 0",
    ),
    Row(
        "rnn layers huge",
        lambda: wrap.RnnHandle(SEQUENCE.data, 4, 2, 1 << 40),
        ValueError,
        r"\[RnnHandle\] num_layers has to be between 1 and 1024, got 1099511627776",
    ),
    Row(
        "rnn layers huge2",
        lambda: wrap.RnnHandle(SEQUENCE.data, 4, 2, 1 << 60),
        ValueError,
        r"\[RnnHandle\] num_layers has to be between 1 and 1024, got",
    ),
    Row(
        "rnn mode",
        lambda: wrap.RnnHandle(SEQUENCE.data, 4, 9),
        ValueError,
        r"\[RnnHandle\] unknown mode 9",
    ),
    Row(
        "rnn dropout",
        lambda: wrap.RnnHandle(SEQUENCE.data, 4, 2, 1, True, 1.5),
        ValueError,
        r"\[RnnHandle\] dropout has to be in \[0, 1\), got 1\.5",
    ),
    Row(
        "rnn rank",
        lambda: wrap.RnnHandle(MATRIX.data, 4, 2),
        ValueError,
        r"\[RnnHandle\] x has to be \(seq, batch, input\), got \(2, 3\) float32 on cpu",
    ),
    Row(
        "rnn x size",
        lambda: autograd.rnn(RNN, make(5, 2, 7), STATE, STATE, WEIGHTS),
        ValueError,
        r"\[RnnForward\] x has to be \(seq > 0, batch, 3\), got \(5, 2, 7\) float32 on cpu",
    ),
    Row(
        "rnn w size",
        lambda: autograd.rnn(RNN, SEQUENCE, STATE, STATE, make(3)),
        ValueError,
        r"\[RnnForward\] W has to have shape \(144,\), got \(3,\) float32 on cpu",
    ),
    Row(
        "rnn hx",
        lambda: autograd.rnn(RNN, SEQUENCE, make(1, 3, 4), STATE, WEIGHTS),
        ValueError,
        r"\[RnnForward\] hx has to have shape \(1, 2, 4\), got \(1, 3, 4\) float32 on cpu",
    ),
    Row(
        "rnn lengths",
        lambda: autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [9, 1]),
        ValueError,
        r"\[RnnForward\] seq_lengths\[0\] = 9 is outside \[0, 5\]",
    ),
    Row(
        "rnn lengths neg",
        lambda: autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [-1, 1]),
        ValueError,
        r"\[RnnForward\] seq_lengths\[0\] = -1 is outside \[0, 5\]",
    ),
    Row(
        "rnn lengths count",
        lambda: autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [1]),
        ValueError,
        r"\[RnnForward\] seq_lengths has to have shape \(2,\), got \(1,\) int32",
    ),
    Row(
        "rnn lengths nan",
        lambda: autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [NAN, 1]),
        ValueError,
        r"\[RNN\] indices have to be whole numbers, got \[nan, 1\.0\]",
    ),
    Row(
        "rnn x None",
        lambda: autograd.rnn(RNN, None, STATE, STATE, WEIGHTS),
        TypeError,
        r"\[RNN\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "rnn empty seq",
        lambda: autograd.rnn(RNN, make(0, 2, 3), STATE, STATE, WEIGHTS),
        ValueError,
        r"\[RnnForward\] x has to be \(seq > 0, batch, 3\), got \(0, 2, 3\) float32 on cpu",
    ),
    Row(
        "einsum",
        lambda: tensor.einsum("ij,jk->ik", MATRIX, MATRIX),
        ValueError,
        r"\[einsum\] ij,jk->ik: 'j' is 3 and 2 long",
    ),
    Row(
        "einsum spec",
        lambda: tensor.einsum("i$,jk", MATRIX, MATRIX),
        ValueError,
        r"\[einsum\] 'i\$,jk' is no sum of products",
    ),
    Row(
        "einsum none",
        lambda: tensor.einsum(None, MATRIX),
        TypeError,
        r"\[einsum\] subscripts have to be a string, got NoneType",
    ),
    Row(
        "tensordot",
        lambda: tensor.tensordot(MATRIX, MATRIX, 1),
        ValueError,
        r"\[tensordot\] axes \[1\] of \(2, 3\) and \[0\] of \(2, 3\) differ in length",
    ),
    Row(
        "tensordot neg",
        lambda: tensor.tensordot(MATRIX, MATRIX, -1),
        ValueError,
        r"\[tensordot\] -1 axes of shapes \(2, 3\) and \(2, 3\)",
    ),
    Row(
        "tensordot str",
        lambda: tensor.tensordot(MATRIX, MATRIX, "a"),
        TypeError,
        r"\[tensordot\] axes has to be a number or a pair of lists, got 'a'",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)
