"""How far results of joins and groups can be behind the watermark, and what no operator on tables can join."""

import re

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, TimestampType

from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.tables.relations import Enriched, Grouping, Join, Upserted
from millrace_jobs.queries.tables.scopes import InputTraits, NotATableQueryError, with_labels
from millrace_jobs.queries.tables.translation import translate

SECOND = 1_000_000
COLUMNS = {
    "at": TimestampType(),
    "until": TimestampType(),
    "k": StringType(),
    "n": LongType(),
    "tags": ArrayType(StringType()),
}
STREAM, TABLE = InputTraits(COLUMNS, "at"), InputTraits(COLUMNS, "at", ("k",))
STATIC = InputTraits(COLUMNS, None, ("k",), static=True)
SOURCES = {"a": STREAM, "b": STREAM, "c": STREAM, "d": STREAM, "p": TABLE, "q": TABLE, "s": STATIC}


def translated(sql, *, final_joins=False, final_groups=False):
    def types_of(columns, expressions):
        """Spark's types of columns, and of several that are alike; every other expression is a number."""
        read = [{columns.get(name) for name in re.findall(r"\bc\d+\b", text)} for text in expressions]
        are_columns = [text in columns or text.lower().startswith("coalesce(") for text in expressions]
        return [
            kinds.pop() if of_columns and len(kinds) == 1 else LongType()
            for kinds, of_columns in zip(read, are_columns, strict=True)
        ]

    return translate(
        parsed_query(sql), SOURCES, types_of, partitions=4, final_joins=final_joins, final_groups=final_groups
    )


def relations(relation, kind):
    """Return the relations of a kind, the last one of the query first."""
    inputs = [getattr(relation, name) for name in ("input", "left", "right") if hasattr(relation, name)]
    return [relation] * isinstance(relation, kind) + [found for each in inputs for found in relations(each, kind)]


def joins(sql, **options):
    return relations(translated(sql, **options).relation, Join)


def within(seconds, left="a", right="b"):
    return f"{left}.k = {right}.k AND {right}.at BETWEEN {left}.at AND {left}.at + INTERVAL {seconds} SECONDS"


@pytest.mark.parametrize(("kind", "lag"), [("", 0), ("LEFT", 60), ("RIGHT", 0), ("FULL", 60)])
def test_the_versions_of_a_table_are_kept_for_outer_results_that_are_behind(kind, lag):
    outer, inner = joins(f"SELECT a.n FROM a {kind} JOIN b ON {within(60)} JOIN p ON p.k = coalesce(a.k, b.k)")
    assert (outer.lag, outer.reach("left"), outer.reach("right")) == (
        {"left": lag * SECOND, "right": 0},
        lag * SECOND,
        0,
    )
    assert inner.lag == {"left": 0, "right": 0}
    assert outer.result_lag == lag * SECOND


@pytest.mark.parametrize("selected", ["a.k, a.n", "*"])
def test_the_lag_of_a_selection_is_that_of_its_rows(selected):
    outer, _ = joins(
        f"SELECT x.n FROM (SELECT {selected} FROM a LEFT JOIN (SELECT b.k AS k2, b.at AS at2 FROM b) b "
        f"ON a.k = b.k2 AND b.at2 BETWEEN a.at AND a.at + INTERVAL 60 SECONDS) x JOIN p ON p.k = x.k"
    )
    assert outer.lag == {"left": 60 * SECOND, "right": 0}


def test_a_lag_adds_up_over_joins():
    outer, middle, _ = joins(
        f"SELECT a.n FROM a LEFT JOIN b ON {within(60)} LEFT JOIN c ON {within(10, 'a', 'c')} JOIN p ON p.k = a.k"
    )
    # a record waits for c as long as its own time can be behind, and then ten seconds
    assert middle.lag == {"left": 60 * SECOND, "right": 0}
    assert middle.match.reach == {"left": 60 * SECOND, "right": 0}
    assert outer.reach("left") == 60 * SECOND


def test_the_time_of_a_record_with_the_version_of_a_table_is_as_far_behind_as_the_table():
    groups = f"(SELECT a.k, count(*) AS n FROM a LEFT JOIN b ON {within(60)} GROUP BY a.k) g"
    pairs = f"(SELECT c.at, c.k FROM c JOIN {groups} ON g.k = c.k) x"
    last, first, _ = joins(
        f"SELECT x.k FROM {pairs} JOIN d ON x.k = d.k AND d.at BETWEEN x.at AND x.at + INTERVAL 1 SECOND"
    )
    assert first.lag == {"left": 0, "right": 60 * SECOND}
    assert last.match.reach == {"left": 60 * SECOND, "right": 0}


