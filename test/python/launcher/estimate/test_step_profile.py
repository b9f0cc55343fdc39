"""Files of recorded steps."""

import json

import pytest
from singa.launcher.estimate.step_profile import Compute, Gather, Start, StepProfile, Wait, read

EVENTS = (Compute(0.5), Start(400, 30), Compute(0.25), Start(100), Gather(8), Wait(0), Wait(1))


def test_round_trip(tmp_path):
    profile = StepProfile("net", EVENTS, 1000)
    profile.write(tmp_path / "step.json")
    assert read(tmp_path / "step.json") == profile
    assert (profile.compute, profile.gradients) == (0.75, 500)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "its format is 'other', version 1"),
        ({"version": 2}, "version 2"),
        ({"events": [{"event": "compute"}]}, "seconds"),
        ({"events": [{"event": "sleep", "seconds": 1}]}, "sleep"),
        ({"events": [{"event": "compute", "seconds": -1}]}, "negative"),
        ({"events": [{"event": "wait", "bucket": 0}]}, "bucket 0 is waited for out of order"),
        ({"events": [{"event": "start", "bytes": 4}]}, "bucket 0 is not waited for"),
        ({"events": []}, "nothing is computed"),
        ({"events": 3}, "not iterable"),
    ],
)
def test_other_files(tmp_path, change, message):
    path = tmp_path / "step.json"
    StepProfile("net", EVENTS).write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=rf"step.json is no profile of a step: .*{message}"):
        read(path)
    path.write_text("no JSON")
    with pytest.raises(ValueError, match="no profile of a step"):
        read(path)
