"""The comparison of addresses that the settings of a step are held to."""

import ctypes
import gc
import sys
import weakref
from collections import defaultdict

import numpy as np
import pytest


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Named:
    pass


def held(*numbers):
    return np.array(numbers, np.int64).tobytes()


def same(containers, given):
    """Whether containers that were never compared are the same."""
    from singa import singa_wrap

    return singa_wrap.HeldObjects(containers, given).same()


def test_held_objects_refuse_what_is_no_list_of_containers():
    from singa import singa_wrap
    from singa.tensor import Tensor

    for containers, given, error in [
        ((), b"", TypeError),
        ([], "", TypeError),
        ([], held(0), ValueError),
        ([{}], b"", ValueError),
        ([{}], held(-1), ValueError),
        ([{}], held(9, 1), ValueError),
        ([{}, {}], held(0), ValueError),
        ([()], held(0), TypeError),
        ([(3, "name")], held(1, 0), TypeError),
        ([(3, Slotted.value)], held(2, 0, 0), ValueError),
        ([({}, "name")], held(0), ValueError),
        ([3], held(0), ValueError),
        ([Tensor((1,))], held(2, 0, 0), ValueError),
    ]:
        with pytest.raises(error, match=r"\[HeldObjects\]"):
            singa_wrap.HeldObjects(containers, given)
    for arguments in [(), ([],), ([], b"", 3)]:
        with pytest.raises(TypeError, match="HeldObjects"):
            singa_wrap.HeldObjects(*arguments)


def test_same_objects():
    from singa.tensor import Tensor

    a, b, slot = "a", "b", Slotted("c")
    containers = [{a: b}, [b], (slot, Slotted.value)]
    now = held(2, id(a), id(b), 1, id(b), 1, id(slot.value))
    assert same(containers, now)
    assert same(containers, held(2, id(a), 0, 1, id(b), 1, 0))
    x = Tensor((1,), name=a)
    attributes = [x.data, x.requires_grad, x.stores_grad, x.name, x.grad]
    with_tensor = now + held(5, *map(id, attributes))
    assert same([*containers, x], with_tensor)
    x.name = b
    assert not same([*containers, x], with_tensor)
    any_name = now + held(5, *map(id, attributes[:3]), 0, id(None))
    assert same([*containers, x], any_name)
    x.grad = Tensor((1,))
    assert not same([*containers, x], any_name)
    x.grad = None
    del x.data
    assert not same([*containers, x], any_name)
    entries = {"a": a, "c": b}
    names = [(entries, "a", "b")]
    assert same(names, held(2, id(a), 1))
    assert not same(names, held(2, 1, 1))
    assert not same([(entries, [])], held(1, id(a)))  # no key of a dict
    assert not same([{}], held(2, 0, 0))
    assert not same([[]], held(1, 0))
    entries["b"] = b
    assert not same(names, held(2, id(a), 1))
    containers[0][a] = 3
    assert not same(containers, now)
    containers[0][a] = b
    del slot.value
    assert not same(containers, now)


def test_other_objects_stand_for_their_class_and_dict():
    one = Named()
    now = held(2, id(Named), id(vars(one)))
    assert same([one], now)
    one.x = 3  # which is a change of the dict, not of the object
    assert same([one], now)
    before = vars(one)
    one.__dict__ = dict(before)
    assert not same([one], now)
    one.__dict__ = before
    assert same([one], now)
    one.__class__ = type("Other", (), {})
    assert not same([one], now)
    assert same([Slotted(3)], held(2, id(Slotted), 1))


def _set_attribute(one):
    for i in range(3000):  # specialised by the interpreter
        one.x = i


def _set_new_attributes(one):
    for i in range(100):
        setattr(one, f"x{i}", i)


def _by_c(function, *types):
    call = getattr(ctypes.pythonapi, function)
    call.argtypes = [ctypes.py_object] * len(types)
    call.restype = ctypes.py_object if function == "PyDict_SetDefault" else ctypes.c_int
    return lambda one: call(vars(one), *types[1:])


