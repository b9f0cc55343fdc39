"""Writes the files of `classical`: models of scikit-learn and LightGBM, and what these compute.

    pip install skl2onnx lightgbm onnxmltools      # in an environment of its own
    python test/python/onnx/classical/make.py

NAME.onnx is the model. NAME.npz has the inputs by name, and the results of the library in the order
of the outputs of the file as y0, y1, ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType as LightFloats
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn import (
    cluster,
    compose,
    decomposition,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

_FOLDER = Path(__file__).parent
_RANDOM = np.random.default_rng(0)
_X = _RANDOM.standard_normal((60, 4)).astype(np.float32)
_TWO = (_X @ [1.0, -2.0, 0.5, 0.0] + 0.3 * _RANDOM.standard_normal(60) > 0).astype(np.int64)
_THREE = np.digitize(_X @ [1.0, 1.0, -1.0, 0.3], [-0.8, 0.8]).astype(np.int64)
_NUMBER = _X @ [1.0, -2.0, 0.5, 0.1] + np.sin(3 * _X[:, 0])
_PAIRS = np.stack([_NUMBER, _X[:, 0]], 1)
_NAMES = np.array(["cat", "dog", "newt"])
_TEXTS = _RANDOM.choice(["red", "green", "blue"], (60, 2)).astype(object)


def _write(name: str, model: Any, inputs: dict[str, Any], *results: Any) -> None:
    (_FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    arrays = {key: x.astype(str) if x.dtype == object else x for key, x in inputs.items()}
    named = {f"y{i}": np.asarray(y) for i, y in enumerate(results)}
    np.savez_compressed(_FOLDER / f"{name}.npz", **arrays, **named)


def _floats(name: str, model: Any, y: Any = None, options: Any = None, x: Any = _X) -> None:
    """A model of four numbers: what it transforms, or its labels and probabilities, or numbers."""
    model.fit(x, y)
    proto = to_onnx(model, initial_types=[("x", FloatTensorType([None, 4]))], options=options)
    if hasattr(model, "predict_proba"):
        results = [model.predict(x), model.predict_proba(x)]
    elif hasattr(model, "decision_function"):
        scores = model.decision_function(x)
        if scores.ndim == 1:  # as the converter writes them
            scores = np.stack([scores, -scores], 1)
        results = [model.predict(x), scores]
    elif hasattr(model, "predict"):
        results = [model.predict(x)]
        if hasattr(model, "transform"):
            results.append(model.transform(x))
    else:
        results = [model.transform(x)]
    _write(name, proto, {"x": x}, *results)


def _plain(model: Any) -> Any:
    return {id(model): {"zipmap": False}}


def main() -> None:
    """All of them."""
    missing = _X.copy()
    missing[::7, 1] = np.nan
    _floats("linear_regression", linear_model.LinearRegression(), _PAIRS)
    _floats("logistic_with_zip_map", linear_model.LogisticRegression(), _TWO)
    for name, model, y in (
        ("logistic_of_texts", linear_model.LogisticRegression(), _NAMES[_THREE]),
        ("decision_tree", tree.DecisionTreeClassifier(max_depth=4), _THREE),
        ("forest_of_two", ensemble.RandomForestClassifier(5, max_depth=4, random_state=0), _TWO),
        (
            "forest_of_three",
            ensemble.RandomForestClassifier(5, max_depth=4, random_state=0),
            _THREE,
        ),
        ("boosted_of_two", ensemble.GradientBoostingClassifier(n_estimators=5), _TWO),
        ("boosted_of_three", ensemble.GradientBoostingClassifier(n_estimators=5), _THREE),
        ("network", neural_network.MLPClassifier((8,), max_iter=500, random_state=0), _THREE),
        ("naive_bayes", naive_bayes.GaussianNB(), _THREE),
        ("neighbors", neighbors.KNeighborsClassifier(3), _THREE),
    ):
        _floats(name, model, y, _plain(model))
    _floats("linear_svm", svm.LinearSVC(random_state=0), _THREE)
    machine = svm.SVC()
    _floats("svm_of_two", machine, _TWO, _plain(machine))
    machine = svm.SVC()
    _floats("svm_of_three", machine, _THREE, _plain(machine))
    _floats("svm_of_numbers", svm.SVR(kernel="poly", degree=2), _NUMBER)
    extra = ensemble.ExtraTreesRegressor(5, max_depth=4, random_state=0)
    _floats("trees_of_numbers", extra, _NUMBER)
    _floats("boosted_of_numbers", ensemble.GradientBoostingRegressor(n_estimators=5), _NUMBER)
    _floats("clusters", cluster.KMeans(3, random_state=0, n_init=1))
    _floats(
        "imputed_and_scaled",
        pipeline.make_pipeline(
            impute.SimpleImputer(),
            preprocessing.StandardScaler(),
            preprocessing.Normalizer(),
            decomposition.PCA(3),
        ),
        x=missing,
    )
    _floats(
        "binarized",
        pipeline.make_pipeline(
            preprocessing.Binarizer(threshold=0.2), feature_selection.VarianceThreshold(0.1)
        ),
    )
    _texts()
    _light()


def _texts() -> None:
    """One-hot and ordinal encodings of texts beside numbers."""
    columns = compose.ColumnTransformer(
        [
            ("hot", preprocessing.OneHotEncoder(handle_unknown="ignore"), [0]),
            ("ordinal", preprocessing.OrdinalEncoder(), [1]),
        ]
    )
    columns.fit(_TEXTS)
    proto = to_onnx(columns, initial_types=[("t", StringTensorType([None, 2]))])
    _write("encoded_texts", proto, {"t": _TEXTS}, columns.transform(_TEXTS))


def _light() -> None:
    """LightGBM's models, with a missing number."""
    x = _X.copy()
    x[3, 2] = np.nan
    kinds = [("x", LightFloats([None, 4]))]
    options = {"n_estimators": 6, "num_leaves": 6, "min_child_samples": 4, "verbose": -1}
    number = lightgbm.LGBMRegressor(**options).fit(x, _NUMBER)
    proto = convert_lightgbm(number, initial_types=kinds)
    _write("light_of_numbers", proto, {"x": x}, number.predict(x))
    for name, y in (("two", _TWO), ("three", _THREE)):
        model = lightgbm.LGBMClassifier(**options).fit(x, y)
        proto = convert_lightgbm(model, initial_types=kinds, zipmap=False)
        _write(f"light_of_{name}", proto, {"x": x}, model.predict(x), model.predict_proba(x))


if __name__ == "__main__":
    main()
