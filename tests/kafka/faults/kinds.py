"""The faults. Each is a function that injects the fault and returns a description of what it did."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from confluent_kafka import Consumer

from lab import topics
from lab.processes import command_of, signal_all

from .corruption import Kind, corrupt
from .job import PATIENCE
from .scene import SINK, SOURCE, Scene

_PAUSE_SECONDS = 30.0
_MOST_PARTITIONS = 8
_DAMAGES = 2

_MOMENTS = (
    ("Produce", False),
    ("Produce", True),
    ("AddOffsetsToTxn", True),
    ("TxnOffsetCommit", False),
    ("TxnOffsetCommit", True),
    ("EndTxn", False),
    ("EndTxn", True),
    ("Fetch", True),
)
"""Requests at which the network is cut, and whether that is after they arrive (before their response)."""


def driver_killed(scene: Scene) -> str:
    """Kill the whole driver as in a container, only its Python process, or only its JVM."""
    job = scene.job
    victim = scene.chance.choice(["driver", "its Python", "its JVM"])
    if victim == "driver":
        job.process.kill()
    elif victim == "its Python":
        job.process.send(signal.SIGKILL)
        job.process.wait(PATIENCE)  # the JVM has to notice by itself
    else:
        os.kill(_members(scene, "SparkSubmit")[0], signal.SIGKILL)
        job.assert_failed("Spark's JVM has died")  # PySpark's own threads show tracebacks before
    return f"{victim} killed"


def worker_killed(scene: Scene) -> str:
    """Kill one of the Python processes that Spark started: the daemon, a worker, or a process of the source."""
    workers = _members(scene, " -m pyspark")
    victim = scene.chance.choice(workers)
    what = command_of(victim)
    os.kill(victim, signal.SIGKILL)
    return f"killed {what}, one of {len(workers)}; {_gone_on(scene)}"


def replica_killed(scene: Scene) -> str:
    """Kill one of the partitioner's replicas, the one with the lowest index, which is the reducer, or all of them."""
    scene.job.wait_for(lambda: bool(scene.replicas), "replica")
    replicas = scene.replicas
    victims = scene.chance.choice([replicas[:1], replicas, [scene.chance.choice(replicas)]])
    signal_all(victims, signal.SIGKILL)
    return f"killed {len(victims)} of {len(replicas)} replicas; {_gone_on(scene)}"


def broker_killed(scene: Scene) -> str:
    """Kill the broker, and start it again with its data."""
    scene.broker.kill()
    time.sleep(scene.chance.uniform(0, 3))
    scene.broker.start()
    return _gone_on(scene)


def broker_paused(scene: Scene) -> str:
    """Pause the broker for 30 s. Its connections stay open."""
    scene.broker.pause()
    time.sleep(_PAUSE_SECONDS)
    scene.broker.resume()
    return _gone_on(scene)


def network_cut(scene: Scene) -> str:
    """Cut the network to the broker in the middle of a transaction, or while records are fetched."""
    request, delivered = scene.chance.choice(_MOMENTS)
    scene.proxy.cut_at(request, delivered=delivered)
    assert scene.proxy.wait_for_moment(PATIENCE), f"no {request} came: {scene.job.report()}"
    time.sleep(scene.chance.uniform(0, 5))
    scene.proxy.heal()
    return f"at {request}, {'its answer lost' if delivered else 'not delivered'}; {_gone_on(scene)}"


def disk_full(scene: Scene) -> str:
    """Fill the disk of the checkpoint until the job ends, and clear it for the next run."""
    assert scene.disk is not None
    free = scene.chance.choice([0, 4096, 20_000, 100_000])
    scene.disk.fill(free)
    try:
        scene.job.assert_refused()
    finally:
        scene.disk.clear()
    return f"{free} bytes left: {scene.job.complained.strip()}"


def rebalance(scene: Scene) -> str:
    """Add a partition to the topic, and let a foreign consumer join the groups of the job's sink and its replicas."""
    count = len(topics.partitions(scene.broker, SOURCE))
    if count < _MOST_PARTITIONS:
        count += 1
        topics.add_partitions(scene.broker, SOURCE, count)
        scene.feed.partitions = count
    joined = [(scene.group, SINK), *((group, SOURCE) for group in scene.replica_groups)]
    for group, topic in joined:
        _join(scene, group, topic)
    return f"{count} partitions, {len(joined)} groups; {_gone_on(scene)}"


def _join(scene: Scene, group: str, topic: str) -> None:
    """Be a member of a group that reads nothing, until the job has finished some batches."""
    consumer = Consumer(
        {
            "bootstrap.servers": scene.broker.bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "log_level": 2,
        }
    )
    with consumer:
        consumer.subscribe([topic])
        wanted = scene.job.batches() + 3
        while scene.job.batches() < wanted and scene.job.process.status is None:
            consumer.poll(0.1)


def checkpoint_corrupted(scene: Scene) -> str:
    """Kill the driver and damage the newest file of one kind in the checkpoint, for several kinds in turn."""
    return "; ".join(_corrupted(scene, next(scene.damages)) for _ in range(_DAMAGES))


def _corrupted(scene: Scene, kind: Kind) -> str:
    job = scene.job
    if job.process.status is not None:  # an earlier refusal left no lease
        job.start()
        assert job.wait_for_batches(), job.report()
    job.process.kill()
    damage = corrupt(scene.checkpoint, kind, scene.chance)
    before = len(scene.output())
    job.start()
    if job.wait_for_batches(2):
        return f"{kind}: went on"
    job.assert_refused()
    assert job.batches() or len(scene.output()) == before, f"it has written, and does not say so: {job.report()}"
    damage.repair()
    return f"{kind}: {job.complained.strip()}"


def clock_stepped(scene: Scene) -> str:
    """Step the clock forward or back, and reset it later."""
    assert scene.clock is not None
    seconds = scene.chance.choice([-1, 1]) * scene.chance.choice([2, 30, 600, 7200])
    scene.clock.step(seconds)
    outcome = _gone_on(scene)
    scene.clock.step(0)
    scene.go_on()
    return f"{seconds:+d} s; {outcome}; put right"


Fault = Callable[[Scene], str]

EVERY: tuple[Fault, ...] = (
    driver_killed,
    worker_killed,
    broker_killed,
    broker_paused,
    network_cut,
    rebalance,
    checkpoint_corrupted,
    replica_killed,
    disk_full,
    clock_stepped,
)
"""All faults."""


def all_faults(scene: Scene) -> list[Fault]:
    """Return the faults that this machine can inject into this job."""
    possible = {
        replica_killed: scene.case.is_dedicated,
        disk_full: scene.disk is not None,
        clock_stepped: scene.clock is not None,
    }
    return [fault for fault in EVERY if possible.get(fault, True)]


def _gone_on(scene: Scene) -> str:
    """Wait until the job continues, or ends with an error message."""
    if scene.job.wait_for_batches(2):
        return "went on"
    scene.job.assert_refused()
    return f"ended: {scene.job.complained.strip()}"


def _members(scene: Scene, command: str) -> list[int]:
    """Return the processes of the job whose command line contains ``command``, the oldest first."""
    return [member for member in sorted(scene.job.process.members()) if command in command_of(member)]
