"""A driver that reports that its memory fills: it gets more before it runs out, as a planned replacement, within bounds."""

import pytest

from millrace_api.model.memory_use import MEMORY_KEY, MemoryPart
from millrace_api.model.status import MemoryShortage
from unit.api.documents import MINIMAL, changed

from .cluster import Cluster
from .reported_memory import BOUND, LIMIT, degraded, limit, reports, started, uid


def heap(cluster):
    lines = cluster.configuration()["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines)["spark.driver.memory"]


RISING = range(440, 560, 12)
"""MiB that rise by 12 in five minutes: not above 85 % of the old generation, and at its end after 50 minutes."""

FAST = range(300, 620, 32)
"""MiB at 86 % in the end, of which only the last measurement is: at the limit after 12 minutes."""


@pytest.mark.parametrize("used", [(600, 590, 610), FAST], ids=["nearly full", "rises"])
def test_a_heap_that_fills_is_raised_before_the_driver_fails(used):
    cluster = started()
    before = uid(cluster)
    status = reports(cluster, *used)
    assert (uid(cluster) != before, heap(cluster), limit(cluster)) == (True, "1536m", 1536 + LIMIT)
    raised = status.memory.driver
    assert (raised.memory, raised.heap, raised.raises, raised.predicted) == ("1536m", "1536m", 1, True)
    assert raised.reason is MemoryShortage.HEAP
    assert raised.message.startswith("what the driver's heap keeps after garbage collection is ")
    assert raised.message.endswith("; memory of the driver raised from 1g to 1536m, of the heap")
    assert (False, "MemoryRaised") in cluster.events
    assert cluster.memory.counts.memory == {"driver": 1}
    assert (cluster.memory.counts.failures, degraded(cluster)) == ({}, ("AsExpected", ""))


def test_what_fills_beside_the_heap_is_raised_there():
    cluster = started()
    status = reports(cluster, *range(700, 1020, 32), part=MemoryPart.BESIDE_HEAP, limit=1024)
    assert (heap(cluster), limit(cluster)) == ("1g", 1536 + LIMIT)
    assert status.memory.driver.reason is MemoryShortage.LIMIT


@pytest.mark.parametrize(
    "used",
    [(600, 610), (500,) * 20, RISING, (600, 590, 570), (*FAST, *[570] * 12)],
    ids=["two measurements", "level", "slow", "not all", "has stopped"],
)
def test_memory_that_need_not_run_out_is_left_alone(used):
    cluster = started()
    before = uid(cluster)
    assert (reports(cluster, *used).memory, uid(cluster)) == (None, before)
    assert degraded(cluster) == ("AsExpected", "")


def test_a_container_that_rises_as_its_heap_is_touched_is_left_alone():
    cluster = started()
    used = range(1000, 1900, 60)
    assert reports(cluster, *used, part=MemoryPart.CONTAINER, limit=2048).memory is None
    assert reports(cluster, 1950, 1960, 1970, part=MemoryPart.CONTAINER, limit=2048).memory.driver.memory == "1536m"


def test_a_report_of_an_earlier_pod_raises_nothing_more():
    cluster = started()
    before = uid(cluster)
    reports(cluster, 600, 600, 600)
    cluster.pod_is_ready()
    cluster.pass_time(minutes=10)
    status = reports(cluster, 600, 600, 600, pod=before)
    assert (status.memory.driver.raises, limit(cluster)) == (1, 1536 + LIMIT)


def test_a_driver_that_is_not_healthy_yet_is_left_alone():
    cluster = Cluster()
    cluster.put(BOUND)
    cluster.settle()
    cluster.pod_is_ready()
    assert reports(cluster, 600, 600, 600).memory is None
    assert cluster.pass_time(seconds=70).memory.driver.memory == "1536m"


def test_it_is_raised_once_in_six_hours_and_after_it_ran_out_at_once():
    cluster = started()
    reports(cluster, 600, 600, 600)
    cluster.pod_is_ready()
    cluster.pass_time(minutes=5 * 60 + 50)
    before = uid(cluster)
    status = reports(cluster, 900, 900, 900, limit=1024)
    assert (status.memory.driver.raises, uid(cluster)) == (1, before)
    assert degraded(cluster)[0] == "MemoryFilling"
    assert degraded(cluster)[1].endswith(
        "; it is raised, up to spec.driver.maxMemory, 4g, once it runs out, or 6 hours after the last raise"
    )
    cluster.pass_time(minutes=15)
    assert reports(cluster, 900, 900, 900, limit=1024).memory.driver.memory == "2304m"
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    raised = cluster.pod_fails(code=137, reason="OOMKilled").memory.driver
    assert (raised.memory, raised.predicted, raised.raises) == ("3456m", False, 3)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (MINIMAL, "with spec.driver.maxMemory, the operator raises it up to that"),
        (
            changed(MINIMAL, 12, "  driver: {maxMemory: 1200m}"),
            "it is not raised beyond spec.driver.maxMemory, 1200m: raise that",  # 176 MiB are not worth a restart
        ),
        (
            changed(MINIMAL, 12, "  driver: {maxMemory: 1g}"),
            "it is not raised beyond spec.driver.maxMemory, 1g: raise that",
        ),
    ],
)
def test_without_room_the_condition_names_the_field_until_memory_is_free_again(text, remedy):
    cluster = started(text)
    before = uid(cluster)
    assert reports(cluster, 600, 600, 610).memory is None
    assert degraded(cluster) == (
        "MemoryFilling",
        f"what the driver's heap keeps after garbage collection is 89% of its limit of 683 MiB; {remedy}",
    )
    assert (True, "MemoryFilling") in cluster.events
    reports(cluster, 600, 610, 300)
    assert (degraded(cluster), uid(cluster)) == (("AsExpected", ""), before)


