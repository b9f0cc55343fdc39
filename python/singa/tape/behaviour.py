"""The one object by which singa's core asks for another behaviour. `singa.compat` sets it."""

from __future__ import annotations


class Behaviour:
    """What may differ from singa's own behaviour."""

    #: Its name. Steps that were recorded under one are not replayed under another.
    name: str = ""
    #: Every backward may be repeated, and takes the present values of tensors that have changed.
    repeats_backward: bool = False
    #: `backward` of one's own operator gets a number for a loss, where a number was given.
    passes_numbers: bool = False
    #: Networks of files take inputs of another type or batch than declared, and give arrays where
    #: arrays were given.
    converts_inputs: bool = False


behaviour: Behaviour = Behaviour()
