"""Paper 004 (Abdelhamid et al., SIGMOD 2020): Prompt's blocks against the blocks of other techniques.

Batches are counted in records. As in Figure 10, BSI is given relative to hashing and BCI relative to shuffle. The runs
on Zipf streams are those of ``cost_model_000``, which include Prompt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from bench.papers.figures import Claim, Outcome, PaperFigures, share, spread
from bench.papers.placing import SEED, new_replica, place, window_costs
from bench.papers.reduce_buckets import allocate, reference_table
from bench.papers.streams import SKEWS, real, zipf
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.metrics import PartitioningImbalance, imbalance
from millrace_jobs.partitioners.parameters import whole_number
from millrace_jobs.partitioners.prompt.partitioner import PromptPartitioner

BLOCKS = (8, 16, 32, 64)
BATCH = {"w106": 100_000, "zipf 0": 100_000, "debs-taxis": 2_500, "gcm-jobs": 5_000}
"""Records per batch. ``zipf 0`` is uniform, as TPC-H's part keys are."""

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
    for buffering in ("count-tree", "post-sort"):
        _timing(figures, buffering, _batches("w106"))


def _batches(name: str) -> list[Hashes]:
    stream = zipf(0.0, 1_000_000) if name == "zipf 0" else real(name).head(1_000_000)
    return stream.slides(BATCH[name])


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
        experiment,
        stream,
        technique,
        blocks,
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
        figures.add("buckets", stream, name, blocks, bsi=mean(values))


def _timing(figures: PaperFigures, buffering: str, batches: Sequence[Hashes]) -> None:
    """Measure the seconds while batches arrive and at their ends. Only ratios within a run are meaningful."""
    prompt = new_replica(f"prompt:buffering={buffering}", 16)
    assert isinstance(prompt, PromptPartitioner)
    accumulating, cutting = [], []
    for batch in batches:
        began = time.perf_counter()
        prompt.accumulate(batch)
        complete = time.perf_counter()
        prompt.cut()
        cutting.append(time.perf_counter() - complete)
        accumulating.append(complete - began)
        prompt.advance()
    figures.add(
        "timing", "w106", buffering, 16, accumulate=float(np.median(accumulating)), cut=float(np.median(cutting))
    )


def relative(figures: PaperFigures, stream: str, technique: str, blocks: int) -> PartitioningImbalance:
    """Return BSI relative to hashing, and BCI and KSR relative to shuffle."""
    plain, hashing, shuffle = (_plain(figures, stream, name, blocks) for name in (technique, "FLD", "SH"))
    return plain.relative_to(hashing, shuffle)


def _plain(figures: PaperFigures, stream: str, technique: str, blocks: int) -> PartitioningImbalance:
    bsi, bci, ksr = (figures.of("blocks", stream, technique, blocks, figure) for figure in ("bsi", "bci", "ksr"))
    return PartitioningImbalance(bsi, bci, ksr)


def _size(figures: PaperFigures) -> Outcome:
    found = {
        name: [relative(figures, stream, name, n).bsi for stream, n in figures.runs("blocks")] for name in COMPARED
    }
    even = [value < 0.05 for name in ("SH", "Time-based", "Prompt") for value in found[name]]
    text = ", ".join(f"{name} {spread(values)}" for name, values in found.items() if name != "FLD")
    return Outcome(f"BSI relative to FLD's: {text}", share(even))


def _cardinality(figures: PaperFigures) -> Outcome:
    found = {
        name: [relative(figures, stream, name, n).bci for stream, n in figures.runs("blocks")] for name in COMPARED
    }
    rest = [min(values) for values in zip(*(found[name] for name in ("Time-based", "SH", "PK-2", "PK-5")), strict=True)]
    better = [value < least for name in ("FLD", "Prompt") for value, least in zip(found[name], rest, strict=True)]
    text = ", ".join(f"{name} {spread(values)}" for name, values in found.items() if name != "SH")
    return Outcome(f"BCI relative to SH's: {text}", share(better))


def _balance(figures: PaperFigures) -> Outcome:
    ranks = []
    for stream, blocks in figures.runs("blocks"):
        mpi = {name: relative(figures, stream, name, blocks).mpi for name in COMPARED}
        ranks.append(min(mpi, key=mpi.__getitem__) == "Prompt")
    return Outcome(f"Prompt has the least MPI in {sum(ranks)} of {len(ranks)} runs", share(ranks))


def _locality(figures: PaperFigures) -> Outcome:
    found = {name: figures.each("blocks", name, "ksr") for name in COMPARED}
    fewer = [
        prompt < min(others)
        for prompt, *others in zip(*(found[name] for name in ("Prompt", "SH", "Time-based", "PK-5")), strict=True)
    ]
    text = ", ".join(f"{name} {spread(values, '{:.2f}'.format)}" for name, values in found.items())
    return Outcome(f"KSR: {text}", share(fewer))


def _varying_rate(figures: PaperFigures) -> Outcome:
    runs = figures.runs("blocks")
    ratio = {
        name: [figures.of("blocks", s, name, n, "bsi") / figures.of("blocks", s, "SH", n, "largest") for s, n in runs]
        for name in ("Time-based", "Time-based, varying rate", "Prompt")
    }
    text = ", ".join(f"{name} {spread(values, '{:.1%}'.format)}" for name, values in ratio.items())
    return Outcome(
        f"BSI as a part of a block, rate ±50 %: {text}",
        share(v > 0.4 and p < 0.05 for v, p in zip(ratio["Time-based, varying rate"], ratio["Prompt"], strict=True)),
    )


