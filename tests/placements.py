"""The metrics and the sketch of a placement of known records, for tests."""

import numpy as np

from millrace_jobs.partitioners.placement_cost import cost_of_counts
from millrace_jobs.partitioners.placement_sketch import PlacementSketch
from millrace_jobs.sketches.key_profile import add_counts, profile


def placement_cost(ids, keys, workers):
    """Return the cost of sending records with ``keys`` (hashes or codes) to workers ``ids``, both ``(rows,)``.

    Raises ValueError if the shapes differ or an id is outside ``range(workers)``.
    """
    if ids.shape != keys.shape or ids.ndim != 1:
        raise ValueError(f"ids have shape {ids.shape} and keys {keys.shape}; both must be (rows,)")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < workers:
        raise ValueError(f"worker ids go from {ids.min()} to {ids.max()}, outside 0 to {workers - 1}")
    distinct, codes = np.unique(keys, return_inverse=True)
    placed = np.unique(codes * workers + ids)  # each (key, worker) pair once
    return cost_of_counts(
        np.bincount(ids, minlength=workers),
        np.bincount(placed % workers, minlength=workers),
        distinct_keys=len(distinct),
    )


def placement_sketch(ids, keys, workers):
    """Return the sketch of one block from ``ids`` in ``range(workers)`` and key hashes, both ``(rows,)``."""
    ends = np.cumsum(np.bincount(ids, minlength=workers))[:-1]
    by_worker = np.split(keys[np.argsort(ids, kind="stable")], ends)
    return PlacementSketch(tuple(profile(add_counts([(own, np.ones(len(own), np.int64))])) for own in by_worker))


def merged_sketches(sketches):
    """Return the sketch of all records together, from the sketches of blocks, replicas or slides.

    Raises ValueError unless all sketches have the same number of workers.
    """
    if len({len(sketch.profiles) for sketch in sketches}) > 1:
        raise ValueError(f"cannot merge sketches of {', '.join(str(len(s.profiles)) for s in sketches)} workers")
    profiles = [reported for sketch in sketches for reported in enumerate(sketch.profiles)]
    return PlacementSketch.of_workers(profiles, len(sketches[0].profiles))
