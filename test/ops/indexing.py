"""Selection of elements by indices, masks and order."""

import numpy as np
from ops.case import Family, X, apart, both, functional, torch, uniform
from singa import autograd

CASES = Family()
add = CASES.add

add(
    "gather",
    "Gather",
    lambda x: autograd.gather(x, 1, [[0, 3], [-1, 3]]),
    lambda x: x[:, torch.tensor([[0, 3], [3, 3]])],
    [X],
)
add(
    "index by an array",
    "Gather",
    lambda x: x[1:, [0, 3, 0]],
    lambda x: x[1:, [0, 3, 0]],
    [X],
    one_step=False,
)
_INDICES = np.array([[1, 0, 2], [0, 2, 1]])
add(
    "scatter_elements",
    "ScatterElements",
    lambda x: autograd.scatter_elements(x, _INDICES, np.ones((2, 3)) * 2.0),
    lambda x: x.scatter(0, torch.tensor(_INDICES), 2.0),
    [uniform(3, 3)],
)
add(
    "scatter_elements of a parameter",
    "ScatterElements",
    lambda x, u: autograd.scatter_elements(x, _INDICES, u, 1),
    lambda x, u: x.scatter(1, torch.tensor(_INDICES), u),
    [uniform(3, 3), uniform(2, 3)],
)
_PICKS = np.array([[[1, 0, -1], [0, 2, 1]]])
add(
    "gather_elements",
    "GatherElements",
    lambda x: autograd.gather_elements(x, _PICKS, 0),
    lambda x: torch.gather(x, 0, torch.tensor(_PICKS % 3)),
    [X],
)
add(
    "take_along_axis",
    "GatherElements",
    lambda x: autograd.take_along_axis(x, _PICKS[:, :1], 2),
    lambda x: torch.take_along_dim(x, torch.tensor(_PICKS[:, :1] % 5), 2),
    [X],
)
_PLACES = np.array([[[0, 1], [2, -1]], [[0, 1], [1, 2]]])
add(
    "gather_nd",
    "GatherND",
    lambda x: autograd.gather_nd(x, _PLACES),
    lambda x: x[torch.tensor(_PLACES[..., 0]), torch.tensor(_PLACES[..., 1] % 4)],
    [X],
)
add(
    "gather_nd of batches",
    "GatherND",
    lambda x: autograd.gather_nd(x, np.array([[1], [0], [-1]]), 1),
    lambda x: x[torch.arange(3), torch.tensor([1, 0, 3])],
    [X],
)
add(
    "scatter_nd",
    "ScatterND",
    lambda x, u: autograd.scatter_nd(x, [[2], [0], [2]], u),
    lambda x, u: torch.cat([u[1:2], x[1:2], u[2:]]),  # the last update of a place counts
    [X, uniform(3, 4, 5, seed=3)],
)
# Updates of one place several times, and places without one.
_HITS = np.array([[0, 2, 0, 0, 2], [1, 1, 1, 0, 2], [0, 2, 1, 0, 2], [0, 0, 1, 0, 2]])
_FEW, _MANY = apart(3, 5, seed=6) / 8, apart(4, 5, seed=5) / 8
for _reduction, _torch in [("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")]:
    add(
        f"scatter_elements, {_reduction}",
        "ScatterElements",
        lambda x, u, how=_reduction: autograd.scatter_elements(x, _HITS, u, 0, how),
        lambda x, u, how=_torch: x.scatter_reduce(0, torch.tensor(_HITS), u, how),
        [_FEW, _MANY],
    )
    add(
        f"scatter_nd, {_reduction}",
        "ScatterND",
        lambda x, u, how=_reduction: autograd.scatter_nd(x, [[1], [0], [1], [1]], u, how),
        lambda x, u, how=_torch: x.scatter_reduce(
            0, torch.tensor([[1], [0], [1], [1]]).expand(4, 5), u, how
        ),
        [_FEW, _MANY],
    )
for _largest in (True, False):
    add(
        f"topk, largest {_largest}",
        "TopK",
        lambda x, largest=_largest: autograd.topk(x, 3, 1, largest)[0],
        lambda x, largest=_largest: torch.topk(x, 3, 1, largest)[0],
        [X],
    )
    add(
        f"sort, descending {_largest}",
        "TopK",
        lambda x, down=_largest: autograd.sort(x, descending=down)[0],
        lambda x, down=_largest: torch.sort(x, descending=down)[0],
        [X],
    )