def test_a_time_in_a_range_of_times_that_are_behind_is_as_far_behind():
    """The time of a is up to 60 seconds behind the pair with b; the record of c that it finds may be as late as that."""
    pairs = f"(SELECT a.at, a.k FROM a JOIN b ON {within(60)}) x"
    others = f"(SELECT c.at AS first, d.at AS last, c.k FROM c JOIN d ON {within(5, 'c', 'd')}) y"
    both = f"(SELECT y.first, y.k FROM {pairs} JOIN {others} ON x.k = y.k AND x.at BETWEEN y.first AND y.last) z"
    last, *_ = joins(
        f"SELECT z.k FROM {both} JOIN b ON z.k = b.k AND b.at BETWEEN z.first AND z.first + INTERVAL 1 SECOND"
    )
    assert last.match.reach["left"] >= 60 * SECOND


def test_a_group_is_open_until_the_records_behind_it_have_come():
    pairs = f"(SELECT a.at, a.k FROM a JOIN b ON {within(60)}) x"
    sql = (
        f"SELECT c.until, count(*) FROM {pairs} JOIN c ON x.k = c.k AND x.at BETWEEN c.at AND c.until GROUP BY c.until"
    )
    (groups,) = relations(translated(sql, final_groups=True).relation, Grouping)
    assert groups.closing.lag == 60 * SECOND


@pytest.mark.parametrize(("final", "lag"), [(False, 60), (True, 60)])
def test_the_lag_of_groups_is_that_of_their_rows(final, lag):
    groups = f"(SELECT a.k, window(a.at, '10 seconds') AS w, count(*) AS n FROM a LEFT JOIN b ON {within(60)} GROUP BY 1, 2) g"
    outer, *_ = joins(f"SELECT g.n FROM {groups} JOIN p ON p.k = g.k", final_joins=final, final_groups=final)
    assert outer.lag == {"left": lag * SECOND, "right": 0}


def test_a_join_of_tables_has_all_changes_even_below_final_results():
    outer, inner = joins(
        "SELECT a.n FROM a JOIN (SELECT p.k, p.n, q.n AS m FROM p JOIN q ON p.k = q.k) x ON x.k = a.k", final_joins=True
    )
    assert (outer.final, inner.final) == (True, False)


GROUPS = "(SELECT q.n, count(*) AS many FROM q GROUP BY q.n) g"


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT n, k FROM p", [1]),
        ("SELECT n, upper(k) AS k FROM p", None),
        ("SELECT p.n, p.k FROM p JOIN q ON p.k = q.k", [1]),
        ("SELECT p.n, q.k FROM p JOIN q ON p.k = q.k", [1]),
        ("SELECT * FROM p LEFT JOIN q ON p.k = q.k", [2]),
        ("SELECT p.n, q.k FROM p LEFT JOIN q ON p.k = q.k", None),
        ("SELECT p.k AS one, q.k AS other FROM p RIGHT JOIN q ON p.k = q.k", [1]),
        ("SELECT q.k AS other, p.k AS one FROM p FULL JOIN q ON p.k = q.k", [1, 0]),
        ("SELECT p.k AS one, q.k AS other FROM p JOIN q ON p.n = q.n", [0, 1]),
        ("SELECT p.k, p.n FROM p JOIN q ON p.n = q.k", None),  # several texts are one number
        ("SELECT p.k, p.n FROM p JOIN q ON p.n = q.n", None),
        (f"SELECT g.many, p.k FROM p JOIN {GROUPS} ON p.n = g.n", [1]),
        (f"SELECT g.many, g.n FROM {GROUPS} WHERE g.many > 1", [1]),
        (f"SELECT g.many, g.n, p.k FROM {GROUPS} LEFT JOIN p ON p.n = g.n", [1, 2]),
        ("SELECT a.k, p.n FROM a JOIN p ON a.k = p.k", None),
    ],
)
def test_the_key_of_a_result_is_what_identifies_its_rows(sql, key):
    assert translated(sql).key == (None if key is None else tuple(key))


def test_a_window_of_groups_is_one_column_of_the_key():
    groups = "(SELECT window(a.at, '10 seconds') AS w, a.k, count(*) AS n FROM a GROUP BY 1, 2) g"
    assert translated(f"SELECT g.n, g.w, g.k, p.n AS m FROM {groups} JOIN p ON p.k = g.k", final_groups=True).key == (
        1,
        2,
    )


