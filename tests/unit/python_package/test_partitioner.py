"""Partitioners on arrays: keys of every library hash as in a job, and figures are those of the placement."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace
from millrace.key_arrays import hashes_of
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.partitioners.placement_cost import cost_of_counts

KEYS = np.random.default_rng(0).zipf(1.4, 5_000) % 500

values = (
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none())
    | st.lists(st.floats() | st.none())
    | st.lists(st.text(st.characters(codec="utf-8")) | st.none())
    | st.lists(st.binary() | st.none())
    | st.lists(st.booleans())
)


@given(values)
def test_keys_hash_as_their_arrow_column_does(keys):
    column = pa.array(keys, from_pandas=False)
    assert hashes_of(np.array(keys, object)).tolist() == hash_columns([column], len(keys)).tolist()


@pytest.mark.parametrize(
    "keys",
    [
        np.array([3, 1, 3], np.int32),
        np.array([3, 1, 3], np.uint8),
        pd.Series([3, 1, 3]),
        pl.Series([3, 1, 3]),
        pa.chunked_array([[3, 1], [3]]),
        [3, 1, 3],
        range(3, 0, -1),
    ],
    ids=lambda keys: type(keys).__module__,
)
def test_equal_numbers_hash_alike_whatever_holds_them(keys):
    assert hashes_of(keys).tolist() == hash_columns([pa.array(list(keys))], 3).tolist()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_all_columns_of_a_table_are_a_composite_key(kind):
    columns = {"cell": ["a", "b"], "hour": [1, 2]}
    assert hashes_of(kind(columns)).tolist() == hash_columns([*map(pa.array, columns.values())], 2).tolist()


@pytest.mark.parametrize("algorithm", [name for name in registry.ALGORITHMS if registry.is_routed(name)])
def test_figures_are_those_of_all_records_routed(algorithm):
    partitioner = millrace.Partitioner(algorithm, workers=8, replicas=2)
    ids = np.concatenate([partitioner.route(KEYS[:2_000], batch_rows=600), partitioner.route(KEYS[2_000:])])
    rows = np.bincount(ids, minlength=8)
    keys = [len(set(KEYS[ids == worker].tolist())) for worker in range(8)]
    assert partitioner.loads.tolist() == rows.tolist()
    assert partitioner.cost == cost_of_counts(rows, np.array(keys), distinct_keys=len(np.unique(KEYS)))
    again = millrace.Partitioner(algorithm, workers=8, replicas=2)
    assert again.route(KEYS[:2_000], batch_rows=600).tolist() == ids[:2_000].tolist()


def test_parameters_may_follow_the_name_after_colons():
    by_text = millrace.Partitioner("dalton:slides=2:balance=0.3:statistics=exact", workers=4)
    by_name = millrace.Partitioner("dalton", workers=4, slides=2, balance=0.3, statistics="exact")
    assert by_text.algorithm == "dalton"
    assert by_text.route(KEYS).tolist() == by_name.route(KEYS).tolist()


def test_one_replica_places_a_batch_as_its_algorithm_does():
    ours = millrace.Partitioner("dalton", workers=4, seed=7, slides=2)
    plain = registry.make("dalton", workers=4, replica=0, replicas=1, seed=7, parameters={"slides": 2})
    for part in np.array_split(KEYS, 3):
        expected = plain.route(hashes_of(part))
        plain.advance()
        assert ours.route(part).tolist() == expected.tolist()


def test_a_resize_keeps_what_was_learned_and_begins_the_figures_again():
    partitioner = millrace.Partitioner("cam", workers=4, replicas=2)
    partitioner.route(KEYS)
    assert partitioner.resize(6).loads.tolist() == [0] * 6
    assert set(partitioner.route(KEYS).tolist()) <= set(range(6))
    with pytest.raises(millrace.MillraceError, match="workers is 0"):
        partitioner.resize(0)
    assert partitioner.workers == 6


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"algorithm": "pgk", "workers": 2}, r"there is no partitioner 'pgk'; did you mean \"pkg\"\?"),
        ({"algorithm": "best", "workers": 2}, "there is no partitioner 'best'; write one of: native, "),
        ({"algorithm": "pkg:choices", "workers": 2}, "pkg:choices: 'choices' is not a parameter; write name=value"),
        ({"algorithm": "pkg:choices=x", "workers": 2}, "parameter 'choices' of partitioner pkg is 'x'; write a whole"),
        ({"algorithm": "pkg:choices=4", "choices": 3, "workers": 2}, "pkg:choices=4: choices is given twice; give it"),
        ({"algorithm": "pkg", "workers": "8"}, "workers is '8'; write a whole number of at least 1"),
        ({"algorithm": "pkg", "workers": 2, "replicas": "2"}, "replicas is '2'; write a whole number of at least 1"),
        ({"algorithm": "native", "workers": 2}, "partitioner native routes nothing"),
        ({"algorithm": "pkg", "workers": 2, "choice": 1}, "has no parameter 'choice'; write one of: choices, slides"),
        ({"algorithm": "pkg", "workers": 0}, "workers is 0; write a whole number of at least 1"),
        ({"algorithm": "pkg", "workers": 2, "replicas": 0}, "replicas is 0; write a whole number of at least 1"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(arguments, problem):
    with pytest.raises(millrace.MillraceError, match=problem):
        millrace.Partitioner(**arguments)


@pytest.mark.parametrize("keys", [[[1, 2], [3, 4]], [object()], [2**70], ["a", 1], pa.array([[1], [2]])])
def test_keys_that_cannot_be_hashed_are_explained(keys):
    with pytest.raises(millrace.MillraceError, match=r"^keys: .*; pass "):
        millrace.Partitioner("hash", workers=2).route(keys)


def test_a_partitioner_shows_its_figures():
    partitioner = millrace.Partitioner("shuffle", workers=2)
    partitioner.route([1, 2, 3, 4])
    assert repr(partitioner) == "<Partitioner shuffle: 2 workers, 1 replica, 4 records, imbalance 0>"
    assert "replication factor" in partitioner._repr_html_()
