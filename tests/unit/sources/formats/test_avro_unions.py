"""Unions of several types in Avro: the branch of each value by the bytes of its message, beside what fastavro reads."""

import io
import json
from datetime import date, timedelta
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.schemas.avro_schemas import is_union
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.sources.formats.avro_records import AvroDecoder, read_avro_schema
from millrace_jobs.sources.formats.column_types import declared_schema
from registry import Registry, running_registry

from .avro_messages import decoded, decoder_of, field

INTS = st.integers(-(2**31), 2**31 - 1)
POINTS = st.fixed_dictionaries({"x": st.none() | INTS})
BRANCHES = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", INTS),
    "date": ({"type": "int", "logicalType": "date"}, st.integers(-700_000, 2_000_000)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(max_size=4)),
    "bytes": ("bytes", st.binary(max_size=4)),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        st.decimals(-(10**6), 10**6, places=2),
    ),
    "enum": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}, st.sampled_from("AB")),
    "fixed": ({"type": "fixed", "name": "Code", "size": 3}, st.binary(min_size=3, max_size=3)),
    "array": ({"type": "array", "items": "int"}, st.lists(INTS, max_size=3)),
    "map": ({"type": "map", "values": "long"}, st.dictionaries(st.text(max_size=2), INTS, max_size=2)),
    "record": ({"type": "record", "name": "Point", "fields": [{"name": "x", "type": ["null", "int"]}]}, POINTS),
    "like it": ({"type": "record", "name": "Other", "fields": [{"name": "x", "type": ["null", "int"]}]}, POINTS),
}
"""The types that a union may have, each with its values as Avro stores them."""

STORED = {"date": "int", "decimal": "bytes"}
"""Types that are others as stored: a union has one of both."""

MERGED = ({"int", "long"}, {"float", "double"})


def stored(name):
    return STORED.get(name, name)


def read_as(name, value):
    """Return a value of a member as its column has it."""
    if name == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    return list(value.items()) if name == "map" else value


@st.composite
def unions(draw):
    """Draw the names of the types of a union, with at most one null, of which at least two are others."""
    names = draw(st.lists(st.sampled_from(sorted(BRANCHES)), min_size=2, max_size=6, unique_by=stored))
    if draw(st.booleans()):
        names.insert(draw(st.integers(0, len(names))), "null")
    return names


def number(value):
    """Return a number as Avro writes it."""
    return encoded("long", value)


def encoded(kind, value):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(kind), value)
    return stream.getvalue()


def branch(name):
    return "null" if name == "null" else BRANCHES[name][0]


@st.composite
def values(draw, names):
    """Draw a value of a union: its bytes, what Avro stores, and what the column has of it."""
    place = draw(st.integers(0, len(names) - 1))
    name = names[place]
    value = None if name == "null" else draw(BRANCHES[name][1])
    data = number(place) + encoded(branch(name), value)
    members = [each for each in names if each != "null"]
    if name == "null":
        return data, None, None
    if len(members) == 2 and {stored(each) for each in members} in MERGED:
        return data, value, value
    struct = {f"member{index}": None for index in range(len(members))}
    return data, value, struct | {f"member{members.index(name)}": read_as(name, value)}


def without_logical_times(kind):
    return {"type": "int"} if kind == BRANCHES["date"][0] else kind


@given(unions().flatmap(lambda names: st.tuples(st.just(names), st.lists(values(names), max_size=6))))
def test_each_value_is_in_the_member_of_its_branch(drawn):
    names, rows = drawn
    kinds = [branch(name) for name in names]
    found, origins, bad = decoded(decoder_of(field(kinds)), [data for data, _, _ in rows])
    assert bad == {}
    assert origins == list(range(len(rows)))
    assert found == [{"a": expected} for _, _, expected in rows]
    schema = fastavro.parse_schema(json.loads(field([without_logical_times(kind) for kind in kinds])))
    oracle = [fastavro.schemaless_reader(io.BytesIO(data), schema, None) for data, _, _ in rows]
    assert oracle == [{"a": value} for _, value, _ in rows]


@given(unions().flatmap(lambda names: st.tuples(st.just(names), st.lists(values(names), max_size=3))))
def test_unions_may_be_within_records_arrays_and_maps(drawn):
    names, parts = drawn
    kinds = [branch(name) for name in names]
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "all", "type": {"type": "array", "items": kinds}}]}
    text = field(["null", {"type": "map", "values": inner}])
    items = (number(len(parts)) + b"".join(data for data, _, _ in parts) if parts else b"") + number(0)
    data = number(1) + number(1) + encoded("string", "k") + items + number(0)
    found, _, bad = decoded(decoder_of(text), [data, number(0)])
    assert bad == {}
    assert found == [{"a": [("k", {"all": [expected for _, _, expected in parts]})]}, {"a": None}]