SEMI = [
    "EXISTS (SELECT 1 FROM q WHERE q.k = p.k)",
    "EXISTS (SELECT * FROM q x WHERE x.k = p.k)",
    "EXISTS (SELECT 1 FROM q WHERE k = p.k)",
    "p.k IN (SELECT k FROM q)",
    "p.k IN (SELECT DISTINCT q.k FROM q)",
]


@pytest.mark.parametrize(
    "sql",
    [*(f"SELECT n, k FROM p WHERE {condition}" for condition in SEMI), "SELECT n, k FROM p LEFT SEMI JOIN q USING (k)"],
)
def test_a_condition_that_a_subquery_has_a_row_is_a_semi_join(sql):
    query = translated(sql)
    (join,) = relations(query.relation, Join)
    assert (join.type, join.where, query.key) == ("semi", None, (1,))
    assert [with_labels(key, query.labels).split(".")[-1] for keys in join.keys.values() for key in keys] == ["k", "k"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.n FROM a WHERE NOT EXISTS (SELECT 1 FROM p WHERE p.k = a.k AND p.n > a.n AND p.n > 3)",
        "SELECT a.n FROM a WHERE (NOT (EXISTS (SELECT 1 FROM p WHERE p.k = a.k AND p.n > a.n AND n > 3))) AND a.n > 7",
        "SELECT a.n FROM a ANTI JOIN p ON p.k = a.k AND p.n > a.n AND p.n > 3",
    ],
)
def test_a_condition_that_a_subquery_has_no_row_is_an_anti_join(sql):
    query = translated(sql)
    (join,) = relations(query.relation, Join)
    assert (join.type, with_labels(join.where.text, query.labels)) == ("anti", "(p.n > a.n)")
    assert with_labels(join.right.where, query.labels) == "(p.n > 3)"


def test_in_compares_with_the_groups_of_a_subquery():
    (join,) = joins("SELECT a.n FROM a WHERE a.n IN (SELECT n FROM p GROUP BY n HAVING count(*) > 1)")
    assert (join.type, relations(join.right, Grouping) != []) == ("semi", True)


@pytest.mark.parametrize(("negated", "kind"), [("", "semi"), ("NOT", "anti")])
def test_a_static_table_can_be_asked_for_a_row_by_any_condition(negated, kind):
    query = translated(f"SELECT k, n FROM p WHERE {negated} EXISTS (SELECT 1 FROM s WHERE s.n > p.n AND s.k <> 'x')")
    (join,) = relations(query.relation, Enriched)
    assert (join.type, with_labels(join.on, query.labels)) == (kind, "(s.n > p.n) AND (s.k <> 'x')")
    assert query.key == (0,)


def test_in_compares_several_columns():
    (join,) = joins("SELECT a.n FROM a WHERE (a.k, a.n) IN (SELECT q.k, n FROM q)")
    assert (join.type, [len(keys) for keys in join.keys.values()]) == ("semi", [2, 2])


def test_an_outer_join_can_have_a_condition_without_columns():
    (join,) = joins("SELECT a.n FROM a LEFT JOIN p ON a.k = p.k AND 1 > 2")
    assert (join.where.text, len(join.where.columns)) == ("(1 > 2)", 1)


def test_rows_can_have_to_exist_in_several_tables():
    outer, inner = joins(
        "SELECT a.n FROM a WHERE a.k IN (SELECT k FROM p WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.k = p.k))"
    )
    assert (outer.type, inner.type) == ("semi", "anti")


OTHERS = ["at", "until", "n", "tags"]


@pytest.mark.parametrize(("kind", "keys"), [("", [(0,), (0,)]), ("LEFT", [(0,), None]), ("RIGHT", [None, (0,)])])
def test_using_makes_one_column_of_two(kind, keys):
    """It is that of the table whose rows are kept."""
    query = translated(f"SELECT * FROM p {kind} JOIN q USING (k)")
    assert [query.labels[item] for item in query.items] == ["k", *OTHERS, *OTHERS]
    assert query.key == (0,)
    assert [translated(f"SELECT {column} FROM p {kind} JOIN q USING (k)").key for column in ("p.k", "q.k")] == keys


def test_using_can_be_written_several_times():
    joined = "FROM p JOIN q USING (k) JOIN p AS r USING (k)"
    query = translated(f"SELECT * {joined}")
    assert [query.labels[item] for item in query.items] == ["k", *OTHERS, *OTHERS, *OTHERS]
    outer, _ = joins(f"SELECT r.n {joined}")
    assert [[query.labels[name] for name in names] for names in outer.keys.values()] == [["p.k"], ["r.k"]]


def test_two_streams_that_use_a_column_have_their_range_in_where():
    (join,) = joins("SELECT k FROM a JOIN b USING (k) WHERE b.at BETWEEN a.at AND a.at + INTERVAL 60 SECONDS")
    assert join.match.longest == 60 * SECOND


