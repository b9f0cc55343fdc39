"""ImageBatchIter on image files in a temporary folder."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from singa import image_tool
from singa.data import ImageBatchIter

PIL_Image = pytest.importorskip("PIL.Image")

COUNT = 7


@pytest.fixture
def folder(tmp_path):
    """Seven images of one colour, whose red channel is ten times their number."""
    for number in range(COUNT):
        PIL_Image.new("RGB", (8, 6), (10 * number, 1, 2)).save(tmp_path / f"{number}.png")
    lines = [f"{number}.png {number}\n" for number in range(COUNT)]
    (tmp_path / "list.txt").write_text("".join(lines))
    return tmp_path


@pytest.fixture(autouse=True)
def no_threads_left():
    yield
    assert [t for t in threading.enumerate() if t.name == "singa-image-batches"] == []


def load(path):
    return [image_tool.load_img(path)]


def test_goes_round_the_list_in_order(folder):
    with ImageBatchIter(
        folder / "list.txt", 3, load, shuffle=False, image_folder=folder
    ) as batches:
        for start in range(0, 21, 3):
            images, labels = next(batches)
            expected = [(start + i) % COUNT for i in range(3)]
            assert (images.dtype, images.shape) == (np.float32, (3, 3, 6, 8))
            assert labels.dtype == np.int32
            assert labels.tolist() == expected
            assert images[:, 0, 0, 0].tolist() == [10 * number for number in expected]
            assert images[:, 1:, 0, 0].tolist() == [[1, 2]] * 3


def test_shuffles_from_the_seed_each_time_round(folder):
    def orders(seed):
        iterator = ImageBatchIter(
            str(folder / "list.txt"), COUNT, load, image_folder=str(folder), seed=seed
        )
        iterator.start()
        result = [iterator.next()[1].tolist() for _ in range(3)]
        iterator.end()
        return result

    first = orders(1)
    assert all(sorted(order) == list(range(COUNT)) for order in first)
    assert len({tuple(order) for order in first}) == 3
    assert orders(1) == first
    assert orders(2) != first


def test_several_augmented_images_share_a_label(folder):
    tool = image_tool.ImageTool()
    iterator = ImageBatchIter(
        folder / "list.txt",
        10,
        lambda path: tool.load(path).crop5((4, 4), 5).get(),
        shuffle=False,
        image_folder=folder,
    )
    with iterator as batches:
        images, labels = next(batches)
    assert images.shape == (10, 3, 4, 4)
    assert labels.tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("lines", "delimiter", "expected"),
    [
        ("0.png,cat\n1.png,3\n", ",", ["cat", "3"]),
        ("0.png\n1.png\n", " ", [None, None]),
        ("0.png a b\n\n1.png c\n", " ", ["a b", "c"]),
    ],
)
def test_other_labels_come_as_a_list(folder, lines, delimiter, expected):
    (folder / "list.txt").write_text(lines)
    with ImageBatchIter(folder / "list.txt", 2, load, False, delimiter, folder) as batches:
        assert next(batches)[1] == expected


def test_grey_images_are_repeated(folder):
    grey = lambda path: [image_tool.load_img(path, grayscale=True)]  # noqa: E731
    with ImageBatchIter(folder / "list.txt", 2, grey, False, image_folder=folder) as batches:
        images, _ = next(batches)
    assert images.shape == (2, 3, 6, 8)
    assert (images == images[:, :1]).all()


def test_an_error_of_a_transform_names_the_picture(folder):
    def broken(path):
        raise SyntaxError("broken PNG file")

    with (
        ImageBatchIter(folder / "list.txt", 2, broken, shuffle=False) as batches,
        pytest.raises(SyntaxError) as caught,
    ):
        next(batches)
    assert "in the picture 0.png" in caught.value.__notes__[0]


def test_restarts_after_end(folder):
    iterator = ImageBatchIter(folder / "list.txt", 2, load, False, image_folder=folder)
    for _ in range(2):
        iterator.start()
        iterator.start()
        assert next(iterator)[1].tolist() == [0, 1]
        iterator.end()
        iterator.end()
    with pytest.raises(RuntimeError, match="call start before next"):
        next(iterator)


def test_end_does_not_wait_for_a_consumer(folder):
    iterator = ImageBatchIter(folder / "list.txt", 1, load, image_folder=folder, capacity=1)
    iterator.start()
    next(iterator)
    iterator.end()  # the thread waits for space in the queue; the fixture checks that it has ended


def test_missing_and_damaged_images_raise_in_the_consumer(folder):
    (folder / "1.png").write_bytes(b"no image")
    iterator = ImageBatchIter(folder / "list.txt", 1, load, False, image_folder=folder)
    iterator.start()
    assert next(iterator)[1].tolist() == [0]
    with pytest.raises(OSError, match=r"1\.png"):
        next(iterator)
    with pytest.raises(RuntimeError, match="call start"):
        next(iterator)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda path: [], "returned 0 images"),
        (lambda path: load(path) * 3, "returned 3 images .* of 2 has room for 2 more"),
        (
            lambda path: [image_tool.resize(load(path)[0], 6 if "0.png" in path else 7)],
            r"shape \(3, 7, 9\), the others of the batch have \(3, 6, 8\)",
        ),
    ],
)
def test_transforms_that_do_not_fit(folder, transform, message):
    iterator = ImageBatchIter(folder / "list.txt", 2, transform, False, image_folder=folder)
    iterator.start()
    with pytest.raises(ValueError, match=message):
        next(iterator)


def test_refusals(folder):
    (folder / "empty.txt").write_text("\n\n")
    with pytest.raises(ValueError, match="lists no image"):
        ImageBatchIter(folder / "empty.txt", 2, load)
    with pytest.raises(FileNotFoundError):
        ImageBatchIter(folder / "missing.txt", 2, load)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ImageBatchIter(folder / "list.txt", 0, load)
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        ImageBatchIter(folder / "list.txt", 2, load, capacity=0)
    with pytest.raises(TypeError, match="cannot be called"):
        ImageBatchIter(folder / "list.txt", 2, None)


def test_interpreter_exit_without_end(folder):
    code = textwrap.dedent(f"""
        import sys; sys.path[:0] = {sys.path!r}
        from singa import image_tool
        from singa.data import ImageBatchIter
        batches = ImageBatchIter({str(folder / "list.txt")!r}, 2,
                                 lambda path: [image_tool.load_img(path)],
                                 image_folder={str(folder)!r}, capacity=1)
        batches.start()
        next(batches)
        print("end")
    """)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=60, env=dict(os.environ),
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)
