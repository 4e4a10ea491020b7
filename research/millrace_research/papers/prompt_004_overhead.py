"""Paper 004, Figure 14: the time that Prompt takes, and which part of the batch interval.

Times are processor time of one thread; replicas run one after the other, and the slowest counts, as in a job where each
has a core.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.prompt.partitioner import PromptPartitioner
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.placing import SEED, new_replica
from millrace_research.papers.streams import PaperStream, real, zipf

BLOCKS = 16
BATCH, BATCHES = 100_000, 10
BUFFERING = ("count-tree", "post-sort")
RATES = (100_000, 200_000, 400_000)
"""Records per second of all replicas together; a batch interval is one second."""
_SHARED_BATCHES, _SETTLED = 8, 2
"""Batches per rate, and those of them that do not count: replicas know nothing in the first one."""


def streams() -> list[PaperStream]:
    """Return the streams whose batches are timed."""
    rows = max(RATES) * _SHARED_BATCHES
    return [zipf(0.0, rows), zipf(1.0, rows), real("orm-busy").head(rows), real("w106").head(rows)]


def run(figures: PaperFigures) -> None:
    """Run the experiments on Prompt's overhead."""
    for stream in streams():
        for buffering in BUFFERING:
            _buffering(figures, stream, buffering)
        for rate in RATES:
            for replicas in REPLICAS:
                _share(figures, stream, rate, replicas)


def _buffering(figures: PaperFigures, stream: PaperStream, buffering: str) -> None:
    """Measure the seconds while batches arrive and at their ends. Only ratios within a run are meaningful."""
    prompt = new_replica(f"prompt:buffering={buffering}", BLOCKS)
    assert isinstance(prompt, PromptPartitioner)
    accumulating, cutting = [], []
    for batch in stream.head(BATCH * BATCHES).slides(BATCH):
        began = time.thread_time()
        prompt.accumulate(batch)
        complete = time.thread_time()
        prompt.cut()
        cutting.append(time.thread_time() - complete)
        accumulating.append(complete - began)
        prompt.advance()
    figures.add(
        Run("timing", stream.name, buffering, BLOCKS),
        accumulate=float(np.median(accumulating)),
        cut=float(np.median(cutting)),
    )


def _share(figures: PaperFigures, stream: PaperStream, rate: int, replicas: int) -> None:
    """Measure the part of an interval of a second that the slowest replica's cut takes: median over batches."""
    members, copies = (_replicas(replicas) for _ in range(2))
    slowest = []
    for batch in stream.head(rate * _SHARED_BATCHES).slides(rate):
        slowest.append(max(_cut(member, part) for member, part in zip(members, _parts(batch, replicas), strict=True)))
        for member in members:
            member.advance()
        for member, copy in zip(members, copies, strict=True):
            copy.restore(member.save())
        for number, member in enumerate(members):
            member.merge([*copies[:number], *copies[number + 1 :]])
    figures.add(
        Run("share of interval", f"{stream.name}, {rate:,}/s", "Prompt", BLOCKS, replicas),
        share=float(np.median(slowest[_SETTLED:])),
    )


def _cut(member: PromptPartitioner, part: Hashes) -> float:
    member.accumulate(part)
    began = time.thread_time()
    member.cut()
    return time.thread_time() - began


def _parts(batch: Hashes, replicas: int) -> Sequence[Hashes]:
    return np.array_split(batch, replicas)


def _replicas(count: int) -> list[PromptPartitioner]:
    made = [
        registry.make("prompt", workers=BLOCKS, replica=replica, replicas=count, seed=SEED, parameters={})
        for replica in range(count)
    ]
    return [member for member in made if isinstance(member, PromptPartitioner)]
