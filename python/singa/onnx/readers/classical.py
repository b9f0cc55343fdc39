"""Which nodes of classical models, ai.onnx.ml, onnx's reference evaluator computes as ONNX Runtime.

Where the two differ the node is refused: there the specification says little.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from ..errors import Refused
from ..graph import Node

#: The domain of classical models.
ML = "ai.onnx.ml"

#: Operators that compute with float32 for inputs of integers.
OF_NUMBERS = frozenset(
    {
        *("LinearClassifier", "LinearRegressor", "Normalizer", "SVMClassifier", "SVMRegressor"),
        *("Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    }
)


def check(node: Node) -> None:
    """Raises Refused for a node that the evaluator does not compute, or not as ONNX Runtime does.

    A linear regression without intercepts gets zeros.
    """

    def of(name: str, default: Any = ()) -> Any:
        return node.attributes.get(name, default)

    transform = of("post_transform", "NONE")
    if transform == "PROBIT" or (transform != "NONE" and node.op.endswith("Regressor")):
        raise Refused(f"post_transform {transform}")
    if node.op == "Normalizer" and of("norm") == "MAX":
        raise Refused("norm MAX")
    if node.op == "LinearRegressor":
        node.attributes.setdefault("intercepts", [0.0] * of("targets", 1))
    labels = next((of(n) for n in node.attributes if n.startswith("classlabels_")), ())
    if node.op == "LinearClassifier":
        rows = len(of("intercepts"))
        if len(labels) < 2 or not rows or (rows == 1 and transform != "LOGISTIC"):
            raise Refused(f"{len(labels)} classes, {rows} intercepts, post_transform {transform}")
    if node.op == "SVMClassifier":
        _check_machine(of, labels, transform)
    if node.op.startswith("TreeEnsemble"):
        _check_trees(node, of, labels, transform)


def _check_machine(of: Callable[..., Any], labels: Any, transform: str) -> None:
    signs = {weight >= 0 for weight in of("coefficients")}
    of_texts = bool(of("classlabels_strings"))
    if len(labels) < 2 or not of("vectors_per_class") or transform not in ("NONE", "LOGISTIC"):
        raise Refused(f"{len(labels)} classes without support vectors, or with {transform}")
    if len(labels) > 2 and of("prob_a"):
        raise Refused("probabilities of several classes")
    if len(labels) == 2 and (of_texts or (signs == {True} and not of("prob_a"))):
        raise Refused("two classes with names, or with coefficients of one sign")


def _check_trees(node: Node, of: Callable[..., Any], labels: Any, transform: str) -> None:
    """Trees have to end, and each class or target needs a tree all of whose leaves have it."""
    if node.op == "TreeEnsemble":
        if of("post_transform", 0) or of("aggregate_function", 1) > 1:
            raise Refused("a post_transform, or the least or largest of the trees")
        children: Counter[Any] = Counter()
        for side in ("true", "false"):
            pairs = zip(of(f"nodes_{side}nodeids"), of(f"nodes_{side}leafs"), strict=True)
            children.update(int(n) for n, is_leaf in pairs if not is_leaf)
        _check_ends(children, {int(n) for n in of("tree_roots")})
        return
    if any(name.endswith("_as_tensor") for name in node.attributes):
        raise Refused("numbers of 64 bits")
    trees, modes = of("nodes_treeids"), of("nodes_modes")
    if "BRANCH_NEQ" in modes:
        raise Refused("BRANCH_NEQ, which NaN passes in ONNX Runtime only")
    places = list(zip(trees, of("nodes_nodeids"), strict=True))
    branches = [i for i, mode in enumerate(modes) if mode != "LEAF"]
    sides = of("nodes_truenodeids"), of("nodes_falsenodeids")
    first = dict(reversed(places))
    _check_ends(Counter((trees[i], side[i]) for i in branches for side in sides), {*first.items()})

    kind = "class" if node.op == "TreeEnsembleClassifier" else "target"
    weights: dict[Any, dict[int, float]] = defaultdict(dict)
    names = (f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids", f"{kind}_weights")
    for tree, place, target, weight in zip(*map(of, names), strict=True):
        weights[tree, place][target] = weight
    leaves = defaultdict(list)
    for place, mode in zip(places, modes, strict=True):
        if mode == "LEAF":
            leaves[place[0]].append(weights[place])
    targets = set(of(f"{kind}_ids"))
    if not all(any(all(t in leaf for leaf in each) for each in leaves.values()) for t in targets):
        raise Refused("a class or target that some leaves of each tree lack")
    base = len(of("base_values"))
    wanted = of("n_targets", 1) if kind == "target" else len(labels)
    if kind == "target" or wanted > 2:
        if base not in (0, wanted) or len(targets) != wanted:
            raise Refused(f"{base} base values and {len(targets)} scores for {wanted}")
        return
    found = [leaf for each in leaves.values() for leaf in each]
    if wanted < 2 or base > (len(targets) == 1):
        raise Refused(f"{base} base values for {wanted} classes")
    positive = min(of("class_weights"), default=0.0) >= 0
    if transform == "LOGISTIC":
        fits = len(targets) == 1 and not positive
    else:
        positive = positive and min(of("base_values"), default=0.0) >= 0 and transform == "NONE"
        shares = all(abs(sum(leaf.values()) * len(leaves) - 1) < 1e-3 for leaf in found)
        fits = positive and (len(targets) == 1 or shares)
    if not fits:
        raise Refused("two classes with scores that are no probabilities")


def _check_ends(children: Counter[Any], roots: set[Any]) -> None:
    """Raises Refused if following a tree from its root might not end."""
    if max(children.values(), default=0) > 1 or not roots.isdisjoint(children):
        raise Refused("trees whose nodes have several parents")
