"""The driver's memory in use: what its heap keeps is measured, not what waits for the next garbage collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from lab.waiting import wait_until
from millrace_api.model.memory_use import MemoryPart
from millrace_jobs.process.used_memory import UsedMemory
from millrace_jobs.run.memory_use import MemoryUse

from .cli import Project, fields
from .live_pages import get

pytestmark = pytest.mark.spark

MIB = 1 << 20
STEP = 8 * MIB
"""Bytes of each array that the heap keeps, or drops; each of its entries takes four."""


def heap_of(spark: SparkSession) -> tuple[int, int]:
    """The size of the heap and its largest size, as the sums of its spaces, of which two are for survivors."""
    jvm = spark._jvm
    assert jvm is not None
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    spaces = [each for each in pools if each.getType().name() == "HEAP"]
    usages = [each.getUsage() for each in (*spaces, *(each for each in spaces if "Survivor" in each.getName()))]
    return sum(each.getCommitted() for each in usages), sum(each.getMax() for each in usages)


def test_what_the_heap_keeps_is_measured_and_garbage_is_not(spark: SparkSession) -> None:
    jvm, now = spark._jvm, [0.0]
    assert jvm is not None
    memory = MemoryUse(spark, lambda: now[0], container=lambda: UsedMemory(1 << 40, 1 << 41))

    def allocated() -> Any:
        found = jvm.java.util.ArrayList()
        found.ensureCapacity(STEP // 4)
        return found

    def kept() -> int:
        """The least of four collections: a serial one leaves up to 5 % of garbage in its place in all but one of four."""
        return min(collected() for _ in range(4))

    def collected() -> int:
        jvm.java.lang.System.gc()
        now[0] += 10
        found = memory.read()["driver"]
        assert found[MemoryPart.HEAP].used < found[MemoryPart.HEAP].limit
        held, most = heap_of(spark)
        beside, container = found[MemoryPart.BESIDE_HEAP], found[MemoryPart.CONTAINER]
        assert container.used - beside.used == pytest.approx(held, rel=0.1)
        assert container.limit - beside.limit == most
        return found[MemoryPart.HEAP].used

    before, held = kept(), []
    for number in range(1, 4):
        for _ in range(4):
            held.append(allocated())
            allocated().trimToSize()
        assert kept() - before == pytest.approx(number * 4 * STEP, abs=STEP)
    for each in held:
        each.trimToSize()
    assert kept() - before == pytest.approx(0, abs=STEP)


def test_a_reading_costs_a_batch_little(spark: SparkSession) -> None:
    """It is made at most every ten seconds, by a few calls to the JVM: no list of pools each time."""
    now, calls = [0.0], 0
    memory = MemoryUse(spark, lambda: now[0], container=lambda: UsedMemory(1 << 40, 1 << 41))
    now[0] += 10
    assert memory.read()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    client = gateway._gateway_client
    send = client.send_command

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return send(*arguments, **options)

    client.send_command = counted
    try:
        now[0] += 10
        assert memory.read()
        assert calls <= 12
    finally:
        client.send_command = send


def test_a_run_exports_the_memory_of_its_heap_and_no_container_without_a_limit(tmp_path: Path) -> None:
    project = Project(tmp_path)
    query = project.query(
        "SELECT value % 1000 AS k, count(*) AS n FROM events GROUP BY value % 1000",
        source={"files": None, "schema": None, "watermark": None, "rate": {"recordsPerSecond": 1000}},
        batchInterval="1s",
        sparkConf={"spark.cleaner.periodicGC.interval": "2s"},
    )
    with project.start("run", query, "--grace", "90") as run:
        base = fields(run.wait_for(r"started=.*\n"))["metrics"]

        def memory() -> dict[tuple[str, str], float]:
            families = text_string_to_metric_families(get(base)[1])
            samples = [each for family in families for each in family.samples if "millrace_memory" in each.name]
            return {(each.name, each.labels["part"]): each.value for each in samples}

        wait_until(lambda: memory(), "the heap was collected")
        found = memory()
        run.process.terminate()
        assert run.finish().status == 0
    used, limit = found["millrace_memory_used_bytes", "heap"], found["millrace_memory_limit_bytes", "heap"]
    assert 20 * MIB < used < limit
