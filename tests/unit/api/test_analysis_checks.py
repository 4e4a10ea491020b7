"""SQL that Spark's analyzer refuses for its groups, names, types or windows, found without Spark and with its place.

``tests/spark/test_analysis_checks.py`` asks Spark about the same queries.
"""

import pytest

from analysed_queries import COLUMNS, REFUSED, SOUND
from millrace_api.model.streamquery import Emit
from millrace_api.sql.checks import check_sql
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable


def check(sql):
    table = SourceTable(parse_schema(COLUMNS), "at")
    return check_sql(sql, {"e": table, "f": table}, emit=Emit.ON_UPDATE, takes_back=True)


@pytest.mark.parametrize("sql", SOUND)
def test_what_spark_accepts_has_no_problem(sql):
    assert check(sql) == []


@pytest.mark.parametrize(("sql", "expected"), REFUSED.items())
def test_what_spark_refuses_has_a_place_and_a_remedy(sql, expected):
    problems = check(sql)
    assert problems
    assert expected in str(problems[0])
    assert problems[0].hint
    assert "of the SQL)" in problems[0].message


def test_a_text_is_not_added_up():
    [problem] = check("SELECT k, sum(k) AS total FROM e GROUP BY k")
    assert str(problem) == (
        "SUM(k) is over k, which is a text (line 1, column 11 of the SQL); "
        "write sum(CAST(k AS DOUBLE)) if its texts are numbers, or try_cast"
    )
