"""Paper 004 (Abdelhamid et al., SIGMOD 2020): Prompt's blocks against the blocks of other techniques.

Batches are counted in records. As in Figure 10, BSI is given relative to hashing and BCI relative to shuffle. The runs
on Zipf streams are those of ``cost_model_000``, which include Prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.parameters import whole_number
from millrace_jobs.partitioners.placement_cost import PartitioningImbalance, imbalance
from millrace_jobs.partitioners.prompt.partitioner import PromptPartitioner
from millrace_research.papers.figures import PaperFigures, Run
from millrace_research.papers.placing import SEED, new_replica, place, window_costs
from millrace_research.papers.reduce_buckets import allocate, reference_table
from millrace_research.papers.streams import real, zipf

BLOCKS = (8, 16, 32, 64)
BATCH = {
    "w106": (100_000, 10),
    "zipf 0": (100_000, 10),
    "debs-taxis": (2_500, 10),
    "gcm-jobs": (5_000, 10),
    "words": (100_000, 3),
    "recommendations": (100_000, 3),
    "flight-tails": (50_000, 3),
    "flight-destinations": (10_000, 3),
    "nasa-hosts": (10_000, 3),
    "nasa-urls": (10_000, 3),
    "apache-clients": (2_500, 3),
}
"""Records per batch, and batches at most. ``zipf 0`` is uniform, as TPC-H's part keys are."""

PACKINGS = {"FFD": "first-fit", "FragMin": "fragmentation-minimization"}
"""Packings that Figure 6 compares with Algorithm 2: First Fit Decreasing, and Fragmentation Minimization."""
COMPARED = ("Time-based", "SH", "FLD", "PK-2", "PK-5", "cAM-2", "cAM-5", "Prompt")
TECHNIQUES = (*COMPARED, *PACKINGS, "Post-sort")

SINUSOIDAL = 0.5
"""Amplitude of a varying rate, which in a batch goes once from 1 to 1.5, to 0.5 and back to 1 times its mean."""


def run(figures: PaperFigures) -> None:
    """Run all experiments on paper 004."""
    for name in BATCH:
        batches = _batches(name)
        for blocks in BLOCKS:
            for technique in TECHNIQUES:
                _compare(figures, "blocks", name, technique, blocks, batches, _placed(technique, batches, blocks))
            varying = [_time_based(len(batch), blocks, SINUSOIDAL) for batch in batches]
            _compare(figures, "blocks", name, "Time-based, varying rate", blocks, batches, varying)
            _buckets(figures, name, batches, blocks)


def _batches(name: str) -> list[Hashes]:
    rows, most = BATCH[name]
    stream = zipf(0.0, 1_000_000) if name == "zipf 0" else real(name)
    return stream.head(rows * most).slides(rows)


def _placed(technique: str, batches: Sequence[Hashes], blocks: int) -> list[Workers]:
    if technique == "Time-based":
        return [_time_based(len(batch), blocks, 0.0) for batch in batches]
    if technique == "Post-sort":
        return place("prompt:buffering=post-sort", batches, blocks)
    if technique in PACKINGS:
        return place(f"prompt:packing={PACKINGS[technique]}", batches, blocks)
    return place(technique, batches, blocks)


def _time_based(records: int, blocks: int, amplitude: float) -> Workers:
    """Return blocks by time, at a rate of 1 + amplitude · sin(2πt) over the batch's interval from 0 to 1."""
    at = np.linspace(0.0, 1.0, 10_001)
    arrived = at + amplitude * (1 - np.cos(2 * np.pi * at)) / (2 * np.pi)
    times = np.interp((np.arange(records) + 0.5) / records, arrived, at)
    return time_blocks((times * 1_000_000).astype(np.int64), 0, 1_000_000, blocks)


def time_blocks(times: NDArray[np.int64], start: int, interval: int, blocks: int) -> Workers:
    """Return the block of each record, shape ``(records,)``, in the batch that lasts from ``start`` for ``interval``.

    This is Spark Streaming's own way (paper 004, section 2.2.1). The interval is split into ``blocks`` equal,
    consecutive block intervals, and a record goes to the block whose interval contains its time. ``times``, of the same
    shape, ``start`` and ``interval`` are in one unit. Raises ValueError on a time outside the interval.
    """
    whole_number("interval", interval, 1)
    whole_number("blocks", blocks, 1)
    since = times - np.int64(start)
    if len(since) and not 0 <= int(since.min()) <= int(since.max()) < interval:
        raise ValueError(
            f"times go from {times.min()} to {times.max()}, beyond the batch; give times from {start} to "
            f"{start + interval - 1}"
        )
    ends = np.array([-(-interval * block // blocks) for block in range(1, blocks)], np.int64)
    return np.searchsorted(ends, since, side="right").astype(np.int32)


def _compare(
    figures: PaperFigures,
    experiment: str,
    stream: str,
    technique: str,
    blocks: int,
    batches: Sequence[Hashes],
    placed: Sequence[Workers],
) -> None:
    costs = window_costs(batches, placed, blocks)
    figures.add(
        Run(experiment, stream, technique, blocks),
        bsi=mean(cost.load_imbalance for cost in costs),
        bci=mean(cost.cardinality_imbalance for cost in costs),
        ksr=mean(cost.replication_factor or 1.0 for cost in costs),
        largest=mean(cost.largest_load for cost in costs),
    )


def _buckets(figures: PaperFigures, stream: str, batches: Sequence[Hashes], blocks: int) -> None:
    """Measure the BSI (Eq. 3) of Reduce buckets for Prompt's blocks, with as many buckets as blocks.

    The buckets are filled by hashing, by Algorithm 3, and by Algorithm 3 with all Map tasks taking the first of equal
    buckets.
    """
    prompt = new_replica("Prompt", blocks)
    assert isinstance(prompt, PromptPartitioner)
    found: dict[str, list[float]] = {"hashing": [], "Algorithm 3": [], "Algorithm 3, first": []}
    for batch in batches:
        prompt.accumulate(batch)
        plan = prompt.partition()
        sizes = {name: np.zeros(blocks, np.int64) for name in found}
        for block in range(blocks):
            table = reference_table(plan, block, shared=False)
            tuples = table.sizes.astype(np.int64)
            np.add.at(sizes["hashing"], Hash(workers=blocks, seed=SEED).route(table.keys), tuples)
            for name, task in (("Algorithm 3", block), ("Algorithm 3, first", 0)):
                np.add.at(sizes[name], allocate(table, tuples, blocks, task=task, seed=SEED), tuples)
        for name, values in found.items():
            values.append(imbalance(sizes[name])[1])
        prompt.advance()
    for name, values in found.items():
        figures.add(Run("buckets", stream, name, blocks), bsi=mean(values))


def relative(figures: PaperFigures, stream: str, technique: str, blocks: int) -> PartitioningImbalance:
    """Return BSI relative to hashing, and BCI and KSR relative to shuffle."""
    plain, hashing, shuffle = (_plain(figures, stream, name, blocks) for name in (technique, "FLD", "SH"))
    return plain.relative_to(hashing, shuffle)


def _plain(figures: PaperFigures, stream: str, technique: str, blocks: int) -> PartitioningImbalance:
    bsi, bci, ksr = (figures.of("blocks", stream, technique, blocks, figure) for figure in ("bsi", "bci", "ksr"))
    return PartitioningImbalance(bsi, bci, ksr)
