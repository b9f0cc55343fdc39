"""Layers and models."""

from singa import layer, model, opt
from wrong_call import make, net, table

LINEAR = layer.Linear(4)
LINEAR(make(2, 3))


def second():
    conv = layer.Conv2d(4, 3)
    conv(make(2, 3, 8, 8))
    return conv(make(2, 5, 8, 8))


def second_of_lenet(made):
    made.compile([make(1, 1, 28, 28)])
    made.eval()
    made(make(1, 3, 28, 28))


def trainable():
    return net(optimizer=opt.SGD(lr=0.1))


def limited(limit):
    """A model whose training steps keep to a limit; its parameters have 64 bytes."""
    made = net(compiled=False, optimizer=opt.SGD(lr=0.1))
    made.compile([make(2, 3)], use_graph=True, recompute="auto", memory_limit=limit)
    return made


class Bare(model.Model):
    pass


test_wrong_call = table("""
layer.Conv2d(0, 3)(IMAGES) -> ValueError: [Conv2d] nb_kernels 1 0
layer.Conv2d(-1, 3)(IMAGES) -> ValueError: [Conv2d] nb_kernels 1 -1
layer.Conv2d(NAN, 3)(IMAGES) -> ValueError: [Conv2d] nb_kernels nan
layer.Conv2d("a", 3)(IMAGES) -> TypeError: [Conv2d] nb_kernels str
layer.Conv2d(None, 3)(IMAGES) -> TypeError: [Conv2d] nb_kernels NoneType
layer.Conv2d(1 << 31, 3)(IMAGES) -> ValueError: [SetupRecorder] out_channels 1 2147483647 2147483648
layer.Conv2d(1 << 62, 3)(IMAGES)
    -> ValueError: [SetupRecorder] out_channels 1 2147483647 4611686018427387904
layer.Conv2d(4, NAN)(IMAGES) -> TypeError: [Conv2d] kernel_size nan
layer.Conv2d(4, 0)(IMAGES) -> ValueError: [Conv2d] kernel_size 1 (0, 0)
layer.Conv2d(4, -3)(IMAGES) -> ValueError: [Conv2d] kernel_size 1 (-3, -3)
layer.Conv2d(4, (3, 3, 3))(IMAGES) -> TypeError: [Conv2d] kernel_size (3, 3, 3)
layer.Conv2d(4, 3, stride=0)(IMAGES) -> ValueError: [Conv2d] stride 1 (0, 0)
layer.Conv2d(4, 3, stride=0, pad_mode="SAME_UPPER")(IMAGES)
    -> ValueError: [Conv2d] stride 1 (0, 0)
layer.Conv2d(4, 3, padding=-1)(IMAGES) -> ValueError: [SetupRecorder] padding 0 2147483647 (-1, -1)
layer.Conv2d(4, 3, padding=NAN)(IMAGES) -> TypeError: [Conv2d] padding nan
layer.Conv2d(4, 3, pad_mode="VALID")
    -> ValueError: [Conv2d] pad_mode NOTSET SAME_UPPER SAME_LOWER VALID
layer.Conv2d(4, 3, activation="TANH") -> ValueError: [Conv2d] activation NOTSET RELU TANH
layer.Conv2d(4, 3, group=2)(IMAGES) -> ValueError: [Conv2d] group 2 3 4
layer.Conv2d(4, 3, group=0)(IMAGES) -> ValueError: [Conv2d] group 0 3 4
layer.Conv2d(4, 3, group=NAN)(IMAGES) -> ValueError: [Conv2d] group nan
layer.Conv2d(4, 3, colour="red") -> TypeError: [Conv2d] colour
layer.Conv2d(4, 3, cudnn_prefer="warp")
    -> ValueError: [prefer] warp fastest limited_workspace no_workspace
layer.Conv2d(4, 3, cudnn_prefer="warp")(IMAGES)
    -> ValueError: [prefer] warp fastest limited_workspace no_workspace
layer.Conv2d(4, 3, workspace_MB_limit=-1)(IMAGES) -> ValueError: [Conv2d] workspace_MB_limit -1
layer.Conv2d(4, 3, workspace_MB_limit=NAN)(IMAGES) -> ValueError: [Conv2d] workspace_MB_limit nan
layer.Conv2d(4, 3)(MATRIX) -> ValueError: [Conv2d] (batch, channels, height, width) (2, 3)
layer.Conv2d(4, 3)(make(2, 3, 8, 8, dtype="int32")) -> TypeError: [ConvForward] x (2, 3, 8, 8) int32
layer.Conv2d(4, 3)(None) -> TypeError: [Conv2d] NoneType
layer.Conv2d(4, 3)(np.ones((2, 3, 8, 8), "f4")) -> TypeError: [Conv2d] ndarray
layer.Conv2d(4, 3)() -> TypeError: Conv2d.initialize() 1 x
layer.Conv2d(4, 3, initializer="he")(IMAGES) -> TypeError: str callable
layer.SeparableConv2d(4, 3)(MATRIX)
    -> ValueError: [SeparableConv2d] (batch, channels, height, width) (2, 3)
layer.Linear(0)(MATRIX) -> ValueError: [Linear] out_features 1 0
layer.Linear(-4)(MATRIX) -> ValueError: [Linear] out_features 1 -4
layer.Linear(NAN)(MATRIX) -> ValueError: [Linear] out_features nan
layer.Linear("a")(MATRIX) -> TypeError: [Linear] out_features str
layer.Linear(BIG)(MATRIX) -> MemoryError: [Full] (3, 1099511627776) float32 12582912
layer.Linear(1 << 62)(MATRIX) -> ValueError: [tensor] (3, 4611686018427387904)
layer.Linear(5, 4)(MATRIX) -> ValueError: [Linear] in_features 5 (2, 3)
layer.Linear(4, foo=1) -> TypeError: [Linear] foo out_features
layer.Linear(4)(tensor.Tensor(())) -> ValueError: [Linear] (batch, features) ()
layer.Linear(4)(None) -> TypeError: [Linear] NoneType
layer.Linear(4)(make(2, 3, dtype="int32")) -> TypeError: [LinearForward] x (2, 3) int32
layer.Gemm(4, bias_shape=(7,))(MATRIX) -> ValueError: [Gemm] C (7,) (2, 4)
layer.Gemm(4)(IMAGES) -> ValueError: [Gemm] A (2, 3, 8, 8) float32 B (4, 8) float32
layer.BatchNorm2d(momentum=2) -> ValueError: [BatchNorm2d] momentum [0, 1] 2
layer.BatchNorm2d(momentum=NAN) -> ValueError: [BatchNorm2d] momentum NaN
layer.BatchNorm2d(eps=-1)(IMAGES) -> ValueError: [BatchNorm2d] eps -1
layer.BatchNorm2d(4)(IMAGES) -> ValueError: [BatchNorm2d] (batch, 4, ...) (2, 3, 8, 8)
layer.BatchNorm2d()(make(3)) -> ValueError: [BatchNorm2d] (batch, channels, ...) (3,)
layer.BatchNorm2d(momentum="a") -> TypeError: [BatchNorm2d] momentum str
layer.MaxPool2d(0)(IMAGES) -> ValueError: [MaxPool2d] kernel_size 1 (0, 0)
layer.MaxPool2d(9)(IMAGES) -> ValueError: [Pooling] kernel 9 dilation 1 9 8 8
layer.MaxPool2d(2, 0)(IMAGES) -> ValueError: [MaxPool2d] stride 1 (0, 0)
layer.MaxPool2d(2, 0, pad_mode="SAME_LOWER")(IMAGES)
    -> ValueError: [MaxPool2d] stride 1 (0, 0)
layer.AvgPool2d(2, 2, 5)(IMAGES)
    -> ValueError: [Pooling] padding (5, 5) kernel (2, 2) dilation (1, 1)
layer.MaxPool2d(2)(MATRIX) -> ValueError: [Pooling] input (N, C, H, W) (2, 3)
layer.Dropout(1.0) -> ValueError: [Dropout] ratio [0, 1) 1
layer.Dropout(NAN) -> ValueError: [Dropout] ratio NaN
layer.Dropout("a") -> TypeError: [Dropout] ratio str
layer.Embedding(5, 2)(make(3, dtype="int32") * 9) -> IndexError: [EmbeddingForward] 9 0 [0, 5)
layer.Embedding(-5, 2)(make(3, dtype="int32")) -> ValueError: [Embedding] input_dim 1 -5
layer.Embedding(5, 2).from_pretrained(make(4, 2)) -> ValueError: [from_pretrained] W (4, 2) (5, 2)
layer.RNN(3, 4)(MATRIX, make(2, 4)) -> TypeError: [RNN] list inputs
layer.RNN(5, 4)([MATRIX], make(2, 4)) -> ValueError: [RNN] input_size 5 (2, 3)
layer.LSTM(3, 4)([MATRIX], make(2, 4)) -> TypeError: [LSTM] (h0, c0) Tensor
layer.CudnnRNN(4, rnn_mode="xyz")(make(2, 5, 3))
    -> ValueError: [CudnnRNN] rnn_mode 'xyz' gru lstm relu tanh
layer.CudnnRNN(4)(MATRIX) -> ValueError: [CudnnRNN] batch steps features (2, 3)
layer.Cat(5)([MATRIX, MATRIX]) -> ValueError: [Concat] axis 5 2
layer.SoftMaxCrossEntropy()(MATRIX, make(5))
    -> ValueError: [SoftmaxCrossEntropyForward] t (2) (2, 3) (5,)
layer.ReLU()(None) -> TypeError: [ReLU] NoneType
LINEAR.set_params({"W": np.ones((9, 9))}) -> ValueError: [set_params] W (9, 9) (3, 4)
LINEAR.set_params({"Q": np.ones((9, 9))})
    -> ValueError: [set_params] Linear missing: W, b unexpected: Q
LINEAR.set_params({"W": np.ones((3, 4))}) -> ValueError: [set_params] Linear missing: b
LINEAR.set_params({"W": np.ones((9, 9))}, strict=False) -> ValueError: [set_params] W (9, 9) (3, 4)
LINEAR(make(2, 3).as_type("float16"))
    -> TypeError: [Linear] float16 float32 as_type to_type autocast
LINEAR(make(2, 3).as_type("float64"))
    -> TypeError: [Linear] float64 float32 as_type to_type autocast
LINEAR.dtype_check(make(2, 3).as_type("bfloat16"), LINEAR.W)
    -> TypeError: [Linear] bfloat16 float32 as_type to_type autocast
LINEAR.to_type("int32") -> TypeError: [to_type] int32
LINEAR.to_type("complex64") -> TypeError: [dtype] complex64
layer.Linear(4).to_type("float64") -> ValueError: [to_type] Linear float64
LINEAR.freeze("fc.*") -> ValueError: [freeze] Linear fc.*
LINEAR.freeze(["W", "c"]) -> ValueError: [freeze] Linear 'c'
LINEAR.freeze(5) -> TypeError: [freeze] pattern 5
LINEAR.freeze([True]) -> TypeError: [freeze] pattern True
layer.ModuleList([layer.Linear]) -> TypeError: [ModuleList] layers Linear(...)
layer.ModuleDict({"a": 1}) -> TypeError: [ModuleDict] layers int
layer.ModuleDict({1: layer.ReLU()}) -> TypeError: [ModuleDict] names 1
layer.ModuleDict({"forward": layer.ReLU()}) -> ValueError: [ModuleDict] forward
layer.ModuleDict({"a.b": layer.ReLU()}) -> ValueError: [ModuleDict] a.b
layer.ModuleDict().pop("a") -> KeyError: a
LINEAR.set_params({"W": "a"}) -> TypeError: [set_params] W <U1
LINEAR.set_params(None) -> TypeError: [set_params] dict NoneType
LINEAR.set_params({"W": [[1.0]]}) -> ValueError: [set_params] W (1, 1) (3, 4)
LINEAR.set_params({"W": np.ones((3, 4), "c8")}) -> TypeError: [set_params] W 1.+0.j
LINEAR.set_states({"Q": 1}) -> ValueError: [set_states] Linear missing: W, b unexpected: Q
net()(MATRIX, LABELS) -> AttributeError: [Net] set_optimizer()
trainable()(MATRIX) -> TypeError: Net.train_one_batch() 1 y eval()
trainable()(MATRIX, LABELS, LABELS) -> TypeError: Net.train_one_batch() 3 4
trainable()(None, LABELS) -> TypeError: [Linear] NoneType
trainable()(MATRIX, LABELS, foo=1) -> TypeError: Net.train_one_batch() foo
trainable()(make(2, 9), LABELS) -> ValueError: [LinearForward] x (2, 9) 9 W (3, 4) 3
trainable()(MATRIX, make(2, dtype="int32") * 9)
    -> IndexError: [SoftmaxCrossEntropyForward] index 9 position 0 [0, 4)
(n := trainable(), n.eval(), n(MATRIX, LABELS)) -> TypeError: Net.forward() 2 3 train()
net(compiled=False).compile(None) -> TypeError: [compile] list None
net(compiled=False).compile([]) -> TypeError: [compile] list []
net(compiled=False).compile([np.array(["a"])]) -> TypeError: [compile] ndarray
net(compiled=False).compile(MATRIX) -> TypeError: [compile] Tensor
net(compiled=False).compile([MATRIX], foo=1) -> TypeError: [compile] foo is_train
net(compiled=False).compile([MATRIX, MATRIX]) -> TypeError: Net.forward() 2 3
net(compiled=False).compile([MATRIX], recompute="often")
    -> ValueError: [compile] recompute True False None "auto" 'often'
net(compiled=False).compile([MATRIX], recompute=2) -> TypeError: [compile] recompute "auto" 2
net(compiled=False).compile([MATRIX], recompute=MATRIX) -> TypeError: [compile] recompute "auto"
net(compiled=False).compile([MATRIX], use_graph=True, recompute="auto")
    -> ValueError: [compile] memory_limit recompute="auto" None
net(compiled=False).compile([MATRIX], use_graph=True, memory_limit="1 GiB")
    -> ValueError: [compile] memory_limit recompute="auto" '1 GiB' None
net(compiled=False).compile([MATRIX], recompute="auto", memory_limit="1 GiB")
    -> ValueError: [compile] memory_limit use_graph=True
limited(-5) -> ValueError: [compile] memory_limit 1 -5
limited(0) -> ValueError: [compile] memory_limit 1 0
limited(1.5) -> ValueError: [compile] memory_limit 1.5
limited(NAN) -> ValueError: [compile] memory_limit nan
limited(True) -> TypeError: [compile] memory_limit bytes True
limited([1]) -> TypeError: [compile] memory_limit list
limited("") -> ValueError: [compile] memory_limit "1.5 GiB" ''
limited("800") -> ValueError: [compile] memory_limit "1.5 GiB" '800'
limited("-1 GiB") -> ValueError: [compile] memory_limit "1.5 GiB" '-1 GiB'
limited("much") -> ValueError: [compile] memory_limit "1.5 GiB" 'much'
limited("0.1 B") -> ValueError: [compile] memory_limit "1.5 GiB" '0.1 B'
limited("3 parsecs") -> ValueError: [compile] memory_limit "1.5 GiB" '3 parsecs'
limited("24 B")(MATRIX, LABELS) -> MemoryError: [compile] memory_limit 0.1 KiB parameters
singa.advise(trainable(), MATRIX, LABELS, memory_limit="800")
    -> ValueError: [advise] memory_limit "1.5 GiB" '800'
singa.advise(trainable(), MATRIX, LABELS, memory_limit=-5)
    -> ValueError: [advise] memory_limit 1 -5
Bare().compile([MATRIX]) -> NotImplementedError: Bare forward()
Bare()(MATRIX) -> NotImplementedError: Bare train_one_batch() eval()
(n := trainable(), n.set_optimizer(None), n(MATRIX, LABELS))
    -> TypeError: [set_optimizer] optimizer None
trainable().set_optimizer("sgd") -> TypeError: [set_optimizer] sgd
trainable().set_optimizer(opt.SGD)
    -> TypeError: [set_optimizer] class SGD set_optimizer(SGD(lr=0.1))
setattr(trainable(), "optimizer", opt.DistOpt) -> TypeError: [set_optimizer] class DistOpt
net(compiled=False).summary() -> RuntimeError: [summary] compile
net(compiled=False).save_states("never.zip") -> RuntimeError: [save_states] Net compile()
trainable().save_states("never.zip", {"a": object()}) -> TypeError: [save_states] a object
trainable().save_states("never.zip", {"fc.W": np.ones(1)})
    -> ValueError: [save_states] aux_states fc.W
trainable().memory_plan() -> RuntimeError: [memory_plan] use_graph=True
trainable().set_states({"fc.W": np.ones((1, 1))}) -> ValueError: [set_states] fc.W (1, 1) (3, 4)
trainable().load_torch(None) -> TypeError: [load_torch] NoneType
trainable().load_torch({"a": 1}) -> ValueError: [load_torch] missing fc.weight fc.bias unexpected a
trainable().load_torch({"fc.weight": object(), "fc.bias": np.ones(4)})
    -> TypeError: [load_torch] fc.weight object
singa.models.create("resnet9000") -> ValueError: [models.create] resnet9000
singa.models.create("lenet", num_classes=0) -> ValueError: [LeNet] num_classes 0
singa.models.create("lenet", num_classes=NAN) -> ValueError: [LeNet] num_classes nan
singa.models.create("lenet", foo=0) -> TypeError: [models.create('lenet')] foo num_classes
singa.models.create("lenet").compile([make(1, 1, 2, 2)])
    -> ValueError: [SetupRecorder] kernel 5 dilation 1 5 2
second_of_lenet(singa.models.create("lenet"))
    -> ValueError: [ConvForward] input 3 handle 1 (1, 3, 28, 28)
second() -> ValueError: [ConvForward] input 5 handle 3 (2, 5, 8, 8)
""")