@pytest.mark.parametrize(
    ("join", "labels", "key"),
    [
        ("p FULL JOIN q USING (k)", ["k", *OTHERS, *OTHERS], (0,)),
        ("p FULL JOIN q USING (n)", ["n", "at", "until", "k", "tags", "at", "until", "k", "tags"], (3, 7)),
        ("(SELECT k, n FROM p) x NATURAL FULL JOIN (SELECT k, at FROM q) y", ["k", "n", "at"], (0,)),
        ("(SELECT k, n FROM p) x NATURAL LEFT JOIN (SELECT k, at FROM q) y", ["k", "n", "at"], (0,)),
        ("p FULL JOIN q USING (k) FULL JOIN p AS r USING (k)", ["k", *OTHERS, *OTHERS, *OTHERS], (0,)),
    ],
)
def test_a_full_or_natural_join_has_common_columns_once(join, labels, key):
    query = translated(f"SELECT * FROM {join}")
    assert [query.labels[item] for item in query.items] == labels
    assert query.key == key


def test_a_full_join_with_using_has_the_key_of_the_row_that_there_is():
    query = translated("SELECT k, p.k AS one, q.k AS other FROM p FULL JOIN q USING (k)")
    [(merged, _), (one, _), (other, _)] = query.relation.items
    assert (merged, f"coalesce({one}, {other})".upper()) in [
        (name, sql.upper()) for sql, name in query.relation.input.items
    ]


@pytest.mark.parametrize(
    ("condition", "compared", "operands"),
    [
        ("a.n > p.n", "a > p", ["a.n", "p.n"]),
        ("(a.n + 1 > p.n * a.n OR a.n IS NULL)", "a + 1 > p * a OR a IS NULL", ["a.n", "p.n"]),
        ("abs(a.n) > abs(p.n)", "a > p", ["ABS(a.n)", "ABS(p.n)"]),
        ("p.n > 2 AND abs(a.n) > abs(p.n)", "a > p", ["ABS(a.n)", "CASE WHEN (p.n > 2) THEN ABS(p.n) END"]),
    ],
)
def test_an_outer_join_compares_what_each_side_computes(condition, compared, operands):
    query = translated(f"SELECT a.n FROM a FULL JOIN p ON a.k = p.k AND {condition}")
    (join,) = relations(query.relation, Join)
    assert [with_labels(sql, query.labels) for side in ("left", "right") for sql, _ in join.operands(side)] == operands
    sql = join.where.sql
    for side, name in (("left", "a"), ("right", "p")):
        for _, operand in join.operands(side):
            sql = sql.replace(operand, name)
    assert sql == f"({compared})"


@pytest.mark.parametrize(
    ("sql", "keeps"), [("a LEFT JOIN p", False), ("a RIGHT JOIN p", True), ("p FULL JOIN a", True)]
)
def test_an_outer_join_can_keep_the_versions_of_a_table_that_no_record_meets(sql, keeps):
    (join,) = joins(f"SELECT a.n FROM {sql} ON a.k = p.k")
    assert (join.keeps_versions, join.result_lag) == (keeps, None if keeps else 0)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            f"SELECT g.n FROM a RIGHT JOIN {GROUPS} ON a.n = g.n",
            "its RIGHT JOIN with a stream keeps rows of a computed table",
        ),
        (
            "SELECT a.n FROM a FULL JOIN p ON a.k = p.k JOIN q ON a.k = q.k",
            "the result of an outer join that keeps rows of a table",
        ),
        (
            "SELECT x.k FROM (SELECT k FROM p) x NATURAL JOIN (SELECT n FROM q) y",
            "its NATURAL JOIN has no column that both",
        ),
        (
            "SELECT p.n FROM p LEFT JOIN q ON p.k = q.k AND p.tags < q.tags",
            "that only Spark can evaluate: .p.tags < q.tags",
        ),
        ("SELECT p.n FROM p JOIN q ON p.tags = q.tags", "compares p.tags, which is of type array<string>"),
        (
            "SELECT a.n FROM a LEFT JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.until JOIN p ON p.k = a.k",
            "does not end an interval after an event time",
        ),
    ],
)
def test_joins_that_no_operator_can_run_are_refused(sql, reason):
    with pytest.raises(NotATableQueryError, match=reason):
        translated(sql)


