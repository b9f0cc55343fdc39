"""Recording of a model's steps, and their replay in C++.

- `step_graphs`: records, replays or executes steps. Its docstring describes the mechanism.
- `settings`: Python state that a step may depend on. It is compared before each replay.
- `memory_plan`: memory that recorded steps use.
"""

from ..tape.step_recording import host_call, host_called
from .audits import GraphWarning
from .step_graphs import StepGraphs

__all__ = ["GraphWarning", "StepGraphs", "host_call", "host_called"]
