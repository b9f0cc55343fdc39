"""Losses with PyTorch's arguments: combinations of them, odd targets, half types, wrong indices."""

import itertools
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrays import of
from singa import autograd, model, opt, tensor
from singa.tensor import Tensor

pytestmark = pytest.mark.usefixtures("training")

_RANDOM = np.random.default_rng(5)
_SCORES = {
    (6, 4): _RANDOM.standard_normal((6, 4)),
    (2, 4, 5): _RANDOM.standard_normal((2, 4, 5)),
    (2, 4, 3, 3): _RANDOM.standard_normal((2, 4, 3, 3)),
}
_WEIGHT = np.array([0.5, 2.0, 1.0, 0.0], np.float32)


def _classes(shape: tuple[int, ...], ignore_index: int | None) -> np.ndarray[Any, Any]:
    t = np.random.default_rng(6).integers(0, 4, (shape[0], *shape[2:]))
    if ignore_index is not None:
        t.flat[::3] = ignore_index
    return t


@pytest.mark.parametrize("shape", _SCORES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore_index", [None, -100, 255, 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_classes_is_pytorch(
    torch: ModuleType,
    shape: tuple[int, ...],
    reduction: str,
    ignore_index: int | None,
    weighted: bool,
    smoothing: float,
) -> None:
    x = Tensor(data=_SCORES[shape], dtype="float64", stores_grad=True)
    t, weight = _classes(shape, ignore_index), _WEIGHT if weighted else None
    loss = autograd.softmax_cross_entropy(x, of(t), smoothing, weight, ignore_index, reduction)
    theirs = torch.tensor(_SCORES[shape]).requires_grad_()
    truth = torch.nn.functional.cross_entropy(
        theirs,
        torch.tensor(t),
        torch.tensor(_WEIGHT, dtype=torch.float64) if weighted else None,
        ignore_index=-12345 if ignore_index is None else ignore_index,
        label_smoothing=smoothing,
        reduction=reduction,
    )
    expected = truth.detach().numpy().reshape(loss.shape)
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-12, atol=1e-14)
    dy = np.random.default_rng(7).standard_normal(loss.shape)
    truth.backward(torch.tensor(dy).reshape(truth.shape))
    gradient = autograd.gradients(loss, dy)[x].numpy()
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weight", [None, _WEIGHT], ids=["", "weight"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_that_are_all_ignored(torch: ModuleType, smoothing: float, weight: Any) -> None:
    """As PyTorch's, the mean is NaN, the sum 0, and the gradient 0."""
    t = np.full(6, 255)
    losses = [partial(autograd.softmax_cross_entropy, smoothing=smoothing), autograd.nll_loss]
    for loss, reduction in itertools.product(losses, ("mean", "sum")):
        x = of(_SCORES[6, 4])
        x.stores_grad = True
        value = loss(x, t, weight=weight, ignore_index=255, reduction=reduction)
        np.testing.assert_array_equal(value.numpy(), [np.nan if reduction == "mean" else 0.0])
        ((_, gradient),) = autograd.backward(value)
        np.testing.assert_array_equal(gradient.numpy(), np.zeros((6, 4)))


@pytest.mark.parametrize("weight", [None, _WEIGHT], ids=["", "weight"])
@pytest.mark.parametrize("what", [-np.inf, np.inf, np.nan])
def test_ignored_places_may_hold_anything(torch: ModuleType, what: float, weight: Any) -> None:
    scores, t = np.array(_SCORES[6, 4]), np.array([1, 255, 2, 255, 0, 3])
    scores[1], scores[3, 0] = what, what
    kept = t != 255
    theirs = torch.tensor(scores[kept].astype(np.float64), requires_grad=True)
    classes = torch.tensor(t[kept])
    functional = torch.nn.functional
    share = None if weight is None else torch.tensor(np.asarray(weight, np.float64))
    want = functional.cross_entropy(theirs, classes, weight=share)
    want.backward()
    x = of(scores)
    x.stores_grad = True
    loss = autograd.softmax_cross_entropy(x, t, weight=weight, ignore_index=255)
    np.testing.assert_allclose(loss.numpy(), [want.item()], 1e-6)
    ((_, gradient),) = autograd.backward(loss)
    np.testing.assert_allclose(gradient.numpy()[kept], theirs.grad.numpy(), 1e-5, 1e-7)
    logarithms = autograd.nll_loss(of(scores), t, weight=weight, ignore_index=255)
    want = functional.nll_loss(torch.tensor(scores[kept].astype(np.float64)), classes, weight=share)
    np.testing.assert_allclose(logarithms.numpy(), [want.item()], 1e-6)


