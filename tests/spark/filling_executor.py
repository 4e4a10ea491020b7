"""A program for ``test_executors_memory``: let the Python worker of one of two executors keep more and more memory.

Run as an executor's Python, with the arguments of ``worker-python``, it is Spark's daemon whose container has a limit.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

MIB = 1 << 20
LIMIT = 2048 * MIB
"""The limit of an executor's container, which has a heap of 512 MiB."""

STEP = 48 * MIB


def resident(jvm: int) -> int:
    """Return what a control group of a JVM and its descendants would count: pages that they share count once."""
    parents = {}
    for process in Path("/proc").iterdir():
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (ValueError, OSError):
            continue
    family = {jvm}
    while more := {id for id, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(_anonymous(process) for process in family)


def _anonymous(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def run_daemon() -> None:
    """Run the product's daemon in a container that has a limit."""
    from millrace_jobs.process import python_daemon, used_memory

    jvm, module = os.getppid(), cast("Any", used_memory)
    module.container_memory = lambda: used_memory.UsedMemory(resident(jvm), LIMIT)
    module._PERIOD = 0.0  # each task reports
    del sys.argv[1:3]  # -m and the daemon's name
    python_daemon.main()


def run_driver(folder: Path) -> None:
    """Print, as JSON, what the driver sees while an executor's worker keeps more, and once that executor has ended."""
    from lab.waiting import wait_until
    from millrace_jobs.run.memory_use import MemoryUse
    from millrace_jobs.session import local_session

    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n', encoding="utf-8")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    settings = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.executorEnv.MILLRACE_PYTHON": str(python),
        "spark.executorEnv.MILLRACE_ZYGOTE": "",
    }
    spark = local_session("memory", 2, settings, folder, quiet=True)
    now = [0.0]
    memory = MemoryUse(spark, lambda: now[0], lambda: 1e9 + now[0], container=lambda: None)

    def keeping(size: int) -> Any:
        """Return a function that keeps this memory in the worker of executor 0, and says who the executor is."""

        def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                jvm = int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])
                words = Path(f"/proc/{jvm}/cmdline").read_text().split("\0")
                executor = words[words.index("--executor-id") + 1]
                if executor == "0":
                    pa.__dict__.setdefault("kept", []).append(b"x" * size)
                yield pa.RecordBatch.from_pydict({"executor": [executor] * len(batch), "jvm": [jvm] * len(batch)})

        return keep

    def run_tasks(size: int) -> dict[str, Any]:
        """Run a task on each executor, by a barrier of both, and return what the driver then sees, and the executors' processes."""
        rows = spark.range(2, numPartitions=2).mapInArrow(keeping(size), "executor STRING, jvm LONG", True).collect()
        now[0] += 60
        used, nearest = memory.read()["executors"], memory.executor()
        return {
            "used": {part: each.used for part, each in used.items()},
            "limits": {part: each.limit for part, each in used.items()},
            "executor": nearest and nearest.executor,
            "samples": nearest and len(nearest.series[0].samples),
            "processes": {row.executor: row.jvm for row in rows},
        }

    context: Any = spark.sparkContext._jsc

    def executors() -> set[str]:
        return set(context.sc().getExecutorIds().mkString(",").split(",")) - {""}

    wait_until(lambda: len(executors()) == 2, "both executors have started")
    found: dict[str, Any] = {"idle": run_tasks(STEP)}
    spark.range(0, 1 << 20, 1, 2).selectExpr("uuid() AS id").groupBy("id").count().groupBy("count").count().collect()
    found["busy"] = run_tasks(0)
    found["seen"] = [run_tasks(STEP) for _ in range(6)]
    os.kill(found["idle"]["processes"]["0"], signal.SIGKILL)
    wait_until(lambda: "0" not in executors() and len(executors()) == 2, "another executor is in its place")
    found["after"] = run_tasks(STEP)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        run_daemon()
    else:
        run_driver(Path(sys.argv[1]))
