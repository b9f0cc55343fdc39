"""Reports on a running program: times, memory, chosen implementations.

- `profiling`: the time of each operation.
- `explanation`: the implementation of each operation, and why it was chosen.
- `collector`: the base class of both.
- `diagnostics`: the doctor, memory, reorders, OPCHECK.
- `advice`: what would make a step quicker or smaller; `trials` times it, `grouped` and `loading`
  are two of its subjects.
- `anomaly`: the first operation with a NaN or an infinity.
- `plan_cache`: the cache of compiled operations.
- `step_profile`: a step for `python -m singa launch --estimate`.
- `bench`: times of whole steps of a network.
"""