def test_what_a_loss_counts() -> None:
    x, t = of(_SCORES[6, 4]), np.array([1, 255, 2, 255, 0, 3])
    weight = [1.0, 2.0, 4.0, 0.5]
    for more, counted in (
        ({"ignore_index": 255}, 4.0),
        ({"ignore_index": 255, "weight": weight}, 7.5),
        ({"ignore_index": 0, "weight": weight}, None),
    ):
        classes = t if counted else np.zeros(6, np.int64)
        loss = autograd.softmax_cross_entropy(x, classes, **more)
        assert loss.counted.numpy().tolist() == [counted or 0.0]
        assert autograd.nll_loss(x, classes, **more).counted.shape == (1,)
        assert (loss * 2.0).counted is None
        assert autograd.softmax_cross_entropy(x, classes, reduction="sum", **more).counted is None
    assert autograd.softmax_cross_entropy(x, np.zeros(6, np.int64)).counted is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_computed_in_float32(torch: ModuleType, dtype: str) -> None:
    """The loss, in float32, is that of the rounded inputs. Gradients have the type of x."""
    shape = (2, 4, 3, 3)
    x = of(_SCORES[shape]).as_type(dtype)
    x.stores_grad = True
    t = _RANDOM.integers(0, 2, shape).astype(np.float32)
    classes = torch.tensor(_classes(shape, 255))
    theirs = torch.tensor(x.numpy().astype(np.float64)).requires_grad_()
    functional = torch.nn.functional
    for ours, truth in (
        (
            autograd.softmax_cross_entropy(x, of(classes.numpy()), ignore_index=255),
            functional.cross_entropy(theirs, classes, ignore_index=255),
        ),
        (
            autograd.binary_cross_entropy_with_logits(x, t),
            functional.binary_cross_entropy_with_logits(theirs, torch.tensor(t).double()),
        ),
        (autograd.huber_loss(x, t), functional.huber_loss(theirs, torch.tensor(t).double())),
    ):
        assert ours.dtype == tensor.float32
        eps = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
        np.testing.assert_allclose(ours.numpy(), [truth.item()], rtol=2e-6)
        theirs.grad = None
        truth.backward()
        gradient = autograd.gradients(ours)[x]
        assert gradient.dtype.name == dtype
        np.testing.assert_allclose(gradient.numpy(), theirs.grad, rtol=3 * eps, atol=1e-6)


def test_scores_far_out_do_not_overflow() -> None:
    x = Tensor(data=np.array([-1e4, 1e4]), stores_grad=True)
    loss = autograd.binary_cross_entropy_with_logits(x, np.array([1.0, 0.0]), reduction="none")
    np.testing.assert_array_equal(loss.numpy(), [1e4, 1e4])
    np.testing.assert_array_equal(autograd.gradients(loss, np.ones(2))[x].numpy(), [-1, 1])


def test_divergence_of_a_target_of_0() -> None:
    x = Tensor(data=np.log([0.5, 0.5]), stores_grad=True)
    t = Tensor(data=np.array([1.0, 0.0]), stores_grad=True)
    loss = autograd.kl_div(x, t, "sum")
    assert loss.item() == pytest.approx(np.log(2), rel=1e-6)
    gradients = autograd.gradients(loss)
    np.testing.assert_array_equal(gradients[x].numpy(), [-1, 0])
    assert np.isfinite(gradients[t].numpy()).all()


@pytest.mark.parametrize("index", [4, -1, -4])
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "nll_loss", "dice_loss"])
def test_an_index_outside_is_refused(loss: str, index: int) -> None:
    t = _classes((2, 4, 3, 3), None)
    t[1, 2, 2] = index
    with pytest.raises(IndexError, match="4"):
        getattr(autograd, loss)(of(_SCORES[2, 4, 3, 3]), of(t)).numpy()


@pytest.mark.parametrize("shape", _SCORES)
@pytest.mark.parametrize(
    "form", [{}, {"weight": _WEIGHT}, {"ignore_index": 255}, {"reduction": "sum"}], ids=str
)
def test_every_form_of_cross_entropy_refuses_an_index_outside(
    shape: tuple[int, ...], form: dict[str, Any]
) -> None:
    t = _classes(shape, None)
    t.flat[-1] = 4
    with pytest.raises(IndexError, match=r"index 4 .*outside"):
        autograd.softmax_cross_entropy(of(_SCORES[shape]), of(t), **form).numpy()


