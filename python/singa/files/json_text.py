"""JSON that every program reads."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(value: Any, **options: Any) -> str:
    """Values as JSON text. NaN and infinity, which JSON does not have, become null; `options` are
    those of `json.dumps`. What singa alone reads again, such as a checkpoint, keeps them instead.

    Raises TypeError for what is no JSON value.
    """
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_finite(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
