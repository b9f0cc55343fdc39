"""Starts and watches the ranks of a job: `python -m singa launch`.

- `environment`: which rank a process is, from the variables of its launcher.
- `secret`: what the ranks of a job on several machines know each other by.
- `cores`: the CPU cores of each rank.
- `output`: the output of ranks, line by line with a prefix.
- `processes`: all processes and shared memory of a job, and the guard that removes them.
- `job`: one start of all ranks, until the last one has ended.
- `interpreter`: how a script is started.
- `hosts`: commands of MPI and SLURM for several machines.
- `command`: the command line.
- `estimate`: how long steps would take on many machines.

These modules need Python's standard library alone, so the launcher loads no library that computes.
"""