def test_names_within_a_union_mean_what_they_mean_without():
    """Types are defined in a branch and used after it, by their short names, in the namespace of the record."""
    code = {"type": "fixed", "name": "Code", "size": 1}
    pair = {"type": "record", "name": "Pair", "fields": [{"name": "code", "type": code}]}
    fields = [{"name": "a", "type": ["string", pair], "default": "x"}, {"name": "b", "type": ["Code", "null", "Pair"]}]
    text = json.dumps({"type": "record", "name": "shop.Order", "fields": fields})
    assert decoder_of(text).schema == declared_schema(
        "a STRUCT<member0: STRING, member1: STRUCT<code: BINARY>>, "
        "b STRUCT<member0: BINARY, member1: STRUCT<code: BINARY>>"
    )
    found, _, bad = decoded(decoder_of(text), [number(1) + b"A" + number(0) + b"B", number(0) + b"\x02x" + number(1)])
    assert bad == {}
    assert found == [
        {"a": {"member0": None, "member1": {"code": b"A"}}, "b": {"member0": b"B", "member1": None}},
        {"a": {"member0": "x", "member1": None}, "b": None},
    ]


@pytest.mark.parametrize("kinds", [["string"], ["null", "string"], ["string", "null"]])
def test_a_union_of_one_type_is_that_type(kinds):
    assert decoder_of(field(kinds)).schema == declared_schema("a STRING")


def test_a_branch_that_the_union_does_not_have_is_a_corrupt_record():
    found, origins, bad = decoded(decoder_of(field(["int", "string"])), [number(7) + b"x", number(0) + b"\x0a"])
    assert (found, origins) == ([{"a": {"member0": 5, "member1": None}}], [1])
    assert bad[0].startswith("it is not a record of its Avro schema")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            "a STRING",
            "column a (STRING): its type is a union: write a STRUCT<member0: INT, member1: STRING, member2: ARRAY<...>> "
            "in the schema",
        ),
        (
            "a STRUCT<int: INT, string: STRING>",
            "column a (STRUCT): there is no field a.int; it has member0, member1, member2: write a STRUCT<member0: INT, "
            "member1: STRING, member2: ARRAY<...>> in the schema",
        ),
        (
            "a STRUCT<member0: INT, member3: INT>",
            "column a (STRUCT): there is no field a.member3; it has member0, member1, member2: write a STRUCT<member0: "
            "INT, member1: STRING, member2: ARRAY<...>> in the schema",
        ),
        (
            "a STRUCT<member1: BIGINT>",
            "column a.member1 (BIGINT): its type is STRING: write a.member1 STRING in the schema",
        ),
    ],
)
def test_a_declared_type_that_a_union_does_not_have_is_refused(declared, message):
    schema = read_avro_schema(field(["int", "null", "string", {"type": "array", "items": "int"}]))
    decoder = AvroDecoder(declared_schema(declared), "iso", schema)
    with pytest.raises(ValueError, match="column a") as raised:
        decoder.check(schema)
    assert str(raised.value) == message


def test_members_may_be_left_out_and_converted():
    schema = read_avro_schema(field(["int", "null", "string"]))
    decoder = AvroDecoder(declared_schema("a STRUCT<member0: DECIMAL(12,1)>"), "iso", schema)
    decoder.check(schema)
    found, _, bad = decoded(decoder, [number(0) + b"\x0a", number(2) + b"\x02x", number(1)])
    assert bad == {}
    assert found == [{"a": {"member0": Decimal("5.0")}}, {"a": {"member0": None}}, {"a": None}]


def test_unions_may_grow_in_a_registry():
    with running_registry(Registry()) as registry:
        old = registry.add("trips-value", field(["int", "string"]))
        new = registry.add("trips-value", field(["int", "string", "boolean"]))
        values = [
            b"\0" + old.to_bytes(4, "big") + number(0) + b"\x0a",
            b"\0" + new.to_bytes(4, "big") + number(2) + b"\1",
        ]
        for ddl, expected in (
            (
                "a STRUCT<member0: INT, member2: BOOLEAN>",
                [{"member0": 5, "member2": None}, {"member0": None, "member2": True}],
            ),
            ("a STRUCT<int: INT>", []),
        ):
            decoder = AvroDecoder(declared_schema(ddl), "iso", SchemaRegistry(registry.url))
            found, _, bad = decoded(decoder, values)
            assert [row["a"] for row in found] == expected
            assert len(bad) == 2 - len(expected)
        assert bad[0].startswith(
            f"schema {old} of the registry: column a (STRUCT): there is no field a.int; it has member0"
        )


def test_only_structs_of_members_in_order_are_unions():
    members = pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    assert is_union(members)
    for other in (pa.int32(), pa.struct([]), pa.struct([("member0", pa.int32())]), pa.struct(list(members)[::-1])):
        assert not is_union(other)
