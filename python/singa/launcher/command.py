"""The command line `python -m singa launch`."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import cores, hosts, waits
from .command_line import at_least, command_parser, positive
from .environment import (
    DEFAULT_TIMEOUT,
    FOREIGN,
    Environment,
    apart,
    completed,
    environment,
)
from .interpreter import finding_singa, interpreter
from .job import Job, Member, Outcome, say, say_good_end
from .processes import Guard, open_standard_streams

_DESCRIPTION = """\
Starts a script as N processes, the ranks of one training job, and ends all of them when one fails.

Each rank gets its part of this machine's cores, and its place in the variables SINGA_RANK,
SINGA_WORLD_SIZE, SINGA_LOCAL_RANK, SINGA_LOCAL_SIZE and SINGA_JOB. Lines of output begin with the
rank. SIGINT, SIGTERM and other signals go on to all ranks; the third SIGINT or SIGTERM kills them.
The exit status is that of the rank that failed first, 128 and the number of the signal if one was
killed. docs/distributed.md describes jobs on several machines.

Within mpiexec, srun or torchrun, leave out -n: each of their processes becomes one rank.

--estimate as the first option, with options of its own, says how long a step would take on many
machines.

    python -m singa launch -n 2 script.py --epochs 10
    python -m singa launch -n 8 --restarts 3 script.py
    mpiexec -n 4 python -m singa launch script.py
    python -m singa launch --estimate --help
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments. Exits with status 2 if they are wrong."""
    usage = "[-n N] [options] [-m] SCRIPT ..."
    parser = command_parser("launch", _DESCRIPTION, usage, allow_abbrev=False)
    count = at_least(1, int)
    add = parser.add_argument
    add("-n", "--ranks", type=count, metavar="N", help="number of ranks")
    add("--hosts", metavar="A,B", help="machines, reached by mpiexec or srun [this one alone]")
    add(
        "--restarts",
        type=at_least(0, int),
        default=0,
        metavar="R",
        help="start the job again after a failure, R times at most; scripts continue from their "
        "last checkpoint [%(default)s]",
    )
    add(
        "--restart-with",
        type=count,
        metavar="M",
        help="number of ranks after a failure [as before]",
    )
    add(
        "--timeout",
        type=count,
        metavar="S",
        help=f"seconds that a rank waits for another one that does not answer [{DEFAULT_TIMEOUT}]",
    )
    add(
        "--grace",
        type=positive,
        default=5.0,
        metavar="S",
        help="seconds between SIGTERM and SIGKILL when the other ranks are ended [%(default)g]",
    )
    add(
        "--report",
        action="store_true",
        help="say at the end which ranks the others have waited for",
    )
    add(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="also write the output of each rank to a file of its own, DIR/rank-0.log and so on",
    )
    # Started by --hosts; how signals come.
    add("--under-hosts", choices=["signal", "input", "SIGUSR2"], help=argparse.SUPPRESS)
    add("-m", "--module", action="store_true", help="SCRIPT is the name of a module")
    add("script", metavar="SCRIPT", help="a Python file; the arguments after it are the script's")
    add("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if not parsed.module and not Path(parsed.script).is_file():
        parser.error(f"there is no file {parsed.script}")
    try:
        place = environment()
        if parsed.timeout is None:
            parsed.timeout = place.timeout
        parsed.hosts = hosts.parse(parsed.hosts) if parsed.hosts is not None else []
    except ValueError as error:
        parser.error(str(error))
    parsed.place = place
    if parsed.ranks is None and not place.source:
        parser.error("-n is missing: the number of ranks")
    if parsed.ranks is None and (parsed.hosts or parsed.restarts or parsed.restart_with):
        parser.error("--hosts, --restarts and --restart-with need -n")
    if parsed.restart_with is not None and not parsed.restarts:
        parser.error("--restart-with needs --restarts")
    if parsed.report and (parsed.hosts or parsed.ranks is None):
        parser.error("--report needs -n, and no --hosts: it knows the ranks of one machine")
    least = min(parsed.ranks or 1, parsed.restart_with or math.inf)
    if len(parsed.hosts) > least:
        parser.error(f"--hosts names {len(parsed.hosts)} machines for {least} ranks")
    return parsed


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit status."""
    if arguments[:1] == ["--estimate"]:
        from .estimate import command as estimate

        return estimate.main(arguments[1:])
    options = parse(arguments)
    open_standard_streams()
    try:
        if options.ranks is not None:
            return _run(options)
        command, variables, place, own = _as_rank(options)
        if options.under_hosts or options.log_dir:
            # A launcher with --under-hosts prints lines of ranks as they come.
            prefix, title = f"[{place.rank}] " if options.under_hosts else "", f"rank {place.rank}"
            log = _log(options, place)
            member = Member(title, command, variables, prefix, own, inherits=True, log=log)
            # Ranks that wait for it notice first that it is stopped, and kill it.
            timeout = options.timeout + 10
            job = Job("", [member], timeout=timeout, told_by=options.under_hosts or "signal")
            outcome = job.run()
            if not outcome.status and options.under_hosts:
                say_good_end(title)
            return outcome.status
        if own:
            os.sched_setaffinity(0, own)
        os.execvpe(command[0], command, variables)
    except OSError as error:
        say(str(error))
        return 1


