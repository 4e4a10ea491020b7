"""Which wider types a state can go on with, and the numbers in its rows."""

from struct import pack, unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_api.model.changes import ChangeVerdict
from millrace_api.validation.evolution import compare
from millrace_api.validation.widened_types import is_wider
from millrace_jobs.checkpoint.evolution import check_changes
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.checkpoint.unsafe_rows import Joiner, RowShape, retyped_word

from .changed_queries import FILES, SQL, a_query, changed

AVERAGE = SQL.replace("sum(fare)", "avg(fare)")
MOST = SQL.replace("sum(fare)", "max(fare)")


def schema(fare):
    return changed(FILES, "schema", value=f"at TIMESTAMP, city STRING, fare {fare}")


def compared(old, new, sql=SQL, **spec):
    return compare(a_query(schema(old), {"sql": sql}, **spec), a_query(schema(new), {"sql": sql}, **spec))


@pytest.mark.parametrize(
    ("old", "new"),
    [("TINYINT", "SMALLINT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE"), ("DECIMAL(4,2)", "DECIMAL(8,2)"),
     ("DECIMAL(8,2)", "DECIMAL(18,2)"), ("DECIMAL(19,2)", "DECIMAL(38,2)")],
)  # fmt: skip
def test_a_state_goes_on_with_a_wider_type_and_not_back(old, new):
    averaged = (AVERAGE,) if "DECIMAL" not in old else ()  # a long DECIMAL is averaged by Spark alone
    for sql in (SQL, MOST, *averaged):
        forbidden, remarks = compared(old, new, sql)
        assert (forbidden, len(remarks)) == ((), 1)
        assert f"fare was {old} and is {new}" in remarks[0]
        ((back,), _) = compared(new, old, sql)
        assert back.difference == f"with fare {new}, not with fare {old}"
        assert back.verdict is ChangeVerdict.IN_SHADOW


@pytest.mark.parametrize(
    ("old", "new"), [("INT", "DOUBLE"), ("INT", "STRING"), ("DECIMAL(9,2)", "DECIMAL(12,3)"), ("DATE", "TIMESTAMP")]
)
def test_other_types_are_not_wider(old, new):
    assert not is_wider(old, new)
    ((forbidden,), _) = compared(old, new)
    assert "no other type may change" in forbidden.reason


@pytest.mark.parametrize(
    ("old", "new", "sql", "why"),
    [
        ("INT", "BIGINT", SQL.replace("), city", "), city, fare % 10"), "finds groups by the bytes of fare % 10"),
        ("INT", "BIGINT", SQL.replace("sum(", "approx_count_distinct("), "APPROX_COUNT_DISTINCT(fare) recognizes"),
        ("DECIMAL(18,2)", "DECIMAL(19,2)", MOST, "more than 18 digits"),
        ("SMALLINT", "BIGINT", MOST.replace("max(fare)", "max(fare * 1.5)"), "does not follow from the type of fare"),
        ("INT", "BIGINT", SQL.replace("sum(fare)", "sum(fare / 2)"), "does not follow from the type of fare"),
        ("INT", "BIGINT", SQL.replace("sum(", "median("), "that Millrace merges"),
    ],
)
def test_what_is_looked_up_by_its_bytes_or_kept_otherwise_is_possible_in_shadow(old, new, sql, why):
    ((forbidden,), remarks) = compared(old, new, sql)
    assert why in forbidden.reason
    assert forbidden.verdict is ChangeVerdict.IN_SHADOW
    assert remarks == ()


def test_in_an_object_store_only_what_is_not_rewritten_becomes_wider():
    stored = {"checkpoint": {"uri": "s3a://bucket/fares"}}
    assert compared("INT", "BIGINT", SQL, **stored)[0] == ()
    ((forbidden,), _) = compared("INT", "BIGINT", MOST, **stored)
    assert "MAX(fare) would have to be rewritten" in forbidden.reason


@pytest.mark.parametrize("value", ["2 * fare - 1", "-fare", "CAST(fare AS DOUBLE)"])
def test_integers_computed_from_it_and_casts_become_wider(value):
    assert compared("INT", "BIGINT", SQL.replace("sum(fare)", f"sum({value})"))[0] == ()


