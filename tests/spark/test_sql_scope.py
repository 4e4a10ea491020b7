"""What Spark itself finds in a query's SQL: commands are never carried out, and a confined query stays within its SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError
from millrace_api.model.confinement import Confinement
from millrace_api.model.streamquery import Emit
from millrace_api.sql.checks import check_sql
from millrace_api.sql.outside import OutsideFunction, outside_functions
from millrace_api.sql.schema_ddl import parse_schema
from millrace_api.sql.source_table import SourceTable
from millrace_jobs.confinement import VARIABLE
from millrace_jobs.queries.sql_scope import check_functions, check_scope

from .cli import Project

pytestmark = pytest.mark.spark

NAME = "'java.lang.System', 'getProperty', 'user.dir'"


@pytest.fixture
def trips(spark: SparkSession) -> SparkSession:
    spark.createDataFrame([], "cell string, v string").createOrReplaceTempView("trips")
    return spark


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, Confinement(folders=(), logins=(), functions=()).to_json())


def hidden(command: str) -> str:
    """A SELECT to a parser that ends comments at the end of a line, and a command to Spark, where a backslash goes on."""
    return f"-- \\\nSELECT cell FROM trips /*\n{command}\n-- */"


COMMANDS = [
    hidden("SET spark.hidden=1"),
    hidden("RESET spark.hidden"),
    hidden("ADD JAR '/evil.jar'"),
    hidden("ADD FILE '/etc/passwd'"),
    hidden("CREATE TEMPORARY FUNCTION f AS 'evil.Udf' USING JAR '/evil.jar'"),
    hidden("CREATE TEMPORARY FUNCTION f() RETURNS STRING RETURN 'a'"),
    hidden("CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')"),
    hidden("CREATE TABLE t USING csv LOCATION '{out}' AS SELECT 1"),
    hidden("INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT 1"),
    hidden("FROM trips INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT *"),
    hidden("WITH a AS (SELECT 1) INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT * FROM a"),
    hidden("LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t"),
    hidden("EXECUTE IMMEDIATE 'SET spark.hidden=1'"),
    hidden("EXECUTE IMMEDIATE 'SELECT 1'"),
    hidden("BEGIN SET spark.hidden=1; END"),
    hidden("DECLARE VARIABLE x INT DEFAULT 1"),
    hidden("SET VARIABLE x = 1"),
    hidden("CALL evil.procedure()"),
    hidden("CACHE TABLE t AS SELECT 1"),
    hidden("EXPLAIN SELECT 1"),
    hidden("SELECT 1; SET spark.hidden=1"),
]


@pytest.mark.parametrize("text", COMMANDS, ids=lambda text: text.split("\n")[2][:40])
def test_a_command_behind_a_comment_is_not_carried_out(trips: SparkSession, tmp_path: Path, text: str) -> None:
    sql = text.replace("{out}", str(tmp_path / "out"))
    tables = {"trips": SourceTable(parse_schema("cell STRING, v STRING"), None)}
    (problem,) = check_sql(sql, tables, emit=Emit.ON_UPDATE)
    assert problem.message == "a comment of the SQL ends in a backslash", "all that the checks without Spark see of it"
    before = trips.catalog.listTables()
    with pytest.raises((MillraceError, ParseException), match=r"is a command or a script|SQLSTATE: 42"):
        check_scope(trips, sql)
    assert trips.conf.get("spark.hidden", "unset") == "unset"
    assert list(tmp_path.iterdir()) == []
    assert trips.catalog.listTables() == before


@pytest.mark.parametrize("format", ["text", "csv", "json", "parquet", "orc", "binaryFile", "xml"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM {format}.`{file}`",
        "WITH `{format}.{file}` AS (SELECT 1) SELECT * FROM {format}.`{file}`",
        "SELECT * FROM IDENTIFIER('{format}.`{file}`')",
        "SELECT cell, (SELECT count(*) FROM {format}.`{file}`) AS n FROM trips",
        "SELECT cell FROM trips WHERE EXISTS (SELECT * FROM {format}.`file:{file}`)",
    ],
)
def test_files_are_no_tables(trips: SparkSession, tmp_path: Path, format: str, sql: str) -> None:
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    text = sql.format(format=format, file=tmp_path / "token")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        check_scope(trips, text)


def test_files_are_no_tables_where_a_setting_lets_spark_read_them(trips: SparkSession, tmp_path: Path) -> None:
    """``spark.sql.runSQLOnFiles`` is a setting, which a query may have set."""
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    trips.conf.set("spark.sql.runSQLOnFiles", "true")
    try:
        for sql in (f"SELECT * FROM text.`{tmp_path}`", f"SELECT (SELECT max(value) FROM text.`{tmp_path}`) AS x"):
            with pytest.raises(MillraceError, match="which is not one of the sources"):
                check_scope(trips, sql)
    finally:
        trips.conf.set("spark.sql.runSQLOnFiles", "false")


REACHING = {
    "reflect": f"SELECT reflect({NAME}) AS x FROM trips",
    "another case": f"SELECT ReFlEcT({NAME}) AS x FROM trips",
    "back quotes": f"SELECT `reflect`({NAME}) AS x FROM trips",
    "java_method": f"SELECT java_method({NAME}) AS x FROM trips",
    "try_reflect": f"SELECT try_reflect({NAME}) AS x FROM trips",
    "a qualified name": f"SELECT system.builtin.reflect({NAME}) AS x FROM trips",
    "a computed name": f"SELECT IDENTIFIER('ref' || 'lect')({NAME}) AS x FROM trips",
    "a comment before the bracket": f"SELECT reflect/* */({NAME}) AS x FROM trips",
    "a lambda": f"SELECT transform(array(1), e -> reflect({NAME})) AS x FROM trips",
    "a scalar subquery": f"SELECT (SELECT reflect({NAME})) AS x FROM trips",
    "a subquery in a subquery": f"SELECT (SELECT max(n) FROM (SELECT (SELECT reflect({NAME})) AS n)) AS x FROM trips",
    "EXISTS": f"SELECT cell FROM trips WHERE EXISTS (SELECT 1 WHERE reflect({NAME}) = 'x')",
    "a CTE": f"WITH a AS (SELECT reflect({NAME}) AS x) SELECT cell, x FROM trips, a",
    "a CTE in a CTE": f"WITH a AS (WITH b AS (SELECT reflect({NAME}) AS x) SELECT x FROM b) SELECT cell, x FROM trips, a",
    "WHERE": f"SELECT cell FROM trips WHERE reflect({NAME}) = cell",
    "HAVING": f"SELECT cell, count(*) AS n FROM trips GROUP BY cell HAVING max(v) = reflect({NAME})",
    "an argument of an aggregate": f"SELECT max(cell) AS x FROM (SELECT reflect({NAME}) AS cell FROM trips)",
    "a lateral view": f"SELECT x FROM trips LATERAL VIEW explode(array(reflect({NAME}))) t AS x",
    "a pipe": f"FROM trips |> SELECT reflect({NAME}) AS x",
    "a side of UNION": f"SELECT cell FROM trips UNION ALL SELECT reflect({NAME})",
    "values": f"SELECT x FROM trips, (SELECT reflect({NAME}) AS x)",
    "a hidden text": hidden(f"SELECT reflect({NAME}) AS x FROM trips"),
    "TRANSFORM": "SELECT TRANSFORM(cell) USING 'cat' AS (y) FROM trips",
    "MAP": "SELECT y FROM (MAP cell USING 'cat' AS y FROM trips)",
    "REDUCE": "FROM trips REDUCE cell USING 'cat' AS y",
    "a program in a subquery": "SELECT cell FROM trips WHERE EXISTS (SELECT TRANSFORM(1) USING 'cat' AS (y))",
    "an XML schema": "SELECT from_xml(cell, 'b STRING', map('rowValidationXSDPath', '/etc/passwd')) AS x FROM trips",
    "a computed option": (
        "SELECT from_xml(cell, 'b STRING', map(concat('rowValidation', 'XSDPath'), '/etc/passwd')) AS x FROM trips"
    ),
    "constants, which the analysis computes": (
        "SELECT x FROM (VALUES (schema_of_xml('<a/>', map(concat('rowValidation', 'XSDPath'), '/etc/passwd')))) t(x)"
    ),
    "a schema, which the analysis computes": (
        "SELECT from_xml(v, schema_of_xml('<a/>', map(concat('rowValidation', 'XSDPath'), '/etc/passwd'))) AS x FROM trips"
    ),
    "a computed name of a table": "SELECT cell FROM IDENTIFIER('tri' || 'ps')",
    "a window": f"SELECT cell, sum(1) OVER (PARTITION BY reflect({NAME})) AS n FROM trips",
    "an option in another case": (
        "SELECT schema_of_xml('<a><b>1</b></a>', map('ROWVALIDATIONXSDPATH', 'http://evil.com/a.xsd')) AS x FROM trips"
    ),
}


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("sql", REACHING.values(), ids=REACHING)
def test_a_confined_query_does_not_reach_outside_its_sql(trips: SparkSession, sql: str) -> None:
    with pytest.raises(MillraceError, match="reaches outside the SQL, which is not allowed here"):
        check_scope(trips, sql)


@pytest.mark.parametrize("sql", REACHING.values(), ids=REACHING)
def test_a_query_without_a_policy_may_reach_outside_its_sql(trips: SparkSession, sql: str) -> None:
    check_scope(trips, sql)


HARMLESS = [
    "SELECT transform(array(cell), e -> upper(e)) AS x FROM trips",
    "SELECT 'reflect(1)' AS reflect, input_file_name() AS f FROM trips",
    "SELECT from_xml(cell, 'b STRING', map('mode', 'FAILFAST')) AS x FROM trips",
    "SELECT a.cell FROM trips a JOIN trips b USING (cell), range(3), (VALUES (1), (2)) v(x)",
    "SELECT cell FROM trips UNION ALL SELECT v FROM trips -- \\",
]


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("sql", HARMLESS)
def test_what_stays_within_its_sql_is_allowed(trips: SparkSession, sql: str) -> None:
    check_scope(trips, sql)
    assert list(outside_functions(sql)) == []


def test_what_an_administrator_allows_is_allowed(trips: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, Confinement(folders=(), logins=(), functions=("reflect",)).to_json())
    check_scope(trips, REACHING["reflect"])
    for name in ("java_method", "TRANSFORM"):
        with pytest.raises(MillraceError, match=r"java_method|transform_using"):
            check_scope(trips, REACHING[name])


@pytest.mark.parametrize("text", ["${env:HOME}", "${system:user.dir}", "${spark.app.name}", "${HOME}"])
def test_a_text_is_what_it_says(trips: SparkSession, text: str) -> None:
    """Spark would put variables of the environment in, and settings, and read the result as SQL."""
    ((found,),) = trips.sql(f"SELECT '{text}' AS x").collect()
    assert found == text


@pytest.mark.usefixtures("confined")
def test_what_millrace_makes_of_the_sql_is_looked_at_too(trips: SparkSession) -> None:
    check_functions(trips.sql("SELECT cell FROM trips"))
    with pytest.raises(MillraceError, match="reflect"):
        check_functions(trips.table("trips").selectExpr(f"reflect({NAME}) AS x"))


def test_every_function_that_reaches_outside_is_known_to_spark(spark: SparkSession) -> None:
    """If this fails after an upgrade of Spark: a function has another name, or is gone."""
    listed = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    own = {OutsideFunction.IDENTIFIER, OutsideFunction.TRANSFORM_USING, OutsideFunction.XML_SCHEMA_FILE}
    assert set(OutsideFunction) - own <= listed


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Commands whose processes are confined to the folders ``in`` and ``out``."""
    made = Project(tmp_path)
    folders = tuple(str(tmp_path / name) for name in ("in", "out"))
    monkeypatch.setenv(VARIABLE, Confinement(folders=folders, logins=(), functions=()).to_json())
    made.give("a.csv", "at,who,n\n2024-01-01T00:00:00Z,a,1\n2024-01-01T00:00:01Z,b,1\n")
    return made


