"""Optimizers, schedules, initializers, the tape, graphs of raw tensors."""

from singa import autograd, opt, tensor
from singa import singa_wrap as wrap
from updates import RULE_NAMES
from wrong_call import labels, make, net, table

VECTOR = make(3).data
# Arguments of an update after the states: the decay of each parameter, the numbers of the rule.
SGD = ([0.0], 0.1, 0.0, 0.0, False, False)
MOMENTUM = ([0.0], 0.1, 0.9, 0.0, False, False)


class NanRate(opt.DecayScheduler):
    def value(self, step):
        return float("nan")


def stepped(optimizer):
    """A model after one step."""
    made = net(optimizer=optimizer)
    made(make(2, 3), labels([0, 1]))
    return made


def wrong_shape():
    made = stepped(opt.SGD(lr=0.1, momentum=0.9))
    states = made.optimizer.get_states()
    states["moments"] = {name: make(7, 7) for name in states["moments"]}
    made.optimizer.set_states(states)
    made(make(2, 3), labels([0, 1]))


def parameter():
    return tensor.Tensor(data=[1.0, 1.0, 1.0], stores_grad=True)


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


def start_recording(*inputs):
    recording = wrap.Recording(VECTOR.device(), wrap.Arena(VECTOR.device()))
    recording.Start(inputs)
    return recording


def recorded():
    """A graph of one operation on a vector, which has not been started."""
    recording = start_recording(VECTOR)
    recording.Finish([wrap.ReLU(VECTOR)])
    return wrap.Graph(recording)


def started():
    graph = recorded()
    graph.Start([VECTOR])
    return graph


test_optimizers = table(
    "".join(
        f"""
opt.{rule}(beta=0.9) -> TypeError: [{rule}] beta lr weight_decay groups clip_norm
opt.{rule}(lr=-1) -> ValueError: [{rule}] lr -1.0
opt.{rule}(lr=NAN) -> ValueError: [{rule}] lr nan
opt.{rule}(lr=INF) -> ValueError: [{rule}] lr inf inf
opt.{rule}(lr="a") -> TypeError: [{rule}] lr DecayScheduler str
opt.{rule}(lr=None) -> TypeError: [{rule}] lr DecayScheduler NoneType
opt.{rule}(weight_decay=-1) -> ValueError: [{rule}] weight_decay -1.0
"""
        for rule in RULE_NAMES
    )
)

test_graphs = table("""
wrap.UpdateMovesNothing([None], [VECTOR], [])
    -> ValueError: [UpdateMovesNothing] parameter empty (None)
wrap.UpdateMovesNothing([VECTOR], [VECTOR], [None])
    -> ValueError: [UpdateMovesNothing] state empty (None)
wrap.UpdateMovesNothing([VECTOR], [], [])
    -> ValueError: [UpdateMovesNothing] 0 gradients 1 parameters
wrap.UpdateMovesNothing([], [VECTOR], [])
    -> ValueError: [UpdateMovesNothing] 1 gradients 0 parameters
wrap.UpdateMovesNothing([VECTOR] * 2, [VECTOR] * 2, [VECTOR])
    -> ValueError: [UpdateMovesNothing] 1 states 2 parameters
wrap.UpdateMovesNothing([], [], [VECTOR]) -> ValueError: [UpdateMovesNothing] 1 states 0 parameters
start_recording(None) -> ValueError: [graph] input (None)
start_recording(VECTOR, VECTOR) -> ValueError: [graph] inputs memory
recorded().Replay([None]) -> ValueError: [graph] input 0 (3,) float32
recorded().Replay([]) -> ValueError: [graph] inputs 0 1
recorded().Run(0) -> ValueError: [graph] replay started
recorded().TakeBack(0) -> ValueError: [graph] replay started
recorded().Finish() -> ValueError: [graph] replay started
started().Run(7) -> ValueError: [graph] segment 7 1
started().TakeBack(7) -> ValueError: [graph] segment 7 1
""")

