"""What all optimizers share: schedules, parameter groups, clipping, accumulation, saved state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from .. import autograd, singa_wrap, tensor
from ..raw.check import integer, positive
from ..tape.backward import unused, unused_gradients
from ..tape.step_recording import host_call, host_called, is_recording_step
from ..tensor import DType, Tensor
from .clipping import clip_by_global_norm, limit_all
from .counting import counted_copy, counted_rows, of_sum, scale_to_mean
from .hyperparameter import ScheduledHyperparameters, hyperparameter, scheduled
from .hyperparameter_table import HyperparameterTable
from .parameter_group import ParamGroup
from .parameter_keys import ParameterKeys
from .scaler import GradScaler
from .schedule import DecayScheduler

# (key of the optimizer's state, parameter, gradient)
Update = tuple[str, Tensor, Tensor]


_FLOATS = (tensor.float32, tensor.float64, tensor.bfloat16, tensor.float16)
#: Keys in an optimizer's saved state, and the entries of its scaler's state that they hold.
_SCALER_STATES = {"loss_scale": "scale", "loss_scale_updates": "_growth_tracker"}
#: Keys that a saved state may lack, and that an optimizer may ignore.
OPTIONAL_STATES = (
    *("accumulated", "accumulated_calls", "accumulated_targets", "accumulated_unit"),
    *("parameter_steps", *_SCALER_STATES),
)
_HOST_METHODS = {"step", "apply", "apply_all", "update"}


def _using_gradients(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        unused.params = ()
        return method(self, *args, **kwargs)

    return call


class Optimizer(ScheduledHyperparameters, ParameterKeys):
    """Updates parameters from gradients. `optimizer(loss)` is one step of training.

    `lr` is a number or a schedule over the steps. So are all hyperparameters, such as `momentum`.
    They can be assigned between steps: `optimizer.lr = 0.01`, or `optimizer.lr *= 0.1`. Assigned
    values are saved with the state, except schedules of a user's class.

    Keyword arguments of every optimizer:

    groups: ParamGroups; the first one that matches a parameter applies. Default: none.
    clip_norm: the largest 2-norm of all gradients together; larger ones are scaled down to it
        before the update (Pascanu et al. 2013). Default None: no clipping.
    norm_type: p of the norm that `clip_norm` limits, such as 1 or `math.inf`. Default 2. Recorded
        steps leave other norms to the host.
    clip_value: limits each element of the gradients to [-clip_value, clip_value], before
        `clip_norm`. Default None: no limit.
    accumulate: parameters change at every n-th call only, by the gradient of one batch of all their
        targets: the mean of those n calls, weighted by what they count (see below). Default 1.
    scaler: a GradScaler, for gradients in float16. Default None.

    A loss counts its rows; with `ignore_index` or class weights, the sum of the weights of its
    targets (`Tensor.counted`). An update in which no target counts is not made. What was computed
    from a loss, such as 0.5 · loss, counts like the first call of its update.

    A subclass implements `apply` for one parameter, or `apply_all` for a whole step. A step of a
    user's optimizer is not recorded: in graph mode the host calls it at each replay.

    Raises ValueError for a negative number, TypeError for an unknown argument.

    >>> optimizer = opt.SGD(lr=0.1, clip_norm=1.0)
    >>> optimizer.lr *= 0.5
    >>> optimizer.now("lr"), optimizer.steps
    (0.05, 0)
    """

    lr: Any = hyperparameter()
    lr_value: scheduled = scheduled("lr")

    #: What no step computes with; see `Layer.not_settings`.
    not_settings: ClassVar[tuple[str, ...]] = (
        *("_skipped", "_accumulated_calls", "_accumulated_grads", "_tables", "unsent"),
        *("_accumulated_params", "_accumulated_targets", "_accumulated_unit", "_skips_call"),
    )

    def __init__(
        self,
        lr: float | DecayScheduler,
        dtype: Any = tensor.float32,
        *,
        groups: Iterable[ParamGroup] = (),
        clip_norm: float | None = None,
        norm_type: float = 2.0,
        clip_value: float | None = None,
        accumulate: int = 1,
        scaler: GradScaler | None = None,
    ) -> None:
        ScheduledHyperparameters.__init__(self, scaler)
        ParameterKeys.__init__(self, groups)
        self.lr = lr
        self.dtype = dtype
        self._accumulated_calls = 0  # whose gradients are in _accumulated_grads
        self.clip_norm = clip_norm
        self.norm_type = norm_type
        self.clip_value = clip_value
        self.accumulate = accumulate
        self._skipped = False  # whether the scaler skipped the last update
        self._skips_call = False  # whether no target has counted in the present update
        self._accumulated_grads: dict[str, Tensor] = {}
        self._accumulated_params: list[Tensor] = []  # which stay alive
        # How many targets they count, in units of what the first call with a count has counted.
        self._accumulated_targets, self._accumulated_unit = 0.0, 0.0
        self._tables: dict[int, HyperparameterTable] = {}
        self.unsent: dict[str, Any] = {}  # what compression by DistOpt has not sent yet, by key

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass that only changes `apply` means it for whole steps, too.
        if "apply" in vars(cls) and "apply_all" not in vars(cls):
            cls.apply_all = Optimizer.apply_all  # type: ignore[method-assign]
        # A user's method is not recorded: it may do something else in the next step.
        for name in _HOST_METHODS & vars(cls).keys():
            method = host_called(vars(cls)[name])
            setattr(cls, name, method if name == "step" else _using_gradients(method))

    @property
    def clip_norm(self) -> float | None:
        """The largest norm of all gradients together. None: no clipping."""
        return self._clip_norm

    @clip_norm.setter
    def clip_norm(self, norm: float | None) -> None:
        self._clip_norm = self._limit("clip_norm", norm)

    @property
    def norm_type(self) -> float:
        """p of the norm that `clip_norm` limits."""
        return self._norm_type

    @norm_type.setter
    def norm_type(self, norm_type: float) -> None:
        self._norm_type: float = positive(type(self).__name__, "norm_type", norm_type)

    @property
    def clip_value(self) -> float | None:
        """The largest absolute value of an element of the gradients. None: no limit."""
        return self._clip_value

    @clip_value.setter
    def clip_value(self, value: float | None) -> None:
        self._clip_value = self._limit("clip_value", value)

    def _limit(self, name: str, value: float | None) -> float | None:
        return None if value is None else positive(type(self).__name__, name, value)

    def _clips_on_host(self) -> bool:
        """Whether the update itself cannot clip the gradients."""
        other_norm = self.clip_norm is not None and self.norm_type != 2
        return other_norm or (self.clip_value is not None and self._scaler is not None)

    def _limit_values(self, grads: Sequence[Tensor]) -> None:
        """Clips gradients by value, in place, by operations that a recorded step repeats."""
        if self.clip_value is not None:
            limit_all([grad.data for grad in grads], self.clip_value)

    @property
    def accumulate(self) -> int:
        """Calls for each update."""
        return self._accumulate

    @accumulate.setter
    def accumulate(self, calls: int) -> None:
        kind = type(self).__name__
        calls = integer(kind, "accumulate", calls, 1)
        if self._accumulated_calls:
            raise ValueError(
                f"[{kind}] accumulate cannot change between the calls for one update: "
                f"{self._accumulated_calls} of {self._accumulate} were made"
            )
        self._accumulate: int = calls

    @property
    def has_parts(self) -> bool:
        """Whether an update has several parts, which a loss that counts its targets weighs."""
        return self.accumulate > 1

    @property
    def calls_made(self) -> int:
        """Calls since the last update whose gradients wait for it."""
        return self._accumulated_calls

    # A step.

    def __call__(self, loss: Tensor) -> None:
        """Backward from `loss`, update of every parameter, next step of the schedules."""
        self.call(loss)
        host_call(self.end_call)

    def call(self, loss: Tensor) -> None:
        """Backward and update, without the next step of the schedules."""
        if getattr(loss, "counted", None) is None:
            rows = counted_rows(loss) if self.accumulate > 1 else None
            self.apply_gradients(list(autograd.backward(loss, self.backward_seed(loss))), rows)
            return
        count = counted_copy(loss)
        seed = self.backward_seed(loss)
        if self.accumulate > 1:
            seed = of_sum(seed, count)
        gradients = list(autograd.backward(loss, seed))
        lent = [count.data, *[g.data for _, g in gradients]]
        host_call(functools.partial(self._apply_counted, gradients, count), lent)

    def _apply_counted(self, gradients: Sequence[tuple[Tensor, Tensor]], count: Tensor) -> None:
        """An update for a loss that counts some of its targets. With `accumulate` the gradients are
        those of the sum over them."""
        targets = float(count)
        if targets or self.accumulate > 1:
            self._apply_now(gradients, targets, self.accumulate > 1)
        else:
            self.skip_update()

    def skip_update(self) -> None:
        """Has the present call make no update, and not go on to the next step of the schedules: no
        target has counted.

        >>> optimizer = opt.SGD(lr=0.1)
        >>> optimizer.skip_update()
        >>> optimizer.end_call()
        >>> optimizer.steps
        0
        """
        self._skips_call = True

    def backward_seed(self, loss: Tensor) -> Tensor | None:
        """The gradient from which backward starts: with a scaler the loss scale, else None, which
        stands for ones."""
        if is_recording_step():
            self._count_updates()  # now: later, reading the count would end the recording
        return None if self._scaler is None else self._scaler.seed(loss)

    def apply_gradients(
        self, gradients: Sequence[tuple[Tensor, Tensor]], targets: float | None = None
    ) -> None:
        """Updates the parameters by their gradients, without the next step of the schedules; with
        `accumulate`, keeps them until the last call, weighted by `targets`. A recorded step
        contains the update if it can be replayed, and otherwise calls the host.

        Raises RuntimeError if there are no gradients.
        """
        unused.params = ()
        if is_recording_step() and gradients:
            self._records_update = True
            try:
                if self._record_update(gradients):
                    return
            finally:
                self._records_update = False
        lent = [g.data for _, g in gradients]
        host_call(functools.partial(self._apply_now, gradients, targets), lent)

    def _record_update(self, gradients: Sequence[tuple[Tensor, Tensor]]) -> bool:
        """Records the update as part of the recorded step. False: replays cannot repeat it."""
        return False

    @property
    def updates_apart(self) -> bool:
        """Whether a parameter can be updated before the gradients of others are there: nothing in
        the update depends on them, such as their norm."""
        return False

    def _skips_on_device(self) -> bool:
        """Whether clipping and skipping an update happen on the device, inside the update."""
        return False

    def end_call(self) -> None:
        """Ends a call of the optimizer: goes on to the next step of the schedules if the call has
        updated the parameters, which a call that only accumulates, and one that the scaler skips,
        has not."""
        unused.params = ()
        if self._accumulated_calls or self._skips_call:
            self._skips_call = False
            return
        if self._scaler is not None and self._skips_on_device():
            self._pending_updates += 1
            missed, before = self._missed(), self._steps
            if missed or self._scaler.is_on_host():
                self._count_updates()
            self._fall_behind(missed, self._steps - before)
        elif not self._skipped:
            self.step()

    def _apply_now(
        self,
        gradients: Sequence[tuple[Tensor, Tensor]],
        targets: float | None = None,
        of_sum: bool = False,
    ) -> None:
        updates = [(self.state_key(p), p, g) for p, g in gradients]
        if not updates:
            raise RuntimeError(
                f"[{type(self).__name__}] the loss was computed from no parameter that trains, or "
                "while the tape was off: set autograd.training, or call the model's train()"
            )
        if self.accumulate > 1:
            updates = self._accumulate_gradients(updates, targets, of_sum)
            if self._accumulated_calls or self._skips_call:
                return
        grads = [grad for _, _, grad in updates]
        if self._skips_on_device():
            self._limit_values(grads)
            self._apply_on_device(updates)
            return
        self._skipped = self._scaler is not None and not self._unscaled(self._scaler, grads)
        if self._skipped:
            return
        self._limit_values(grads)
        if self.clip_norm is not None:
            clip_by_global_norm(grads, self.clip_norm, self.norm_type)
        self.apply_all(self._own(updates))

    def _divided_by_choice(self, updates: Sequence[Update]) -> tuple[list[Update], list[Update]]:
        """Updates of parameters that are chosen, and of others."""
        own: list[Update] = []
        others: list[Update] = []
        for update in updates:
            (own if self._is_chosen(update[1]) else others).append(update)
        return own, others

    def _own(self, updates: Sequence[Update]) -> Sequence[Update]:
        """The updates of parameters that are chosen. Others get the layout of updated ones."""
        if self._chosen is None:
            return updates
        own, others = self._divided_by_choice(updates)
        singa_wrap.MoveAsUpdate([p.data for _, p, _ in others], [g.data for _, _, g in others])
        return own

    def _apply_on_device(self, updates: Sequence[Update]) -> None:
        """`apply_all` with clipping and skipping on the device, then the scaler's update."""
        raise NotImplementedError

    def _unscaled(self, scaler: GradScaler, grads: Sequence[Tensor]) -> bool:
        self._count_updates()
        try:
            return scaler.unscale(grads)
        finally:
            self._known_updates = scaler.made()

    @host_called
    def step(self) -> None:
        """Goes on to the next step of the schedules. It updates nothing: `optimizer(loss)` does
        all of it.

        Raises RuntimeError after `loss.backward()`, whose gradients no update has used.

        >>> optimizer = opt.SGD(lr=opt.StepDecay(1.0, 1))
        >>> optimizer.step()
        >>> optimizer.steps
        1
        """
        left = unused_gradients() if unused.params and type(self).step is Optimizer.step else []
        if left:
            raise RuntimeError(
                f"[{type(self).__name__}] step() updates nothing, and loss.backward() has left "
                f"gradients, such as {left[0].name or 'W'}.grad: optimizer(loss) is backward, "
                "the update and the step"
            )
        if missed := self._missed():
            self._fall_behind(missed, 1)
        self._steps += 1

    def _missed(self) -> Collection[str]:
        """The keys of parameters that the step that ends has not updated, if the formula depends on
        their number of updates."""
        return ()

    def _fall_behind(self, keys: Collection[str], updates: int) -> None:
        """Counts updates that these parameters have missed."""
        for key in keys if updates else ():
            self._behind[key] = self._behind.get(key, 0) + updates

    @host_called
    def apply(self, param_name: str | None, param_value: Tensor, param_grad: Tensor) -> None:
        """Updates one parameter in place. `param_name` is the key of its slots; None: the
        parameter's name, which it gets if it has none."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to apply a gradient")

    @host_called
    def apply_all(self, updates: Sequence[Update]) -> None:
        """Updates all parameters of a step in place."""
        for key, param, grad in updates:
            self.apply(key, param, grad)

    @host_called
    def update(self, param: Tensor, grad: Tensor) -> None:
        """Updates one parameter. `apply` under its own name.

        >>> w = tensor.Tensor(data=[1.0], stores_grad=True)
        >>> opt.SGD(lr=0.1).update(w, tensor.Tensor(data=[2.0]))
        >>> w
        Tensor([0.8], dtype=float32)
        """
        for tensor_ in (param, grad):
            if not isinstance(tensor_, Tensor):
                raise TypeError(
                    f"[{type(self).__name__}] update takes two Tensors, got "
                    f"{type(tensor_).__name__}"
                )
        self.apply(self.state_key(param), param, grad)

    def backward_and_update(self, loss: Tensor) -> None:
        """The same as calling the optimizer.

        >>> autograd.training = True
        >>> w = tensor.Tensor(data=[1.0], stores_grad=True)
        >>> opt.SGD(lr=0.1).backward_and_update(autograd.sum(w * w))
        >>> w
        Tensor([0.8], dtype=float32)
        """
        self(loss)

    def device_check(self, *inputs: Tensor) -> None:
        """Moves all tensors to the first one's device."""
        for other in inputs[1:]:
            if other.device.id() != inputs[0].device.id():
                other.to_device(inputs[0].device)

    def _accumulate_gradients(
        self, updates: list[Update], targets: float | None, of_sum: bool
    ) -> list[Update]:
        """Adds to the accumulated gradients, those of a mean over `targets`, or of a sum. The last
        of `accumulate` calls returns and drops them, and drops those of parameters that are no
        longer in the models that the optimizer was set on."""
        if not self._accumulated_calls:
            self._accumulated_targets, self._accumulated_unit = 0.0, 0.0
            if targets is not None:
                self._accumulated_unit = 1.0 if of_sum else targets
        unit = self._accumulated_unit or 1.0
        counted = 1.0
        if targets is not None and (of_sum or self._accumulated_unit):
            counted = targets / unit
        self._accumulated_targets += counted
        share = (1.0 / unit if of_sum else counted) / self.accumulate
        if not self._owners:  # else the models say which parameters there are
            self._accumulated_params += [param for _, param, _ in updates]
        for key, _, grad in updates if counted else ():
            if key in self._accumulated_grads:
                singa_wrap.Axpy(share, grad.data, self._accumulated_grads[key].data)
            else:
                self._accumulated_grads[key] = (grad * share).detach()
        self._accumulated_calls = (self._accumulated_calls + 1) % self.accumulate
        if self._accumulated_calls:
            return updates
        sums, self._accumulated_grads = self._accumulated_grads, {}
        if self._accumulated_targets:
            scale_to_mean(list(sums.values()), self.accumulate, self._accumulated_targets)
        else:
            self.skip_update()
        params = self._present_parameters()
        self._accumulated_params.clear()
        return [
            (key, param, total)
            for key, total in sums.items()
            if (param := params.get(key)) is not None
        ]

    # Saved state.

    def get_states(self) -> dict[str, Any]:
        """What `set_states` continues from. The tensors are not copies.

        "step_counter": the number of updates so far; "parameter_steps": that of each parameter
        that missed some, if the formula depends on it; for each slot, such as "moments", a dict of
        tensors by parameter name; the hyperparameters that were assigned; with a scaler,
        "loss_scale" and "loss_scale_updates".

        >>> w = tensor.Tensor(data=[1.0], stores_grad=True, name="w")
        >>> optimizer = opt.SGD(lr=0.1, momentum=0.9)
        >>> optimizer.update(w, tensor.Tensor(data=[2.0]))
        >>> sorted(optimizer.get_states())
        ['moments', 'step_counter']
        """
        self._use_paths()
        states: dict[str, Any] = {"step_counter": self.steps}
        if self._accumulated_calls:
            states["accumulated"] = self._accumulated_grads
            states["accumulated_calls"] = self._accumulated_calls
            states["accumulated_targets"] = self._accumulated_targets
            states["accumulated_unit"] = self._accumulated_unit
        if self._scaler is not None:
            scaler = self._scaler.state_dict()
            states |= {name: scaler[key] for name, key in _SCALER_STATES.items()}
        behind = {key: count for key, count in self._behind.items() if count}
        if behind:
            states["parameter_steps"] = {k: self._steps - count for k, count in behind.items()}
        return states | self._assigned()

    def set_states(self, states: dict[str, Any]) -> None:
        """Continues from what get_states() returned. The tensors are copied.

        Raises ValueError or TypeError for the state of another optimizer, or of other parameters
        than those of the model that it was set on. Nothing has changed then.
        """
        kind = type(self).__name__
        if not isinstance(states, Mapping):
            raise TypeError(f"[{kind}] states must be a dict, got {type(states).__name__}")
        if "step_counter" not in states:
            raise ValueError(f"[{kind}] states lack 'step_counter'")
        steps = integer(kind, "step_counter", states["step_counter"], 0)
        waiting = integer(kind, "accumulated_calls", states.get("accumulated_calls", 0), 0)
        sums = self._copied("accumulated", states.get("accumulated", {}))
        targets = float(states.get("accumulated_targets", waiting))  # older states have none
        unit = float(states.get("accumulated_unit", 0.0))
        behind = {
            key: max(steps - integer(kind, f"parameter_steps of {key}", count, 0), 0)
            for key, count in dict(states.get("parameter_steps", {})).items()
            if self._keeps(key)
        }
        restored = self._restored(states)
        self._say_read()
        if self._scaler is not None:
            scaler = {key: states[name] for name, key in _SCALER_STATES.items() if name in states}
            self._scaler.load_state_dict(self._scaler.state_dict() | scaler)
        self._use_paths()
        self._keys = {key: ref for key, ref in self._keys.items() if ref() is not None}
        self._count_updates()
        self._steps, self._accumulated_calls, self._accumulated_grads = steps, waiting, sums
        self._accumulated_targets, self._accumulated_unit = targets, unit
        self._behind = behind
        for name, schedule in restored.items():
            setattr(self, name, schedule)

    def state_types(self, name: str, param: Tensor | None) -> Collection[DType]:
        """The types that a tensor of `get_states()[name]` may have. `param` is its parameter; None:
        it is not known yet."""
        if name != "accumulated":
            return tuple(DType)
        return _FLOATS if param is None else (param.dtype,)

    def _copied(self, name: str, tensors: Any) -> dict[str, Tensor]:
        """Copies of the tensors of `states[name]`. Raises TypeError or ValueError for a tensor of
        another type or shape than its parameter needs, where that parameter is known."""
        kind = type(self).__name__
        if not isinstance(tensors, Mapping):
            raise TypeError(f"[{kind}] {name} must hold a tensor for each parameter")
        for key, value in tensors.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"[{kind}] {name} must hold a tensor for each parameter")
            holder = self._keys.get(key)
            param = holder() if holder is not None else None
            if param is not None and value.shape != param.shape:
                raise ValueError(f"[{kind}] {name} of {key} is {value.shape}, not {param.shape}")
            types = self.state_types(name, param)
            if value.dtype not in types:
                expected = " or ".join(map(str, types))
                raise TypeError(f"[{kind}] {name} of {key} is {value.dtype}, not {expected}")
        return {key: value.deepcopy() for key, value in tensors.items() if self._keeps(key)}

    def __getstate__(self) -> dict[str, Any]:
        # Keys refer to live parameters; those of a copy are found again by name.
        self._use_paths()
        made_anew: dict[str, Any] = {
            "_keys": {},
            "_key_of": {},
            "_owners": [],
            "_paths": {},
            "_group_of": {},
            "_value_tensors": {},
            "_tables": {},
            "_accumulated_params": [],
            "_chosen": None,
        }
        return {**self.__dict__, **made_anew}
