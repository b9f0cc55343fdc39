"""Details of recorded steps that Model.memory_plan does not give."""

from typing import Any

from singa.model import Model


def graphs(net: Model) -> list[Any]:
    """All `singa_wrap.Graph` objects of a model, and their operations as text."""
    return net._graphs().graphs()
