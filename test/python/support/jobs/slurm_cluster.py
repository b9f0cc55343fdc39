"""SLURM on the machines of network_hosts: a controller on the first one, a node daemon on each."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from pathlib import Path

from network_hosts import Hosts

_PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "munged")
# /var/tmp is each machine's own.
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={names[0]}({addresses[0]})
SlurmUser=root
AuthInfo=socket=/var/tmp/munge.sock
StateSaveLocation=/var/tmp
SlurmdSpoolDir=/var/tmp/slurmd
SlurmctldPidFile=/var/tmp/slurmctld.pid
SlurmdPidFile=/var/tmp/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
KillWait=2
{nodes}
PartitionName=all Nodes={all} Default=YES
"""
_READY = 30.0  # most seconds that the nodes take to be there
_CORES = 2


def missing() -> str:
    """Which program is not there; "" if all are."""
    absent = [name for name in _PROGRAMS if not shutil.which(name, path=_path())]
    return f"{absent[0]} is missing" if absent else ""


def _path() -> str:
    return "/usr/sbin:/usr/bin:/sbin:/bin"


class Slurm:
    """A cluster. `variables` are for programs that use it.

    hosts   the machines
    folder  gets its files; all machines see it
    """

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts = hosts
        self._log = (folder / "slurm.log").open("w")
        names, addresses = ["a", "b"], hosts.addresses
        nodes = [
            f"NodeName={n} NodeAddr={a} CPUs={_CORES}"
            for n, a in zip(names, addresses, strict=True)
        ]
        configuration = folder / "slurm.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                names=names, addresses=addresses, nodes="\n".join(nodes), all=",".join(names)
            )
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # which asks for nothing
        self.variables = {"SLURM_CONF": str(configuration)}
        key, names_file = folder / "munge.key", folder / "hosts"
        key.write_text(secrets.token_hex(64))
        key.chmod(0o600)
        places = [f"{address} {name}\n" for name, address in zip(names, addresses, strict=True)]
        names_file.write_text("127.0.0.1 localhost\n" + "".join(places))
        self._running: list[subprocess.Popen[bytes]] = []
        try:
            self._start_all(names, names_file, key, configuration)
        except BaseException:
            self.close()
            raise

    def _start_all(
        self, names: list[str], names_file: Path, key: Path, configuration: Path
    ) -> None:
        """Starts the daemons, and waits until the nodes are there."""
        hosts = self._hosts
        for i, name in enumerate(names):
            hosts.run(i, "mount", "--bind", str(names_file), "/etc/hosts")
            munge = ["munged", "--foreground", f"--key-file={key}", "--socket=/var/tmp/munge.sock"]
            munge += [f"--{kind}-file=/var/tmp/munge.{kind}" for kind in ("pid", "log", "seed")]
            self._start(i, *munge)
            if i == 0:
                self._start(i, "slurmctld", "-D", "-f", str(configuration))
            self._start(i, "slurmd", "-D", "-f", str(configuration), "-N", name)
        end = time.monotonic() + _READY
        while (state := self._states()) != "idle\n" * len(names):
            if time.monotonic() > end or any(each.poll() is not None for each in self._running):
                raise RuntimeError(f"nodes are {state!r}: {Path(self._log.name).read_text()}")
            time.sleep(0.2)

    def _start(self, host: int, *command: str) -> None:
        self._running.append(
            subprocess.Popen(
                self._hosts.command(host, "env", f"PATH={_path()}", *command),
                stdout=self._log,
                stderr=self._log,
            )
        )

    def _states(self) -> str:
        command = ["env", f"SLURM_CONF={self.variables['SLURM_CONF']}"]
        command += ["sinfo", "-h", "-N", "-o", "%T"]
        return subprocess.run(
            self._hosts.command(0, *command), capture_output=True, text=True, check=False
        ).stdout

    def close(self) -> None:
        """Ends the daemons."""
        for i in range(len(self._hosts.addresses)):
            kill = ["pkill", "-KILL", "-x", "munged|slurmd|slurmctld|slurmstepd"]
            subprocess.run(self._hosts.command(i, *kill), check=False)
        for process in self._running:
            process.wait()
        self._log.close()