#: What changes the dict of an object that has the attributes x, a list, and y.
CHANGES = {
    "set": lambda one: setattr(one, "x", 4),
    "set to an equal object": lambda one: setattr(one, "x", list(one.x)),
    "set often": _set_attribute,
    "a new one": lambda one: setattr(one, "z", 4),
    "many new ones": _set_new_attributes,
    "deleted": lambda one: delattr(one, "x"),
    "an item": lambda one: vars(one).__setitem__("x", 4),
    "no item": lambda one: vars(one).__delitem__("x"),
    "update": lambda one: vars(one).update(x=4),
    "update by pairs": lambda one: vars(one).update([("x", 4)]),
    "__init__": lambda one: vars(one).__init__(x=4),
    "merged": lambda one: vars(one).__ior__({"x": 4}),
    "setdefault": lambda one: vars(one).setdefault("z", 4),
    "pop": lambda one: vars(one).pop("x"),
    "popitem": lambda one: vars(one).popitem(),
    "clear": lambda one: vars(one).clear(),
    "cleared and filled": lambda one: (vars(one).clear(), vars(one).update({"x": 4, "y": 2})),
    "object.__setattr__": lambda one: object.__setattr__(one, "x", 4),
    "exec": lambda one: exec("x = 4", {}, vars(one)),
    "a global": lambda one: exec("def f():\n global x\n x = 4\nf()", vars(one)),
    "PyDict_SetItem": _by_c("PyDict_SetItem", dict, "x", 4),
    "PyDict_DelItem": _by_c("PyDict_DelItem", dict, "x"),
    "PyDict_SetDefault": _by_c("PyDict_SetDefault", dict, "z", 4),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [None, dict, defaultdict])
def test_versions_tell_of_every_change(change, kind):
    """With versions, which let HeldObjects skip a dict, the same is found as without."""
    from singa import singa_wrap

    one = Named()
    if kind is not None:
        one.__dict__ = kind()
    one.x, one.y = [1], 2
    entries = vars(one)
    containers = [entries, (entries, "x", "z")]
    now = held(4, *[id(item) for pair in entries.items() for item in pair], 2, id(one.x), 1)
    objects = singa_wrap.HeldObjects(containers, now)
    assert objects.same()
    _ = one.x, one.y, entries.get("w"), list(entries), entries.copy(), "x" in entries
    assert objects.same()
    CHANGES[change](one)
    assert not objects.same()
    assert not objects.same()
    assert not same(containers, now)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="dicts have no versions")
def test_versions_are_compared_instead_of_entries():
    """A dict that is made the same again behind its version's back is believed to be the same."""
    from singa import singa_wrap

    entries = {"a": 1}
    size, version = ctypes.sizeof(ctypes.c_void_p), 3
    word = ctypes.c_uint64.from_address(id(entries) + version * size)
    objects = singa_wrap.HeldObjects([entries], held(2, id("a"), id(1)))
    assert objects.same()
    before = word.value
    entries["a"] = 2
    assert word.value != before
    after, word.value = word.value, before
    assert objects.same()
    word.value = after
    assert not objects.same()


def test_held_objects_are_seen_by_the_collector():
    from singa import singa_wrap

    one = Named()
    one.objects = singa_wrap.HeldObjects([vars(one), one], held(0, 2, 0, 0))
    gone = weakref.ref(one)
    assert gc.is_tracked(one.objects)
    del one
    gc.collect()
    assert gone() is None


def test_versions_of_dicts_that_are_compared_in_part():
    """A change of what is not compared costs one comparison."""
    from singa import singa_wrap

    entries = {"a": "a", "b": 1}
    now = held(4, id("a"), id(entries["a"]), id("b"), 0, 1, id(entries["a"]))
    objects = singa_wrap.HeldObjects([entries, (entries, "a")], now)
    for count in range(5):
        entries["b"] = [count]
        assert objects.same()
    entries["a"] = [3]
    assert not objects.same()
