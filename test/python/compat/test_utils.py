"""singa.utils: padding, compared with a count of window positions; handles, graphs, text
helpers."""

import itertools

import numpy as np
import pytest
from singa import autograd, tensor, utils
from singa import singa_wrap as singa

CASES = list(itertools.product(range(1, 12), range(1, 6), range(1, 5)))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_gives_the_output_it_promises(mode):
    for size, kernel, stride in CASES:
        (pad,), (before, after) = utils.get_padding_shape(mode, [size], [kernel], [stride])
        (out,) = utils.get_output_shape(mode, [size], [kernel], [stride])
        padded = size + 2 * pad + before + after
        assert out == len(range(0, size, stride))
        # The smallest number of pixels: the last window ends at the end, or no padding is needed.
        windows = len(range(0, padded - kernel + 1, stride))
        assert windows == out
        if pad or before or after:
            assert padded == (out - 1) * stride + kernel
        assert (before if mode == "SAME_UPPER" else after) == 0
        assert before + after <= 1


def test_two_axes():
    padding, odd = utils.get_padding_shape("SAME_LOWER", (5, 6), (2, 3), (1, 2))
    assert (padding, odd) == ((0, 0), (1, 0, 1, 0))
    assert utils.get_padding_shape("SAME_UPPER", (5, 6), (2, 3), (1, 2))[1] == (0, 1, 0, 1)
    assert utils.get_output_shape("SAME_UPPER", (5, 6), (2, 3), (1, 2)) == [5, 3]


def test_valid_output_counts_window_positions():
    for size, kernel, stride in CASES:
        if kernel <= size:
            (out,) = utils.get_output_shape("VALID", [size], [kernel], [stride])
            assert out == len(range(0, size - kernel + 1, stride))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: utils.get_output_shape("NOTSET", [5], [2], [1]), "auto_pad must be"),
        (lambda: utils.get_padding_shape("VALID", [5], [2], [1]), "pad_mode must be"),
        (lambda: utils.get_padding_shape("SAME_UPPER", [5], [2, 2], [1]), r"got \(5,\), \(2, 2\)"),
        (lambda: utils.get_output_shape("VALID", [5], [2], [0]), "positive extents"),
        (lambda: utils.get_output_shape("VALID", [], [], []), "positive extents"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (0, "[--------------------] 0.0%  hello\r"),
        (0.5, "[##########----------] 50.0%  hello\r"),
        (1, "[####################] 100.0% Done. hello\n"),
        (3.7, "[####################] 100.0% Done. hello\n"),
        (-1, "[--------------------] 0.0% Halt... hello\n"),
    ],
)
def test_update_progress(progress, expected, capsys):
    utils.update_progress(progress, "hello")
    assert capsys.readouterr().out == expected


def test_update_progress_wants_a_number():
    with pytest.raises(TypeError, match="must be a number, got '1'"):
        utils.update_progress("1", "")


def test_force_unicode():
    assert utils.force_unicode(b"gr\xc3\xbcn") == "grün"
    assert utils.force_unicode("a") == "a"
    assert utils.force_unicode(3) == "3"


def test_same_padding_of_a_handle() -> None:
    x = tensor.Tensor((2, 3, 5, 6))
    handle = singa.ConvHandle(x.data, [2, 3], [1, 2], [0, 0], 3, 4)
    assert utils.same_pad_shape_check(handle, "SAME_UPPER", x.data) == ((0, 0), (0, 1, 0, 1))
    pool = singa.PoolingHandle(x.data, [3, 3], [1, 1], [1, 1])
    assert utils.same_pad_shape_check(pool, "SAME_LOWER", x) == ((1, 1), (0, 0, 0, 0))
    wrong = singa.PoolingHandle(x.data, [3, 3], [1, 1], [0, 1])
    for kind in (ValueError, AssertionError):  # SINGA asserts
        with pytest.raises(kind, match=r"needs padding \(1, 1\), the handle has \(0, 1\)"):
            utils.same_pad_shape_check(wrong, "SAME_UPPER", x.data)
        with pytest.raises(kind, match=r"x must be \(N, C, H, W\), got \(2,\)"):
            utils.same_pad_shape_check(pool, "SAME_UPPER", tensor.Tensor((2,)))


