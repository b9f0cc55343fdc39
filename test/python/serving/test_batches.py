"""serving.Batches: pictures of many threads, computed in batches."""

import threading
import time

import numpy as np
import pytest
from picture_folders import smooth
from singa import data, serving

FITTING = np.zeros((3, 16, 16), np.uint8)
PICTURES = [np.ascontiguousarray(smooth(seed).transpose(2, 0, 1)) for seed in range(12)]


class Held:
    """Replaces what a classifier computes: it waits until `go` is set, and notes the batches."""

    def __init__(self, classifier, monkeypatch):
        self.go, self.begun, self.sizes = threading.Event(), threading.Event(), []
        real = classifier.values_of_inputs

        def held(inputs):
            self.sizes.append(len(inputs))
            self.begun.set()
            assert self.go.wait(30)
            return real(inputs)

        monkeypatch.setattr(classifier, "values_of_inputs", held)


def in_thread(target, *args):
    thread = threading.Thread(target=target, args=args)
    thread.start()
    return thread


def test_threads_share_batches(classifier):
    expected = classifier.probabilities(PICTURES)
    answers = [None] * 12
    with serving.Batches(classifier, most=4, patience_s=30.0) as batches:  # full ones do not wait

        def ask(number):
            answers[number] = batches.probabilities(PICTURES[number])

        threads = [in_thread(ask, number) for number in range(12)]
        for thread in threads:
            thread.join()
        text = batches.counters.text({})
    for answer, row in zip(answers, expected, strict=True):
        assert list(answer) == ["a", "b", "c"]
        assert list(answer.values()) == pytest.approx(row.tolist(), abs=1e-6)
    assert 'singa_batch_pictures_bucket{le="2"} 0\n' in text
    assert 'singa_batch_pictures_bucket{le="4"} 3\n' in text
    assert "singa_batch_pictures_sum 12" in text


def test_pictures_of_another_size(classifier):
    """The transform has no resize. A network that takes any size would take memory for it."""
    classifier.transform = type(classifier.transform)(*classifier.transform.transforms[2:])
    expected = dict(zip("abc", classifier.probabilities([FITTING])[0], strict=True))
    with serving.Batches(classifier) as batches:
        with pytest.raises(
            serving.PictureSizeError, match="a picture of 9 x 20 pixels: the network takes 16 x 16"
        ):
            batches.predict([FITTING, np.zeros((3, 9, 20), np.uint8)])
        assert batches.predict([FITTING]) == [pytest.approx(expected, abs=1e-6)]


def test_a_picture_that_fails_spoils_no_other(classifier, monkeypatch):
    real = classifier.values_of_inputs

    def failing(inputs):
        if inputs.max() > 3:
            raise ValueError
        return real(inputs)

    monkeypatch.setattr(classifier, "values_of_inputs", failing)
    fitting, other = np.zeros((3, 16, 16), np.uint8), np.full((3, 16, 16), 255, np.uint8)
    classifier.transform = data.Normalize([0.5] * 3, [0.1] * 3)
    expected = dict(zip("abc", classifier.probabilities([fitting])[0], strict=True))
    answers = []
    with serving.Batches(classifier, most=3, patience_s=30.0) as batches:

        def ask(picture):
            try:
                answers.append(batches.probabilities(picture))
            except ValueError:
                answers.append("refused")

        threads = [in_thread(ask, picture) for picture in (fitting, other, fitting)]
        for thread in threads:
            thread.join()
        answers += batches.predict([fitting] * 3)
    assert answers.count("refused") == 1
    answers.remove("refused")
    assert answers == [pytest.approx(expected, abs=1e-6)] * 5


def test_more_pictures_than_may_wait_are_refused(classifier, monkeypatch):
    held = Held(classifier, monkeypatch)
    with serving.Batches(classifier, most=1, waiting=2) as batches:
        first = in_thread(batches.probabilities, PICTURES[0])
        assert held.begun.wait(30)
        with pytest.raises(serving.BusyError, match="2 pictures wait already"):
            batches.predict(PICTURES[1:4])  # the third finds no place, and takes the others along
        held.go.set()
        first.join()
        assert sum(batches.probabilities(PICTURES[4]).values()) == pytest.approx(1.0)
    assert held.sizes == [1, 1]


def test_an_answer_that_comes_too_late_is_not_computed(classifier, monkeypatch):
    held = Held(classifier, monkeypatch)
    with serving.Batches(classifier, most=1) as batches:
        first = in_thread(batches.probabilities, PICTURES[0])
        assert held.begun.wait(30)
        with pytest.raises(serving.BusyError, match="no answer within 0 s"):
            batches.probabilities(PICTURES[1], timeout_s=0)
        held.go.set()
        first.join()
    assert held.sizes == [1]


def test_close_answers_what_waits(classifier, monkeypatch):
    held, answers = Held(classifier, monkeypatch), []
    batches = serving.Batches(classifier, most=2, patience_s=30.0)
    first = in_thread(lambda: answers.append(batches.predict(PICTURES[:5])))
    assert held.begun.wait(30)
    while batches.waiting < 3:
        time.sleep(0.001)
    closing = in_thread(batches.close)
    held.go.set()
    closing.join()
    first.join()
    assert len(answers[0]) == 5
    assert held.sizes == [2, 2, 1]
    with pytest.raises(serving.BusyError, match="the service stops"):
        batches.probabilities(PICTURES[0])
    batches.close()
