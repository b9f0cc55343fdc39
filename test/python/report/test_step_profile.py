"""What is read off the records of a step."""

import pytest
from singa.launcher.estimate.step_profile import Compute, Gather, Start, Wait
from singa.report.profiling import Record
from singa.report.step_profile import events_of


def _record(op, start, ms, size=0, thread=1):
    return Record(op, "", "", "text", start, ms, 0, size, 0, thread)


RECORDS = [
    _record("Conv", 100, 10),
    _record("AllReduce", 120, 5, 600),  # gradients and sums
    _record("ConvBackward", 126, 4),
    _record("AllReduce", 140, 1, 200),
    _record("UpdateStatistics", 145, 2, 120),
    _record("SgdUpdate", 150, 6),
    _record("SgdUpdate", 160, 2),
    _record("Conv", 121, 50, thread=2),
]


def test_events():
    """170 ms with 100 before the first record; sums of one rank do not count."""
    want = [Compute(0.020), Start(300, 30), Compute(0.015), Start(100, 20), Compute(0.004)]
    want += [Gather(40), Wait(0), Compute(0.006), Wait(1), Compute(0.002), Compute(0.117)]
    found = events_of(RECORDS, 0.170, 1, [30, 20])
    assert [type(event) for event in found] == [type(event) for event in want]
    for one, other in zip(found, want, strict=True):
        assert vars(one) == pytest.approx(vars(other))


def test_two_calls_for_an_update():
    """A bucket's records count both lists of gradients, and the sums."""
    found = events_of([_record("Conv", 0, 1), _record("AllReduce", 1, 1, 900)], 0.01, 2, [7])
    assert found[1] == Start(300, 7)


def test_no_gradients():
    with pytest.raises(ValueError, match="no gradients were summed"):
        events_of([_record("Conv", 0, 1)], 0.01, 1, [])
