#!/usr/bin/env python3
"""Time of an all-reduce between machines: by TCP, by an MPI, by that MPI's own calls and by gloo.

    PYTHONPATH=build/release/python python benchmark/transports.py MPI [--mbit 1000]

MPI is the folder of an installed MPI, such as an environment in which `pip install mpich` was run.
Two machines are network namespaces with one rank and one core each; --mbit limits what each sends
(tc's tbf). All ways take turns in the same two processes, so they see the same load. A figure is
the minimum over the rounds of the longest time of a rank, in milliseconds; in brackets the
processor time of a rank.

It needs root, `ip` and `tc`, for gloo PyTorch, for MPI's own calls mpi4py; what is missing is left
out. Sums of gloo and MPI may have another order.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from all_reduce import measure, of_gloo, of_mpi, of_singa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test/python/support"))

from network_hosts import Hosts


def joined(transport: str) -> Any:
    """A communicator whose data that transport moves."""
    from singa import singa_wrap

    os.environ["SINGA_TRANSPORT"] = transport
    return singa_wrap.Communicator._join_mpi(singa_wrap._mpi_libraries(), 60.0)


def rank(address: str, rounds: int) -> None:
    """What each rank does."""
    of_own, of_own_later = of_mpi(), of_mpi(later=True)
    import singa
    from singa import distributed, singa_wrap

    singa.set_num_threads(1)
    # The first one initialises MPI, unless mpi4py has, and may then call it from another thread.
    by_mpi, by_tcp = joined("mpi"), joined("tcp")
    distributed.use(by_tcp)
    os.sched_setaffinity(0, {by_tcp.global_rank % (os.cpu_count() or 1)})
    ways = {
        "tcp": of_singa(by_tcp, singa_wrap.kFloat32),
        "mpi": of_singa(by_mpi, singa_wrap.kFloat32),
        "MPI_Allreduce": of_own,
        "MPI_Iallreduce": of_own_later,
        "gloo": of_gloo(by_tcp.global_rank, by_tcp.world_size, 29517, address),
    }
    measure(by_tcp, ways, rounds, processor=True)
    by_tcp.barrier()
    if ways["gloo"] is not None:
        import torch.distributed as dist

        dist.destroy_process_group()


def main() -> int:
    """Makes the machines, runs the ranks, and removes them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mpi", type=Path, metavar="MPI")
    parser.add_argument("--mbit", type=int, default=0, help="Mbit/s of each machine [no limit]")
    parser.add_argument("--rounds", type=int, default=7, help="[%(default)s]")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # address of rank 0's machine
    args = parser.parse_args()
    if args.inside:
        rank(args.inside, args.rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        # What an MPI passes on to the other machine by ssh.
        passed = ("HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR")
        hosts = Hosts(Path(folder), passed)
        try:
            if args.mbit:
                limit = ("tbf", "rate", f"{args.mbit}mbit", "burst", "256kb", "latency", "50ms")
                for i in range(len(hosts.addresses)):
                    hosts.run(i, "tc", "qdisc", "add", "dev", "net", "root", *limit)
            # The kernel is one, so MPICH's library for networks would take the machines for one.
            network = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "net", "GLOO_SOCKET_IFNAME": "net"}
            allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            path = f"{hosts.bin}:{args.mpi.resolve() / 'bin'}:{os.environ['PATH']}"
            own = {"PATH": path, "TMPDIR": "/var/tmp", "OMP_WAIT_POLICY": "passive"}
            own["LD_LIBRARY_PATH"] = str(args.mpi.resolve() / "lib")  # for mpi4py
            launch = [sys.executable, "-m", "singa", "launch", "-n", "2"]
            launch += ["--hosts", ",".join(hosts.addresses), __file__, str(args.mpi)]
            launch += ["--rounds", str(args.rounds), "--inside", hosts.addresses[0]]
            return subprocess.run(
                hosts.command(0, *launch), env=os.environ | network | allowed | own, check=False
            ).returncode
        finally:
            hosts.close()


if __name__ == "__main__":
    sys.exit(main())