def test_nothing_is_raised_while_the_query_is_paused():
    cluster = started()
    before = uid(cluster)
    cluster.put(BOUND, {"millrace.io/paused": "true"})
    assert (reports(cluster, 600, 600, 600).memory, uid(cluster)) == (None, before)
    assert degraded(cluster)[1].endswith("once the annotation millrace.io/paused is gone")
    cluster.put(BOUND)
    assert cluster.settle().memory.driver.memory == "1536m"


@pytest.mark.parametrize("text", ["{", '{"pod": "u", "series": 3}', "[]"])
def test_a_report_that_cannot_be_read_raises_nothing(text):
    cluster = started()
    held = cluster.objects["ConfigMap", "trips-by-cell-plan"]
    held["data"][MEMORY_KEY] = text
    cluster._changed(held)
    assert cluster.settle().memory is None


EXECUTORS = changed(MINIMAL, 12, "  executors: {maxMemory: 4g}")
FULL_EXECUTOR = (620, 625, 622)
"""MiB of which all are above 95 % of what an executor has beside its heap."""


@pytest.mark.parametrize("used", [FULL_EXECUTOR, range(300, 580, 28)], ids=["nearly full", "rises"])
def test_one_executor_that_fills_raises_what_all_have_beside_the_heap(used):
    cluster = started(EXECUTORS)
    before = uid(cluster)
    status = reports(cluster, executor=used)
    raised = status.memory.executors
    assert (uid(cluster) != before, status.memory.driver) == (True, None)
    assert (raised.memory, raised.heap, raised.reason, raised.predicted) == ("3072m", "2g", MemoryShortage.LIMIT, True)
    assert raised.message.startswith("what executor 3's container uses beside the heap is ")
    assert raised.message.endswith("; memory of the executors raised from 2g to 3072m, beside the heap")
    assert (cluster.memory.counts.memory, degraded(cluster)) == ({"executor": 1}, ("AsExpected", ""))


@pytest.mark.parametrize("used", [(500,) * 20, (620, 625, 300), range(400, 500, 10)], ids=["level", "freed", "slow"])
def test_an_executor_that_need_not_run_out_is_left_alone(used):
    cluster = started(EXECUTORS)
    before = uid(cluster)
    assert (reports(cluster, executor=used).memory, uid(cluster)) == (None, before)
    assert degraded(cluster) == ("AsExpected", "")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (MINIMAL, "with spec.executors.maxMemory, the operator raises it up to that"),
        (
            changed(MINIMAL, 12, "  executors: {maxMemory: 2g}"),
            "it is not raised beyond spec.executors.maxMemory, 2g: raise that",
        ),
    ],
)
def test_without_room_the_condition_names_the_field_of_executors(text, remedy):
    cluster = started(text)
    assert reports(cluster, executor=FULL_EXECUTOR).memory is None
    message = f"what executor 3's container uses beside the heap is 97% of its limit of 640 MiB; {remedy}"
    assert degraded(cluster) == ("MemoryFilling", message)


def test_executors_are_raised_where_a_driver_that_fills_too_may_not_be():
    cluster = started(EXECUTORS)
    status = reports(cluster, 600, 600, 600, executor=FULL_EXECUTOR)
    assert (status.memory.driver, status.memory.executors.memory) == (None, "3072m")


def test_executors_are_raised_once_in_six_hours():
    cluster = started(EXECUTORS)
    reports(cluster, executor=FULL_EXECUTOR)
    cluster.pod_is_ready()
    cluster.pass_time(minutes=5 * 60 + 50)
    assert reports(cluster, executor=FULL_EXECUTOR).memory.executors.raises == 1
    cluster.pass_time(minutes=15)
    assert reports(cluster, executor=FULL_EXECUTOR).memory.executors.raises == 2
