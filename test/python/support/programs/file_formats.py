"""Writers of the published file formats, independent of the readers under test."""

import gzip
import struct

import numpy as np


def random_set(count, classes=10, seed=0, shape=(3, 32, 32)):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    return images, rng.integers(0, classes, count).astype(np.int32)


def binary_records(images, *label_columns):
    """CIFAR's binary format: label bytes, then the red, green and blue plane."""
    return b"".join(
        bytes(int(column[i]) for column in label_columns) + images[i].tobytes()
        for i in range(len(images))
    )


def python2_pickle(value):
    """The pickle of protocol 2 that Python 2's cPickle writes for `value`: byte strings, PUT
    opcodes, arrays of NumPy 1.

    Supports dict, list, bytes (as Python 2 `str`), int, and C-ordered uint8 arrays.
    """
    out, puts = bytearray(b"\x80\x02"), 0

    def put():
        nonlocal puts
        puts += 1
        out.extend(b"q" + bytes([puts]) if puts < 256 else b"r" + struct.pack("<I", puts))

    def save(item):
        if isinstance(item, bytes):
            short = len(item) < 256
            out.extend(b"U" + bytes([len(item)]) if short else b"T" + struct.pack("<i", len(item)))
            out.extend(item)
            put()
        elif isinstance(item, int):
            out.extend(b"K" + bytes([item]) if 0 <= item < 256 else b"J" + struct.pack("<i", item))
        elif isinstance(item, list):
            out.extend(b"]")
            put()
            out.extend(b"(")
            for element in item:
                save(element)
            out.extend(b"e")
        elif isinstance(item, dict):
            out.extend(b"}")
            put()
            out.extend(b"(")
            for key, element in item.items():
                save(key)
                save(element)
            out.extend(b"u")
        elif isinstance(item, np.ndarray):
            assert item.dtype == np.uint8
            assert item.flags.c_contiguous
            out.extend(b"cnumpy.core.multiarray\n_reconstruct\n")
            put()
            out.extend(b"cnumpy\nndarray\nK\x00\x85")
            save(b"b")
            out.extend(b"\x87R(K\x01")
            for extent in item.shape:
                out.extend(b"M" + struct.pack("<H", extent))
            out.extend(b"\x86cnumpy\ndtype\n")
            save(b"u1")
            out.extend(b"K\x00K\x01\x87R(K\x03")
            save(b"|")
            out.extend(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89")
            save(item.tobytes())
            out.extend(b"tb")
        else:
            raise TypeError(type(item))

    save(value)
    return bytes(out + b".")


def idx_bytes(array, magic=None):
    header = bytes((0, 0, 8, array.ndim)) if magic is None else magic
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(path, content):
    """Writes `content`, gzipped if the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path
