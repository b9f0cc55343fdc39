"""What a step of a training job would take on many machines: `python -m singa launch --estimate`.

- `step_profile`: what one rank does in a step, as it was recorded.
- `chain`: when collectives end that go from machine to machine along a chain, or around a ring.
- `simulation`: a step on any number of machines.
- `picture`: the curve.
- `command`: the command line.
"""
