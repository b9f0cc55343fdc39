"""singa.utils: padding against a count of window positions, text helpers."""

import itertools

import pytest
from singa import utils

CASES = list(itertools.product(range(1, 12), range(1, 6), range(1, 5)))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_gives_the_output_it_promises(mode):
    for size, kernel, stride in CASES:
        (pad,), (before, after) = utils.get_padding_shape(mode, [size], [kernel], [stride])
        (out,) = utils.get_output_shape(mode, [size], [kernel], [stride])
        padded = size + 2 * pad + before + after
        assert out == len(range(0, size, stride))
        # As few pixels as possible: the last window ends at the end, or no padding is needed.
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
