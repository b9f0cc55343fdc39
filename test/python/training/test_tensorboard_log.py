"""TensorBoardLog, read back by TensorBoard's own reader."""

import io
import math

import numpy as np
import pytest
from memory_ranks import on_ranks
from PIL import Image as Pillow
from singa import tensor
from singa.training import Histogram, Image, JsonLinesLog, TensorBoardLog, read_log

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder):
    found = accumulator.EventAccumulator(
        str(folder), {accumulator.SCALARS: 0, accumulator.IMAGES: 0, accumulator.HISTOGRAMS: 0}
    )
    return found.Reload()


def scalars(events, tag):
    return [(each.step, each.value) for each in events.Scalars(tag)]


def picture(event):
    return np.asarray(Pillow.open(io.BytesIO(event.encoded_image_string)))


def test_scalars(tmp_path):
    with TensorBoardLog(tmp_path / "new" / "folder") as log:
        log.append({"step": np.int64(3), "loss": np.float32(0.5)}, note="a", parts=[1, 2], no=None)
        log.append(step=7, loss=0.25, val={"loss": 2, "top": {"1": tensor.ones((1,))}})
        assert scalars(read(log.folder), "loss") == [(3, 0.5), (7, 0.25)]  # before close()
        log.append(step=8, loss=math.nan, ok=True)
    events = read(log.folder)
    assert sorted(events.Tags()["scalars"]) == ["loss", "ok", "val/loss", "val/top/1"]
    assert scalars(events, "val/loss") == [(7, 2.0)]
    assert scalars(events, "val/top/1") == [(7, 1.0)]
    assert scalars(events, "ok") == [(8, 1.0)]
    assert math.isnan(scalars(events, "loss")[2][1])


def test_images(tmp_path):
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (5, 3, 4, 6)).astype(np.uint8)
    grey = rng.uniform(-0.2, 1.2, (4, 6)).astype(np.float32)
    with TensorBoardLog(tmp_path) as log:
        log.append(step=1, one=Image(colours[0]), grid=Image(colours))
        log.append(step=2, one=Image(tensor.from_numpy(grey)))
    events = read(tmp_path)
    first, second = events.Images("one")
    np.testing.assert_array_equal(picture(first), colours[0].transpose(1, 2, 0))
    np.testing.assert_array_equal(picture(second), np.rint(np.clip(grey, 0, 1) * 255))
    assert (first.width, first.height, first.step, second.step) == (6, 4, 1, 2)
    (grid,) = events.Images("grid")
    found = picture(grid)
    assert found.shape == (8, 18, 3)
    np.testing.assert_array_equal(found[4:, 6:12], colours[4].transpose(1, 2, 0))
    np.testing.assert_array_equal(found[:4, 12:], colours[2].transpose(1, 2, 0))
    assert not found[4:, 12:].any()


def test_histograms(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 25))
    with TensorBoardLog(tmp_path) as log:
        log.append(step=4, w=Histogram(values, bins=10))
        values[0, :2] = math.nan, math.inf
        log.append(step=5, w=Histogram(tensor.from_numpy(values.astype(np.float32))))
    first, second = read(tmp_path).Histograms("w")
    values = np.random.default_rng(0).normal(size=(40, 25))
    counts, edges = np.histogram(values, 10)
    value = first.histogram_value
    assert (first.step, value.num, value.min, value.max) == (4, 1000, values.min(), values.max())
    np.testing.assert_allclose([value.sum, value.sum_squares], [values.sum(), (values**2).sum()])
    np.testing.assert_array_equal(value.bucket, counts)
    np.testing.assert_array_equal(value.bucket_limit, edges[1:])
    assert second.histogram_value.num == 998
    assert len(second.histogram_value.bucket) == 64


def test_a_resumed_run_doubles_nothing(tmp_path):
    with TensorBoardLog(tmp_path / "t") as log, JsonLinesLog(tmp_path / "log.jsonl") as lines:
        for step in range(1, 6):
            for each in (log, lines):
                each.append(step=step, loss=float(step), w=Histogram([step]))
    with TensorBoardLog(tmp_path / "t") as log, JsonLinesLog(tmp_path / "log.jsonl") as lines:
        for each in (log, lines):
            each.rewind(3)
            each.append(step=4, loss=40.0)
    expected = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]
    events = read(tmp_path / "t")
    assert scalars(events, "loss") == expected
    assert [each.step for each in events.Histograms("w")] == [1, 2, 3]
    assert [(r["step"], r["loss"]) for r in read_log(tmp_path / "log.jsonl")] == expected


def _log_on_a_rank(comm, folder):
    with TensorBoardLog(folder) as log:
        log.append(step=1, rank=comm.global_rank)
        log.rewind(1)


def test_only_rank_0_writes(tmp_path):
    on_ranks(2, _log_on_a_rank, str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1
    assert scalars(read(tmp_path), "rank") == [(1, 0.0)]


def test_refused(tmp_path):
    log = TensorBoardLog(tmp_path)
    for record in ({"loss": 1}, {"step": 1.5, "loss": 1}, {"step": True, "loss": 1}):
        with pytest.raises(ValueError, match=r"needs an integer step.* beside loss"):
            log.append(record)
    with pytest.raises(TypeError, match="cannot log a set"):
        log.append(step=1, loss={1})
    log.close()
    log.close()
    with pytest.raises(ValueError, match="is closed"):
        log.append(step=1, loss=1)
    with pytest.raises(ValueError, match="is closed"):
        log.rewind(1)
