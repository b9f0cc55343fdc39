"""The comparison of addresses that the settings of a step are held to."""

import numpy as np
import pytest


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def test_same_objects_refuses_what_is_no_list_of_containers():
    from singa import singa_wrap
    from singa.tensor import Tensor

    def held(*numbers):
        return np.array(numbers, np.int64).tobytes()

    for containers, given, error in [
        ((), b"", TypeError),
        ([], "", TypeError),
        ([{}], b"", ValueError),
        ([{}], held(-1), ValueError),
        ([{}], held(9, 1), ValueError),
        ([3], held(0), TypeError),
        ([()], held(0), TypeError),
        ([(3, "name")], held(1, 0), TypeError),
    ]:
        with pytest.raises(error, match=r"\[SameObjects\]"):
            singa_wrap.SameObjects(containers, given)
    a, b, slot = "a", "b", Slotted("c")
    containers = [{a: b}, [b], (slot, Slotted.value)]
    now = held(2, id(a), id(b), 1, id(b), 1, id(slot.value))
    assert singa_wrap.SameObjects(containers, now)
    assert singa_wrap.SameObjects(containers, held(2, id(a), 0, 1, id(b), 1, 0))
    assert not singa_wrap.SameObjects(containers, now + held(0))
    x = Tensor((1,), name=a)
    attributes = [x.data, x.requires_grad, x.stores_grad, x.name, x.grad]
    with_tensor = now + held(5, *map(id, attributes))
    assert singa_wrap.SameObjects([*containers, x], with_tensor)
    x.name = b
    assert not singa_wrap.SameObjects([*containers, x], with_tensor)
    any_name = now + held(5, *map(id, attributes[:3]), 0, id(None))
    assert singa_wrap.SameObjects([*containers, x], any_name)
    x.grad = Tensor((1,))
    assert not singa_wrap.SameObjects([*containers, x], any_name)
    x.grad = None
    del x.data
    assert not singa_wrap.SameObjects([*containers, x], any_name)
    assert not singa_wrap.SameObjects([*containers, x], now + held(1, id(x)))
    entries = {"a": a, "c": b}
    names = [(entries, "a", "b")]
    assert singa_wrap.SameObjects(names, held(2, id(a), 1))
    assert not singa_wrap.SameObjects(names, held(2, 1, 1))
    assert not singa_wrap.SameObjects([(entries, [])], held(1, id(a)))  # no key of a dict
    entries["b"] = b
    assert not singa_wrap.SameObjects(names, held(2, id(a), 1))
    containers[0][a] = 3
    assert not singa_wrap.SameObjects(containers, now)
    containers[0][a] = b
    del slot.value
    assert not singa_wrap.SameObjects(containers, now)
