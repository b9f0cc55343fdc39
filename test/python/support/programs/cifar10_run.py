"""Small runs of examples/cifar10/train.py."""

import numpy as np
from singa.files import state_files
from singa.training import read_log

# 80 images in batches of 32: the last batch of an epoch is short.
TRAIN, TEST, BATCH, EPOCHS = 80, 30, 32, 3
STEPS = 3  # an epoch
OPTIONS = ("--model", "lenet", "--epochs", str(EPOCHS), "--batch-size", str(BATCH))


def write_cifar10(folder):
    """A folder in the published binary format with a few images that can be learned."""
    draw = np.random.default_rng(3)
    for name, count in (("data_batch_1.bin", TRAIN), ("test_batch.bin", TEST)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        pixels = draw.integers(0, 60, (count, 3072), np.uint8) + 18 * labels[:, None]
        (folder / name).write_bytes(np.hstack([labels[:, None], pixels]).tobytes())
    return folder


def outcome(out):
    """What a run has come to: weights, the last checkpoint, and the log without times.

    Not NumPy's and Python's global random states, which differ from process to process: the example
    draws nothing from them.
    """
    weights, _ = state_files.load_safetensors(out / "model.safetensors")
    arrays, metadata = state_files.load_safetensors(out / "checkpoint.safetensors")
    log = [
        {key: value for key, value in record.items() if key not in ("images_per_s", "seconds")}
        for record in read_log(out / "log.jsonl")
    ]
    in_bytes = {name: value.tobytes() for name, value in (weights | arrays).items()}
    random = metadata["random_of_ranks"][0]["device"]
    return in_bytes, metadata["optimizer"], random, metadata["progress"], log


def change_settings(path, without=(), **settings):
    """Changes the settings in a checkpoint, as if another version had written it."""
    arrays, metadata = state_files.load_safetensors(path)
    metadata["progress"]["settings"].update(settings)
    for name in without:
        del metadata["progress"]["settings"][name]
    state_files.save_safetensors(path, dict(arrays), metadata)
