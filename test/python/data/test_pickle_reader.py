"""pickle_reader.loads, compared with Python's pickle, and with malicious files."""

import collections
import decimal
import functools
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc

import file_formats
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from singa.data import pickle_reader

PROTOCOLS = range(6)


def same(left, right):
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(),
    lambda items: st.lists(items) | st.lists(items).map(tuple)
    | st.dictionaries(st.text() | st.binary(), items),
    max_leaves=20,
)  # fmt: skip


@given(plain, st.sampled_from(PROTOCOLS))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_plain_data_equals_pickle_loads(value, protocol):
    assert same(pickle_reader.loads(pickle.dumps(value, protocol)), value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i4", "<i8", ">u8", "<f4", ">f8", "f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(protocol, dtype, order):
    array = np.asarray(np.arange(24).reshape(2, 3, 4), dtype, order=order)
    result = pickle_reader.loads(pickle.dumps({"a": array, "b": [1]}, protocol))
    assert same(result, {"a": array.astype(array.dtype.newbyteorder("=")), "b": [1]})
    assert result["a"].dtype.isnative


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), ()])
def test_small_arrays(shape):
    array = np.ones(shape, np.int32)
    assert same(pickle_reader.loads(pickle.dumps(array)), array)


def test_python_2_files():
    value = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": [6, 9, 300, -1],
        b"data": np.arange(1200, dtype=np.uint32).astype(np.uint8).reshape(4, 300),
        b"filenames": [b"leptodactylus_pentadactylus_s_000004.png"] * 2,
    }
    data = file_formats.python2_pickle(value)
    assert same(pickle.loads(data, encoding="bytes"), value), "the test's writer is wrong"
    assert same(pickle_reader.loads(data), value)


