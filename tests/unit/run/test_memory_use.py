"""Memory of a driver that is in use, as its JVM and its container's control group would show it."""

from __future__ import annotations

from types import SimpleNamespace as Object

import pytest
from py4j.protocol import Py4JNetworkError

from millrace_api.model.memory_use import MOST_SAMPLES, MemoryPart
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.memory_use import MemoryUse, UsedMemory, container_memory


class Driver:
    """A driver whose old generation kept so many bytes of 700 in its last collection."""

    def __init__(self) -> None:
        self.now, self.kept, self.container, self.ended = 0.0, 0, None, False
        self.memory = MemoryUse(
            Object(sparkContext=self), lambda: self.now, lambda: 1e9 + self.now, lambda: self.container
        )

    @property
    def _jvm(self):
        bean = Object(getHeapMemoryUsage=lambda: Object(getCommitted=lambda: 350, getMax=lambda: 900))
        young = pool("HEAP", lambda: (9, 9), old=False)
        pools = [pool("NON_HEAP", lambda: (5, 9)), young, pool("HEAP", self._kept)]
        options = Object(getVMOption=lambda name: {"MaxHeapSize": Object(getValue=lambda: "1000")}[name])
        factory = Object(
            getMemoryPoolMXBeans=lambda: pools, getMemoryMXBean=lambda: bean, getPlatformMXBean=lambda _: options
        )
        named = Object(forName=lambda name: name)
        return Object(java=Object(lang=Object(management=Object(ManagementFactory=factory), Class=named)))

    def _kept(self):
        if self.ended:
            raise Py4JNetworkError("the JVM has ended")
        return self.kept, 700

    def later(self, kept: int, seconds: float = 10, container: UsedMemory | None = None):
        self.now += seconds
        self.kept, self.container = kept, container
        return self.memory.read()

    def samples(self, part=MemoryPart.HEAP):
        found = {each.part: each.samples for each in self.memory.series()}.get(part, ())
        return [(each.time - 10**9, each.used) for each in found]


def pool(kind, usage, *, old=True):
    collected = Object(getUsed=lambda: usage()[0], getMax=lambda: usage()[1])
    return Object(
        getType=lambda: Object(name=lambda: kind),
        getName=lambda: "PS Old Gen" if old else "PS Survivor Space",
        isUsageThresholdSupported=lambda: old,
        getCollectionUsage=lambda: collected,
        getUsage=lambda: Object(getCommitted=lambda: 50),
    )


def test_the_heap_counts_as_its_old_generation_was_after_a_collection():
    driver = Driver()
    assert driver.later(0) == {}, "no collection yet"
    assert driver.later(300) == {MemoryPart.HEAP: UsedMemory(300, 700)}
    assert driver.later(310, seconds=9) == {}, "read every ten seconds"
    driver.ended = True
    assert driver.later(320) == {}


def test_a_container_shows_what_is_used_beside_the_heap_too():
    driver = Driver()
    assert driver.later(0, seconds=9, container=UsedMemory(650, 1500)) == {}, "nothing at the start"
    assert driver.later(0, container=UsedMemory(650, 1500)) == {
        MemoryPart.CONTAINER: UsedMemory(650, 1500),
        MemoryPart.BESIDE_HEAP: UsedMemory(250, 500),
    }
    assert driver.later(0, container=UsedMemory(300, 1500))[MemoryPart.BESIDE_HEAP].used == 0
    assert list(driver.later(0, container=UsedMemory(300, 900))) == [MemoryPart.CONTAINER], "none is left beside it"


def test_samples_are_the_highest_reading_of_each_minute_and_new_collections_only():
    driver = Driver()
    for kept in (10, 30, 20, 20, 20, 20, 20, 20, 40):
        driver.later(kept)
    assert driver.samples() == [(10, 30), (90, 40)]
    driver.now -= 1000
    driver.memory._next = driver.now
    driver.later(50)
    assert driver.samples() == [(-900, 50)], "a clock that was set back"
    for number in range(100):
        driver.later(100 + number, seconds=1500)
    assert len(driver.samples()) == MOST_SAMPLES
    assert driver.samples()[-1][1] == 199


def test_another_limit_begins_another_series():
    driver = Driver()
    for limit in (1500, 1500, 1600):
        driver.later(0, seconds=60, container=UsedMemory(600 + int(driver.now), limit))
    assert len(driver.samples(MemoryPart.CONTAINER)) == 1


V2 = "anon 1000\nfile 9000\nkernel 70\nkernel_stack 5\npagetables 6\nsock 7\nshmem 100\nslab_reclaimable 8\nslab_unreclaimable 9\n"
V1 = "cache 9000\nrss 1\nshmem 2\nhierarchical_memory_limit 5000\ntotal_rss 1000\ntotal_shmem 100\ntotal_inactive_file 8\n"


@pytest.mark.parametrize(
    ("files", "used"),
    [
        ({"memory.stat": V2, "memory.max": "5000\n"}, UsedMemory(1127, 5000)),
        ({"memory/memory.stat": V1, "memory/memory.limit_in_bytes": "5000\n"}, UsedMemory(1100, 5000)),
        ({"memory.stat": V2, "memory.max": "max\n"}, None),
        ({"memory/memory.stat": V1, "memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"memory.stat": "", "memory.max": "5000\n"}, UsedMemory(0, 5000)),
        ({"memory.stat": "anon many\nx", "memory.max": "5000\n"}, UsedMemory(0, 5000)),
        ({"memory.max": "5000\n"}, None),
        ({}, None),
    ],
    ids=["v2", "v1", "v2 without a limit", "v1 without a limit", "empty", "strange", "incomplete", "none"],
)
def test_the_page_cache_of_a_container_does_not_count(tmp_path, files, used):
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert container_memory(tmp_path) == used


def test_memory_is_exported_by_part_and_stays_until_it_is_read_again():
    metrics = JobMetrics("trips")
    read, labels = metrics.registry.get_sample_value, {"query": "trips", "part": "heap"}
    assert read("millrace_memory_used_bytes", labels) is None
    metrics.record_memory({MemoryPart.HEAP: UsedMemory(300, 700)})
    metrics.record_memory({})
    assert read("millrace_memory_used_bytes", labels) == 300
    assert read("millrace_memory_limit_bytes", labels) == 700
    assert read("millrace_memory_limit_bytes", labels | {"part": "container"}) is None
