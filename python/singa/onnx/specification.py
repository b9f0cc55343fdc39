"""What the onnx package says of a model: whether it is valid, its types, and its operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .errors import InvalidModelError

if TYPE_CHECKING:
    from onnx import ModelProto


def require_package() -> None:
    """Raises ImportError, with the way to get it, if the package onnx is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(f"[onnx] {error}: pip install onnx ml_dtypes") from error


def check_opset(model: ModelProto) -> None:
    """Raises InvalidModelError for a version of the operators that is not known."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if not domain_of(entry.domain) and not 1 <= entry.version <= newest:
            raise InvalidModelError(
                f"[onnx.load] the file has opset {entry.version}; onnx {onnx.__version__} knows 1 "
                f"to {newest}"
            )


def check_model(model: ModelProto) -> None:
    """Raises InvalidModelError for a model that contradicts the specification."""
    import onnx

    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise InvalidModelError(f"[onnx.load] {_on_one_line(error)}") from None
    except (ValueError, RuntimeError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"[onnx.load] the file cannot be checked: {error}") from None


def typed(model: ModelProto) -> ModelProto:
    """The model with the types and shapes that can be inferred."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # InferenceError, and others for damaged files
        raise InvalidModelError(
            f"[onnx.load] wrong types or shapes: {_on_one_line(error)}"
        ) from None


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def schema_of(op: str, domain: str, opsets: Mapping[str, int]) -> Any:
    """The OpSchema of an operator; None if it is unknown."""
    import onnx

    if domain not in opsets:
        return None
    try:
        return onnx.defs.get_schema(op, opsets[domain], domain)
    except onnx.defs.SchemaError:
        return None


def opsets_of(model: ModelProto) -> dict[str, int]:
    """The versions of the operators of a model, by domain."""
    return {domain_of(entry.domain): entry.version for entry in model.opset_import}


def domain_of(domain: str) -> str:
    """A domain by its one name: that of ONNX's own operators is empty."""
    return "" if domain == "ai.onnx" else domain


def all_nodes(graph: Any) -> Iterator[Any]:
    """All nodes of a GraphProto or FunctionProto, those of subgraphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)
            for inner in attribute.graphs:
                yield from all_nodes(inner)