def test_rows_that_are_held_back_are_in_another_state():
    ((forbidden,), _) = compared("INT", "BIGINT", MOST, emit="OnWindowEnd")
    assert "rows are held back" in forbidden.reason


def test_a_batch_that_was_begun_is_finished_with_the_types_that_it_had(stored):
    before, now = (a_query(schema(kind), {"sql": "SELECT city, fare FROM trips"}) for kind in ("INT", "BIGINT"))
    log = SparkLog(stored.root / "spark")
    with pytest.raises(MillraceError, match=r"batch 2 .* was begun and is not finished") as caught:
        check_changes(before, now, log)
    assert caught.value.problems[0].field == "spec.sources.trips.schema"
    stored.commit()
    assert len(check_changes(before, now, log)) == 1


def test_a_filter_of_an_aggregate_and_a_query_without_a_state_take_wider_types():
    assert compared("INT", "BIGINT", SQL.replace("count(*) AS", "count(*) FILTER (WHERE fare > 9) AS"))[0] == ()
    assert compared("INT", "BIGINT", "SELECT city, fare FROM trips")[0] == ()


def test_a_part_of_a_column_keeps_its_type():
    old, new = (changed(FILES, "schema", value=f"at TIMESTAMP, city STRING, fare DOUBLE, ride STRUCT<seats: {kind}>")
                for kind in ("INT", "BIGINT"))  # fmt: skip
    ((forbidden,), _) = compare(a_query(old), a_query(new))
    assert forbidden.difference == "with ride.seats INT, not with ride.seats BIGINT"


SIZES = {"byte": 1, "short": 2, "integer": 4, "long": 8}
NAMES = st.sampled_from(list(SIZES))


@given(NAMES, NAMES, st.integers(-(2**63), 2**63 - 1))
def test_an_integer_is_the_same_number_in_another_type_or_an_error(old, new, number):
    number >>= 64 - 8 * SIZES[old]
    word = number.to_bytes(SIZES[old], "little", signed=True).ljust(8, b"\0")
    change = retyped_word(old, new)
    assert change is not None
    if -(1 << 8 * SIZES[new] - 1) <= number < 1 << 8 * SIZES[new] - 1:
        assert change(word) == number.to_bytes(SIZES[new], "little", signed=True).ljust(8, b"\0")
    else:
        with pytest.raises(OverflowError):
            change(word)


@given(st.floats(width=32))
def test_a_float_is_the_same_number_as_a_double_and_back(number):
    wider, narrower = retyped_word("float", "double"), retyped_word("double", "float")
    assert wider is not None
    assert narrower is not None
    word = pack("<f", number) + bytes(4)
    assert narrower(wider(word)) == word or number != number
    (as_double,) = unpack_from("<d", wider(word))
    assert as_double == number or number != number


def test_a_double_that_is_no_float_is_an_error():
    change = retyped_word("double", "float")
    assert change is not None
    for number in (0.1, 1e300):
        with pytest.raises(OverflowError):
            change(pack("<d", number))


@pytest.mark.parametrize(
    ("old", "new"), [("integer", "double"), ("decimal(18,2)", "decimal(19,2)"), ("string", "binary"), ("long", "date")]
)
def test_other_types_have_other_words(old, new):
    assert retyped_word(old, new) is None


def test_only_the_words_of_changed_fields_change_and_what_lies_behind_stays():
    types = ["integer", "string", "integer"]
    text = b"abc".ljust(8, b"\0")
    words = [(-5).to_bytes(4, "little", signed=True).ljust(8, b"\0"), (32 << 32 | 3).to_bytes(8, "little")]
    row = bytes(8) + b"".join(words) + (7).to_bytes(8, "little") + text
    change = retyped_word("integer", "long")
    assert change is not None
    wider = Joiner(RowShape.of(types), RowShape(0), b"", {0: change})(row)
    assert wider == bytes(8) + (-5).to_bytes(8, "little", signed=True) + row[16:]