@pytest.mark.parametrize(
    ("sql", "counted"),
    [
        ("SELECT max(p.n) AS most, sum(p.n) AS total FROM p", [True, False]),
        (f"SELECT min_by(a.n, b.n) AS least FROM a JOIN b ON {within(60)}", [False]),
        (f"SELECT max(b.n) AS most FROM a LEFT JOIN b ON {within(60)}", [True]),
        ("SELECT max(p.n) AS most FROM a JOIN p ON a.k = p.k", [True]),
        ("SELECT stddev(p.n) AS spread FROM p", [False]),
    ],
)
def test_values_are_counted_where_an_extreme_can_be_taken_back(sql, counted):
    (groups,) = relations(translated(sql).relation, Grouping)
    assert [part.counted for part in groups.parts] == counted


@pytest.mark.parametrize("shows_changes", [True, False])
def test_extremes_are_of_final_groups_only_where_a_sink_cannot_show_changes(shows_changes):
    inner = "(SELECT window(a.at, '10 seconds') AS w, a.k, count(*) AS n FROM a GROUP BY 1, 2) g"
    query = translated(f"SELECT g.w, max(g.n) AS most FROM {inner} GROUP BY g.w", final_joins=not shows_changes)
    outer, inner = relations(query.relation, Grouping)
    assert (outer.final, inner.final, outer.parts[0].counted) == (False, not shows_changes, shows_changes)


def test_the_layout_of_the_state_says_whether_values_are_counted():
    """The join below an extreme was final in earlier versions."""
    sql = f"SELECT max(b.n) AS most FROM a {{}} JOIN b ON {within(60)}"
    assert "columns whose values are counted" in translated(sql.format("LEFT")).layout()
    assert "columns whose values are counted" not in translated(sql.format("")).layout()


def test_a_list_has_as_many_rows_as_the_query_says():
    (groups,) = relations(translated("SELECT min_by(p.n, p.k, 7) AS first FROM p").relation, Grouping)
    assert [(part.merge, part.limit) for part in groups.parts] == [("bottom", 7)]


def test_a_percentile_has_the_fraction_that_the_query_says():
    (groups,) = relations(translated("SELECT percentile(p.n, 0.9) AS high, median(p.n) AS m FROM p").relation, Grouping)
    assert [(part.merge, part.fraction) for part in groups.parts] == [("percentile", 0.9), ("percentile", 0.5)]


def test_the_type_of_a_count_of_distinct_values_is_known_above_it():
    seen = {}

    def types_of(columns, expressions):
        seen.update(columns)
        return [columns.get(text, StringType()) for text in expressions]

    sql = "SELECT count(DISTINCT p.k, p.n) AS c FROM p"
    query = translate(parsed_query(sql), SOURCES, types_of, partitions=4, final_joins=False, final_groups=False)
    (groups,) = relations(query.relation, Grouping)
    assert isinstance(seen[groups.parts[0].name], LongType)


def test_each_table_is_joined_by_its_own_key_without_another_copy_of_its_rows():
    found = translated(f"SELECT a.n FROM a JOIN b ON {within(60)} JOIN p ON p.k = a.k JOIN q ON q.k = a.k")
    assert relations(found.relation, Upserted) == []
    assert [{side: len(keys) for side, keys in each.keys.items()} for each in relations(found.relation, Join)] == (
        [{"left": 1, "right": 1}] * 3
    )


def test_a_semi_join_with_using_has_the_columns_of_using_first():
    found = translated("SELECT * FROM p LEFT SEMI JOIN q USING (k)")
    assert [found.labels[item.strip("`")] for item in found.items] == ["k", "at", "until", "n", "tags"]


def test_joins_in_parentheses_have_the_columns_of_using_once():
    found = translated("SELECT j.* FROM (p JOIN (SELECT k, n AS m FROM q) x USING (k)) AS j")
    assert len(found.items) == 6
    with pytest.raises(NotATableQueryError, match="alias j names 2 of 6 columns"):
        translated("SELECT j.* FROM (p JOIN (SELECT k, n AS m FROM q) x USING (k)) AS j(one, two)")


def test_having_without_groups_is_refused():
    with pytest.raises(NotATableQueryError, match="HAVING without groups"):
        translated("SELECT 1 AS one FROM p HAVING 1 = 2")


def test_the_frequency_of_a_percentile_is_not_lost():
    with pytest.raises(NotATableQueryError, match=r"PERCENTILE\(p.n, 0.5, 3\)|percentile"):
        translated("SELECT k, percentile(n, 0.5, 3) AS m FROM p GROUP BY k")


def test_rows_that_do_not_pass_where_are_not_kept_to_see_whether_others_exist():
    (join,) = joins("SELECT k FROM p WHERE n > 5 AND EXISTS (SELECT 1 FROM q WHERE q.k = p.k)")
    assert "> 5" in join.left.where
