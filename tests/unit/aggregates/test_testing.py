from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.top_values import TopValues
from millrace_api.errors import MillraceError
from millrace_jobs.aggregates.testing import broken_law


class Mean:
    """Right: keeps sum and count."""

    columns = ("v",)
    state_schema = pa.schema([("sum", pa.int64()), ("count", pa.int64())])
    result_schema = pa.schema([("mean", pa.float64())])

    def init(self) -> dict[str, Any]:
        return {"sum": 0, "count": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        values = batch.column("v").to_pylist()
        return {"sum": state["sum"] + sum(values), "count": state["count"] + len(values)}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {name: a[name] + b[name] for name in a}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"mean": state["sum"] / state["count"] if state["count"] else None}


class MeanOfMeans(Mean):
    """Wrong: the mean of two means is not that of all."""

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        if not a["count"] or not b["count"]:
            return super().merge(a, b)
        return {"sum": a["sum"] / a["count"] + b["sum"] / b["count"], "count": 2}


class First(Mean):
    """Wrong: depends on which partial result comes first."""

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return a if a["count"] else b


class Forgetful(Mean):
    """Wrong: keeps something in its state that its schema does not have."""

    state_schema = pa.schema([("sum", pa.int64())])

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"mean": state["sum"] / state["count"] if state.get("count") else None}


class Mistyped(Mean):
    """Wrong: its state is not of the types of its schema."""

    state_schema = pa.schema([("sum", pa.int64()), ("count", pa.bool_())])


def batches(*values: list[int]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"v": pa.array(part, pa.int64())}) for part in values]


@given(st.lists(st.lists(st.integers(-1000, 1000), max_size=5), min_size=3, max_size=3))
def test_a_sound_aggregator_keeps_every_law(values: list[list[int]]) -> None:
    assert broken_law(Mean(), batches(*values)) is None


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6), min_size=3, max_size=3))
def test_the_example_keeps_every_law(values: list[list[str | None]]) -> None:
    parts = [pa.RecordBatch.from_pydict({"v": pa.array(part, pa.string())}) for part in values]
    assert broken_law(TopValues("v", k=2), parts) is None


@pytest.mark.parametrize(
    ("aggregator", "law"),
    [
        (MeanOfMeans(), "merging is updating"),
        (First(), "merge is commutative"),
        (Forgetful(), "a state survives being stored by its schema"),
    ],
)
def test_a_broken_law_is_named(aggregator: Mean, law: str) -> None:
    broken = broken_law(aggregator, batches([1, 2, 3], [10, 20], [7]))
    assert broken is not None
    assert broken.startswith(f"{law}: ")


def test_a_state_of_another_type_is_told() -> None:
    with pytest.raises(MillraceError) as raised:
        broken_law(Mistyped(), batches([1, 2, 3]))
    assert str(raised.value) == (
        "a state of the aggregator does not fit its state_schema, field count bool: Could not convert 3 with type int: "
        "tried to convert to boolean; correct the schema, or what the aggregator returns as state"
    )
