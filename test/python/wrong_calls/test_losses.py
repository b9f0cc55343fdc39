"""Losses, indexing, random numbers, recurrent layers, tensordot and einsum."""

from singa import singa_wrap as wrap
from wrong_call import make, table

SEQUENCE, STATE = make(5, 2, 3), make(1, 2, 4)
RNN = wrap.RnnHandle(SEQUENCE.data, 4, wrap.RnnMode_kLstm)
WEIGHTS = make(RNN.weights_size)

test_wrong_call = table("""
autograd.softmax_cross_entropy(MATRIX, labels([0, 3]))
    -> IndexError: [SoftmaxCrossEntropyForward] index 3 position 1 [0, 3)
autograd.softmax_cross_entropy(MATRIX, labels([0, -1]))
    -> IndexError: [SoftmaxCrossEntropyForward] index -1 position 1 [0, 3)
autograd.softmax_cross_entropy(MATRIX, labels([0, 1.5], "float32"))
    -> ValueError: [SoftmaxCrossEntropyForward] index 1.5 position 1
autograd.softmax_cross_entropy(MATRIX, labels([0, NAN], "float32"))
    -> ValueError: [SoftmaxCrossEntropyForward] index nan position 1
autograd.softmax_cross_entropy(MATRIX, labels([0, 1e30], "float32"))
    -> IndexError: [SoftmaxCrossEntropyForward] index position 1 [0, 3)
autograd.softmax_cross_entropy(MATRIX, labels([0, BIG], "int64"))
    -> IndexError: [SoftmaxCrossEntropyForward] index 1099511627776 position 1 [0, 3)
autograd.softmax_cross_entropy(MATRIX, labels([0, 1, 2]))
    -> ValueError: [SoftmaxCrossEntropyForward] t (2) (2, 3) (3,) int32
autograd.softmax_cross_entropy(MATRIX, make(2, 4))
    -> ValueError: [SoftmaxCrossEntropyForward] t (2) (2, 3) (2, 4)
autograd.softmax_cross_entropy(make(3), labels([0]))
    -> ValueError: [SoftmaxCrossEntropyForward] x (N, C) 0 (3,) float32
autograd.softmax_cross_entropy(CUBE, LABELS)
    -> ValueError: [softmax_cross_entropy] x (2, 3, 4) t (2,)
autograd.softmax_cross_entropy(CUBE, CUBE, ignore_index=1)
    -> ValueError: [softmax_cross_entropy] ignore_index
autograd.softmax_cross_entropy(MATRIX, LABELS, weight=[1.0, 2.0])
    -> ValueError: [softmax_cross_entropy] weight (3,) (2,)
autograd.softmax_cross_entropy(MATRIX, LABELS, reduction="avg")
    -> ValueError: [softmax_cross_entropy] reduction mean sum none 'avg'
autograd.softmax_cross_entropy(MATRIX, LABELS, ignore_index=0.5)
    -> ValueError: [softmax_cross_entropy] ignore_index 0.5
autograd.softmax_cross_entropy(MATRIX, labels([0, 1.5], "float32"), ignore_index=0)
    -> ValueError: [softmax_cross_entropy] 1.5
autograd.softmax_cross_entropy(INTEGERS, LABELS, ignore_index=0)
    -> TypeError: [softmax_cross_entropy] x (2, 3) int32
autograd.nll_loss(MATRIX, MATRIX) -> ValueError: [nll_loss] x (2, 3) t (2, 3)
autograd.nll_loss(MATRIX, labels([0, 3])) -> IndexError: 3
autograd.nll_loss(MATRIX, labels([0, -1])) -> IndexError: 3
autograd.l1_loss(MATRIX, LABELS) -> ValueError: [l1_loss] t x (2, 3) (2,)
autograd.huber_loss(MATRIX, MATRIX, delta=0) -> ValueError: [huber_loss] delta 0
autograd.smooth_l1_loss(MATRIX, MATRIX, beta=-1.0) -> ValueError: [smooth_l1_loss] beta -1.0
autograd.mse_loss(MATRIX, MATRIX, "all") -> ValueError: [mse_loss] mean sum none all
autograd.kl_div(MATRIX, MATRIX, "batch") -> ValueError: [kl_div] reduction mean sum none batch
autograd.dice_loss(MATRIX, MATRIX) -> ValueError: [dice_loss] (2, 3) (2, 3)
autograd.sigmoid_focal_loss(MATRIX, MATRIX, gamma="a") -> TypeError: [sigmoid_focal_loss] gamma str
autograd.softmax_cross_entropy(INTEGERS, LABELS)
    -> TypeError: [SoftmaxCrossEntropyForward] x (2, 3) int32
autograd.softmax_cross_entropy(MATRIX, LABELS, 1.5)
    -> ValueError: [SoftMaxCrossEntropy] smoothing [0, 1] 1.5
autograd.softmax_cross_entropy(MATRIX, LABELS, -0.1)
    -> ValueError: [SoftMaxCrossEntropy] smoothing [0, 1] -0.1
autograd.softmax_cross_entropy(MATRIX, LABELS, NAN)
    -> ValueError: [SoftMaxCrossEntropy] smoothing NaN
autograd.softmax_cross_entropy(MATRIX, None) -> TypeError: [tensor] object
autograd.softmax_cross_entropy(MATRIX, "a") -> TypeError: [tensor] <U1
autograd.softmax_cross_entropy(make(2, 0), labels([0, 0]))
    -> ValueError: [SoftmaxCrossEntropyForward] x (N, C) 0 (2, 0) float32
autograd.cross_entropy(MATRIX, make(2, 4))
    -> ValueError: [CrossEntropyForward] t p (2, 3) (2, 4) float32
autograd.cross_entropy(MATRIX, labels([0, 7]))
    -> ValueError: [cross_entropy] x t (2, 3) (2,) softmax_cross_entropy
autograd.binary_cross_entropy(MATRIX, make(5))
    -> ValueError: [BinaryCrossEntropyForward] t p (2, 3) (5,) float32
autograd.mse_loss(MATRIX, make(5)) -> ValueError: [MeanSquareErrorForward] t x (2, 3) (5,) float32
autograd.mse_loss(INTEGERS, INTEGERS) -> TypeError: [MeanSquareErrorForward] x (2, 3) int32
autograd.mse_loss(MATRIX, None) -> TypeError: [tensor] object
autograd.ranking_loss(MATRIX, make(5))
    -> ValueError: [RankingLossForward] negative positive (2, 3) (5,)
autograd.ranking_loss(MATRIX, MATRIX, NAN) -> ValueError: [RankingLoss] M NaN
wrap.SoftmaxCrossEntropyBackward(make(5).data, MATRIX.data, LABELS.data, 0.0)
    -> ValueError: [SoftmaxCrossEntropyBackward] dy (5,) float32
autograd.gather(CUBE, 0, [5]) -> IndexError: [Gather] 5 0 [-2, 2)
autograd.gather(CUBE, 9, [0]) -> ValueError: [Gather] axis 9 3
autograd.gather(CUBE, 0, [0.5]) -> ValueError: [Gather] indices [0.5]
autograd.gather(CUBE, 0, [NAN]) -> ValueError: [Gather] indices [nan]
autograd.gather(CUBE, 0, np.array([BIG])) -> IndexError: [Gather] 1099511627776 0 [-2, 2)
autograd.gather(CUBE, 0, None) -> TypeError: [tensor] object
autograd.gather(CUBE, 0, "a") -> TypeError: [tensor] <U1
autograd.gather(CUBE, 0, [True, False]) -> TypeError: [Gather] indices (2,) bool
autograd.gather(CUBE, 0, make(2) * 0.5) -> ValueError: [Gather] indices [0.5, 0.5]
autograd.gather_elements(MATRIX, [[3, 0]], 1) -> IndexError: [GatherElements] 3 0 [-3, 3)
autograd.gather_elements(MATRIX, [[0], [1], [0]], 1)
    -> ValueError: [GatherElements] indices (3, 1) x (2, 3) axis 1
autograd.gather_elements(MATRIX, [[0.5]], 1) -> ValueError: [GatherElements] 0.5
autograd.gather_elements(MATRIX, [[0]], 2) -> ValueError: [GatherElements] axis 2 2
autograd.take_along_axis(MATRIX, [0], 1) -> ValueError: [take_along_axis] axis 1 x (2, 3) (1,)
autograd.gather_nd(MATRIX, [[0, 3]]) -> IndexError: [GatherND] 3 1 [-3, 3)
autograd.gather_nd(MATRIX, [[0, 0, 0]]) -> ValueError: [GatherND] (1, 3) x (2, 3)
autograd.gather_nd(MATRIX, [[0]], 2) -> ValueError: [GatherND] batch_dims 2 (1, 1) (2, 3)
autograd.gather_nd(MATRIX, [[0]], -1) -> ValueError: [GatherND] batch_dims -1
autograd.scatter_nd(MATRIX, [[2]], make(1, 3)) -> IndexError: [ScatterND] 2 0 [-2, 2)
autograd.scatter_nd(MATRIX, [[0]], make(3)) -> ValueError: [ScatterND] updates (1, 3) (3,)
autograd.scatter_nd(MATRIX, [[0]], make(1, 3), "mean")
    -> ValueError: [ScatterND] reduction none add mul max min 'mean'
autograd.topk(MATRIX, 4) -> ValueError: [TopK] k [0, 3] axis -1 x (2, 3) 4
autograd.topk(MATRIX, 1.5) -> ValueError: [TopK] k 1.5
autograd.topk(MATRIX, 1, 2) -> ValueError: [TopK] axis 2 2
autograd.sort(MATRIX, 5) -> ValueError: [TopK] axis 5 2
autograd.cumsum(MATRIX, 2) -> ValueError: [CumSum] axis 2 2
autograd.cumsum(MATRIX, None) -> TypeError: [CumSum] axis NoneType
autograd.triu(make(3)) -> ValueError: [Triangle] (3,)
autograd.tril(MATRIX, 0.5) -> ValueError: [Triangle] k 0.5
autograd.arange(1, 5, 0) -> ValueError: [arange] 1 5 0
autograd.arange(0, INF) -> ValueError: [arange] 0 inf 1
autograd.arange(NAN) -> ValueError: [arange] stop NaN
autograd.scatter_elements(MATRIX, [[0, 1, 9]], [[1.0, 1, 1]])
    -> IndexError: [ScatterElements] 9 2 [-2, 2)
autograd.scatter_elements(MATRIX, [[0, 1]], [[1.0, 1, 1]])
    -> ValueError: [ScatterElements] updates (1, 2) (1, 3) float32
autograd.scatter_elements(MATRIX, [[0, 1, 1]], [[1.0, 1, 1]], 5)
    -> ValueError: [ScatterElements] axis 5 2
autograd.scatter_elements(MATRIX, np.zeros((2, 9), int), np.ones((2, 9), "f4"), 0)
    -> ValueError: [ScatterElements] indices (2, 9) x (2, 3)
autograd.scatter_elements(MATRIX, [[0, 1, 1]], None) -> TypeError: [tensor] object
autograd.embedding(labels([5]), MATRIX) -> IndexError: [EmbeddingForward] 5 0 [0, 2)
autograd.embedding(labels([-1]), MATRIX) -> IndexError: [EmbeddingForward] -1 0 [0, 2)
autograd.embedding(make(2) * 0.5, MATRIX) -> ValueError: [EmbeddingForward] 0.5 0
autograd.embedding(labels([NAN], "float32"), MATRIX) -> ValueError: [EmbeddingForward] nan 0
autograd.embedding(labels([0]), CUBE)
    -> ValueError: [EmbeddingForward] W (vocabulary, width) (2, 3, 4) float32
autograd.onehot(-1, labels([0]), -3, [0, 1]) -> ValueError: [OneHot] depth -3
autograd.onehot(-1, labels([0]), 1 << 61, [0, 1]) -> ValueError: [broadcast] (2305843009213693952,)
autograd.onehot(-1, labels([0]), BIG, [0, 1])
    -> MemoryError: [OneHot] (1, 1099511627776) float32 4194304
autograd.onehot(-1, labels([0]), NAN, [0, 1]) -> ValueError: [OneHot] depth nan
autograd.onehot(-1, labels([0]), 3, [0, 1, 2]) -> ValueError: [OneHot] depth values (3,) [0, 1, 2]
autograd.onehot(9, labels([0]), 3, [0, 1]) -> ValueError: [OneHot] axis 9 2
autograd.nonzero(None) -> TypeError: [NonZero] NoneType
MATRIX.gaussian(0, -1) -> ValueError: [Gaussian] mean 0 std -1
MATRIX.gaussian(NAN, 1) -> ValueError: [gaussian] mean NaN
INTEGERS.gaussian(0, 1) -> TypeError: [Gaussian] out (2, 3) int32
MATRIX.gaussian("a", 1) -> TypeError: [gaussian] mean str
MATRIX.uniform(1, 0) -> ValueError: [Uniform] low 1 high 0
MATRIX.uniform(0, NAN) -> ValueError: [uniform] high NaN
MATRIX.uniform(0, INF) -> ValueError: [Uniform] low 0 high inf
MATRIX.bernoulli(2) -> ValueError: [Bernoulli] p 2 [0, 1]
MATRIX.bernoulli(NAN) -> ValueError: [bernoulli] p NaN
wrap.RnnHandle(SEQUENCE.data, 0, 2) -> ValueError: [RnnHandle] hidden_size 1 16777216 0
wrap.RnnHandle(SEQUENCE.data, BIG, 2)
    -> ValueError: [RnnHandle] hidden_size 1 16777216 1099511627776
wrap.RnnHandle(SEQUENCE.data, 1 << 61, 2)
    -> ValueError: [RnnHandle] hidden_size 1 16777216 2305843009213693952
wrap.RnnHandle(SEQUENCE.data, 4, 2, 0) -> ValueError: [RnnHandle] num_layers 1 1024 0
wrap.RnnHandle(SEQUENCE.data, 4, 2, BIG) -> ValueError: [RnnHandle] num_layers 1 1024 1099511627776
wrap.RnnHandle(SEQUENCE.data, 4, 2, 1 << 60)
    -> ValueError: [RnnHandle] num_layers 1 1024 1152921504606846976
wrap.RnnHandle(SEQUENCE.data, 4, 9) -> ValueError: [RnnHandle] mode 9
wrap.RnnHandle(SEQUENCE.data, 4, 2, 1, True, 1.5) -> ValueError: [RnnHandle] dropout [0, 1) 1.5
wrap.RnnHandle(MATRIX.data, 4, 2) -> ValueError: [RnnHandle] x (seq, batch, input) (2, 3) float32
autograd.rnn(RNN, make(5, 2, 7), STATE, STATE, WEIGHTS)
    -> ValueError: [RnnForward] x (seq > 0, batch, 3) (5, 2, 7) float32
autograd.rnn(RNN, SEQUENCE, STATE, STATE, make(3)) -> ValueError: [RnnForward] W (144,) (3,) float32
autograd.rnn(RNN, SEQUENCE, make(1, 3, 4), STATE, WEIGHTS)
    -> ValueError: [RnnForward] hx (1, 2, 4) (1, 3, 4) float32
autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [9, 1])
    -> ValueError: [RnnForward] seq_lengths [0] 9 [0, 5]
autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [-1, 1])
    -> ValueError: [RnnForward] seq_lengths [0] -1 [0, 5]
autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [1])
    -> ValueError: [RnnForward] seq_lengths (2,) (1,) int32
autograd.rnn(RNN, SEQUENCE, STATE, STATE, WEIGHTS, [NAN, 1]) -> ValueError: [RNN] indices [nan, 1.0]
autograd.rnn(RNN, None, STATE, STATE, WEIGHTS) -> TypeError: [RNN] NoneType
autograd.rnn(RNN, make(0, 2, 3), STATE, STATE, WEIGHTS)
    -> ValueError: [RnnForward] x (seq > 0, batch, 3) (0, 2, 3) float32
tensor.einsum("ij,jk->ik", MATRIX, MATRIX) -> ValueError: [einsum] ij,jk->ik j 3 2
tensor.einsum("i$,jk", MATRIX, MATRIX) -> ValueError: [einsum] i$,jk
tensor.einsum(None, MATRIX) -> TypeError: [einsum] subscripts NoneType
tensor.tensordot(MATRIX, MATRIX, 1) -> ValueError: [tensordot] axes [1] (2, 3) [0] (2, 3)
tensor.tensordot(MATRIX, MATRIX, -1) -> ValueError: [tensordot] -1 axes (2, 3) (2, 3)
tensor.tensordot(MATRIX, MATRIX, "a") -> TypeError: [tensordot] axes 'a'
""")