def test_odd_padding_by_hand() -> None:
    values = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    x = tensor.from_numpy(values).data
    for odd in [(1, 0, 0, 2), (0, 0, 0, 0), (0, 3, 1, 0)]:
        y = utils.handle_odd_pad_fwd(x, odd)
        truth = np.pad(values, ((0, 0), (0, 0), odd[:2], odd[2:]))
        np.testing.assert_array_equal(tensor.from_raw_tensor(y).numpy(), truth)
        dx = utils.handle_odd_pad_bwd(y, odd)
        np.testing.assert_array_equal(tensor.from_raw_tensor(dx).numpy(), values)
    for call in (utils.handle_odd_pad_fwd, utils.handle_odd_pad_bwd):
        with pytest.raises(ValueError, match=rf"\[{call.__name__}\] odd_padding must be"):
            call(x, (1, 1))
    with pytest.raises(ValueError, match="dx must be"):
        utils.handle_odd_pad_bwd(tensor.Tensor((2,)).data, (1, 0, 0, 0))


def test_a_handle_for_another_input() -> None:
    small, large = tensor.Tensor((1, 4, 8, 8)), tensor.Tensor((3, 4, 10, 9))
    conv = singa.ConvHandle(small.data, [3, 2], [2, 1], [1, 0], 4, 6, False, 2)
    again = utils.re_new_handle(conv, large.data)
    assert type(again) is singa.ConvHandle
    for side in "hw":
        for name in ("kernel", "stride", "pad"):
            assert getattr(again, f"{name}_{side}") == getattr(conv, f"{name}_{side}")
    assert (again.channels, again.num_filters) == (4, 6)
    assert (again.batchsize, again.group, again.bias_term) == (3, 2, False)
    for is_max in (True, False):
        pool = singa.PoolingHandle(small.data, [2, 2], [2, 2], [0, 1], is_max)
        renewed = utils.re_new_handle(pool, large, True)
        assert type(renewed) is singa.PoolingHandle
        assert (renewed.is_max_pooling, renewed.batchsize, renewed.pad_w) == (is_max, 3, 1)
        assert (renewed.pooled_height, renewed.pooled_width) == (5, 5)


def test_what_a_result_was_computed_from(training: None) -> None:
    w = tensor.Tensor((3, 3), stores_grad=True, name="w")
    x, other = tensor.ones((2, 3)), tensor.ones((2, 3))
    hidden = autograd.relu(autograd.matmul(x, w))
    y = autograd.add(autograd.add(hidden, autograd.matmul(hidden, w)), other)
    nodes, weights, inputs = utils.post_order_recursive(y.creator, y)
    kinds = [type(op).__name__ for op in nodes.values()]
    assert kinds == ["Matmul", "ReLU", "Matmul", "Add", "Add"]
    assert list(nodes.values())[-1] is y.creator
    assert list(weights) == ["w"]
    assert weights["w"] is w
    assert list(inputs.values()) == [None, None]
    assert utils.post_order_recursive(None, None) == ({}, {}, {})
    assert utils.post_order_recursive(w.creator, w)[1] == {"w": w}


def test_strides_by_either_name() -> None:
    for name in ("strides_spatial", "strides_spatial_shape"):
        strides = {name: (2, 2)}
        assert utils.get_output_shape("SAME_UPPER", (5, 6), (3, 3), **strides) == [3, 3]
        assert utils.get_padding_shape("SAME_UPPER", (5, 6), (3, 3), **strides)[0] == (1, 0)
    with pytest.raises(ValueError, match=r"\[get_output_shape\] input, kernel and strides"):
        utils.get_output_shape("VALID", (5,), (3,))