def _run(options: argparse.Namespace) -> int:
    """Runs the job, again after failures while there are restarts left."""
    guard = Guard()
    name = f"singa-{os.getpid()}-{secrets.token_hex(4)}"
    ranks = options.ranks
    try:
        for restart in range(options.restarts + 1):
            if restart:
                ranks = options.restart_with or ranks
                say(f"restart {restart} of {options.restarts}, {_ranks(ranks)}")
            before = options.place.restart  # by the program that has started this one
            outcome = _start(options, guard, f"{name}-{restart}", ranks, before + restart)
            if not outcome.status or outcome.requested:
                break
        return outcome.status
    finally:
        guard.close()


def _start(
    options: argparse.Namespace, guard: Guard, name: str, ranks: int, restart: int
) -> Outcome:
    guard.watch(name)
    given = _without_place(os.environ)
    own = {name: value for name, value in given.items() if name not in FOREIGN}
    shared = finding_singa(own | {"PYTHONUNBUFFERED": "1"})
    if options.hosts:
        place = Environment(job=name, timeout=options.timeout, restart=restart)
        members = [_over_hosts(options, ranks, shared, place)]
    else:
        place = Environment(0, ranks, 0, ranks, name, options.timeout, restart)
        members = _here(options, shared, place)
    # What starts the ranks on other machines gets the time to end them by itself.
    linger = options.grace if options.hosts else min(2.0, options.grace)
    if not options.report:
        return Job(name, members, linger, options.grace, options.timeout).run()
    with tempfile.TemporaryDirectory(prefix="singa-waits-") as folder:
        members = [
            dataclasses.replace(each, variables={**each.variables, "SINGA_WAITS": folder})
            for each in members
        ]
        outcome = Job(name, members, linger, options.grace, options.timeout).run()
        for line in waits.table(waits.read(folder)):
            say(line)
    return outcome


def _here(
    options: argparse.Namespace, shared: Mapping[str, str], place: Environment
) -> list[Member]:
    """The ranks of a job on this machine."""
    ranks = place.world_size
    every = cores.available()
    if ranks > len(every) and not place.restart:
        count = f"{len(every)} core{'s' if len(every) > 1 else ''}"
        say(f"{_ranks(ranks)} share {count}")
    quota = cores.quota()
    places = [dataclasses.replace(place, rank=rank, local_rank=rank) for rank in range(ranks)]
    return [
        Member(
            f"rank {each.rank}",
            script_command(options),
            _with_threads(shared, own, ranks, quota) | each.variables(),
            f"[{each.rank}] ",
            own,
            log=_log(options, each),
        )
        for each, own in zip(places, cores.split(every, ranks), strict=True)
    ]


def _log(options: argparse.Namespace, place: Environment) -> Path | None:
    """The file for the output of a rank. The first start of a job empties it."""
    if options.log_dir is None:
        return None
    options.log_dir.mkdir(parents=True, exist_ok=True)
    log: Path = options.log_dir / f"rank-{place.rank}.log"
    if not place.restart:
        log.write_bytes(b"")
    return log


def _over_hosts(
    options: argparse.Namespace, ranks: int, shared: Mapping[str, str], place: Environment
) -> Member:
    found = hosts.find()
    told_by = hosts.told_by(found[1])
    program = [*interpreter(), "-m", "singa", "launch", "--under-hosts", told_by]
    program += ["--timeout", str(options.timeout), "--grace", f"{options.grace:g}"]
    program += ["--log-dir", str(options.log_dir)] if options.log_dir else []
    program += [*(["-m"] if options.module else []), options.script, *options.arguments]
    variables = _without_place(shared)
    variables |= {"SINGA_JOB": place.job, "SINGA_RESTART": str(place.restart)}
    command = hosts.command(found, options.hosts, ranks, program, variables)
    if Path(command[0]).name == "srun":  # the ranks of an MPI get one by it
        variables["SINGA_SECRET"] = shared.get("SINGA_SECRET") or secrets.token_hex()
    return Member(command[0], command, variables, starts=ranks, told_by=told_by)


def _as_rank(
    options: argparse.Namespace,
) -> tuple[list[str], dict[str, str], Environment, list[int]]:
    """Command, variables, place and cores (empty: as they are) of this process, which another
    launcher has started as a rank."""
    place: Environment = dataclasses.replace(options.place, timeout=options.timeout)
    place = completed(place)
    together = place.local_size == place.world_size and not apart(place)
    if not place.job and together:
        place = dataclasses.replace(place, job=f"singa-{os.getppid()}", meeting="")
    every = cores.available()
    # A launcher that binds its processes has left each of them a part of the cores. Who does not
    # know its place shares the cores when it has met the others.
    own, bound = every, []
    unbound = len(every) == os.cpu_count()
    if unbound and place.local_rank is not None and place.local_size is not None:
        own = bound = cores.split(every, place.local_size)[place.local_rank]
    variables = finding_singa(_without_place(os.environ))
    if place.local_size is not None:
        variables = _with_threads(variables, own, place.local_size, cores.quota())
    variables |= place.variables()
    if not place.job:
        variables.pop("SINGA_JOB", None)
    return script_command(options), variables, place, bound


def script_command(options: argparse.Namespace) -> list[str]:
    """The command of a rank."""
    kind = ["-m"] if options.module else []
    return [*interpreter(), *kind, options.script, *options.arguments]


def _with_threads(
    variables: Mapping[str, str], own: Sequence[int], ranks: int, quota: float
) -> dict[str, str]:
    """The variables with the number of threads, unless the user has chosen it."""
    return {"OMP_NUM_THREADS": str(cores.threads(own, ranks, quota)), **variables}


def _without_place(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of a rank of `singa launch`."""
    own = set(Environment(job="-", meeting="-").variables())
    return {name: value for name, value in variables.items() if name not in own}


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count > 1 else ''}"
