"""How ``bench.starts`` counts processor time: by control group where there is one, and by process and thread."""

import sys
from pathlib import Path

import pytest

from bench.control_groups import accounting_folder
from bench.processes import running
from bench.processor_time import seconds_of
from bench.starts import usage
from bench.starts.minute import EmptyBatch, batches_in, medians
from bench.starts.turns import steps_in
from bench.starts.usage import ProcessTimes, by_part

V1 = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
V2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
BUSY = "import os, time\nwhile time.process_time() < 0.3: pass\n"
PARENT = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {BUSY!r}])\n"


@pytest.mark.parametrize(
    ("mounts", "groups", "folder"),
    [
        (V1, "3:cpu,cpuacct:/a/b\n0::/\n", "/sys/fs/cgroup/cpu,cpuacct/a/b"),
        (V2, "0::/user.slice\n", "/sys/fs/cgroup/user.slice"),
        (V1, "3:memory:/a\n0::/\n", "/sys/fs/cgroup/unified"),
        ("proc /proc proc rw 0 0\n", "0::/\n", None),
        (V2, "", None),
    ],
)
def test_the_group_of_this_process_is_found_in_both_versions(mounts, groups, folder):
    assert accounting_folder(mounts, groups) == (folder and Path(folder))


def process(parent, command, seconds, ended=0.0, **threads):
    return ProcessTimes(parent, command, seconds, ended, threads)


def test_each_process_and_thread_is_a_part_of_one_thing():
    java = {"C2 CompilerThre": 3.0, "GC Thread#0": 0.5, "GC Thread#1": 0.25, "Thread-4": 1.0, "Timer-0": 0.125}
    found = by_part(
        {
            1: process(0, "init ", 99.0),
            10: process(1, "millrace python run", 2.0, 0.5),
            11: process(10, "java java org.apache.spark.deploy.SparkSubmit", 5.0, 0.75, **java),
            12: process(11, "sh sh worker-python", 0.0, 0.25),
            20: process(10, "python python -m millrace_jobs.process.zygote_server 3", 1.5, 0.5),
            21: process(20, "daemon python -m millrace_jobs.process.zygote_server 3", 0.125),
            22: process(21, "daemon python -m millrace_jobs.process.zygote_server 3", 1.0),
            23: process(20, "python_streamin python -m millrace_jobs.process.zygote_server 3", 0.25),
        },
        10,
    )
    assert found == {
        usage.DRIVER: 2.5,
        "JVM: C2 compiler": 3.0,
        "JVM: garbage collection and VM": 0.75,
        "JVM: calls from Python": 1.0,
        "JVM: other threads": 0.125,
        "JVM: threads that ended": 0.125,
        "JVM: processes that it ran": 0.75,
        usage.CLIENTS: 0.25,
        usage.ZYGOTE: 1.5,
        usage.SOURCES: 0.75,
        usage.TASKS: 1.125,
    }


def test_the_time_of_a_running_process_is_found(tmp_path):
    with running([sys.executable, "-c", BUSY + "time.sleep(60)"], tmp_path / "log") as busy:
        while seconds_of(busy.pid) < 0.2:
            pass
        assert usage.usage(busy.pid)[usage.DRIVER] == pytest.approx(seconds_of(busy.pid), abs=0.1)


def test_the_steps_of_a_start_are_those_that_were_printed():
    lines = ["starting=q", "starting=q step=starting Spark", "a note", "started=q metrics=http://x", "batch=0 rows=7"]
    assert steps_in("\n".join(lines)) == ["starting Spark", "started"]


def test_batches_without_records_are_medians_of_their_period():
    text = "batch=0 rows=7 rows_per_s=9 W=1.70 lag=0\nbatch=1 rows=0 rows_per_s=0 W=0.22 lag=0\nstarted=q x=y\n"
    assert batches_in(text) == [(7, 1700.0), (0, 220.0)]
    batches = [EmptyBatch(at, took) for at, took in ((1, 220), (2, 230), (14, 260), (31, 120))]
    assert medians(batches) == {0: 230, 2: 120}
