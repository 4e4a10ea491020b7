import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.top_values import TopValues
from millrace_api.errors import MillraceError
from millrace_jobs.aggregates.testing import broken_law

from .aggregators import First, Forgetful, Mean, MeanOfMeans, Mistyped


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