def _skew(figures: PaperFigures) -> Outcome:
    others = ("FLD", "PK-2", "PK-5", "cAM-5")
    ratios = {}
    for z in SKEWS:
        speedup = {name: figures.of("zipf windows", f"zipf {z:g}", name, 32, "speedup") for name in (*others, "Prompt")}
        ratios[z] = speedup["Prompt"] / max(speedup[name] for name in others)
    text = ", ".join(f"z = {z:g}: {ratio:.2g}" for z, ratio in ratios.items())
    return Outcome(
        f"largest load of the best of {', '.join(others)} over Prompt's, n = 32: {text}",
        share(ratio >= 2 for ratio in ratios.values()),
    )


def _packing(figures: PaperFigures) -> Outcome:
    ksr = {name: figures.each("blocks", name, "ksr") for name in ("FragMin", "Prompt", "FFD")}
    bci = {name: figures.each("blocks", name, "bci") for name in ("FragMin", "Prompt", "FFD")}
    between = [a <= b for a, b in zip(ksr["FragMin"], ksr["Prompt"], strict=True)]
    more = [a >= b for a, b in zip(ksr["FFD"], ksr["FragMin"], strict=True)]
    flat = [p < min(a, b) for p, a, b in zip(bci["Prompt"], bci["FFD"], bci["FragMin"], strict=True)]
    text = "; ".join(f"{name} KSR {spread(ksr[name], '{:.3f}'.format)}, BCI {spread(bci[name])}" for name in ksr)
    return Outcome(text, share(between + more + flat))


def _reduce_buckets(figures: PaperFigures) -> Outcome:
    ours, first, hashed = (
        figures.each("buckets", name, "bsi") for name in ("Algorithm 3", "Algorithm 3, first", "hashing")
    )
    better = [a <= b for a, b in zip(ours, hashed, strict=True)]
    better_first = sum(a <= b for a, b in zip(first, hashed, strict=True))
    worst = int(np.argmax(np.array(first) / np.array(hashed)))
    stream, blocks = figures.runs("buckets")[worst]
    return Outcome(
        f"no more BSI of the buckets than by hashing in {sum(better)} of {len(better)} runs. Where all tasks took the "
        f"first of equal buckets: in {better_first}; worst on {stream} with {blocks}, "
        f"{first[worst] / hashed[worst]:.1f} times hashing's, instead of {ours[worst] / hashed[worst]:.1f}",
        share(better),
    )


def _sorting(figures: PaperFigures) -> Outcome:
    (accumulate, cut), (accumulate_sort, cut_sort) = (
        [figures.of("timing", "w106", name, 16, figure) for figure in ("accumulate", "cut")]
        for name in ("count-tree", "post-sort")
    )
    ksr = zip(*(figures.each("blocks", name, "ksr") for name in ("Prompt", "Post-sort")), strict=True)
    gaps = [abs(tree / post_sort - 1) for tree, post_sort in ksr]
    return Outcome(
        f"cut: {cut / cut_sort:.2f} of post-sort's time; accumulate: {accumulate / accumulate_sort:.1f} times; "
        f"KSR within {max(gaps):.2%}",
        share([cut < 0.9 * cut_sort, max(gaps) < 0.05]),
    )


CLAIMS = (
    Claim(
        "004.1",
        "Fig. 10a, b",
        "BSI relative to hashing: shuffle, time-based and Prompt near 0",
        _size,
        "0.062 is less than one record, on debs-taxis with blocks of 39",
    ),
    Claim(
        "004.2",
        "Fig. 10c, d",
        "BCI relative to shuffle: hashing and Prompt significantly better than all others",
        _cardinality,
        "Prompt's is by far the least, except on debs-taxis, where nearly every record has its own key. Hashing's "
        "is not: shuffle's blocks are random samples of one batch and have nearly equally many keys, while "
        "the number of keys that hash to a block varies like the square root of its mean",
    ),
    Claim(
        "004.3",
        "§7.2",
        "Prompt strikes a balance of block size and cardinality: least MPI",
        _balance,
        "The four others are on debs-taxis, where blocks by time are as good: BCI is about one key, and Prompt's "
        "fragments have a price",
    ),
    Claim("004.4", "§3.2, §4.2", "key locality: Prompt splits few keys, SH and time-based many", _locality),
    Claim("004.5", "Fig. 11a-c", "a sinusoidal rate: time-based is worst, Prompt steady", _varying_rate),
    Claim(
        "004.6",
        "Fig. 11d",
        "skew, z from 0.1 to 2.0: Prompt 2 to 5 times better throughput",
        _skew,
        "The largest load is a bound on the throughput. Below z = 1, two choices are as even",
    ),
    Claim(
        "004.7",
        "Fig. 6, §4.2",
        "First Fit Decreasing fragments 3 of 8 keys, Fragmentation Minimization 1, Prompt 2; only Prompt balances "
        "cardinality",
        _packing,
        "The figure's eight keys are missing from our copy, so these are the streams above",
    ),
    Claim(
        "004.8",
        "Fig. 13, §5",
        "Algorithm 3 evens out the Reduce tasks",
        _reduce_buckets,
        "The paper leaves open which of equal buckets is taken; where it is the first, each task's remainder falls on "
        "the same ones and adds up, so here each task counts from a bucket of its own. On gcm-jobs one job is larger "
        "than a bucket, and nothing helps",
    ),
    Claim(
        "004.9",
        "Fig. 14",
        "Algorithm 1 spares the sort at the end of the batch",
        _sorting,
        "The order by the tree's counts is as good, but here it is put together at the cut, in time that grows with "
        "the records alone; sorting the exact counts takes hardly longer, as there are few different ones",
    ),
)
