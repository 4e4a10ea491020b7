"""Queries that are valid as documents and refused as a whole."""

from __future__ import annotations

from .documents import MINIMAL, PYTHON

UNSOUND = [
    (
        MINIMAL,
        8,
        "      schema: cell STRNG, fare DOUBLE",
        [
            '8: spec.sources.trips.schema: "STRNG" is not a type that a schema can have (line 1, column 6 of the schema); did you mean STRING?'
        ],
    ),
    (
        MINIMAL,
        8,
        "      schema: |\n        cell STRING,\n        fare FLOT",
        [
            '10: spec.sources.trips.schema: "FLOT" is not a type that a schema can have (line 2, column 6 of the schema); did you mean FLOAT?'
        ],
    ),
    (
        MINIMAL,
        8,
        "      schema: cell STRING, fare DOUBLE\n      watermark: {column: at, delay: 1s}",
        ['9: spec.sources.trips.watermark.column: the schema has no column "at"; write one of cell, fare'],
    ),
    (
        MINIMAL,
        8,
        "      schema: cell STRING, at TIMESTAMP\n      watermark: {column: cell, delay: 1s}",
        ['9: spec.sources.trips.watermark.column: "cell" is STRING, not TIMESTAMP; write at'],
    ),
    (
        MINIMAL,
        7,
        "      replay: {path: a, format: csv, timeColumn: fare}",
        ['7: spec.sources.trips.replay.timeColumn: "fare" is DOUBLE, not TIMESTAMP; write at'],
    ),
    (
        MINIMAL,
        10,
        "    sql: |\n      SELECT cell\n      FROM trps",
        [
            '12: spec.query.sql: there is no source "trps" (line 2, column 6 of the SQL); did you mean "trips"?',
        ],
    ),
    (
        PYTHON,
        13,
        "      groupBy: [cel]",
        ['13: spec.query.python.groupBy[0]: the schema has no column "cel"; did you mean "cell"?'],
    ),
    (
        PYTHON,
        13,
        "      groupBy: [Cell]",
        ['13: spec.query.python.groupBy[0]: the schema has no column "Cell"; did you mean "cell"?'],
    ),
    (
        PYTHON,
        14,
        "      window: {column: AT, size: 1m}",
        ['14: spec.query.python.window.column: the schema has no column "AT"; did you mean "at"?'],
    ),
    (
        MINIMAL,
        7,
        "      replay: {path: a.csv, format: csv, timeColumn: At}",
        ['7: spec.sources.trips.replay.timeColumn: the schema has no column "At"; did you mean "at"?'],
    ),
    (
        PYTHON,
        8,
        "      schema: cell STRING, fare DOUBLE, at TIMESTAMP, tags ARRAY<STRING>",
        [
            "8: spec.sources.trips.schema: column tags has the type ARRAY<STRING>, which CSV cannot hold; "
            "write tags STRING, and take it apart in the SQL, such as with from_json"
        ],
    ),
    (
        PYTHON,
        14,
        "      window: {column: fare, size: 1m}",
        [
            '14: spec.query.python.window.column: "fare" is DOUBLE, not TIMESTAMP; write at',
            '14: spec.query.python.window.column: the window is over "fare", but the watermark is on "at"; '
            "use one column for both, or write emit: OnUpdate",
        ],
    ),
    (
        MINIMAL,
        10,
        '    functions: {upper: {python: "geo:upper", returns: STRING}}\n    sql: SELECT upper(cell) AS n FROM trips',
        ['10: spec.query.functions.upper: "upper" is a function of Spark SQL; write another name, such as my_upper'],
    ),
    (
        MINIMAL,
        10,
        '    functions: {select: {python: "geo:f", returns: STRING}}\n    sql: SELECT cell AS n FROM trips',
        ['10: spec.query.functions.select: "select" is a word of SQL; write another name, such as my_select'],
    ),
    (
        MINIMAL,
        10,
        "    aggregates: {max: {builtin: TopK}}\n    sql: SELECT max(cell) AS n FROM trips",
        ['10: spec.query.aggregates.max: "max" is a function of Spark SQL; write another name, such as my_max'],
    ),
    (
        MINIMAL,
        10,
        "    aggregates: {top: {builtin: TopK}}\n    sql: SELECT top(cell) FILTER (WHERE fare > 1) AS n FROM trips",
        [
            "11: spec.query.sql: FILTER is not possible with the aggregator top (line 1, column 8 of the SQL); give it NULL for the other records: write CASE WHEN ... THEN x END for its argument x"
        ],
    ),
    (
        MINIMAL,
        10,
        '    functions: {near: {python: "geo:near", returns: ARRAY}}\n    sql: SELECT near(cell) AS n FROM trips',
        [
            '10: spec.query.functions.near.returns: "ARRAY" is no type of a function\'s values; write the type of a single value, such as STRING, BIGINT, DOUBLE, DECIMAL(10, 2) or TIMESTAMP'
        ],
    ),
    (
        MINIMAL,
        10,
        '    functions: {distance: {python: "geo:distance", returns: DOUBLE}}\n    sql: SELECT distanz(fare) AS n FROM trips',
        ['11: spec.query.sql: there is no function "distanz" (line 1, column 8 of the SQL); did you mean "distance"?'],
    ),
]
"""A line of a document and what is then wrong with it, that only a look at schemas and SQL shows."""
