"""What the parser writes of an expression means to Spark what the user wrote: Spark's own examples of its functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millrace_api.errors import MillraceError
from millrace_api.sql.dialect import parse_query, to_sql

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

_EXAMPLE = re.compile(r"^\s*> (SELECT .*?);\s*$", re.MULTILINE | re.DOTALL)

_NOT_WRITTEN = re.compile(
    r"\b(approx_top_k|listagg|string_agg|max_by|min_by|percentile_cont|percentile_disc)", re.IGNORECASE
)
"""Aggregates that are not split into parts: a query with them runs by the user's own text."""

_UNREAD = re.compile(r"X '|>>>")
"""What the parser does not read: a space in X'1F', and the operator that shiftrightunsigned stands for."""

OTHERS = """
SELECT TIMESTAMP '2013-01-02' - INTERVAL 1 HOUR 30 MINUTES
SELECT TIMESTAMP '2013-01-02' - INTERVAL '1' HOUR '30' MINUTE
SELECT TIMESTAMP '2013-01-02' - INTERVAL '1 hour 30 minutes'
SELECT DATE '2013-01-02' - INTERVAL 1 YEAR 2 MONTHS
SELECT - INTERVAL 1 DAY 2 HOURS
SELECT INTERVAL 1 DAY 2 HOURS * 3
SELECT 1 - (2 - 3), 8 / (4 / 2), -(-1), - -1, 2 * (3 + 4), 7 % (5 % 3), 7 DIV 2
SELECT 1L, 2S, 3Y, 1.5BD, 1.5D, 1.5F, 1e3, .5, 1., X'1F'
SELECT 'a''b', "a", 'a\\nb', 'a\\\\b', r'a\\nb', 'ü', '\\u00fc', 'a' 'b', ''
SELECT `a` FROM VALUES (1), (2) AS t(`a`)
SELECT 'abc' LIKE 'a%', 'abc' NOT LIKE 'a\\_%', 'a%c' LIKE 'a!%c' ESCAPE '!', 'ABC' ILIKE 'a%', 'abc' RLIKE '^a.c$'
SELECT 'abc' LIKE ANY ('a%', 'b%'), 'abc' LIKE ALL ('a%', '%c'), 'abc' NOT LIKE ANY ('x')
SELECT NULL <=> NULL, 1 IS DISTINCT FROM NULL, 1 IS NOT DISTINCT FROM 1, 1 != 2, 1 <> 2, 1 == 1, !true, NOT false
SELECT 'a' || 'b' || 1, array(1) || array(2), 5 & 3 | 4 ^ 1, ~5, 1 << 4, 256 >> 2, shiftrightunsigned(-256, 2)
SELECT CASE WHEN 1 = 1 THEN 'x' ELSE 'y' END, CASE 3 WHEN 1 THEN 'a' WHEN 3 THEN 'b' END, IF(true, 1, 2)
SELECT 1 BETWEEN 0 AND 2, 5 NOT BETWEEN 0 AND 2, 1 IN (1, 2), 1 NOT IN (2, NULL)
SELECT CAST('1' AS INT), CAST('1.55' AS DECIMAL(3, 1)), CAST('a' AS STRING), '5'::INT, TRY_CAST('a' AS INT)
SELECT CAST('2020-01-01 01:02:03' AS TIMESTAMP_NTZ), CAST(1 AS TINYINT), CAST(1 AS BYTE), CAST(1 AS REAL), CAST(1 AS LONG)
SELECT CAST('ab' AS BINARY), CAST('abc' AS VARCHAR(5)), CAST('abc' AS CHAR(5)), CAST(1 AS BOOLEAN)
SELECT CAST(array(1) AS ARRAY<STRING>), CAST(named_struct('a', 1) AS STRUCT<b: STRING>), CAST(map(1, 2) AS MAP<STRING, INT>)
SELECT CAST('1' AS INTERVAL DAY), CAST('1-2' AS INTERVAL YEAR TO MONTH), INTERVAL '1 02:03:04' DAY TO SECOND
SELECT DATE '2020-02-29', TIMESTAMP '2020-02-29 01:02:03.000456', TIMESTAMP_NTZ '2020-02-29 01:02:03', TIMESTAMP_LTZ '2020-02-29'
SELECT EXTRACT(YEAR FROM DATE '2020-02-29'), EXTRACT(DOW FROM DATE '2020-02-29'), EXTRACT(SECONDS FROM TIMESTAMP '2020-02-29 01:02:03.5')
SELECT date_part('week', DATE '2020-02-29'), year('2020-02-29'), dayofweek('2020-02-29'), weekday('2020-02-29')
SELECT TRIM(BOTH 'x' FROM 'xax'), TRIM(LEADING 'x' FROM 'xax'), TRIM(TRAILING FROM 'a '), ltrim('x', 'xa'), btrim('xax', 'x')
SELECT SUBSTRING('abc' FROM 2), SUBSTRING('abc' FROM 2 FOR 1), SUBSTR('abc', -2), SUBSTRING('abc', 0, 2), POSITION('b' IN 'abc')
SELECT OVERLAY('abcdef' PLACING 'x' FROM 2), OVERLAY('abcdef' PLACING 'x' FROM 2 FOR 3), position('b', 'abc', 1)
SELECT to_char(1234.5, '9999.99'), to_char(DATE '2020-02-29', 'yyyy-MM'), date_format(DATE '2020-02-29', "'day' d")
SELECT date_trunc(u, TIMESTAMP '2020-02-29 01:02:03'), trunc(DATE '2020-02-29', u) FROM VALUES ('year'), ('MM') AS t(u)
SELECT to_date('2020-02-29', 'yyyy-MM-dd'), to_timestamp('29/02/2020', 'dd/MM/yyyy'), unix_timestamp('2020', 'yyyy')
SELECT get_json_object('{"a": [1, 2]}', '$.a.*'), get_json_object('{"a": 1}', 'a'), get_json_object('{"a": [1, 2]}', '$.a[*]')
SELECT variant_get(parse_json('{"a": 1}'), '$.a', 'int')
SELECT log10(1000), log2(8), log(2, 8), log(10), ln(10), log1p(1), power(2, 3), pow(2, 3), 2 % 3, mod(-7, 3), pmod(-7, 3)
SELECT ceil(1.5), ceil(1.55, 1), floor(-1.5), floor(1.55, 1), round(2.5), bround(2.5), truncate(1, 1) FROM VALUES (1)
SELECT nvl(NULL, 1), ifnull(NULL, 1), nvl2(NULL, 1, 2), coalesce(NULL, 1), nullif(1, 1), decode(1, 1, 'a', 'b'), decode(X'61', 'utf-8')
SELECT transform(array(1, 2), x -> x + 1), filter(array(1, 2), x -> x > 1), aggregate(array(1, 2), 0, (a, x) -> a + x)
SELECT array(1, 2)[0], map('a', 1)['a'], named_struct('a', 1).a, element_at(array(1, 2), -1), split('a,b', ',')[1]
SELECT datediff(DATE '2020-03-01', DATE '2020-02-01'), date_add(DATE '2020-02-28', 2), date_sub(DATE '2020-03-01', 1)
SELECT timestampdiff(DAY, DATE '2020-02-01', DATE '2020-03-01'), timestampadd(HOUR, 2, TIMESTAMP '2020-02-29'), dateadd(MONTH, 1, DATE '2020-01-31')
SELECT concat_ws('-', 'a', NULL, 'b'), concat('a', 'b'), format_number(12345.6, 2), lpad('a', 3, 'x'), repeat('ab', 2), left('abc', 2)
SELECT regexp_extract('a1b22', '([0-9]+)', 1), regexp_replace('a1', '[0-9]', 'x'), regexp_like('a1', '[0-9]'), split_part('a.b', '.', 2)
SELECT md5('a'), sha1('a'), sha2('a', 256), crc32('a'), hash(1), xxhash64(1), hex(255), unhex('FF'), conv('ff', 16, 10), base64('a')
SELECT greatest(1, 2), least(1, 2), isnull(1), isnotnull(1), isnan(1), a IS NULL, a IS NOT NULL, a IS TRUE, a IS NOT FALSE FROM VALUES (true) AS t(a)
SELECT from_unixtime(0, 'yyyy'), to_utc_timestamp(TIMESTAMP '2020-01-01', 'Asia/Tokyo'), make_date(2020, 2, 29), make_interval(1, 2)
""".strip().splitlines()


