"""The place of a process, from the variables of several launchers."""

import re

import pytest
from singa.launcher.environment import Environment, completed, environment

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SLURM = {
    "SLURM_PROCID": "4",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, Environment()),
        ({"SINGA_RANK": "", "RANK": ""}, Environment()),
        (
            {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            Environment(1, 3, 0, 1, source="torchrun"),
        ),
        (OPEN_MPI, Environment(3, 4, 1, 2, source="Open MPI")),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"},
            Environment(1, 2, 0, 1, source="MPI"),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Environment(1, 2, None, None, source="MPI")),
        # A pod of Kubernetes, and a rank that was started by hand.
        ({"RANK": "1", "WORLD_SIZE": "2"}, Environment(1, 2, None, None, source="torchrun")),
        (
            {"SINGA_RANK": "1", "SINGA_WORLD_SIZE": "2"},
            Environment(1, 2, None, None, source="singa launch"),
        ),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Environment(source="torchrun")),
        (SLURM, Environment(4, 5, 0, 1, source="SLURM")),
        (SLURM | {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"},
         Environment(3, 5, 1, 2, source="SLURM")),
        # srun has started one process per machine, and that has started the ranks.
        (SLURM | OPEN_MPI, Environment(3, 4, 1, 2, source="Open MPI")),
        # An MPI without local numbers, started by srun.
        (SLURM | {"PMI_RANK": "4", "PMI_SIZE": "5"}, Environment(4, 5, 0, 1, source="MPI")),
        # A batch script of SLURM is no rank.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Environment()),
        ({"SINGA_TIMEOUT": "2"}, Environment(timeout=2)),
    ],
)  # fmt: skip
def test_places(variables, place):
    assert environment(variables) == place


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
ELASTIC = {"TORCHELASTIC_RUN_ID": "x/y", "TORCHELASTIC_RESTART_COUNT": "1"}
STEP = SLURM | {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("variables", "meeting"),
    [
        (TORCHRUN | ELASTIC | {"MASTER_ADDR": "a", "MASTER_PORT": "29500"}, "a:29501"),
        (TORCHRUN | ELASTIC | {"MASTER_ADDR": "fe::1", "MASTER_PORT": "65535"}, "[fe::1]:65534"),
        (TORCHRUN | {"MASTER_ADDR": "a", "MASTER_PORT": "29500"}, "a:29500"),
        (TORCHRUN | {"MASTER_ADDR": "a"}, ""),
        (TORCHRUN | {"MASTER_ADDR": "a", "MASTER_PORT": "1", "SINGA_MEETING": "b:2"}, "b:2"),
        (STEP | {"SLURM_STEP_NODELIST": "node[003-005,7],z"}, "node003:"),
        (STEP | {"SLURM_STEP_NODELIST": "rack[1-2]n[3,4]"}, "rack1n3:"),
        (STEP | {"SLURM_STEP_NODELIST": "b,a[1-2]"}, "b:"),
        (STEP | {"SLURM_STEP_NODELIST": "b,a", "PMIX_RANK": "4"}, ""),  # MPI is there
        (STEP, ""),
        (OPEN_MPI | {"MASTER_ADDR": "a", "MASTER_PORT": "29500"}, ""),
    ],
)
def test_meetings(variables, meeting):
    found = environment(variables).meeting
    if meeting.endswith(":"):  # the port is that of the step
        host, port = found.split(":")
        assert host + ":" == meeting
        assert 20000 <= int(port) < 30000
        other = environment(variables | {"SLURM_STEP_ID": "1"}).meeting
        assert found == environment(variables).meeting != other
    else:
        assert found == meeting


