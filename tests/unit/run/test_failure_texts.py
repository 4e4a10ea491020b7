"""Longer texts of failed queries, as Spark 4.3 gives them, shortened and with the folders of an imagined machine."""

import sysconfig

import pytest

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.run.failures import class_of_text, explain_failure

INSTALLED = sysconfig.get_paths()["purelib"]
DRIVER = f"""\
py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "{INSTALLED}/pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "{INSTALLED}/pyspark/errors/exceptions/captured.py", line 262, in deco
    raise converted from None
"""
WORKER = """\
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
"""
JVM = """

	at org.apache.spark.sql.SparkSession.withActive(SparkSession.scala:810)
	at java.base/java.lang.Thread.run(Thread.java:840)
"""


def problem_of(text):
    (problem,) = explain_failure(text).problems
    return problem


@pytest.mark.parametrize(
    "said",
    [
        ("data/a.json:7: v: line 7 is no JSON: '{'; correct it",),
        ("data/a.json:7: v: line 7 is no JSON: '{'; correct it", "the second problem; do that"),
        ("one", "two", "three"),
    ],
)
@pytest.mark.parametrize("end", [JVM, "\n\nSQLSTATE: 38000" + JVM, " SQLSTATE: 38000" + JVM, "", "\n"])
def test_every_line_of_our_own_is_a_problem_and_nothing_after_them(said, end):
    ours = '  File "x.py", line 5, in read\n    raise MillraceError(*problems)\nmillrace_api.errors.MillraceError: '
    assert tuple(map(str, explain_failure(DRIVER + WORKER + ours + "\n".join(said) + end).problems)) == said


def test_an_error_in_a_library_is_located_where_the_user_called_it():
    users = '  File "/home/me/q.py", line 3, in update\n    pc.sum(batch["v"])\n'
    library = f'  File "{INSTALLED}/pyarrow/compute.py", line 500, in call\n    raise KeyError("v")\nKeyError: \'v\''
    problem = problem_of(DRIVER + WORKER + users + library + JVM)
    assert (problem.file, problem.line, problem.message) == ("/home/me/q.py", 3, "the query failed: KeyError: 'v'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "Spark ran out of memory"),
        (
            "Job aborted due to stage failure: Total size of serialized results of 2 tasks (1026.0 MiB) is bigger than "
            "spark.driver.maxResultSize (1024.0 MiB)",
            "more results to the driver than spark.driver.maxResultSize allows",
        ),
        ("x.StateStoreException: [STATE_STORE_VALUE_STATE_SCHEMA_INCOMPATIBLE] no", "state has another layout"),
    ],
)
def test_what_is_known_comes_before_any_traceback(text, message):
    traceback = WORKER + '  File "/home/me/q.py", line 3, in update\n    f()\nValueError: x'
    assert message in problem_of(DRIVER + traceback + JVM + "Caused by: " + text + JVM).message


def test_the_innermost_cause_in_the_jvm_is_reported() -> None:
    text = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o476.save.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure\n"
        "\tat org.apache.spark.Some.thing(Some.scala:1)\n"
        "Caused by: java.lang.RuntimeException: outer\n"
        "\tat org.apache.spark.Some.thing(Some.scala:2)\n"
        "Caused by: java.lang.IllegalArgumentException: requirement failed: nothing was added\n"
        "\t... 3 more\n"
    )
    assert str(explain_failure(text)).startswith("the query failed: requirement failed: nothing was added; ")


PLANNER_DIED = """\
java.io.EOFException
	at java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
	at org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.partitions(PythonStreamingSourceRunner.scala:270)
	at org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamBase.planInputPartitions(PythonMicroBatchStream.scala:63)
"""
PLANNER_GONE = PLANNER_DIED.replace("EOFException", "IOException: Broken pipe")
WORKER_DIED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)" + JVM
NOT_UP = "org.apache.spark.SparkException: Timed out while waiting for the Python worker to connect back" + JVM
CHMOD_REFUSED = """\
An error occurred while calling o39015.save.
: ExitCodeException exitCode=1: chmod: changing permissions of '/out': Operation not permitted
	at org.apache.hadoop.util.Shell.runCommand(Shell.java:1071)
	at org.apache.hadoop.fs.RawLocalFileSystem.setPermission(RawLocalFileSystem.java:1179)
"""
CHMOD_ENDED = CHMOD_REFUSED.replace("chmod: changing permissions of '/out': Operation not permitted", "")
STATE_CUT = """\
java.io.EOFException: reading it
	at java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
	at org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReader.getNext(StateStoreChangelog.scala:500)
"""
AWAY = "millrace_api.errors.TransientError: Kafka at kafka:9092 cannot be reached while reading; check bootstrapServers"


@pytest.mark.parametrize(
    "text",
    [PLANNER_DIED, DRIVER + PLANNER_DIED, PLANNER_GONE, WORKER_DIED, NOT_UP, CHMOD_ENDED, DRIVER + WORKER + AWAY + JVM],
)
def test_what_may_pass_by_itself_is_transient(text):
    assert isinstance(explain_failure(text), TransientError)


@pytest.mark.parametrize(
    "text",
    [
        STATE_CUT,
        "java.io.EOFException",
        "java.io.IOException: Broken pipe",
        CHMOD_REFUSED,
        DRIVER + WORKER + AWAY.replace("Transient", "Millrace"),
    ],
)
def test_a_failure_that_does_not_pass_is_not_transient(text):
    assert type(explain_failure(text)) is MillraceError


def test_what_a_child_process_of_hadoop_says_is_told():
    said = (
        "the query failed: ExitCodeException exitCode=1: chmod: changing permissions of '/out': Operation not permitted"
    )
    assert str(explain_failure(CHMOD_REFUSED)).startswith(said)