def _of_spark(spark: SparkSession) -> Iterator[str]:
    """The examples in Spark's descriptions of its functions and operators."""
    for row in spark.sql("SHOW ALL FUNCTIONS").collect():
        try:
            described = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{row.function}`").collect()
        except PySparkException:
            continue
        for part in described:
            yield from _EXAMPLE.findall(part.function_desc)


def _answer(query: DataFrame) -> object:
    try:
        return sorted(repr(tuple(row)) for row in query.collect())
    except PySparkException as error:
        return error.getCondition()
    except Py4JJavaError:
        return None


def _planned(spark: SparkSession, text: str) -> DataFrame | None:
    try:
        return spark.sql(text)
    except (PySparkException, Py4JJavaError):
        return None


def _same(spark: SparkSession, original: str, written: str) -> bool:
    one, other = _planned(spark, original), _planned(spark, written)
    if one is None or not one._jdf.queryExecution().analyzed().deterministic():
        return True  # it needs what is not here, such as a file, or has another answer each time
    if other is None:
        return False
    return one.sameSemantics(other) or _answer(one) == _answer(other)


def test_the_text_of_an_expression_means_the_same_after_it_was_parsed(spark: SparkSession) -> None:
    found = dict.fromkeys([*OTHERS, *_of_spark(spark)])
    examples = [example for example in found if not _NOT_WRITTEN.search(example)]
    assert len(examples) > 500
    unread, changed = [], {}
    for example in examples:
        try:
            written = to_sql(parse_query(example))
        except MillraceError:
            unread.append(example)
            continue
        if not _same(spark, example, written):
            changed[example] = written
    assert not changed, "\n".join(f"{example}\n    {written}" for example, written in changed.items())
    assert not [example for example in unread if not _UNREAD.search(example)]
