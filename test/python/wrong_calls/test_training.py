"""Optimizers, schedules, initializers, the tape."""

import numpy as np
from singa import autograd, initializer, layer, model, opt, tensor
from singa import singa_wrap as wrap
from wrong_call import INF, NAN, Row, check, make, parametrize

MATRIX = make(2, 3)
LABELS = tensor.Tensor(data=np.array([0, 1]), dtype="int32")


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


def net(compiled=True, optimizer=True):
    made = Net()
    if optimizer:
        made.set_optimizer(opt.SGD(lr=0.1))
    if compiled:
        made.compile([MATRIX], is_train=True)
    return made


def nan_rate():
    class Schedule(opt.DecayScheduler):
        def value(self, step):
            return NAN

    made = net(optimizer=False)
    made.set_optimizer(opt.SGD(lr=Schedule(0.1)))
    made(MATRIX, LABELS)


def stepped():
    """A model after one step, with momentum."""
    made = net(optimizer=False)
    made.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    made(MATRIX, LABELS)
    return made


def other_state():
    opt.Adam(0.1).set_states(stepped().optimizer.get_states())


def wrong_shape():
    made = stepped()
    states = made.optimizer.get_states()
    states["moments"] = {name: make(7, 7) for name in states["moments"]}
    made.optimizer.set_states(states)
    made(MATRIX, LABELS)


def parameter():
    return tensor.Tensor(data=np.ones(3), stores_grad=True)


def squares(w):
    with autograd.enable_grad():
        return autograd.reduce_sum(autograd.square(w))


def twice():
    loss = squares(parameter())
    list(autograd.backward(loss))
    list(autograd.backward(loss))


def overwritten():
    w = parameter()
    loss = squares(w)
    w.set_value(2.0)
    list(autograd.backward(loss))


class TwoGradients(autograd.Operator):
    def forward(self, x):
        return x

    def backward(self, dy):
        return dy, dy


class WrongShape(TwoGradients):
    def backward(self, dy):
        return wrap.Full((9,), 1.0, None, wrap.kFloat32)


class Text(TwoGradients):
    def forward(self, x):
        return "text"


class Nothing(TwoGradients):
    def forward(self, x):
        return None


def custom(operator):
    with autograd.enable_grad():
        loss = autograd.reduce_sum(operator()(parameter())[0])
    list(autograd.backward(loss))


VECTOR = wrap.Full((3,), 1.0, MATRIX.data.device(), wrap.kFloat32)


def recorded():
    """A graph of one operation on a vector, which has not been started."""
    device = VECTOR.device()
    recording = wrap.Recording(device, wrap.Arena(device))
    recording.Start([VECTOR])
    recording.Finish([wrap.ReLU(VECTOR)])
    return wrap.Graph(recording)


def started(call):
    graph = recorded()
    graph.Start([VECTOR])
    call(graph)


def start_recording(*inputs):
    device = VECTOR.device()
    wrap.Recording(device, wrap.Arena(device)).Start(inputs)


# Lists of raw tensors.
LISTS = [
    Row(
        f"UpdateMovesNothing {name}",
        lambda lists=lists: wrap.UpdateMovesNothing(*lists),
        ValueError,
        r"\[UpdateMovesNothing\] " + message,
    )
    for name, lists, message in [
        ("no parameter", ([None], [VECTOR], []), "parameter is an empty tensor"),
        ("no state", ([VECTOR], [VECTOR], [None]), "state is an empty tensor"),
        ("few gradients", ([VECTOR], [], []), "0 gradients for 1 parameters"),
        ("many gradients", ([], [VECTOR], []), "1 gradients for 0 parameters"),
        ("few states", ([VECTOR] * 2, [VECTOR] * 2, [VECTOR]), "1 states for 2 parameters"),
        ("many states", ([], [], [VECTOR]), "1 states for 0 parameters"),
    ]
] + [
    Row(
        "recording of nothing",
        lambda: start_recording(None),
        ValueError,
        r"\[graph\] an input is an empty tensor \(None\)",
    ),
    Row(
        "recording twice the same",
        lambda: start_recording(VECTOR, VECTOR),
        ValueError,
        r"\[graph\] two inputs share memory",
    ),
    Row(
        "replay of nothing",
        lambda: recorded().Replay([None]),
        ValueError,
        r"\[graph\] input 0 was \(3,\) float32 .* when recorded, is empty",
    ),
    Row(
        "replay of too little",
        lambda: recorded().Replay([]),
        ValueError,
        r"\[graph\] 0 inputs, recorded with 1",
    ),
    *[
        Row(
            f"graph {name} before Start",
            lambda call=call: call(recorded()),
            ValueError,
            r"\[graph\] no replay has been started",
        )
        for name, call in [
            ("Run", lambda graph: graph.Run(0)),
            ("TakeBack", lambda graph: graph.TakeBack(0)),
            ("Finish", lambda graph: graph.Finish()),
        ]
    ],
    *[
        Row(
            f"graph {name} of segment 7",
            lambda call=call: started(call),
            ValueError,
            r"\[graph\] segment 7 of 1",
        )
        for name, call in [
            ("Run", lambda graph: graph.Run(7)),
            ("TakeBack", lambda graph: graph.TakeBack(7)),
        ]
    ],
]

