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
    attributes = [x.data, x.requires_grad, x.stores_grad, x.name]
    with_tensor = now + held(4, *map(id, attributes))
    assert singa_wrap.SameObjects([*containers, x], with_tensor)
    x.name = b
    assert not singa_wrap.SameObjects([*containers, x], with_tensor)
    assert singa_wrap.SameObjects([*containers, x], now + held(4, *map(id, attributes[:3]), 0))
    del x.data
    assert not singa_wrap.SameObjects([*containers, x], now + held(4, *map(id, attributes[:3]), 0))
    assert not singa_wrap.SameObjects([*containers, x], now + held(1, id(x)))
    containers[0][a] = 3
    assert not singa_wrap.SameObjects(containers, now)
    containers[0][a] = b
    del slot.value
    assert not singa_wrap.SameObjects(containers, now)