test_wrong_call = table("""
opt.SGD(0.1)(None) -> TypeError: [backward] y NoneType
opt.SGD(0.1)(3.0) -> TypeError: [backward] y float
opt.SGD(0.1)(make(1)) -> RuntimeError: [SGD] loss parameter
opt.SGD(0.1)(make(3)) -> ValueError: [backward] y (3,) dy
opt.SGD(momentum=2) -> ValueError: [SGD] momentum 1 2.0
opt.SGD(momentum=1) -> ValueError: [SGD] momentum 1 1.0
opt.SGD(momentum=-0.1) -> ValueError: [SGD] momentum -0.1
opt.SGD(dampening=5) -> ValueError: [SGD] dampening 1 5.0
opt.SGD(nesterov=True) -> ValueError: [SGD] nesterov momentum dampening
opt.RMSProp(rho=2) -> ValueError: [RMSProp] rho 1 2.0
opt.RMSProp(epsilon=-1) -> ValueError: [RMSProp] epsilon -1.0
opt.Adam(beta_1=1) -> ValueError: [Adam] beta_1 1 1.0
opt.Adam(beta_2=1.5) -> ValueError: [Adam] beta_2 1 1.5
opt.Adam(beta_2=NAN) -> ValueError: [Adam] beta_2 nan
opt.SGD(clip_norm=0) -> ValueError: [SGD] clip_norm 0
opt.SGD(clip_norm=NAN) -> ValueError: [SGD] clip_norm NaN
opt.SGD(clip_norm="a") -> TypeError: [SGD] clip_norm str
opt.SGD(accumulate=0) -> ValueError: [SGD] accumulate 1 0
opt.SGD(accumulate=NAN) -> ValueError: [SGD] accumulate nan
opt.SGD(accumulate=1.5) -> ValueError: [SGD] accumulate 1.5
opt.SGD(groups="abc") -> TypeError: [SGD] groups ParamGroups 'a'
opt.SGD(groups=[1]) -> TypeError: [SGD] groups ParamGroups 1
opt.ExponentialDecay(0.1, 0, 0.9) -> ValueError: [ExponentialDecay] decay_steps 0
opt.ExponentialDecay(0.1, 5, -0.9) -> ValueError: [ExponentialDecay] decay_rate -0.9
opt.ExponentialDecay(NAN, 5, 0.9) -> ValueError: [ExponentialDecay] init_value NaN
opt.StepDecay(0.1, 3, factor=0.1) -> TypeError: [StepDecay] factor init_value step_size rate
opt.EMA(None, beta=0.9) -> TypeError: [EMA] beta decay
opt.GradScaler(growth=2) -> TypeError: [GradScaler] growth init_scale growth_interval
opt.DistOpt(opt.SGD(), ranks=2) -> TypeError: [DistOpt] ranks opt world_size virtual_ranks
opt.StepDecay(0.1, 0) -> ValueError: [StepDecay] step_size 0
opt.StepDecay(0.1, 2, NAN) -> ValueError: [StepDecay] rate NaN
opt.MultiStepDecay(0.1, ["a", 1]) -> TypeError: [MultiStepDecay] milestones str
opt.MultiStepDecay(0.1, [-5]) -> ValueError: [MultiStepDecay] milestones -5
opt.CosineDecay(0.1, 0) -> ValueError: [CosineDecay] decay_steps 0
opt.WarmUp(0.1, -1) -> ValueError: [WarmUp] steps -1
opt.OneCycle(0.1, 10, 1.5) -> ValueError: [OneCycle] warmup [0, 1] 1.5
opt.OneCycle(0.1, 10, div_factor=0) -> ValueError: [OneCycle] div_factor 0
opt.SGD(lr=opt.Constant("a")) -> TypeError: [Constant] init_value str
opt.SGD(0.1).set_states(None) -> TypeError: [SGD] states dict NoneType
opt.SGD(0.1).set_states({}) -> ValueError: [SGD] step_counter
opt.SGD(0.1).set_states({"step_counter": -5}) -> ValueError: [SGD] step_counter -5
opt.SGD(0.1).set_states({"step_counter": NAN}) -> ValueError: [SGD] step_counter nan
opt.SGD(0.1).set_states({"step_counter": "a"}) -> TypeError: [SGD] step_counter str
opt.SGD(0.1, momentum=0.9).set_states({"step_counter": 1, "moments": 5}) -> TypeError: [SGD] moments
opt.SGD(0.1).update(None, None) -> TypeError: [SGD] update NoneType
opt.SGD(0.1).update(make(3), make(4)) -> ValueError: [SgdUpdate] gradient (3,) (4,) float32
opt.SGD(0.1).update(make(3), make(3, dtype="int32")) -> TypeError: [SgdUpdate] gradient (3,) int32
wrap.SgdUpdate([MATRIX.data], [make(5).data], [], *SGD)
    -> ValueError: [SgdUpdate] gradient (2, 3) (5,) float32
wrap.SgdUpdate([MATRIX.data], [], [], *SGD) -> ValueError: [SgdUpdate] 0 gradients 1 parameters
wrap.SgdUpdate([MATRIX.data], [MATRIX.data], [], *MOMENTUM)
    -> ValueError: [SgdUpdate] 0 states 1 parameters
wrap.AdamUpdate(*[[MATRIX.data]] * 4, [0.0], 0.1, 0.9, 0.9, 0.1, 0, False)
    -> ValueError: [AdamUpdate] step 1 0
opt.DistOpt(0.1) -> TypeError: [DistOpt] opt Optimizer 0.1
opt.DistOpt(opt.SGD(0.1), "id", 0, 2) -> TypeError: [Communicator] nccl_id NcclIdHolder 'id'
opt.DistOpt(opt.SGD(0.1), virtual_ranks=0) -> ValueError: [DistOpt] virtual_ranks 1 0
opt.clip_by_global_norm([MATRIX], NAN) -> ValueError: [clip_by_global_norm] max_norm NaN
opt.clip_by_global_norm([MATRIX], -1) -> ValueError: [clip_by_global_norm] max_norm -1
initializer.eye(make(3, 3, 3)) -> ValueError: [eye] matrix (3, 3, 3)
initializer.he_normal(make(3, 3, dtype="int32")) -> TypeError: [Gaussian] out (3, 3) int32
initializer.he_normal(None) -> TypeError: [variance_scaling] Tensor NoneType
initializer.orthogonal(make(0, 3)) -> ValueError: [orthogonal] 0 (0, 3)
initializer.orthogonal(make(3, 3), NAN) -> ValueError: [orthogonal] gain NaN
initializer.gaussian(make(3, 3), -1) -> ValueError: [initializer] fan_in -1 fan_out 0 (3, 3)
initializer.gaussian(make(3, 3), NAN) -> ValueError: [initializer] fan_in nan fan_out 0 (3, 3)
initializer.uniform(make(3, 3), INF) -> ValueError: [initializer] fan_in inf fan_out 0 (3, 3)
initializer.variance_scaling(make(3, 3), 0, "fan_in", "normal")
    -> ValueError: [variance_scaling] scale 0
initializer.variance_scaling(make(3, 3), 1, "fan", "normal")
    -> ValueError: [variance_scaling] mode fan_avg fan_in fan_out 'fan'
initializer.variance_scaling(make(3, 3), 1, "fan_in", "x")
    -> ValueError: [variance_scaling] distribution 'normal' 'uniform' 'x'
initializer.normal(make(3, 3), -1) -> ValueError: [Gaussian] mean 0 std -1
list(autograd.backward(None)) -> TypeError: [backward] y NoneType
list(autograd.backward(MATRIX)) -> ValueError: [backward] y (2, 3) dy
list(autograd.backward(MATRIX, make(5))) -> ValueError: [backward] dy (5,) y (2, 3)
list(autograd.backward(MATRIX, "a")) -> TypeError: [tensor] <U1
autograd.gradcheck(None, None) -> TypeError: NoneType iterable
autograd.gradcheck(lambda x: 5, [make(2, dtype="float64")]) -> TypeError: int iterable
autograd.autocast("int7") -> TypeError: [dtype] int7 float32
autograd.autocast("float64") -> ValueError: [autocast] dtype bfloat16 float16 float64
stepped(opt.SGD(lr=NanRate(0.1))) -> ValueError: [SGD] lr nan step 0
opt.Adam(0.1).set_states(stepped(opt.SGD(0.1, momentum=0.9)).optimizer.get_states())
    -> ValueError: [Adam] moments, step_counter
wrong_shape() -> ValueError: [SGD] moments fc.W (7, 7) (3, 4)
twice() -> RuntimeError: [ReduceSum# retain_graph=True
overwritten() -> RuntimeError: [Square# in place (3,) float32
custom(TwoGradients) -> RuntimeError: [TwoGradients# 2 gradients 1
custom(WrongShape) -> RuntimeError: [WrongShape# gradient (9,) (3,)
custom(Text) -> TypeError: [Text] forward singa_wrap.Tensor str
custom(Nothing) -> TypeError: [Nothing] forward singa_wrap.Tensor NoneType
initializer.eye(make(3)) -> ValueError: [eye] matrix (3,)
initializer.orthogonal(make(3)) -> ValueError: [orthogonal] dimensions (3,)
initializer.xavier(make(3)) -> ValueError: [xavier] matrix (3,)
initializer.glorot(make(3)) -> ValueError: [glorot] matrix (3,)
initializer.msra(make(3)) -> ValueError: [msra] matrix (3,)
""")