def test_settings_do_not_loosen_a_confinement(project: Project) -> None:
    settings = dict.fromkeys(("spark.sql.variable.substitute", "spark.sql.runSQLOnFiles"), "true")
    query = project.query("SELECT who, '${env:HOME}' AS n FROM events", sparkConf=settings)
    with project.start("run", query, "--once") as running:
        assert running.finish().status == 0
    assert {row[1] for row in project.results()} == {"${env:HOME}"}


@pytest.mark.in_turn
@pytest.mark.parametrize("algorithm", ["native", "hash", "pkg"])
def test_a_run_is_confined_by_every_algorithm(project: Project, algorithm: str) -> None:
    reaching = f"SELECT who, count(*) AS n FROM events WHERE reflect({NAME}) <> who GROUP BY who"
    partitioner = {"algorithm": algorithm}
    with project.start("run", project.query(reaching, partitioner=partitioner), "--once") as running:
        running.finish().assert_failed('"reflect" reaches outside the SQL, which is not allowed here')
    sound = "SELECT who, count(*) AS n FROM events GROUP BY who"
    with project.start("run", project.query(sound, partitioner=partitioner), "--once") as running:
        assert running.finish().status == 0
    assert sum(project.results().values()) == 2


@pytest.mark.in_turn
def test_a_run_follows_no_link_out_of_its_folders(project: Project) -> None:
    sql = "SELECT who, count(*) AS n FROM events GROUP BY who"
    (project.folder / "token").write_text("at,who,n\n2024-01-01T00:00:00Z,secret,1\n", encoding="utf-8")
    (project.folder / "in" / "b.csv").symlink_to("../token")
    with project.start("run", project.query(sql), "--once") as running:
        running.finish().assert_failed("in/b.csv, which leads to", "is not on a volume that the query mounts for data")
    (project.folder / "in" / "b.csv").unlink()
    (project.folder / "out").mkdir()
    (project.folder / "out" / "below").symlink_to("../../elsewhere")
    elsewhere = project.query(sql, sink={"files": {"path": "out/below", "format": "csv"}})
    with project.start("run", elsewhere, "--once") as running:
        running.finish().assert_failed("out/below, which leads to", "is not on a volume that the query mounts for data")
    (project.folder / "elsewhere").mkdir()
    (project.folder / "out" / "_staging").symlink_to("../elsewhere")
    with project.start("run", project.query(sql), "--once") as running:
        running.finish().assert_failed("is not on a volume that the query mounts for data")
    assert list((project.folder / "elsewhere").iterdir()) == []