ONE_MACHINE = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
ALONE = {"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
ADDRESS = {"MASTER_ADDR": "a", "MASTER_PORT": "7"}
BY_HAND = {"SINGA_RANK": "0", "SINGA_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (TORCHRUN | ELASTIC | ADDRESS, ("singa-x_y-7-1", "a:8")),
        (TORCHRUN | ELASTIC | ADDRESS | ONE_MACHINE, ("singa-x_y-7-1", "")),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "5", "SLURM_NODEID": "0"}, ("singa-7-0-0", "")),
        (STEP | {"PMIX_RANK": "4"}, ("", "")),  # MPI has the names
        (OPEN_MPI, ("", "")),
        (OPEN_MPI | {"SINGA_JOB": "x"}, ("", "")),  # several machines of launch --hosts
        (OPEN_MPI | ALONE | {"SINGA_JOB": "x"}, ("x", "")),
        (OPEN_MPI | ALONE | {"SINGA_JOB": "x", "SINGA_NODE_RANKS": "1"}, ("", "")),  # as several
        (BY_HAND | {"SINGA_JOB": "x"}, ("x", "")),
        (BY_HAND | {"SINGA_JOB": "x", "SINGA_MEETING": "b:2"}, ("x", "b:2")),
        (BY_HAND | {"SINGA_MEETING": "b:2"}, ("", "b:2")),
        ({"SINGA_JOB": "x"}, ("x", "")),
        ({}, ("", "")),
    ],
)
def test_what_ranks_find_each_other_by(variables, found):
    place = completed(environment(variables), variables)
    assert (place.job, place.meeting) == found


def test_variables_say_the_place():
    place = Environment(5, 6, 1, 2, "name", 7, 3, "singa launch", "host:1")
    assert environment(place.variables()) == place
    unknown = Environment(5, 6, None, None, source="singa launch")
    assert environment(unknown.variables()) == unknown
    # The same place from two launchers is no contradiction.
    same = {"PMI_RANK": "5", "PMI_SIZE": "6"}
    assert environment(place.variables() | same) == place


@pytest.mark.parametrize(
    ("variables", "restart"),
    [
        ({"SINGA_RESTART": "2", "SLURM_RESTART_COUNT": "1"}, 2),
        (TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "3", "SLURM_RESTART_COUNT": "1"}, 3),
        (SLURM | {"SLURM_RESTART_COUNT": "4"}, 4),
        (OPEN_MPI | {"SLURM_RESTART_COUNT": "5"}, 5),
        ({"SLURM_RESTART_COUNT": "6"}, 6),  # a batch script, which may call singa launch -n
        ({"TORCHELASTIC_RESTART_COUNT": "7"}, 0),
    ],
)
def test_restarts_by_others(variables, restart):
    assert environment(variables).restart == restart


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SINGA_RANK": "1"}, "SINGA_RANK is set, SINGA_WORLD_SIZE is not"),
        ({"WORLD_SIZE": "1"}, "WORLD_SIZE is set, RANK is not"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK must be below WORLD_SIZE, got 2 and 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK must be a number from 0 on, got '-1'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE must be a number from 1 on, got '0'"),
        ({"RANK": "0", "WORLD_SIZE": "٣"}, "WORLD_SIZE must be a number from 1 on, got '٣'"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"},
            "LOCAL_RANK must be below LOCAL_WORLD_SIZE, and that at most WORLD_SIZE, got 1, 1",
        ),
        (
            OPEN_MPI | {"RANK": "0", "WORLD_SIZE": "4"},
            "torchrun says rank 0 of 4, Open MPI says rank 3 of 4: unset the variables of one",
        ),
        (SLURM | {"SLURM_NODEID": "3"}, "SLURM_STEP_TASKS_PER_NODE is '2(x2),1', for node 3"),
        (
            TORCHRUN | {"MASTER_ADDR": "a", "MASTER_PORT": "x"},
            "MASTER_PORT must be a number from 0 on, got 'x'",
        ),
        ({"SINGA_TIMEOUT": "0"}, "SINGA_TIMEOUT must be a number from 1 on, got '0'"),
        ({"SINGA_TIMEOUT": "2.5"}, "SINGA_TIMEOUT must be a number from 1 on, got '2.5'"),
    ],
)
def test_contradictions(variables, message):
    with pytest.raises(ValueError, match=r"\[environment\] " + re.escape(message)):
        environment(variables)
