"""An aggregator whose results depend on how records are divided is refused, with the records that show it."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millrace
from examples.top_values import TopValues
from unit.aggregates.aggregators import First, Forgetful, Mean, MeanOfMeans, Mistyped

VALUES = {"v": [1, 5, 2, 8, 9, 4, 4, 1]}


class Deviation(Mean):
    """Right, up to the rounding of floats."""

    state_schema = pa.schema([("sum", pa.float64()), ("count", pa.int64())])

    def init(self):
        return {"sum": 0.0, "count": 0}


class Uneven(Mean):
    """Wrong: an update counts batches, not records."""

    def update(self, state, batch):
        return super().update(state, batch) | {"count": state["count"] + 1}


class Raising(Mean):
    """Wrong: expects at least one record."""

    def update(self, state, batch):
        first = batch.column("v")[0].as_py()
        return super().update(state, batch) | {"sum": state["sum"] + first}


class Unfinished(Mean):
    """Wrong: its result lacks a field."""

    def finish(self, state):
        return {"average": 1.0}


@pytest.mark.parametrize(
    "data",
    [
        VALUES,
        pd.DataFrame(VALUES),
        pl.DataFrame(VALUES),
        pa.table(VALUES),
        [{"v": each, "w": 0} for each in VALUES["v"]],
    ],
    ids=["dict", "pandas", "polars", "arrow", "rows"],
)
def test_a_sound_aggregator_returns_its_result(data):
    assert millrace.check_aggregator(Mean, data) == {"mean": 4.25}


def test_options_make_the_aggregator_as_in_a_query():
    words = {"word": ["a", "b", "a", None, "c", "b", "a"]}
    expected = {"top": ["a", "b"], "top_counts": [3, 2]}
    assert millrace.check_aggregator(TopValues, words, options={"column": "word", "k": 2}) == expected
    assert millrace.check_aggregator(TopValues("word", 2), words) == expected


def test_sums_of_floats_may_differ_by_rounding():
    assert millrace.check_aggregator(Deviation, {"v": [0.1, 0.2, 0.3, 7.7]})["mean"] == pytest.approx(2.075)
    with pytest.raises(millrace.MillraceError, match="breaks the law"):
        millrace.check_aggregator(Deviation, {"v": [0.1, 0.2, 0.3, 7.7] * 5}, tolerance=0)


@pytest.mark.parametrize(
    ("aggregator", "problem"),
    [
        (MeanOfMeans, 'MeanOfMeans breaks the law "merge is associative": '),
        (First, 'First breaks the law "merge is commutative": '),
        (Uneven, 'Uneven breaks the law "'),
        (Forgetful, 'Forgetful breaks the law "a state survives being stored by its schema": '),
        (Mistyped, "Mistyped: a state of the aggregator does not fit its state_schema, field count bool: "),
        (Raising, "Raising raises IndexError: "),
        (Unfinished, "Unfinished: a result of the aggregator does not fit its result_schema, field mean double: "),
    ],
)
def test_an_unsound_aggregator_is_refused_with_its_counterexample(aggregator, problem):
    with pytest.raises(millrace.MillraceError) as caught:
        millrace.check_aggregator(aggregator, VALUES)
    assert str(caught.value).startswith(problem)
    assert "on the records [" in str(caught.value)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((int, VALUES), "'int' has no init, update, merge, finish; define what docs/own-code.md lists"),
        ((Mean, {"w": [1]}), "data: Mean reads v, which the data lacks; pass data with v; it has w"),
        ((Mean, {"v": []}), "data: there are no records; pass at least one"),
        ((Mean, 5), "data: data is a int; pass an Arrow table, "),
    ],
)
def test_what_cannot_be_checked_is_explained(arguments, problem):
    with pytest.raises(millrace.MillraceError) as caught:
        millrace.check_aggregator(*arguments)
    assert str(caught.value).startswith(problem)
