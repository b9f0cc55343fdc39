"""Selection of elements by indices, masks and order."""

from typing import Any

import numpy as np
from ops.case import VALUES, Family, X, apart, functional, torch, uniform
from singa import autograd

CASES = Family()
add, call, alike = CASES.add, CASES.call, CASES.alike

call("gather", "Gather", [X], 1, [[0, 3], [-1, 3]], theirs=lambda x, *_: x[:, [[0, 3], [3, 3]]])
alike("index by an array", "Gather", [X], lambda x: x[1:, [0, 3, 0]], one_step=False)
_INDICES = np.array([[1, 0, 2], [0, 2, 1]])
call(
    *("scatter_elements", "ScatterElements", [uniform(3, 3)], _INDICES, np.ones((2, 3)) * 2.0),
    theirs=lambda x, *_: x.scatter(0, torch.tensor(_INDICES), 2.0),
)
add(
    *("scatter_elements of a parameter", "ScatterElements"),
    lambda x, u: autograd.scatter_elements(x, _INDICES, u, 1),
    lambda x, u: x.scatter(1, torch.tensor(_INDICES), u),
    [uniform(3, 3), uniform(2, 3)],
)
_PICKS = np.array([[[1, 0, -1], [0, 2, 1]]])
call(
    *("gather_elements", "GatherElements", [X], _PICKS, 0),
    theirs=lambda x, *_: torch.gather(x, 0, torch.tensor(_PICKS % 3)),
)
call(
    *("take_along_axis", "GatherElements", [X], _PICKS[:, :1], 2),
    theirs=lambda x, picks, axis: torch.take_along_dim(x, torch.tensor(picks % 5), axis),
)
_PLACES = np.array([[[0, 1], [2, -1]], [[0, 1], [1, 2]]])
call(
    *("gather_nd", "GatherND", [X], _PLACES),
    theirs=lambda x, at: x[torch.tensor(at[..., 0]), torch.tensor(at[..., 1] % 4)],
)
call(
    *("gather_nd of batches", "GatherND", [X], np.array([[1], [0], [-1]]), 1),
    theirs=lambda x, *_: x[torch.arange(3), torch.tensor([1, 0, 3])],
)
add(
    *("scatter_nd", "ScatterND"),
    lambda x, u: autograd.scatter_nd(x, [[2], [0], [2]], u),
    lambda x, u: torch.cat([u[1:2], x[1:2], u[2:]]),  # the last update of a place counts
    [X, uniform(3, 4, 5, seed=3)],
)
# Updates of one place several times, and places without one.
_HITS = np.array([[0, 2, 0, 0, 2], [1, 1, 1, 0, 2], [0, 2, 1, 0, 2], [0, 0, 1, 0, 2]])
_ROWS = np.array([[1], [0], [1], [1]])
_FEW_AND_MANY = [apart(3, 5, seed=6) / 8, apart(4, 5, seed=5) / 8]
for _reduction, _torch in [("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")]:
    add(
        *(f"scatter_elements, {_reduction}", "ScatterElements"),
        lambda x, u, how=_reduction: autograd.scatter_elements(x, _HITS, u, 0, how),
        lambda x, u, how=_torch: x.scatter_reduce(0, torch.tensor(_HITS), u, how),
        _FEW_AND_MANY,
    )
    add(
        *(f"scatter_nd, {_reduction}", "ScatterND"),
        lambda x, u, how=_reduction: autograd.scatter_nd(x, _ROWS, u, how),
        lambda x, u, how=_torch: x.scatter_reduce(0, torch.tensor(_ROWS).expand(4, 5), u, how),
        _FEW_AND_MANY,
    )


for _largest in (True, False):
    add(
        *(f"topk, largest {_largest}", "TopK"),
        lambda x, largest=_largest: autograd.topk(x, 3, 1, largest)[0],
        lambda x, largest=_largest: torch.topk(x, 3, 1, largest)[0],
        [X],
    )
    add(
        *(f"sort, descending {_largest}", "TopK"),
        lambda x, down=_largest: autograd.sort(x, descending=down)[0],
        lambda x, down=_largest: torch.sort(x, descending=down)[0],
        [X],
    )
call(
    *("argsort", "TopK", [np.round(X * 2)], 0),
    theirs=lambda x, axis: torch.sort(x, dim=axis, stable=True).indices,
    differentiable=False,
)
for _axis in (0, 1, 2):
    call(f"cumsum along {_axis}", "CumSum", [X], _axis)
add(
    *("cumsum, exclusive and reverse", "CumSum"),
    lambda x: autograd.cumsum(x, -1, exclusive=True, reverse=True),
    lambda x: functional.pad(torch.cumsum(x.flip(-1), -1).flip(-1)[..., 1:], (0, 1)),
    [X],
)
for _k in (-1, 0, 2):
    call(f"triu from {_k}", "Triangle", [X], _k)
    call(f"tril to {_k}", "Triangle", [X], _k)
_CONDITION = np.array([[True], [False], [True]])
call(
    *("where", "Where", [uniform(3, 4), uniform(4, seed=3)], _CONDITION),
    theirs=lambda x, y, condition: torch.where(torch.tensor(condition), x, y),
)


def _rows(x: Any, w: Any) -> Any:
    return w[x.long()]


_WORDS = np.array([[0, 2, 1], [4, 2, 2]])
call("embedding", "Embedding", [_WORDS, uniform(5, 3)], theirs=_rows, constants=(0,))
add(
    *("onehot", "OneHot"),
    lambda x: autograd.onehot(1, x, 4, [0.5, 2.0]),
    lambda x: functional.one_hot(x.long(), 4).permute(0, 2, 1) * 1.5 + 0.5,
    [np.array([[0, 2, 1], [3, 2, 2]])],
    differentiable=False,
    constants=(0,),
)


def _nonzero(x: Any) -> Any:
    return torch.nonzero(x).T


_ZEROS = np.array([[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]])
call("nonzero", "NonZero", [_ZEROS], theirs=_nonzero, differentiable=False)
_MASK = np.arange(12).reshape(3, 4) % 3 == 1
call(
    *("masked_scatter", "CumSum Gather Where", [uniform(3, 4), _MASK, uniform(5)]),
    constants=(1,),
    one_step=False,
)
for _right in (False, True):
    for _name, _sequence, _values in [
        ("", np.sort(np.round(4 * uniform(2, 9))) / 4, np.round(4 * uniform(2, 6)) / 4),
        (" in one sequence", *map(np.array, ([-1, 0.5, 0.5, 2], [[0.5, -2, 0], [2, 3, -1.0]]))),
    ]:
        call(
            *(f"searchsorted{_name}, right {_right}", "GatherElements Where", [_sequence, _values]),
            **{"right": _right, **VALUES},
        )

# Rows that are picked often, and searches by several threads.
_PICKED = np.random.default_rng(14).integers(0, 4, 2000)
_WIDE = uniform(50, 300)
call(
    *("gather of wide rows", "Gather", [_WIDE], 0, _PICKED),
    theirs=lambda x, *_: x[torch.tensor(_PICKED)],
    large=True,
)
call(
    *("embedding of wide rows", "Embedding", [_PICKED, _WIDE]),
    theirs=_rows,
    constants=(0,),
    large=True,
)
call(
    *("nonzero of many", "NonZero", [np.arange(210_000).reshape(3, 70_000) % 7 == 5.0]),
    theirs=_nonzero,
    differentiable=False,
    constants=(0,),
    large=True,
)
