"""Memory of a driver that is in use, as its JVM and its container's control group would show it."""

from __future__ import annotations

from types import SimpleNamespace as Object

from py4j.protocol import Py4JNetworkError
from pyspark import accumulators

from millrace_api.model.memory_use import MOST_SAMPLES, MemoryPart
from millrace_jobs.process.used_memory import EXECUTORS_MEMORY, ExecutorReading, UsedMemory
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.memory_use import MemoryUse


class Driver:
    """A driver whose old generation kept so many bytes of 700 in its last collection."""

    def __init__(self) -> None:
        self.now, self.kept, self.container, self.ended = 0.0, 0, None, False
        self.executors = []
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

    @property
    def _jsc(self):
        ids = Object(mkString=lambda comma: comma.join(self.executors))
        return Object(sc=lambda: Object(getExecutorIds=lambda: ids))

    def _kept(self):
        if self.ended:
            raise Py4JNetworkError("the JVM has ended")
        return self.kept, 700

    def later(self, kept: int, seconds: float = 10, container: UsedMemory | None = None):
        self.now += seconds
        self.kept, self.container = kept, container
        return self.memory.read().get("driver", {})

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


def test_memory_is_exported_by_part_and_stays_until_it_is_read_again():
    metrics = JobMetrics("trips")
    read, labels = metrics.registry.get_sample_value, {"query": "trips", "role": "driver", "part": "heap"}
    assert read("millrace_memory_used_bytes", labels) is None
    metrics.record_memory({"driver": {MemoryPart.HEAP: UsedMemory(300, 700)}})
    metrics.record_memory({})
    assert read("millrace_memory_used_bytes", labels) == 300
    assert read("millrace_memory_limit_bytes", labels) == 700
    assert read("millrace_memory_limit_bytes", labels | {"part": "container"}) is None


def reports(id, used):
    """Add what an executor reports, as PySpark does; 300 of it are of the heap."""
    reading = ExecutorReading(id, UsedMemory(used, 1500), UsedMemory(300, 500))
    accumulators._accumulatorRegistry[EXECUTORS_MEMORY] += reading


def executors(driver):
    driver.now += 60
    found, nearest = driver.memory.read().get("executors", {}), driver.memory.executor()
    used = {part: each.used for part, each in found.items()}
    return used, None if nearest is None else (nearest.executor, [len(each.samples) for each in nearest.series])


def test_of_all_executors_the_one_nearest_to_its_limit_is_shown():
    driver = Driver()
    driver.executors = ["1", "2", "3"]
    assert executors(driver) == ({}, None), "none has reported"
    for id, used in (("1", 900), ("2", 1100), ("3", 1000)):
        reports(id, used)
    shown = {MemoryPart.CONTAINER: 1100, MemoryPart.BESIDE_HEAP: 800}
    assert executors(driver) == (shown, ("2", [1, 1]))
    assert executors(driver) == (shown, ("2", [1, 1])), "what it reported last, which is no new sample"
    reports("3", 1200)
    reports("3", 1300)
    assert executors(driver) == ({MemoryPart.CONTAINER: 1300, MemoryPart.BESIDE_HEAP: 1000}, ("3", [2, 2]))


def test_an_executor_that_is_gone_is_forgotten_and_its_successor_begins_anew():
    driver = Driver()
    driver.executors = ["1", "2"]
    for used in (1300, 1400):
        reports("1", used)
        reports("2", used - 700)
        assert executors(driver)[1][0] == "1"
    reports("1", 1450)
    driver.executors = ["2", "3"]
    assert executors(driver)[1] == ("2", [2, 2]), "its last report came after its end"
    reports("3", 800)
    assert executors(driver)[1] == ("3", [1, 1])
    driver.executors = []
    assert executors(driver) == ({}, None)


def test_the_memory_of_an_executor_that_has_ended_is_exported_no_more():
    metrics, used = JobMetrics("flights"), {MemoryPart.CONTAINER: UsedMemory(5, 9)}

    def roles():
        families = (each for each in metrics.collect() if each.name == "millrace_memory_used_bytes")
        return {sample.labels["role"] for family in families for sample in family.samples}

    metrics.record_memory({"driver": used, "executors": used})
    assert roles() == {"driver", "executors"}
    metrics.record_memory({"driver": used})
    assert roles() == {"driver"}