ROWS = [
    *LISTS,
    Row(
        "opt None",
        lambda: opt.SGD(0.1)(None),
        TypeError,
        r"\[backward\] y has to be a Tensor, got NoneType",
    ),
    Row(
        "opt float",
        lambda: opt.SGD(0.1)(3.0),
        TypeError,
        r"\[backward\] y has to be a Tensor, got float",
    ),
    Row(
        "opt untracked",
        lambda: opt.SGD(0.1)(make(1)),
        RuntimeError,
        r"\[SGD\] the loss was computed from no parameter that trains, or while the",
    ),
    Row(
        "opt vector",
        lambda: opt.SGD(0.1)(make(3)),
        ValueError,
        r"\[backward\] y has shape \(3,\): only one element needs no dy",
    ),
    Row(
        "SGD mom 2",
        lambda: opt.SGD(momentum=2),
        ValueError,
        r"\[SGD\] momentum must be below 1: 2\.0",
    ),
    Row(
        "SGD mom 1",
        lambda: opt.SGD(momentum=1),
        ValueError,
        r"\[SGD\] momentum must be below 1: 1\.0",
    ),
    Row(
        "SGD mom neg",
        lambda: opt.SGD(momentum=-0.1),
        ValueError,
        r"\[SGD\] momentum must not be negative: -0\.1",
    ),
    Row(
        "SGD damp",
        lambda: opt.SGD(dampening=5),
        ValueError,
        r"\[SGD\] dampening must be below 1: 5\.0",
    ),
    Row(
        "SGD nest",
        lambda: opt.SGD(nesterov=True),
        ValueError,
        r"\[SGD\] nesterov needs a momentum and no dampening",
    ),
    Row(
        "RMS rho", lambda: opt.RMSProp(rho=2), ValueError, r"\[RMSProp\] rho must be below 1: 2\.0"
    ),
    Row(
        "RMS eps neg",
        lambda: opt.RMSProp(epsilon=-1),
        ValueError,
        r"\[RMSProp\] epsilon must not be negative: -1\.0",
    ),
    Row(
        "Adam b1", lambda: opt.Adam(beta_1=1), ValueError, r"\[Adam\] beta_1 must be below 1: 1\.0"
    ),
    Row(
        "Adam b2",
        lambda: opt.Adam(beta_2=1.5),
        ValueError,
        r"\[Adam\] beta_2 must be below 1: 1\.5",
    ),
    Row(
        "Adam b nan",
        lambda: opt.Adam(beta_2=NAN),
        ValueError,
        r"\[Adam\] beta_2 must not be negative: nan",
    ),
    Row(
        "clip_norm",
        lambda: opt.SGD(clip_norm=0),
        ValueError,
        r"\[SGD\] clip_norm must be positive: 0",
    ),
    Row("clip_norm nan", lambda: opt.SGD(clip_norm=NAN), ValueError, r"\[SGD\] clip_norm is NaN"),
    Row(
        "clip_norm str",
        lambda: opt.SGD(clip_norm="a"),
        TypeError,
        r"\[SGD\] clip_norm must be a number, got str",
    ),
    Row(
        "accumulate 0",
        lambda: opt.SGD(accumulate=0),
        ValueError,
        r"\[SGD\] accumulate must be at least 1, got 0",
    ),
    Row(
        "accumulate nan",
        lambda: opt.SGD(accumulate=NAN),
        ValueError,
        r"\[SGD\] accumulate must be a whole number, got nan",
    ),
    Row(
        "accumulate 1.5",
        lambda: opt.SGD(accumulate=1.5),
        ValueError,
        r"\[SGD\] accumulate must be a whole number, got 1\.5",
    ),
    Row(
        "groups str",
        lambda: opt.SGD(groups="abc"),
        TypeError,
        r"\[SGD\] groups have to be ParamGroups, got 'a'",
    ),
    Row(
        "groups [1]",
        lambda: opt.SGD(groups=[1]),
        TypeError,
        r"\[SGD\] groups have to be ParamGroups, got 1",
    ),
    Row(
        "ExponentialDecay",
        lambda: opt.ExponentialDecay(0.1, 0, 0.9),
        ValueError,
        r"\[ExponentialDecay\] decay_steps must be positive, got 0",
    ),
    Row(
        "ExponentialDecay rate",
        lambda: opt.ExponentialDecay(0.1, 5, -0.9),
        ValueError,
        r"\[ExponentialDecay\] decay_rate must be positive, got -0\.9",
    ),
    Row(
        "ExponentialDecay nan",
        lambda: opt.ExponentialDecay(NAN, 5, 0.9),
        ValueError,
        r"\[ExponentialDecay\] init_value is NaN",
    ),
    Row(
        "StepDecay",
        lambda: opt.StepDecay(0.1, 0),
        ValueError,
        r"\[StepDecay\] step_size must be positive, got 0",
    ),
    Row(
        "StepDecay rate nan",
        lambda: opt.StepDecay(0.1, 2, NAN),
        ValueError,
        r"\[StepDecay\] rate is NaN",
    ),
    Row(
        "MultiStep",
        lambda: opt.MultiStepDecay(0.1, ["a", 1]),
        TypeError,
        r"\[MultiStepDecay\] milestones must be an integer, got str",
    ),
    Row(
        "MultiStep neg",
        lambda: opt.MultiStepDecay(0.1, [-5]),
        ValueError,
        r"\[MultiStepDecay\] milestones must not be negative, got -5",
    ),
    Row(
        "Cosine",
        lambda: opt.CosineDecay(0.1, 0),
        ValueError,
        r"\[CosineDecay\] decay_steps must be positive, got 0",
    ),
    Row(
        "WarmUp",
        lambda: opt.WarmUp(0.1, -1),
        ValueError,
        r"\[WarmUp\] steps must not be negative, got -1",
    ),
    Row(
        "OneCycle",
        lambda: opt.OneCycle(0.1, 10, 1.5),
        ValueError,
        r"\[OneCycle\] warmup must lie in \[0, 1\], got 1\.5",
    ),
    Row(
        "OneCycle div0",
        lambda: opt.OneCycle(0.1, 10, div_factor=0),
        ValueError,
        r"\[OneCycle\] div_factor must be positive, got 0",
    ),
    Row(
        "Constant str",
        lambda: opt.SGD(lr=opt.Constant("a")),
        TypeError,
        r"\[Constant\] init_value must be a number, got str",
    ),
    Row(
        "states none",
        lambda: opt.SGD(0.1).set_states(None),
        TypeError,
        r"\[SGD\] states have to be a dict, got NoneType",
    ),
    Row(
        "states empty",
        lambda: opt.SGD(0.1).set_states({}),
        ValueError,
        r"\[SGD\] states lack 'step_counter'",
    ),
    Row(
        "states step",
        lambda: opt.SGD(0.1).set_states({"step_counter": -5}),
        ValueError,
        r"\[SGD\] step_counter must not be negative, got -5",
    ),
    Row(
        "states step nan",
        lambda: opt.SGD(0.1).set_states({"step_counter": NAN}),
        ValueError,
        r"\[SGD\] step_counter must be a whole number, got nan",
    ),
    Row(
        "states step str",
        lambda: opt.SGD(0.1).set_states({"step_counter": "a"}),
        TypeError,
        r"\[SGD\] step_counter must be an integer, got str",
    ),
    Row(
        "states moments",
        lambda: opt.SGD(0.1, momentum=0.9).set_states({"step_counter": 1, "moments": 5}),
        TypeError,
        r"\[SGD\] moments has to hold a tensor for each parameter",
    ),
    Row(
        "opt.update None",
        lambda: opt.SGD(0.1).update(None, None),
        TypeError,
        r"\[SGD\] update takes two Tensors, got NoneType",
    ),
    Row(
        "opt.update shape",
        lambda: opt.SGD(0.1).update(make(3), make(4)),
        ValueError,
        r"\[SgdUpdate\] gradient has to have shape \(3,\), got \(4,\) float32 on cpu",
    ),
    Row(
        "opt.update dtype",
        lambda: opt.SGD(0.1).update(make(3), make(3, dtype="int32")),
        TypeError,
        r"\[SgdUpdate\] gradient has to be of a float type, got \(3,\) int32 on cpu",
    ),
    Row(
        "SgdUpdate",
        lambda: wrap.SgdUpdate(
            [MATRIX.data], [make(5).data], [], [0.0], 0.1, 0.0, 0.0, False, False
        ),
        ValueError,
        r"\[SgdUpdate\] gradient has to have shape \(2, 3\), got \(5,\) float32 on cpu",
    ),
    Row(
        "SgdUpdate counts",
        lambda: wrap.SgdUpdate([MATRIX.data], [], [], [0.0], 0.1, 0.0, 0.0, False, False),
        ValueError,
        r"\[SgdUpdate\] 0 gradients for 1 parameters",
    ),
    Row(
        "SgdUpdate mom missing",
        lambda: wrap.SgdUpdate(
            [MATRIX.data], [MATRIX.data], [], [0.0], 0.1, 0.9, 0.0, False, False
        ),
        ValueError,
        r"\[SgdUpdate\] 0 states for 1 parameters",
    ),
    Row(
        "AdamUpdate step0",
        lambda: wrap.AdamUpdate(
            [MATRIX.data],
            [MATRIX.data],
            [MATRIX.data],
            [MATRIX.data],
            [0.0],
            0.1,
            0.9,
            0.9,
            0.1,
            0,
            False,
        ),
        ValueError,
        r"\[AdamUpdate\] step counts from 1, got 0",
    ),
    Row(
        "DistOpt",
        lambda: opt.DistOpt(opt.SGD(0.1)),
        NotImplementedError,
        r"\[DistOpt\] this version trains in one process; use the inner optimizer,",
    ),
    Row(
        "clip_by_global_norm nan",
        lambda: opt.clip_by_global_norm([MATRIX], NAN),
        ValueError,
        r"\[clip_by_global_norm\] max_norm is NaN",
    ),
    Row(
        "clip_by_global_norm neg",
        lambda: opt.clip_by_global_norm([MATRIX], -1),
        ValueError,
        r"\[clip_by_global_norm\] max_norm must be positive: -1",
    ),
    Row(
        "init eye rank3",
        lambda: initializer.eye(make(3, 3, 3)),
        ValueError,
        r"\[eye\] expected a matrix, got shape \(3, 3, 3\)",
    ),
    Row(
        "init he int",
        lambda: initializer.he_normal(make(3, 3, dtype="int32")),
        TypeError,
        r"\[Gaussian\] out has to be of a float type, got \(3, 3\) int32 on cpu",
    ),
    Row(
        "init he None",
        lambda: initializer.he_normal(None),
        TypeError,
        r"\[variance_scaling\] expected a Tensor to fill, got NoneType",
    ),
    Row(
        "init orth empty",
        lambda: initializer.orthogonal(make(0, 3)),
        ValueError,
        r"\[orthogonal\] expected two or more dimensions, none of them 0, got \(0, 3\)",
    ),
    Row(
        "init orth nan",
        lambda: initializer.orthogonal(make(3, 3), NAN),
        ValueError,
        r"\[orthogonal\] gain is NaN",
    ),
    Row(
        "init gaussian neg",
        lambda: initializer.gaussian(make(3, 3), -1),
        ValueError,
        r"\[initializer\] fans must be finite, not negative, and need a size: fan_in",
    ),
    Row(
        "init gaussian nan",
        lambda: initializer.gaussian(make(3, 3), NAN),
        ValueError,
        r"\[initializer\] fans must be finite, not negative, and need a size: fan_in",
    ),
    Row(
        "init uniform inf",
        lambda: initializer.uniform(make(3, 3), INF),
        ValueError,
        r"\[initializer\] fans must be finite, not negative, and need a size: fan_in",
    ),
    Row(
        "init vs",
        lambda: initializer.variance_scaling(make(3, 3), 0, "fan_in", "normal"),
        ValueError,
        r"\[variance_scaling\] scale must be positive, got 0",
    ),
    Row(
        "init vs mode",
        lambda: initializer.variance_scaling(make(3, 3), 1, "fan", "normal"),
        ValueError,
        r"\[variance_scaling\] mode must be one of \['fan_avg', 'fan_in', 'fan_out'\],",
    ),
    Row(
        "init vs dist",
        lambda: initializer.variance_scaling(make(3, 3), 1, "fan_in", "x"),
        ValueError,
        r"\[variance_scaling\] distribution must be 'normal' or 'uniform', got 'x'",
    ),
    Row(
        "init normal neg",
        lambda: initializer.normal(make(3, 3), -1),
        ValueError,
        r"\[Gaussian\] mean 0 and std -1 have to be finite, std not negative",
    ),
    Row(
        "backward None",
        lambda: list(autograd.backward(None)),
        TypeError,
        r"\[backward\] y has to be a Tensor, got NoneType",
    ),
    Row(
        "backward many",
        lambda: list(autograd.backward(MATRIX)),
        ValueError,
        r"\[backward\] y has shape \(2, 3\): only one element needs no dy",
    ),
    Row(
        "backward dy shape",
        lambda: list(autograd.backward(MATRIX, make(5))),
        ValueError,
        r"\[backward\] dy has shape \(5,\), y has \(2, 3\)",
    ),
    Row(
        "backward dy str",
        lambda: list(autograd.backward(MATRIX, "a")),
        TypeError,
        r"\[from_buffer\] elements of format '1w' \(4 bytes\) are none of float16/32/64,",
    ),
    Row(
        "gradcheck",
        lambda: autograd.gradcheck(None, None),
        TypeError,
        r"'NoneType' object is not iterable",
    ),
    Row(
        "gradcheck2",
        lambda: autograd.gradcheck(lambda IMAGES: 5, [make(2, dtype="float64")]),
        TypeError,
        r"'int' object is not iterable",
    ),
    Row(
        "autocast",
        lambda: autograd.autocast("int7"),
        TypeError,
        r"\[dtype\] 'int7' is none of float32",
    ),
    Row(
        "autocast float64",
        lambda: autograd.autocast("float64"),
        ValueError,
        r"\[autocast\] dtype has to be bfloat16 or float16, got 'float64'",
    ),
    *(
        Row(f"{kind.__name__} {name}", call, error, rf"\[{kind.__name__}\] {message}")
        for kind in (opt.SGD, opt.RMSProp, opt.AdaGrad, opt.Adam, opt.AdamW)
        for name, call, error, message in (
            (
                "lr negative",
                lambda kind=kind: kind(lr=-1),
                ValueError,
                "lr must not be negative: -1",
            ),
            ("lr NaN", lambda kind=kind: kind(lr=NAN), ValueError, "lr must not be negative: nan"),
            (
                "lr infinite",
                lambda kind=kind: kind(lr=INF),
                ValueError,
                "lr must be below inf: inf",
            ),
            (
                "lr text",
                lambda kind=kind: kind(lr="a"),
                TypeError,
                "lr must be a number or a Decay",
            ),
            ("lr None", lambda kind=kind: kind(lr=None), TypeError, "lr must be a number or a Dec"),
            (
                "decay",
                lambda kind=kind: kind(weight_decay=-1),
                ValueError,
                "weight_decay must not be",
            ),
        )
    ),
    *(
        Row(
            f"init {fill.__name__} of a vector",
            lambda fill=fill: fill(make(3)),
            ValueError,
            message,
        )
        for fill, message in (
            (initializer.eye, r"\[eye\] expected a matrix, got shape \(3,\)"),
            (initializer.orthogonal, r"\[orthogonal\] expected two or more dimensions"),
            (initializer.xavier, r"\[xavier\] expected a matrix, got shape \(3,\)"),
            (initializer.glorot, r"\[glorot\] expected a matrix, got shape \(3,\)"),
            (initializer.msra, r"\[msra\] expected a matrix, got shape \(3,\)"),
        )
    ),
    Row("schedule gives NaN", nan_rate, ValueError, r"\[SGD\] lr is nan at step 0"),
    Row(
        "states of another optimizer",
        other_state,
        ValueError,
        r"\[Adam\] the state is another optimizer's: it has moments, step_counter",
    ),
    Row(
        "states wrong shape",
        wrong_shape,
        ValueError,
        r"\[SGD\] moments of fc.W is \(7, 7\), not \(3, 4\)",
    ),
    Row(
        "backward twice", twice, RuntimeError, r"was walked before and has let go of what it saved"
    ),
    Row(
        "backward after a write",
        overwritten,
        RuntimeError,
        r"backward needs a tensor that was changed in place",
    ),
    Row(
        "custom operator: gradients",
        lambda: custom(TwoGradients),
        RuntimeError,
        r"\[TwoGradients#\d+\] backward returned 2 gradients for 1 inputs",
    ),
    Row(
        "custom operator: gradient's shape",
        lambda: custom(WrongShape),
        RuntimeError,
        r"\[WrongShape#\d+\] backward returned a gradient of shape \(9,\)",
    ),
    Row(
        "custom operator: text",
        lambda: custom(Text),
        TypeError,
        r"\[Text\] forward has to return raw tensors .* got str",
    ),
    Row(
        "custom operator: nothing",
        lambda: custom(Nothing),
        TypeError,
        r"\[Nothing\] forward has to return raw tensors .* got NoneType",
    ),
]


@parametrize(ROWS)
def test_wrong_call(row):
    check(row)
