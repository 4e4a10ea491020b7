"""The algorithms in plain Python: the oracles of the tests, and the baseline for the kernels' speed.

They are written to be read beside the papers, with dicts, lists and one record at a time, not to be fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Transcription = Callable[[list[int], int, int], object]
"""A function that places a window of keys on a number of workers, given a seed."""


def transcription(algorithm: str, parameters: Mapping[str, Any]) -> Transcription:
    """Return the transcription of an algorithm with these parameters. Raise ValueError if it has none."""
    given = {name: value for name, value in parameters.items() if name != "slides"}
    match algorithm:
        case "shuffle":
            return lambda keys, workers, _: _oracles("").shuffle(len(keys), workers, replica=0, replicas=1)
        case "hash":
            return lambda keys, workers, seed: _oracles("").hash_grouping(keys, workers, seed)
        case "pkg":
            return lambda keys, workers, seed: _oracles("").partial_key_grouping(keys, workers, seed, **given)
        case "cm" | "am" | "cam" | "lm":
            partition = _oracles("_cardinality").Partition
            return lambda keys, workers, seed: partition(algorithm, workers, seed, **given).route(keys)
        case "dchoices" | "wchoices":
            splitting, everywhere = _oracles("_dchoices").PlainHeadSplitting, algorithm == "wchoices"
            return lambda keys, workers, seed: _each(splitting(workers, seed, given["head"], everywhere), keys)
        case "dagreedy":
            greedy = _oracles("_dagreedy").PlainDAGreedy
            return lambda keys, workers, seed: _each(greedy(workers, seed, given["head"], slides=1), keys)
        case "dalton":
            del given["statistics"]  # whether keys are counted exactly; here a dict counts them
            dalton = _oracles("_dalton").Dalton
            return lambda keys, workers, seed: dalton(workers, seed, **given).route(keys)
        case "prompt":
            prompt = _oracles("_prompt").Prompt(**given)  # shared by all windows: the first one has no CountTree
            return lambda keys, workers, _: prompt.batch(keys, workers)
    raise ValueError(f"there is no transcription of {algorithm}")


def _each(placing: Any, keys: list[int]) -> list[int]:
    return [placing.place(key) for key in keys]


def _oracles(family: str) -> Any:
    return importlib.import_module(f"tests.unit.partitioners.oracles{family}")
