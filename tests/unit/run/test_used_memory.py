"""Memory in use as control groups and the kernel's files about processes show it."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import accumulators
from pyspark.serializers import CPickleSerializer, read_int
from pyspark.worker_util import send_accumulator_updates

from millrace_jobs.process import used_memory
from millrace_jobs.process.used_memory import (
    EXECUTORS_MEMORY,
    ExecutorMemory,
    ExecutorReading,
    UsedMemory,
    container_memory,
    memory_of_executor,
    reporting,
    touched_heap,
)

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


GIB, MIB = 1 << 30, 1 << 20


def written(tmp_path, name, text):
    (tmp_path / "7").mkdir(exist_ok=True)
    (tmp_path / "7" / name).write_text(text)
    return tmp_path


def mapping(begin, size, resident):
    """A mapping as smaps shows it, by its size and what of it is resident, in bytes."""
    lines = f"{begin:08x}-{begin + size:08x} rw-p 00000000 00:00 0 \nSize: {size >> 10} kB\nRss: {resident >> 10} kB\n"
    return f"{lines}Pss: 4 kB\nAnonymous: {resident >> 10} kB\n"


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 64)), min_size=1, max_size=8), st.integers(0, 1 << 20))
def test_the_heap_is_what_is_resident_of_the_first_mappings_up_to_its_size(tmp_path_factory, pieces, beside):
    begin, text, touched = 0xC0000000, "", 0
    largest = sum(size for size, _ in pieces) * MIB
    for size, resident in pieces:
        text += mapping(begin, size * MIB, min(size, resident) * MIB)
        begin, touched = begin + size * MIB, touched + min(size, resident) * MIB
    text += mapping(begin, GIB, beside << 10) + mapping(1 << 35, GIB, beside << 10) + mapping(0x55550000, GIB, 0)
    processes = written(tmp_path_factory.mktemp("processes"), "smaps", text)
    assert touched_heap(7, largest, processes) == touched


@pytest.mark.parametrize(
    "text",
    [mapping(0x5555_0000_0000, GIB, MIB), mapping(1 << 32, 32 * GIB, MIB), "", "c0000000-c1000000 rw\nRss: many kB\n"],
    ids=["pointers of eight bytes", "too large", "empty", "strange"],
)
def test_a_heap_without_a_place_of_its_own_counts_as_touched(tmp_path, text):
    assert touched_heap(7, 32 * GIB, written(tmp_path, "smaps", text)) == 32 * GIB
    assert touched_heap(8, GIB, tmp_path) == GIB


@pytest.mark.parametrize(("size", "largest"), [("-Xmx1536m", 1536 * MIB), ("-Xmx2G", 2 * GIB), ("-Xmx1024", 1024)])
def test_an_executor_is_known_by_the_command_of_its_jvm(tmp_path, size, largest):
    words = ["java", "-Xms1g", size, "org.example.Backend", "--executor-id", "12", "--cores", "1", ""]
    found = memory_of_executor(7, written(tmp_path, "cmdline", "\0".join(words)))
    assert (found._executor, found._jvm, found._largest_heap) == ("12", 7, largest)


@pytest.mark.parametrize(
    "words", ["java\0-Xmx1g\0SparkSubmit\0", "java\0-Xmx1g\0--executor-id", "--executor-id\0one\0"]
)
def test_any_other_process_is_no_executor(tmp_path, words):
    assert memory_of_executor(7, written(tmp_path, "cmdline", words)) is None
    assert memory_of_executor(8, tmp_path) is None


def test_a_reading_goes_along_with_the_results_of_a_task_once_in_half_a_minute(monkeypatch):
    now, limit = [100.0], [UsedMemory(5, 10)]
    monkeypatch.setattr(used_memory.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(used_memory, "container_memory", lambda: limit[0])
    send = reporting(send_accumulator_updates, ExecutorMemory("12", 0, 7))

    def sent():
        accumulators._accumulatorRegistry.clear()  # as PySpark does for each task
        connection = io.BytesIO()
        send(connection)
        connection.seek(0)
        return [CPickleSerializer()._read_with_length(connection) for _ in range(read_int(connection))]

    assert sent() == [(EXECUTORS_MEMORY, ExecutorReading("12", UsedMemory(5, 10), UsedMemory(7, 7)))]
    assert sent() == []
    now[0] += 29
    assert sent() == []
    now[0] += 1
    assert len(sent()) == 1
    now[0], limit[0] = now[0] + 30, None
    assert sent() == [], "a container without a limit"