def test_a_transient_failure_of_ours_keeps_its_sentence():
    assert str(explain_failure(DRIVER + WORKER + AWAY + JVM)) == AWAY.split(": ", 1)[1]


@pytest.mark.parametrize(
    ("line", "sql", "carets", "said"),
    [
        (1, "SELECT who, n / 0 AS x FROM e", "            ^^^^^", "n / 0 (line 1, column 13 of the SQL); "),
        (2, "SELECT who,\n  n / 0 AS x FROM e", "  ^^^^^", "n / 0 (line 2, column 13 of the SQL); "),
        (1, "CAST(who AS DOUBLE) AS `i0`", "^^^^^^^^^^^^^^^^^^^", "NULL instead: CAST(who AS DOUBLE); "),
    ],
)
def test_an_expression_that_fails_is_quoted_with_its_place(line: int, sql: str, carets: str, said: str) -> None:
    text = (
        "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate "
        "divisor being 0 and return NULL instead. SQLSTATE: 22012\n"
        f"== SQL (line {line}, position 13) ==\n{sql}\n{carets}\n\n\tat org.apache.spark.sql.errors\n"
    )
    error = explain_failure(text)
    assert said in str(error)
    assert str(error).startswith("spec.query.sql: the query failed: Division by zero. Use `try_divide`")


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("", "a sum is too large for BIGINT; cast the summed column to DECIMAL(38, 0)"),
        ("== SQL (line 1, position 8) ==\nSELECT n + 1L FROM e\n       ^^^^^^\n", "overflow. Use 'try_add'"),
    ],
)
def test_an_overflow_without_an_expression_is_that_of_a_sum(context: str, said: str) -> None:
    text = (
        "org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] overflow. Use 'try_add' to tolerate overflow "
        'and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. '
        f"SQLSTATE: 22003\n{context}\tat org.apache.spark.sql.errors\n"
    )
    assert str(explain_failure(text)).startswith(f"spec.query.sql: the query failed: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "org.apache.spark.SparkRuntimeException: [NULL_MAP_KEY] Cannot use null as map key. SQLSTATE: 2200E",
            "Cannot use null as map key; write coalesce(key, '') for the key, or exclude records without one by WHERE "
            "key IS NOT NULL",
        ),
        (
            "org.apache.spark.SparkRuntimeException: [DUPLICATED_MAP_KEY] Duplicate map key a was found, please check "
            'the input data.\nIf you want to remove the duplicated keys, you can set "spark.sql.mapKeyDedupPolicy" to '
            '"LAST_WIN" so that the key inserted at last takes precedence. SQLSTATE: 23505',
            "Duplicate map key a was found, please check the input data; write spec.sparkConf: "
            '{spark.sql.mapKeyDedupPolicy: "LAST_WIN"} to keep the last value, or exclude such records with WHERE',
        ),
        (
            "org.apache.spark.SparkDateTimeException: [DATETIME_FIELD_OUT_OF_BOUNDS.WITHOUT_SUGGESTION] Invalid value "
            'for MonthOfYear (valid values 1 - 12): 0. If necessary set "spark.sql.ansi.enabled" to "false" to bypass '
            "this error. SQLSTATE: 22023",
            "Invalid value for MonthOfYear (valid values 1 - 12): 0; correct the expression, or exclude such records "
            "with WHERE",
        ),
        (
            "Caused by: java.util.regex.PatternSyntaxException: Unclosed group near index 2\n(a\n"
            "\tat java.base/java.util.regex.Pattern.error(Pattern.java:2028)\n"
            "\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIterator.project_doConsume(Unknown)",
            "Unclosed group near index 2 (a; correct the expression, or exclude such records with WHERE",
        ),
        (
            "millrace_api.errors.MillraceError: spec.query.sql: the query failed: overflow in a record: n + 1; correct "
            "it",
            "overflow in a record: n + 1; correct it",
        ),
    ],
)
def test_what_no_expression_can_do_with_a_value_is_the_sqls_with_a_remedy(text: str, said: str) -> None:
    [problem] = explain_failure(f"{text}{JVM}").problems
    assert (str(problem), problem.field) == (f"spec.query.sql: the query failed: {said}", "spec.query.sql")


@pytest.mark.parametrize(
    "frame",
    [
        "org.apache.spark.sql.execution.streaming.state.RocksDB.load(RocksDB.scala:1)\n"
        "\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIterator.processNext(Unknown Source)",
        "org.apache.spark.sql.SparkSession.withActive(SparkSession.scala:810)",
    ],
)
def test_an_error_of_java_outside_an_expression_is_not_the_sqls(frame: str) -> None:
    text = f"java.lang.ArithmeticException: long overflow\n\tat java.base/java.lang.Math.addExact(Math.java:1)\n\tat {frame}\n"
    assert str(explain_failure(text)).endswith("long overflow; run with --debug to see where")


@pytest.mark.parametrize("file", ["pyarrow/error.pxi", "pandas/_libs/lib.pyx", "<string>", "src/lib.rs"])
def test_compiled_code_of_a_library_is_not_the_user_s(file: str) -> None:
    text = (
        "PythonException: Traceback (most recent call last):\n"
        f'  File "{file}", line 92, in check\npyarrow.lib.ArrowInvalid: bad\n'
    )
    assert class_of_text(text) is FailureClass.OTHER
    worker = "thrown from the Python worker:\n" + text.partition("PythonException: ")[2]
    [problem] = explain_failure(worker).problems
    assert (problem.file, problem.line) == ("", None)
