"""Which aggregates a state can take up, and the files by which it does: rows, schemas, and the marker."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_api.model.changes import ChangeVerdict
from millrace_api.validation.evolution import compare
from millrace_jobs.checkpoint.marker import Marker, Renumbered
from millrace_jobs.checkpoint.spark_folder import adopt
from millrace_jobs.checkpoint.unsafe_rows import Joiner, RowShape, row_of_zeros
from millrace_jobs.checkpoint.value_schema import state_schema

from .changed_queries import SQL, a_query

ADDED = SQL.replace("sum(fare) AS fare", "sum(fare) AS fare, max(fare) AS most")
NO_WINDOW = SQL.replace("window.start AS since, ", "").replace("window(at, '10 minutes'), ", "")


def with_sql(sql, **more):
    return a_query(query={"sql": sql}, **more)


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (NO_WINDOW, NO_WINDOW.replace("count(*) AS trips", "count(fare) AS trips"), "its groups have no window"),
        (SQL, ADDED.replace("fare > 0", "fare > 1"), "WHERE changes with it"),
        (SQL, ADDED.replace("max(", "stddev("), "Spark keeps no STDDEV(fare) of a group without records"),
        (SQL, ADDED.replace("max(fare)", "var_pop(fare) FILTER (WHERE fare > 2)"), "Spark keeps no VAR"),
        (SQL, ADDED.replace("count(*) > 1", "max(fare) > 1"), "HAVING reads MAX(fare)"),
        (SQL, ADDED.replace("count(*) > 1", "MOST > 1"), "HAVING reads MAX(fare)"),
        (SQL, ADDED.replace("AS most", "AS most, 2 * most AS twice").replace("count(*) >", "twice >"), "HAVING reads"),
    ],
)
def test_what_would_give_wrong_rows_is_possible_in_shadow_with_the_reason(before, now, why):
    ((forbidden,), _) = compare(with_sql(before), with_sql(now))
    assert why in forbidden.reason
    assert "the state has no values of" in forbidden.reason
    assert forbidden.verdict is ChangeVerdict.IN_SHADOW


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"emit": "OnWindowEnd"}, "rows are held back"),
        ({"checkpoint": {"uri": "s3a://bucket/fares"}}, "a state in an object store is not rewritten"),
    ],
)
def test_other_states_take_up_no_aggregate(spec, why):
    ((forbidden,), _) = compare(with_sql(SQL, **spec), with_sql(ADDED, **spec))
    assert why in forbidden.reason


@pytest.mark.parametrize("spec", [{}, {"emit": "OnWindowClose"}, {"checkpoint": {"uri": "file:///data/fares"}}])
def test_a_state_of_windows_in_a_folder_takes_up_aggregates(spec):
    more = ADDED.replace("count(*) AS trips", "count(*) AS trips, count(fare) AS known")
    forbidden, remarks = compare(with_sql(SQL, **spec), with_sql(more, **spec))
    assert forbidden == ()
    (remark,) = remarks
    assert "COUNT(fare), MAX(fare) are new: they count in windows that start after the newest one" in remark


WORDS = st.integers(0, 2**64 - 1)
BEHIND = st.binary(max_size=20)
FIELD = st.one_of(
    st.tuples(st.sampled_from(["long", "double", "boolean", "timestamp", "decimal(18,2)"]), st.none() | WORDS),
    st.tuples(
        st.sampled_from(["string", "binary", "decimal(19,2)", {"type": "array", "elementType": "long"}]),
        st.none() | BEHIND,
    ),
)


def fits(kind):
    return isinstance(kind, str) and kind in ("long", "double", "boolean", "timestamp", "decimal(18,2)")


def row_of(fields):
    """A row as Spark's ``UnsafeRowWriter`` lays it out; a long DECIMAL has 16 bytes of its own, also if it is NULL."""
    words = (len(fields) + 63) // 64
    nulls, fixed, behind = 0, [], b""
    start = 8 * (words + len(fields))
    for index, (kind, value) in enumerate(fields):
        nulls |= (value is None) << index
        if fits(kind):
            fixed.append(value or 0)
        elif isinstance(kind, str) and kind.startswith("decimal"):
            content = (value or b"")[:16]
            fixed.append(start + len(behind) << 32 | len(content))
            behind += content.ljust(16, b"\0")
        else:
            fixed.append(0 if value is None else start + len(behind) << 32 | len(value))
            behind += b"" if value is None else value.ljust(-(-len(value) // 8) * 8, b"\0")
    head = nulls.to_bytes(8 * words, "little")
    return head + b"".join(word.to_bytes(8, "little") for word in fixed) + behind


def shape_of(fields):
    return RowShape.of([kind for kind, _ in fields])


@given(st.lists(FIELD, max_size=140), st.lists(FIELD, min_size=1, max_size=140))
def test_a_joined_row_is_the_row_of_all_fields(first, second):
    joined = Joiner(shape_of(first), shape_of(second), row_of(second))(row_of(first))
    assert joined == row_of([*first, *second])
    assert shape_of(first).joined(shape_of(second)) == shape_of([*first, *second])


@given(st.integers(1, 200))
def test_a_row_of_zeros_has_no_null(number):
    assert row_of_zeros(number) == row_of([("long", 0)] * number)


def text(content):
    return len(content).to_bytes(2, "big") + content.encode()


def a_schema(folder, types, *, version="v2"):
    fields = [{"name": "sum", "type": kind, "nullable": True, "metadata": {}} for kind in types]
    value = json.dumps({"type": "struct", "fields": fields})
    file = folder / "state" / "0" / "0" / "_metadata" / "schema"
    file.parent.mkdir(parents=True)
    parts = [value[:20], value[20:]]
    key = (1).to_bytes(4, "big") + text('{"type":"struct","fields":[]}')
    file.write_bytes(text(version) + key + len(parts).to_bytes(4, "big") + b"".join(map(text, parts)))
    return file


def test_a_schema_is_written_with_more_fields(tmp_path):
    file = a_schema(tmp_path, ["long"])
    (file.parent / ".schema.crc").touch()
    long = [{"name": f"field {number}", "type": "boolean", "nullable": False, "metadata": {}} for number in range(999)]
    found = state_schema(tmp_path)
    assert found is not None
    assert found.types == ["long"]
    found.write([*found.fields, *long])
    again = state_schema(tmp_path)
    assert again is not None
    assert again.fields == (*found.fields, *long)
    assert again.key == found.key
    assert [each.name for each in file.parent.iterdir()] == ["schema"]


def test_a_state_of_other_operators_or_another_format_is_not_known(tmp_path):
    a_schema(tmp_path / "format", ["long"], version="v3")
    a_schema(tmp_path / "more", ["long"])
    (tmp_path / "more" / "state" / "1").mkdir()
    assert state_schema(tmp_path / "format") is state_schema(tmp_path / "more") is None


@pytest.mark.parametrize("end", [1, 5, 40, -1])
def test_a_damaged_schema_is_named(tmp_path, end):
    file = a_schema(tmp_path, ["long", str(Decimal(1))])
    file.write_bytes(file.read_bytes()[:end])
    with pytest.raises(MillraceError, match=f"the checkpoint is damaged: {file}"):
        state_schema(tmp_path)


def test_a_layout_comes_into_force_with_its_folder_and_not_before(tmp_path):
    spark, copy = tmp_path / "spark", tmp_path / "spark.new"
    spark.mkdir()
    copy.mkdir()
    marker = Marker("id", with_sql(SQL), 2, layout={"aggregates": ["COUNT(*)"]}, renumbered=Renumbered(3, 2))
    wider = {"aggregates": ["COUNT(*)", "MAX(fare)"]}
    marker.before_copy(spark, Renumbered(8, 7), wider).write(tmp_path)
    assert Marker.read(tmp_path) == marker
    assert adopt(spark, copy) == tmp_path / "spark-1"
    changed = Marker.read(tmp_path)
    assert changed == replace(marker, layout=wider, renumbered=Renumbered(8, 7))
    assert changed is not None
    changed.write(tmp_path)
    assert Marker.read(tmp_path) == changed


def test_a_layout_that_did_not_come_into_force_does_not_come_with_a_later_copy(tmp_path):
    spark, copy = tmp_path / "spark", tmp_path / "spark.new"
    spark.mkdir()
    copy.mkdir()
    marker = Marker("id", with_sql(SQL), 2, layout={"aggregates": ["COUNT(*)"]})
    dead = marker.before_copy(spark, Renumbered(8, 7), {"aggregates": ["COUNT(*)", "MAX(fare)"]})
    dead.before_copy(spark, Renumbered(9, 8), None).write(tmp_path)  # a repartition
    adopt(spark, copy)
    assert Marker.read(tmp_path) == replace(marker, renumbered=Renumbered(9, 8))
