"""Layers and models."""

import numpy as np
import singa
from singa import layer, model, opt, tensor
from wrong_call import NAN, Row, check, make, parametrize

IMAGES, MATRIX = make(2, 3, 8, 8), make(2, 3)
LABELS = tensor.Tensor(data=np.array([0, 1]), dtype="int32")
BIG = 1 << 40
LINEAR = layer.Linear(4)
LINEAR(MATRIX)


def second():
    conv = layer.Conv2d(4, 3)
    conv(IMAGES)
    return conv(make(2, 5, 8, 8))


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.fc = layer.Linear(4)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.fc(x)

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss


class Bare(model.Model):
    pass


def net(compiled=True, optimizer=True):
    made = Net()
    if optimizer:
        made.set_optimizer(opt.SGD(lr=0.1))
    if compiled:
        made.compile([MATRIX], is_train=True)
    return made


ROWS = [
    Row(
        "Conv2d nb 0",
        lambda: layer.Conv2d(0, 3)(IMAGES),
        ValueError,
        r"\[Conv2d\] nb_kernels must be at least 1, got 0",
    ),
    Row(
        "Conv2d nb neg",
        lambda: layer.Conv2d(-1, 3)(IMAGES),
        ValueError,
        r"\[Conv2d\] nb_kernels must be at least 1, got -1",
    ),
    Row(
        "Conv2d nb nan",
        lambda: layer.Conv2d(NAN, 3)(IMAGES),
        ValueError,
        r"\[Conv2d\] nb_kernels must be a whole number, got nan",
    ),
    Row(
        "Conv2d nb str",
        lambda: layer.Conv2d("a", 3)(IMAGES),
        TypeError,
        r"\[Conv2d\] nb_kernels must be an integer, got str",
    ),
    Row(
        "Conv2d nb None",
        lambda: layer.Conv2d(None, 3)(IMAGES),
        TypeError,
        r"\[Conv2d\] nb_kernels must be an integer, got NoneType",
    ),
    Row(
        "Conv2d nb huge",
        lambda: layer.Conv2d(1 << 31, 3)(IMAGES),
        ValueError,
        r"\[SetupRecorder\] out_channels must be between 1 and 2147483647; got",
    ),
    Row(
        "Conv2d nb huge2",
        lambda: layer.Conv2d(1 << 62, 3)(IMAGES),
        ValueError,
        r"\[SetupRecorder\] out_channels must be between 1 and 2147483647; got",
    ),
    Row(
        "Conv2d kernel nan",
        lambda: layer.Conv2d(4, NAN)(IMAGES),
        TypeError,
        r"\[Conv2d\] kernel_size must be an int or two, got nan",
    ),
    Row(
        "Conv2d kernel 0",
        lambda: layer.Conv2d(4, 0)(IMAGES),
        ValueError,
        r"\[Conv2d\] kernel_size and stride have to be at least 1, got \(0, 0\) and \(1,",
    ),
    Row(
        "Conv2d kernel neg",
        lambda: layer.Conv2d(4, -3)(IMAGES),
        ValueError,
        r"\[Conv2d\] kernel_size and stride have to be at least 1, got \(-3, -3\) and",
    ),
    Row(
        "Conv2d kernel 3tuple",
        lambda: layer.Conv2d(4, (3, 3, 3))(IMAGES),
        TypeError,
        r"\[Conv2d\] kernel_size must be an int or two, got \(3, 3, 3\)",
    ),
    Row(
        "Conv2d stride 0",
        lambda: layer.Conv2d(4, 3, stride=0)(IMAGES),
        ValueError,
        r"\[Conv2d\] kernel_size and stride have to be at least 1, got \(3, 3\) and \(0,",
    ),
    Row(
        "Conv2d stride0 SAME",
        lambda: layer.Conv2d(4, 3, stride=0, pad_mode="SAME_UPPER")(IMAGES),
        ValueError,
        r"\[Conv2d\] kernel_size and stride have to be at least 1, got \(3, 3\) and \(0,",
    ),
    Row(
        "Conv2d pad neg",
        lambda: layer.Conv2d(4, 3, padding=-1)(IMAGES),
        ValueError,
        r"\[SetupRecorder\] padding must be between 0 and 2147483647; got \(-1, -1\)",
    ),
    Row(
        "Conv2d pad nan",
        lambda: layer.Conv2d(4, 3, padding=NAN)(IMAGES),
        TypeError,
        r"\[Conv2d\] padding must be an int or two, got nan",
    ),
    Row(
        "Conv2d pad_mode",
        lambda: layer.Conv2d(4, 3, pad_mode="VALID"),
        ValueError,
        r"\[Conv2d\] pad_mode must be one of \('NOTSET', 'SAME_UPPER', 'SAME_LOWER'\),",
    ),
    Row(
        "Conv2d activation",
        lambda: layer.Conv2d(4, 3, activation="TANH"),
        ValueError,
        r"\[Conv2d\] activation must be 'NOTSET' or 'RELU', got 'TANH'",
    ),
    Row(
        "Conv2d group",
        lambda: layer.Conv2d(4, 3, group=2)(IMAGES),
        ValueError,
        r"\[Conv2d\] group 2 has to divide the channels: 3 in, 4 out",
    ),
    Row(
        "Conv2d group0",
        lambda: layer.Conv2d(4, 3, group=0)(IMAGES),
        ValueError,
        r"\[Conv2d\] group 0 has to divide the channels: 3 in, 4 out",
    ),
    Row(
        "Conv2d group nan",
        lambda: layer.Conv2d(4, 3, group=NAN)(IMAGES),
        ValueError,
        r"\[Conv2d\] group must be a whole number, got nan",
    ),
    Row(
        "Conv2d unknown kw",
        lambda: layer.Conv2d(4, 3, colour="red"),
        TypeError,
        r"\[Conv2d\] unexpected keyword argument 'colour'",
    ),
    Row(
        "Conv2d prefer",
        lambda: layer.Conv2d(4, 3, cudnn_prefer="warp"),
        ValueError,
        r"\[prefer\] 'warp' is none of fastest, limited_workspace, no_workspace,",
    ),
    Row(
        "Conv2d prefer used",
        lambda: layer.Conv2d(4, 3, cudnn_prefer="warp")(IMAGES),
        ValueError,
        r"\[prefer\] 'warp' is none of fastest, limited_workspace, no_workspace,",
    ),
    Row(
        "Conv2d ws",
        lambda: layer.Conv2d(4, 3, workspace_MB_limit=-1)(IMAGES),
        ValueError,
        r"\[Conv2d\] workspace_MB_limit must not be negative, got -1",
    ),
    Row(
        "Conv2d ws nan",
        lambda: layer.Conv2d(4, 3, workspace_MB_limit=NAN)(IMAGES),
        ValueError,
        r"\[Conv2d\] workspace_MB_limit must be a whole number, got nan",
    ),
    Row(
        "Conv2d rank",
        lambda: layer.Conv2d(4, 3)(MATRIX),
        ValueError,
        r"\[Conv2d\] expected \(batch, channels, height, width\), got \(2, 3\)",
    ),
    Row(
        "Conv2d int",
        lambda: layer.Conv2d(4, 3)(make(2, 3, 8, 8, dtype="int32")),
        TypeError,
        r"\[ConvForward\] x has to be of a float type, got \(2, 3, 8, 8\) int32 on cpu",
    ),
    Row(
        "Conv2d None",
        lambda: layer.Conv2d(4, 3)(None),
        TypeError,
        r"\[Conv2d\] initialize expects tensors, got NoneType",
    ),
    Row(
        "Conv2d numpy",
        lambda: layer.Conv2d(4, 3)(np.ones((2, 3, 8, 8), "f4")),
        TypeError,
        r"\[Conv2d\] initialize expects tensors, got ndarray",
    ),
    Row(
        "Conv2d no args",
        lambda: layer.Conv2d(4, 3)(),
        TypeError,
        r"Conv2d\.initialize\(\) missing 1 required positional argument: 'x'",
    ),
    Row(
        "Conv2d initializer",
        lambda: layer.Conv2d(4, 3, initializer="he")(IMAGES),
        TypeError,
        r"'str' object is not callable",
    ),
    Row(
        "SepConv rank",
        lambda: layer.SeparableConv2d(4, 3)(MATRIX),
        ValueError,
        r"\[SeparableConv2d\] expected \(batch, channels, height, width\), got \(2, 3\)",
    ),
    Row(
        "Linear 0",
        lambda: layer.Linear(0)(MATRIX),
        ValueError,
        r"\[Linear\] out_features must be at least 1, got 0",
    ),
    Row(
        "Linear neg",
        lambda: layer.Linear(-4)(MATRIX),
        ValueError,
        r"\[Linear\] out_features must be at least 1, got -4",
    ),
    Row(
        "Linear nan",
        lambda: layer.Linear(NAN)(MATRIX),
        ValueError,
        r"\[Linear\] out_features must be a whole number, got nan",
    ),
    Row(
        "Linear str",
        lambda: layer.Linear("a")(MATRIX),
        TypeError,
        r"\[Linear\] out_features must be an integer, got str",
    ),
    Row(
        "Linear huge",
        lambda: layer.Linear(1 << 40)(MATRIX),
        MemoryError,
        r"\[Full\] a tensor of \(3, 1099511627776\) float32: 12582912 MiB asked for",
    ),
    Row(
        "Linear huge2",
        lambda: layer.Linear(1 << 62)(MATRIX),
        ValueError,
        r"\[tensor\] shape \(3, 4611686018427387904\) has too many elements",
    ),
    Row(
        "Linear in",
        lambda: layer.Linear(5, 4)(MATRIX),
        ValueError,
        r"\[Linear\] in_features is 5, got input \(2, 3\)",
    ),
    Row(
        "Linear kw",
        lambda: layer.Linear(4, foo=1),
        UserWarning,
        r"\[Linear\] ignores foo",
    ),
    Row(
        "Linear scalar",
        lambda: layer.Linear(4)(tensor.Tensor(())),
        ValueError,
        r"\[Linear\] expected \(batch, features\), got \(\)",
    ),
    Row(
        "Linear None",
        lambda: layer.Linear(4)(None),
        TypeError,
        r"\[Linear\] initialize expects tensors, got NoneType",
    ),
    Row(
        "Linear int x",
        lambda: layer.Linear(4)(make(2, 3, dtype="int32")),
        TypeError,
        r"\[LinearForward\] x has to be of a float type, got \(2, 3\) int32 on cpu",
    ),
    Row(
        "Gemm bias",
        lambda: layer.Gemm(4, bias_shape=(7,))(MATRIX),
        ValueError,
        r"\[Gemm\] C \(7,\) does not broadcast to the result \(2, 4\)",
    ),
    Row(
        "Gemm rank",
        lambda: layer.Gemm(4)(IMAGES),
        ValueError,
        r"\[Gemm\] needs matrices, got A \(2, 3, 8, 8\) float32 on cpu, B \(4, 8\) float32",
    ),
    Row(
        "BN momentum",
        lambda: layer.BatchNorm2d(momentum=2),
        ValueError,
        r"\[BatchNorm2d\] momentum must lie in \[0, 1\], got 2",
    ),
    Row(
        "BN momentum nan",
        lambda: layer.BatchNorm2d(momentum=NAN),
        ValueError,
        r"\[BatchNorm2d\] momentum is NaN",
    ),
    Row(
        "BN eps",
        lambda: layer.BatchNorm2d(eps=-1)(IMAGES),
        ValueError,
        r"\[BatchNorm2d\] eps must be finite and not negative, got -1",
    ),
    Row(
        "BN chan",
        lambda: layer.BatchNorm2d(4)(IMAGES),
        ValueError,
        r"\[BatchNorm2d\] expected \(batch, 4, \.\.\.\), got \(2, 3, 8, 8\)",
    ),
    Row(
        "BN rank",
        lambda: layer.BatchNorm2d()(make(3)),
        ValueError,
        r"\[BatchNorm2d\] expected \(batch, channels, \.\.\.\), got \(3,\)",
    ),
    Row(
        "BN str",
        lambda: layer.BatchNorm2d(momentum="a"),
        TypeError,
        r"\[BatchNorm2d\] momentum must be a number, got str",
    ),
    Row(
        "Pool kernel",
        lambda: layer.MaxPool2d(0)(IMAGES),
        ValueError,
        r"\[MaxPool2d\] kernel_size and stride have to be at least 1, got \(0, 0\) and",
    ),
    Row(
        "Pool big",
        lambda: layer.MaxPool2d(9)(IMAGES),
        ValueError,
        r"\[Pooling\] kernel 9 with dilation 1 spans 9 > 8 elements of the padded",
    ),
    Row(
        "Pool stride",
        lambda: layer.MaxPool2d(2, 0)(IMAGES),
        ValueError,
        r"\[MaxPool2d\] kernel_size and stride have to be at least 1, got \(2, 2\) and",
    ),
    Row(
        "Pool stride same",
        lambda: layer.MaxPool2d(2, 0, pad_mode="SAME_LOWER")(IMAGES),
        ValueError,
        r"\[MaxPool2d\] kernel_size and stride have to be at least 1, got \(2, 2\) and",
    ),
    Row(
        "Pool pad",
        lambda: layer.AvgPool2d(2, 2, 5)(IMAGES),
        ValueError,
        r"\[Pooling\] padding \(5, 5\) leaves windows of kernel \(2, 2\) with dilation \(1,",
    ),
    Row(
        "Pool rank",
        lambda: layer.MaxPool2d(2)(MATRIX),
        ValueError,
        r"\[Pooling\] input must be \(N, C, H, W\); got shape \(2, 3\)",
    ),
    Row(
        "Dropout",
        lambda: layer.Dropout(1.0),
        ValueError,
        r"\[Dropout\] ratio must lie in \[0, 1\), got 1",
    ),
    Row("Dropout nan", lambda: layer.Dropout(NAN), ValueError, r"\[Dropout\] ratio is NaN"),
    Row(
        "Dropout str",
        lambda: layer.Dropout("a"),
        TypeError,
        r"\[Dropout\] ratio must be a number, got str",
    ),
    Row(
        "Embedding idx",
        lambda: layer.Embedding(5, 2)(make(3, dtype="int32") * 9),
        IndexError,
        r"\[EmbeddingForward\] index 9 at position 0 is outside \[0, 5\)",
    ),
    Row(
        "Embedding neg size",
        lambda: layer.Embedding(-5, 2)(make(3, dtype="int32")),
        ValueError,
        r"\[Embedding\] input_dim must be at least 1, got -5",
    ),
    Row(
        "Embedding pretrained",
        lambda: layer.Embedding(5, 2).from_pretrained(make(4, 2)),
        ValueError,
        r"\[from_pretrained\] W: shape \(4, 2\) does not fit \(5, 2\)",
    ),
    Row(
        "RNN list",
        lambda: layer.RNN(3, 4)(MATRIX, make(2, 4)),
        TypeError,
        r"\[RNN\] expected a list of inputs, one a step",
    ),
    Row(
        "RNN size",
        lambda: layer.RNN(5, 4)([MATRIX], make(2, 4)),
        ValueError,
        r"\[MatMul\] a \(2, 3\) and b \(5, 4\) do not fit: 3 columns, 5 rows",
    ),
    Row(
        "LSTM state",
        lambda: layer.LSTM(3, 4)([MATRIX], make(2, 4)),
        TypeError,
        r"\[LSTM\] expected \(h0, c0\), got Tensor",
    ),
    Row(
        "CudnnRNN mode",
        lambda: layer.CudnnRNN(4, rnn_mode="xyz")(make(2, 5, 3)),
        ValueError,
        r"\[CudnnRNN\] rnn_mode 'xyz': one of \['gru', 'lstm', 'relu', 'tanh',",
    ),
    Row(
        "CudnnRNN rank",
        lambda: layer.CudnnRNN(4)(MATRIX),
        ValueError,
        r"\[CudnnRNN\] expected three axes: batch, steps, features; got \(2, 3\)",
    ),
    Row(
        "Cat",
        lambda: layer.Cat(5)([MATRIX, MATRIX]),
        ValueError,
        r"\[Concat\] axis 5 is outside a tensor of 2 dimensions",
    ),
    Row(
        "SCE layer",
        lambda: layer.SoftMaxCrossEntropy()(MATRIX, make(5)),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t has to be class numbers \(2\) or",
    ),
    Row(
        "ReLU None",
        lambda: layer.ReLU()(None),
        TypeError,
        r"\[ReLU\] initialize expects tensors, got NoneType",
    ),
    Row(
        "set_params shape",
        lambda: LINEAR.set_params({"W": np.ones((9, 9))}),
        ValueError,
        r"\[set_params\] W: shape \(9, 9\) does not fit \(3, 4\)",
    ),
    Row(
        "set_params unknown",
        lambda: LINEAR.set_params({"Q": np.ones((9, 9))}),
        ValueError,
        r"\[set_params\] Linear has none of these names: Q",
    ),
    Row(
        "set_params str",
        lambda: LINEAR.set_params({"W": "a"}),
        TypeError,
        r"\[set_params\] W: expected numbers, got array\('a', dtype='<U1'\)",
    ),
    Row(
        "set_params None",
        lambda: LINEAR.set_params(None),
        TypeError,
        r"\[set_params\] expected a dict by name, got NoneType",
    ),
    Row(
        "set_params list",
        lambda: LINEAR.set_params({"W": [[1.0]]}),
        ValueError,
        r"\[set_params\] W: shape \(1, 1\) does not fit \(3, 4\)",
    ),
    Row(
        "set_params complex",
        lambda: LINEAR.set_params({"W": np.ones((3, 4), "c8")}),
        TypeError,
        r"\[set_params\] W: expected numbers, got array\(\[\[1\.\+0\.j, 1\.\+0\.j, 1\.\+0\.j,",
    ),
    Row(
        "set_states unknown",
        lambda: LINEAR.set_states({"Q": 1}),
        ValueError,
        r"\[set_states\] Linear has none of these names: Q",
    ),
    Row(
        "no optimizer",
        lambda: net(True, False)(MATRIX, LABELS),
        AttributeError,
        r"\[Net\] has no optimizer: call set_optimizer\(\) before training",
    ),
    Row(
        "inputs 1",
        lambda: net()(MATRIX),
        TypeError,
        r"Net\.train_one_batch\(\) missing 1 required positional argument: 'y'",
    ),
    Row(
        "inputs 3",
        lambda: net()(MATRIX, LABELS, LABELS),
        TypeError,
        r"Net\.train_one_batch\(\) takes 3 positional arguments but 4 were given",
    ),
    Row(
        "inputs None",
        lambda: net()(None, LABELS),
        TypeError,
        r"\[Linear\] inputs have to be Tensors, got NoneType",
    ),
    Row(
        "kwargs",
        lambda: net()(MATRIX, LABELS, foo=1),
        TypeError,
        r"Net\.train_one_batch\(\) got an unexpected keyword argument 'foo'",
    ),
    Row(
        "wrong features",
        lambda: net()(make(2, 9), LABELS),
        ValueError,
        r"\[LinearForward\] x \(2, 9\) has 9 features, W \(3, 4\) takes 3",
    ),
    Row(
        "wrong labels",
        lambda: net()(MATRIX, make(2, dtype="int32") * 9),
        ValueError,
        r"\[SoftmaxCrossEntropyForward\] t\[0\] is 9, no class number in \[0, 4\)",
    ),
    Row(
        "eval 2 inputs",
        lambda: (lambda n: (n.eval(), n(MATRIX, LABELS)))(net()),
        TypeError,
        r"Net\.forward\(\) takes 2 positional arguments but 3 were given",
    ),
    Row(
        "compile none",
        lambda: net(False).compile(None),
        TypeError,
        r"\[compile\] expected a list of tensors, got None",
    ),
    Row(
        "compile empty",
        lambda: net(False).compile([]),
        TypeError,
        r"\[compile\] expected a list of tensors, got \[\]",
    ),
    Row(
        "compile numpy",
        lambda: net(False).compile([np.ones(3)]),
        TypeError,
        r"\[compile\] expected tensors, got ndarray",
    ),
    Row(
        "compile tensor",
        lambda: net(False).compile(MATRIX),
        TypeError,
        r"\[compile\] expected a list of tensors, got Tensor\(\[\[1\., 1\., 1\.\],",
    ),
    Row(
        "compile kw",
        lambda: net(False).compile([MATRIX], foo=1),
        TypeError,
        r"Model\.compile\(\) got an unexpected keyword argument 'foo'",
    ),
    Row(
        "compile two",
        lambda: net(False).compile([MATRIX, MATRIX]),
        TypeError,
        r"Net\.forward\(\) takes 2 positional arguments but 3 were given",
    ),
    Row(
        "bare compile",
        lambda: Bare().compile([MATRIX]),
        NotImplementedError,
        r"Bare does not define forward\(\)",
    ),
    Row(
        "bare call",
        lambda: Bare()(MATRIX),
        NotImplementedError,
        r"Bare does not define train_one_batch\(\)",
    ),
    Row(
        "set_optimizer None",
        lambda: (lambda n: (n.set_optimizer(None), n(MATRIX, LABELS)))(net()),
        TypeError,
        r"\[set_optimizer\] expected an optimizer, got None",
    ),
    Row(
        "set_optimizer str",
        lambda: net().set_optimizer("sgd"),
        TypeError,
        r"\[set_optimizer\] expected an optimizer, got 'sgd'",
    ),
    Row(
        "summary before",
        lambda: net(False).summary(),
        RuntimeError,
        r"\[summary\] compile the model first: shapes follow from the inputs",
    ),
    Row(
        "save before",
        lambda: net(False).save_states("never.zip"),
        RuntimeError,
        r"\[save_states\] Net has no parameters yet: call compile\(\) first",
    ),
    Row(
        "save obj aux",
        lambda: net().save_states("never.zip", {"a": object()}),
        TypeError,
        r"\[save_states\] aux state a: expected numbers, got <object object",
    ),
    Row(
        "save name aux",
        lambda: net().save_states("never.zip", {"fc.W": np.ones(1)}),
        ValueError,
        r"\[save_states\] aux_states has names of the model's: \['fc\.W'\]",
    ),
    Row(
        "memory_plan",
        lambda: net().memory_plan(),
        RuntimeError,
        r"\[memory_plan\] no step was recorded: run a few steps with use_graph=True first",
    ),
    Row(
        "state model",
        lambda: net().set_states({"fc.W": np.ones((1, 1))}),
        ValueError,
        r"\[set_params\] fc\.W: shape \(1, 1\) does not fit \(3, 4\)",
    ),
    Row(
        "load_torch none",
        lambda: net().load_torch(None),
        TypeError,
        r"\[load_torch\] expected a path or a state dict, got NoneType",
    ),
    Row(
        "load_torch dict",
        lambda: net().load_torch({"a": 1}),
        ValueError,
        r"\[load_states\] the state dict does not fit the model; missing: fc\.weight,",
    ),
    Row(
        "load_torch obj",
        lambda: net().load_torch({"fc.weight": object(), "fc.bias": np.ones(4)}),
        TypeError,
        r"\[load_torch\] fc\.weight: expected numbers, got object",
    ),
    Row(
        "models.create",
        lambda: singa.models.create("resnet9000"),
        ValueError,
        r"\[models\.create\] no model 'resnet9000'; there are alexnet, googlenet,",
    ),
    Row(
        "models.create num",
        lambda: singa.models.create("lenet", num_classes=0),
        ValueError,
        r"\[LeNet\] num_classes must be positive: 0",
    ),
    Row(
        "models.create num2",
        lambda: singa.models.create("lenet", num_classes=NAN).compile([make(1, 1, 28, 28)]),
        ValueError,
        r"\[Linear\] out_features must be a whole number, got nan",
    ),
    Row(
        "models.create kw",
        lambda: singa.models.create("lenet", foo=0),
        TypeError,
        r"Classifier\.__init__\(\) got an unexpected keyword argument 'foo'",
    ),
    Row(
        "lenet small",
        lambda: singa.models.create("lenet").compile([make(1, 1, 2, 2)]),
        ValueError,
        r"\[SetupRecorder\] kernel 5 with dilation 1 spans 5 > 2 elements of the",
    ),
    Row(
        "lenet chan",
        lambda: (lambda n: (n.compile([make(1, 1, 28, 28)]), n.eval(), n(make(1, 3, 28, 28))))(
            singa.models.create("lenet")
        ),
        ValueError,
        r"\[ConvForward\] input has 3 channels; the handle was made for 1; input shape",
    ),
    Row(
        "Conv2d other channels",
        second,
        ValueError,
        r"\[ConvForward\] input has 5 channels; the handle was made for 3",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)
