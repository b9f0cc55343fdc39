"""TarShards: pictures in tar files, in the order of a buffer, resumed and split among ranks."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image
from singa import data
from singa.data import DataLoader, TarShards

LENGTHS = (7, 1, 12)  # of the shards
COUNT = sum(LENGTHS)


def add(file, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    file.addfile(member, io.BytesIO(content))


def png(number):
    stream = io.BytesIO()
    Image.new("RGB", (6, 5), (number, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def shards(tmp_path):
    """Three shards of different lengths. The red of a picture is its number, its class is the rest
    of a division by 3."""
    number = 0
    for shard, length in enumerate(LENGTHS):
        with tarfile.open(tmp_path / f"set-{shard:03}.tar", "w") as file:
            for _ in range(length):
                key = f"part/{number:06}"
                add(file, f"{key}.cls", f"{number % 3}\n".encode())
                add(file, f"{key}.json", b"{}")
                add(file, f"{key}.png", png(number))
                number += 1
    return tmp_path


def reds(dataset):
    return [int(dataset[index][0][0, 0, 0]) for index in range(len(dataset))]


def test_samples_lie_in_all_shards(shards):
    found = TarShards(shards)
    assert len(found) == COUNT
    assert reds(found) == list(range(COUNT))
    assert found.labels.tolist() == [number % 3 for number in range(COUNT)]
    assert found.classes == ("0", "1", "2")
    image, label = found[4]
    assert (image.shape, image.dtype, label) == ((3, 5, 6), np.uint8, 1)
    assert TarShards(shards, ("a", "b", "c")).classes == ("a", "b", "c")
    with pytest.raises(IndexError):
        found[COUNT]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("set-{000..002}.tar", range(COUNT)),
        ("set-{001..002}.tar", range(7, COUNT)),
        ("set-00[02].tar", [*range(7), *range(8, COUNT)]),
        ("set-001.tar", [7]),
        (["set-002.tar", "set-001.tar"], [*range(8, COUNT), 7]),
    ],
)
def test_patterns(shards, pattern, expected, monkeypatch):
    monkeypatch.chdir(shards)
    assert reds(TarShards(pattern)) == list(expected)


def test_an_epoch_has_each_picture_once_and_near_its_place(shards):
    found = TarShards(shards, buffer=3)
    shard_of = np.repeat(range(3), LENGTHS)
    orders = set()
    for seed in range(40):
        order = found.shuffled(np.random.default_rng(seed))
        assert sorted(order) == list(range(COUNT))
        orders.add(tuple(order))
        # Of the order of the files, the generator's first draw, a picture comes at most two places
        # early: the buffer holds three.
        files = np.argsort(np.random.default_rng(seed).permutation(3))
        sequence = np.concatenate([np.flatnonzero(shard_of == shard) for shard in files])
        place = {picture: number for number, picture in enumerate(sequence)}
        early = [place[picture] - number for number, picture in enumerate(order)]
        assert max(early) == 2
    assert len(orders) == 40
    whole = TarShards(shards, buffer=100)
    spread = [np.flatnonzero(whole.shuffled(np.random.default_rng(s)) == 0)[0] for s in range(400)]
    assert set(spread) == set(range(COUNT))


def rows(loader):
    return [(images[:, 0, 0, 0] * 255).round().astype(int).tolist() for images, _ in loader]


def test_the_loader_shuffles_resumes_and_shares_among_ranks(shards):
    found = TarShards(shards, buffer=5)
    whole = DataLoader(found, 6, True, 3, num_workers=2)
    epochs = [rows(whole), rows(whole)]
    assert epochs[0] != epochs[1]
    assert [len(row) for row in epochs[0]] == [6, 6, 6, 2]
    assert sorted(number for row in epochs[1] for number in row) == list(range(COUNT))
    begun = DataLoader(TarShards(shards, buffer=5), 6, True, 3)
    rows(begun)
    next(iter(begun))
    again = DataLoader(TarShards(shards, buffer=5), 6, True, 3)
    again.load_state_dict({**begun.state_dict(), "batch": 2})
    assert rows(again) == epochs[1][2:]
    parts = [rows(DataLoader(found, 6, True, 3, shard=(rank, 4))) for rank in range(4)]
    for number, batch in enumerate(epochs[0]):
        assert [parts[place % 4][number][place // 4] for place in range(len(batch))] == batch


def test_split(shards):
    train, test = TarShards(shards).split(0.3, seed=1)
    assert sorted(reds(train) + reds(test)) == list(range(COUNT))
    assert np.bincount(test.labels).tolist() == [2, 2, 2]
    assert sorted(test.shuffled(np.random.default_rng(0))) == list(range(len(test)))


def broken_shard(path):
    with tarfile.open(path, "w") as file:
        add(file, "1.png", png(1))
        add(file, "1.cls", b"0")
        add(file, "2.png", png(2))
        add(file, "3.cls", b"0")
        add(file, "4.jpg", b"no picture")
        add(file, "4.cls", b"1")
        add(file, ".5.png", b"")
    return path


def test_broken_samples(tmp_path):
    path = broken_shard(tmp_path / "a.tar")
    with pytest.raises(ValueError, match=r"not whole: 2 samples: .*2 \(has no class.*3 \(has no"):
        TarShards(path)
    with (
        pytest.warns(UserWarning, match=r"1 of 2 files .*a\.tar/4\.jpg \(not a picture\)"),
        pytest.warns(UserWarning, match=r"not whole: 2 samples: .*2 \(has no class") as told,
    ):
        found = TarShards(path, on_error="skip")
    assert {warning.filename for warning in told} == {__file__}
    assert reds(found) == [1]
    assert [place.name for place, _ in found.broken] == ["2", "3", "4.jpg"]


def test_several_pictures_of_a_sample(tmp_path):
    """The one with the plain name counts, wherever it lies."""
    for names in (("1.left.png", "1.png"), ("1.png", "1.seg.png"), ("1.left.png", "1.right.png")):
        with tarfile.open(tmp_path / "a.tar", "w") as file:
            add(file, "1.cls", b"0")
            for name in names:
                add(file, name, png(7 if name == "1.png" else 8))
        if "1.png" in names:
            assert reds(TarShards(tmp_path / "a.tar")) == [7]
    with pytest.raises(ValueError, match=r"1 sample: .*1 \(has 2 pictures: 1\.left\.png, 1\.right"):
        TarShards(tmp_path / "a.tar")


def test_a_broken_picture_is_named_when_it_is_read(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        add(file, "x/4.jpg", b"no picture")
        add(file, "x/4.cls", b"1")
    with pytest.raises(data.BrokenPictureError, match=r"a\.tar/x/4\.jpg: not a picture"):
        TarShards(tmp_path / "a.tar")[0]


@pytest.mark.parametrize("content", [b"cat", b"-1", b"1.5", b"", "٣".encode(), b"9" * 30])
def test_wrong_classes(tmp_path, content):
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        add(file, "4.png", png(1))
        add(file, "4.cls", content)
    with pytest.raises(ValueError, match=r"a\.tar/4\.cls holds '.*', not the number of a class"):
        TarShards(tmp_path / "a.tar")


def test_wrong_files(shards, tmp_path):
    (tmp_path / "x.tar").write_bytes(b"no tar file" * 100)
    with pytest.raises(ValueError, match=r"x\.tar is no plain tar file"):
        TarShards(tmp_path / "x.tar")
    with tarfile.open(tmp_path / "y.tar", "w:gz") as file:
        add(file, "4.png", png(1))
    with pytest.raises(ValueError, match="unpack a compressed one"):
        TarShards(tmp_path / "y.tar")
    with tarfile.open(tmp_path / "z.tar", "w") as file:
        add(file, "notes.txt", b"")
    with pytest.raises(FileNotFoundError, match="no pictures with classes"):
        TarShards(tmp_path / "z.tar", on_error="skip")
    with pytest.raises(FileNotFoundError, match=r"set-003\.tar is no file"):
        TarShards(str(shards / "set-{002..003}.tar"))
    with pytest.raises(FileNotFoundError, match="there is no tar file"):
        TarShards(tmp_path / "no*.tar")
    with pytest.raises(ValueError, match="a class 2, and `classes` has 2 names"):
        TarShards(shards / "set-000.tar", ("a", "b"))
    found = TarShards(shards / "set-000.tar")
    (shards / "set-000.tar").write_bytes(b"")
    with pytest.raises(data.BrokenPictureError, match=r"set-000\.tar/.*6\.png: the tar file ends"):
        found[6]