add(
    "argsort",
    "TopK",
    lambda x: autograd.argsort(x, 0),
    lambda x: torch.sort(x, dim=0, stable=True).indices,
    [np.round(X * 2)],
    differentiable=False,
)
for _axis in (0, 1, 2):
    add(f"cumsum along {_axis}", "CumSum", *both("cumsum", _axis), [X])
add(
    "cumsum, exclusive and reverse",
    "CumSum",
    lambda x: autograd.cumsum(x, -1, exclusive=True, reverse=True),
    lambda x: functional.pad(torch.cumsum(x.flip(-1), -1).flip(-1)[..., 1:], (0, 1)),
    [X],
)
for _k in (-1, 0, 2):
    add(f"triu from {_k}", "Triangle", *both("triu", _k), [X])
    add(f"tril to {_k}", "Triangle", *both("tril", _k), [X])
add(
    "where",
    "Where",
    lambda x, y: autograd.where(x, y, np.array([[True], [False], [True]])),
    lambda x, y: torch.where(torch.tensor([[True], [False], [True]]), x, y),
    [uniform(3, 4), uniform(4, seed=3)],
)
add(
    "embedding",
    "Embedding",
    lambda x, w: autograd.embedding(x, w),
    lambda x, w: w[x.long()],
    [np.array([[0, 2, 1], [4, 2, 2]]), uniform(5, 3)],
    constants=(0,),
)
add(
    "onehot",
    "OneHot",
    lambda x: autograd.onehot(1, x, 4, [0.5, 2.0]),
    lambda x: functional.one_hot(x.long(), 4).permute(0, 2, 1) * 1.5 + 0.5,
    [np.array([[0, 2, 1], [3, 2, 2]])],
    differentiable=False,
    constants=(0,),
)
add(
    "nonzero",
    "NonZero",
    autograd.nonzero,
    lambda x: torch.nonzero(x).T,
    [np.array([[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]])],
    differentiable=False,
)
add(
    "masked_scatter",
    "CumSum Gather Where",
    *both("masked_scatter"),
    [uniform(3, 4), np.arange(12).reshape(3, 4) % 3 == 1, uniform(5)],
    constants=(1,),
    one_step=False,
)
for _right in (False, True):
    add(
        f"searchsorted, right {_right}",
        "GatherElements Where",
        lambda x, v, right=_right: autograd.searchsorted(x, v, right),
        lambda x, v, right=_right: torch.searchsorted(x, v, right=right),
        [np.sort(np.round(4 * uniform(2, 9))) / 4, np.round(4 * uniform(2, 6)) / 4],
        differentiable=False,
        one_step=False,
    )
    add(
        f"searchsorted in one sequence, right {_right}",
        "GatherElements Where",
        lambda x, v, right=_right: autograd.searchsorted(x, v, right),
        lambda x, v, right=_right: torch.searchsorted(x, v, right=right),
        [np.array([-1.0, 0.5, 0.5, 2.0]), np.array([[0.5, -2.0, 0.0], [2.0, 3.0, -1.0]])],
        differentiable=False,
        one_step=False,
    )

# Rows that are picked often, and searches by several threads.
_PICKED = np.random.default_rng(14).integers(0, 4, 2000)
add(
    "gather of wide rows",
    "Gather",
    lambda x: autograd.gather(x, 0, _PICKED),
    lambda x: x[torch.tensor(_PICKED)],
    [uniform(50, 300)],
    large=True,
)
add(
    "embedding of wide rows",
    "Embedding",
    lambda x, w: autograd.embedding(x, w),
    lambda x, w: w[x],
    [_PICKED, uniform(50, 300)],
    constants=(0,),
    large=True,
)
add(
    "nonzero of many",
    "NonZero",
    autograd.nonzero,
    lambda x: torch.nonzero(x).T,
    [np.arange(210_000).reshape(3, 70_000) % 7 == 5.0],
    differentiable=False,
    constants=(0,),
    large=True,
)