class Call:
    """Its pickle is a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Plain:
    pass


HOSTILE = {
    "system": Call(os.system, "touch hacked"),
    "popen": Call(subprocess.Popen, ["touch", "hacked"]),
    "eval": Call(eval, "open('hacked', 'w')"),
    "open": Call(open, "hacked", "w"),
    "getattr": Call(getattr, Plain, "__init__"),
    "import": Call(__import__, "os"),
    "instance": Plain(),
    "in a dict": {"data": Call(os.system, "touch hacked")},
    "set": {1, 2},
    "frozenset": frozenset([1]),
    "ordered dict": collections.OrderedDict(a=1),
    "defaultdict": collections.defaultdict(Plain),
    "decimal": decimal.Decimal("1"),
    "partial": functools.partial(print, 1),
    "complex": 1j,
    "class": Plain,
    "function": os.system,
    "object array": np.array([Call(os.system, "touch hacked")], dtype=object),
    "record array": np.zeros(3, [("a", "u1"), ("b", "u1")]),
    "string array": np.array(["a", "b"]),
    "dates": np.zeros(2, "M8[s]"),
    "dtype alone": np.dtype("u1"),
    "array class": np.ndarray,
    "load": Call(np.load, "x.npy"),
    "wrong encoding": Call(__import__("codecs").encode, "x", "rot13"),
    "dtype with align": Call(np.dtype, "O"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_objects_are_refused_and_do_nothing(name, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(HOSTILE[name], protocol)
    modules = set(sys.modules)
    with pytest.raises(ValueError, match="not a readable pickle"):
        pickle_reader.loads(data)
    assert list(tmp_path.iterdir()) == []
    assert set(sys.modules) == modules


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"

BY_HAND = {
    "inst": b"(S'touch hacked'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'touch hacked'\no.",
    "newobj": b"\x80\x02cos\nsystem\nU\x01a\x85\x81.",
    "newobj_ex": b"\x80\x04cos\nsystem\n)}\x92.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent id": b"P1\n.",
    "binary persistent id": b"K\x01Q.",
    "next buffer": b"\x80\x05\x97.",
    "protocol 255": b"\x80\xff].",
    "empty": b"",
    "no stop": b"]",
    "nothing on the stack": b".",
    "two values": b"]].",
    "a mark is no value": b"(.",
    "memo never written": b"h\x07.",
    "append to nothing": b"K\x01a.",
    "append to a dict": b"}K\x01a.",
    "setitem without key": b"}K\x01s.",
    "odd items": b"}(K\x01u.",
    "tuple key": b"})K\x01s.",
    "integer key": b"}K\x01K\x01s.",
    "mark missing": b"]e.",
    "tuple of too few": b"K\x01\x87.",
    "reduce of a value": b"K\x01)R.",
    "reduce without tuple": b"cnumpy\ndtype\nK\x01R.",
    "reduce without arguments": b"cnumpy\ndtype\n)R.",
    "build on a list": b"]K\x01\x85b.",
    "build on an unread array": b"cnumpy\nndarray\n)b.",
    "array never filled": RECONSTRUCT + b"(cnumpy\nndarray\nK\x00U\x01btR.",
    "array of another class": RECONSTRUCT + b"(cnumpy\ndtype\nK\x00U\x01btR.",
    "bytes of a length": b"cbuiltins\nbytes\nJ\xff\xff\xff\x7f\x85R.",
    "calling the array class": b"cnumpy\nndarray\nK\x05\x85R.",
    "huge binstring": b"T\xff\xff\xff\x7fabc.",
    "negative binstring": b"T\xff\xff\xff\xffabc.",
    "huge bytes": b"\x8e" + b"\xff" * 8 + b".",
    "negative long": b"\x8b\xff\xff\xff\xff.",
    "unknown opcode": b"\xf0.",
    "attribute path": b"\x8c\x05numpy\x8c\x0fndarray.tolist_\x93.",
    "global of numbers": b"K\x01K\x02\x93.",
    "deep": b"(" * 200_000 + b".",
    "long number": b"I" + b"9" * 10_000 + b"\n.",
}


def array_pickle(shape, dtype=b"u1", content=b"abc", state=b"U\x01|NNNK\x00K\x00K\x00"):
    return (
        b"\x80\x02" + RECONSTRUCT + b"(cnumpy\nndarray\nK\x00U\x01btR(K\x01"
        + shape + b"cnumpy\ndtype\n(U" + bytes([len(dtype)]) + dtype + b"K\x00K\x01tR(K\x03"
        + state + b"tb\x89U" + bytes([len(content)]) + content + b"tb."
    )  # fmt: skip


BY_HAND |= {
    "array too short": array_pickle(b"K\x04\x85"),
    "array too long": array_pickle(b"K\x02\x85"),
    "negative extent": array_pickle(b"J\xff\xff\xff\xff\x85"),
    "huge extents": array_pickle(b"(" + b"\x8a\x07" + b"\xff" * 6 + b"\x7f" + b"K\x00t"),
    "extent is no number": array_pickle(b"U\x01a\x85"),
    "extent is a Boolean": array_pickle(b"\x88\x85", content=b"a"),
    "too many dimensions": array_pickle(b"(" + b"K\x01" * 33 + b"t", content=b"a"),
    "object type": array_pickle(b"K\x03\x85", dtype=b"O8"),
    "unknown type": array_pickle(b"K\x03\x85", dtype=b"\xff"),
    "record type": array_pickle(b"K\x03\x85", state=b"U\x01|N(U\x01at}NK\x00K\x00K\x00"),
    "short type state": array_pickle(b"K\x03\x85", state=b""),
}


def test_the_arrays_written_by_hand_are_readable_when_they_fit():
    assert same(pickle_reader.loads(array_pickle(b"K\x03\x85")), np.frombuffer(b"abc", np.uint8))


@pytest.mark.parametrize("name", BY_HAND)
def test_hand_made_pickles_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not a readable pickle"):
        pickle_reader.loads(BY_HAND[name])
    assert list(tmp_path.iterdir()) == []


def test_exponential_and_cyclic_structures_do_no_harm():
    doubled = b")" + b"2\x86" * 100 + b"."  # t = (t, t), a hundred times
    assert isinstance(pickle_reader.loads(doubled), tuple)
    with pytest.raises(ValueError, match="key"):
        pickle_reader.loads(b"})" + b"2\x86" * 100 + b"K\x01s.")
    cyclic = pickle_reader.loads(b"]q\x01h\x01a.")
    assert cyclic[0][0] is cyclic[0]


def test_the_number_of_opcodes_is_bounded(monkeypatch):
    monkeypatch.setattr(pickle_reader, "_MAX_OPCODES", 1000)
    assert pickle_reader.loads(pickle.dumps([1] * 900)) == [1] * 900
    with pytest.raises(ValueError, match="opcodes"):
        pickle_reader.loads(pickle.dumps([1] * 1000))


@given(st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_damaged_files_raise_valueerror_or_read_as_plain_data(data):
    array = np.arange(60, dtype=np.uint8).reshape(3, 20)
    value = {"labels": [1, 2, 3], "data": array, "names": ["a", b"b", None], "n": 1.5}
    content = bytearray(pickle.dumps(value, data.draw(st.sampled_from(PROTOCOLS))))
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                content[where] = data.draw(st.integers(0, 255))
            case 1:
                del content[where]
            case _:
                content[where:where] = data.draw(st.binary(max_size=4))
    try:
        pickle_reader.loads(bytes(content))
    except ValueError as error:
        assert str(error).startswith("not a readable pickle")  # noqa: PT017


# A small file can use one large string any number of times.

LENGTH, TIMES = 200_000, 1000
TEXT = b"X" + struct.pack("<I", LENGTH) + b"<" * LENGTH + b"q\x00"  # BINUNICODE, BINPUT 0
CONTENT = b"B" + struct.pack("<I", LENGTH) + bytes(LENGTH) + b"q\x00"  # BINBYTES, BINPUT 0
# The type >u2: numpy.dtype("u2"), then its state.
BIG_ENDIAN = b"cnumpy\ndtype\n(X\x02\x00\x00\x00u2tR(K\x03X\x01\x00\x00\x00>NNNK\x00K\x00K\x00tb"
FILES = {
    "bytes from text": TEXT
    + b"(c_codecs\nencode\nq\x01X\x06\x00\x00\x00latin1q\x02"
    + b"h\x01h\x00h\x02\x86R" * TIMES
    + b"t.",
    "types by a long name": TEXT + b"(cnumpy\ndtype\nq\x01" + b"h\x01h\x00\x85R" * TIMES + b"t.",
    "arrays in the other byte order": b"("
    + CONTENT
    + b"cnumpy.core.numeric\n_frombuffer\nq\x01(h\x00"
    + BIG_ENDIAN
    + struct.pack("<cI", b"J", LENGTH // 2)
    + b"X\x01\x00\x00\x00Ctq\x02"
    + b"h\x01h\x02R" * TIMES
    + b"t.",
    "keys to compare": b"}"
    + b"".join(TEXT[:-1] + bytes([i]) + b"K\x00s" for i in range(2))
    + b"h\x00K\x00sh\x01K\x00s" * TIMES
    + b".",
    "numbers of memos that collide": b"".join(
        b"K\x00p%d\n0" % (i * (2**61 - 1)) for i in range(1, TIMES)
    )
    + b"K\x00.",
}


@pytest.mark.parametrize("name", FILES)
def test_small_files_take_little_memory(name):
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError,
            match=r"not a readable pickle: (it would|a (name|dict key) of |a memo index)",
        ):
            pickle_reader.loads(FILES[name])
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
