"""What a job says of ranks for which the others wait."""

import json
import re
import time
from functools import partial

import numpy as np
import pytest
import singa
from ranks import in_ranks
from singa import distributed, singa_wrap, tensor
from singa.launcher import waits
from singa.launcher.waits import Wait


def late(rank, holder, folder):
    """Rank 1 comes late to a reduction: on a loaded machine not at the first try."""
    communicator = singa_wrap.Communicator(rank, 2, holder, 0)
    distributed.use(communicator)
    raw = [tensor.from_numpy(np.ones(3, np.float32)).data]
    tries = 0
    while tries < 50:
        tries += 1
        communicator.barrier()
        with singa.profile() as p:
            time.sleep(0.03 * rank)
            reduction = singa_wrap.Reduction(communicator, raw, ["conv.W"], 1, 1.0)
            reduction.Start()
            reduction.Wait()
        waited = [r for r in p.records if r.op == "wait for rank 1"]
        if distributed.any_rank(waited):
            break
    p.chrome_trace(folder / "trace.json", all_ranks=True)
    found = [w for w in distributed.waits() if w.collective == "all_reduce conv.W"]
    return tries, found, [(r.op, r.shapes, r.start, r.ms) for r in p.records]


def test_a_rank_knows_whom_it_has_waited_for(tmp_path):
    (tries, found, records), (_, its_waits, its_records) = in_ranks(
        2, partial(late, folder=tmp_path)
    )
    (of_1,) = [w for w in found if w.rank == 1]
    assert of_1.times == 1
    assert [w.rank for w in its_waits if w.times >= tries] == []
    # A profile has the wait, and then the collective.
    (wait,) = [r for r in records if r[0] == "wait for rank 1"]
    (reduced,) = [r for r in records if r[0] == "all_reduce"]
    assert wait[1] == reduced[1] == "conv.W"
    assert wait[3] > 0.9e3 * of_1.seconds
    assert wait[2] + wait[3] <= reduced[2] + 1e-3
    assert not [r for r in its_records if r[0].startswith("wait for")]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["pid"] for e in events if e["name"] == "wait for rank 1"] == [0]


def test_the_table_of_all_ranks():
    conv, fc = "all_reduce conv.W and 3 more", "all_reduce fc.W"
    of_ranks = {
        0: [Wait(2, conv, 10, 1.0), Wait(2, fc, 3, 0.25), Wait(1, fc, 1, 0.125)],
        1: [Wait(2, conv, 9, 0.5), Wait(0, fc, 4, 2.0)],
        2: [],
    }
    assert waits.table(of_ranks) == [
        "rank  waits for others  awaited by others  came last  mostly to",
        "   0           1.375 s            1.000 s          2  all_reduce fc.W",
        "   1           2.500 s            0.062 s          0  all_reduce fc.W",
        "   2           0.000 s            0.875 s         11  all_reduce conv.W and 3 more",
    ]


def test_files_of_ranks(tmp_path):
    mine = [Wait(1, 'a "quoted" name', 2, 0.5)]
    waits.write(tmp_path, 10, mine)
    waits.write(tmp_path, 2, [])
    (tmp_path / "3.json").write_text("[[1,")  # killed while it wrote
    waits.write(tmp_path / "missing", 4, mine)
    assert list(waits.read(tmp_path).items()) == [(2, []), (10, mine)]


@pytest.mark.parametrize("fails", [False, True])
def test_launch_reports_stragglers(jobs, fails):
    script = jobs.script(f"""
import sys, time
from singa import distributed
for step in range(20):
    if distributed.rank() == 1:
        time.sleep(0.01)
    distributed.barrier()
if {fails}:
    sys.exit(3)
""")
    status, output, errors = jobs.run("-n", 2, "--report", script)
    assert (status, output) == (3 * fails, "")
    rows = re.findall(r"singa launch: +(\d) +([\d.]+) s +([\d.]+) s +(\d+)  barrier", errors)
    of_late = [row for row in rows if row[0] == "1"]
    assert len(of_late) == 1, errors
    assert float(of_late[0][2]) > 0
    assert int(of_late[0][3]) >= 1


def test_report_is_of_one_machine(capsys, tmp_path):
    from singa.launcher.command import parse

    script = tmp_path / "a.py"
    script.write_text("")
    with pytest.raises(SystemExit):
        parse(["-n", "2", "--hosts", "a,b", "--report", str(script)])
    assert "--report needs -n, and no --hosts" in capsys.readouterr().err