def test_masks_of_any_type() -> None:
    x = of(_SCORES[6, 4])
    masks = _RANDOM.random((6, 4)) > 0.5
    expected = autograd.binary_cross_entropy_with_logits(x, masks.astype(np.float32)).item()
    for dtype in ("bool", "uint8", "int64", "float64"):
        t = of(masks).as_type(dtype)
        assert autograd.binary_cross_entropy_with_logits(x, t).item() == expected


class _Scores(model.Model):
    """Scores as parameters."""

    shape: tuple[int, ...] = (6, 4)

    def __init__(self) -> None:
        super().__init__()
        self.x = Tensor(data=_SCORES[self.shape], stores_grad=True)
        self.weight = tensor.from_numpy(_WEIGHT)

    def forward(self, t: Tensor) -> Tensor:
        return autograd.softmax_cross_entropy(self.x, t)

    def train_one_batch(self, t: Tensor) -> Tensor:
        loss = self.forward(t)
        self.optimizer(loss)
        return loss


class _Segments(_Scores):
    """Scores of pixels."""

    shape = (2, 4, 3, 3)

    def forward(self, t: Tensor) -> Tensor:
        loss = autograd.softmax_cross_entropy(self.x, t, 0.1, self.weight, 255)
        return loss + autograd.dice_loss(self.x, autograd.where(0, t, t == 255))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("kind", "ignored"), [(_Scores, None), (_Segments, 255)])
def test_recorded_steps_check_each_batch(kind: type[_Scores], ignored: int | None) -> None:
    """Replays have the bits of executed steps, and refuse an index outside."""
    batches = [np.roll(_classes(kind.shape, ignored), n).astype(np.int32) for n in range(6)]
    losses: list[list[float]] = []
    for use_graph in (False, True):
        net = kind()
        net.set_optimizer(opt.SGD(lr=0.5))
        net.compile([of(batches[0])], is_train=True, use_graph=use_graph)
        losses.append([net(of(t)).item() for t in batches])
    assert losses[0] == losses[1]
    assert net.memory_plan()["planned_bytes"] > 0
    with pytest.raises(IndexError, match="index 4 at position 0 is outside"):
        net(of(np.full(batches[0].shape, 4, np.int32))).numpy()


@pytest.mark.parametrize("weight", [None, [[2.0], [0.5]]])
@pytest.mark.parametrize("positive", [None, [1.0, 3.0, 0.5]])
def test_weights_may_be_lists(torch: ModuleType, weight: Any, positive: Any) -> None:
    x, t = _RANDOM.standard_normal((2, 3)), _RANDOM.random((2, 3))
    loss = autograd.binary_cross_entropy_with_logits(of(x), t, weight, positive)
    truth = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.tensor(x),
        torch.tensor(t),
        None if weight is None else torch.tensor(weight),
        pos_weight=None if positive is None else torch.tensor(positive),
    )
    assert loss.item() == pytest.approx(truth.item(), rel=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.25, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_focal_loss_of_certain_scores(gamma: float, dtype: str) -> None:
    """Where 1 - p_t rounds to 0, a root of it would have an infinite slope."""
    scores = np.array([-400.0, -100.0, -20.0, 0.0, 20.0, 100.0, 400.0])
    rounding = 1e-8 if dtype == "float32" else 1e-16
    for target in (0.0, 1.0):
        x = Tensor(data=scores, dtype=dtype, stores_grad=True)
        loss = autograd.sigmoid_focal_loss(x, np.full(7, target), 0.25, gamma, "none")
        sign, alpha = (1, 0.25) if target else (-1, 0.75)
        cross, missed = np.logaddexp(0, -sign * scores), np.exp(-np.logaddexp(0, sign * scores))
        truth = alpha * missed**gamma * cross
        np.testing.assert_allclose(loss.numpy(), truth, 1e-5, rounding)
        slope = -sign * alpha * missed**gamma * (gamma * (1 - missed) * cross + missed)
        found = autograd.gradients(loss, np.ones(7))[x].numpy()
        np.testing.assert_allclose(found, slope, 1e-5, rounding)
