"""The sentence for a failed query, out of what Spark has to say."""

from __future__ import annotations

import sysconfig

import pytest

import millrace_jobs
from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.run.failures import attributed_to, class_of, explain_failure, failed_query
from millrace_jobs.sinks.files.changelog import collision

JVM = "\n\n\tat org.apache.spark.sql.Something.run(Something.scala:1)\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
PROXY = """py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/site/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
"""
OURS = millrace_jobs.__path__[0]
LIBRARY = sysconfig.get_paths()["purelib"]


def in_a_worker(*frames: tuple[str, int], raised: str) -> str:
    lines = [f'  File "{file}", line {line}, in update\n    call()\n    ^^^^^^' for file, line in frames]
    traceback = "\n".join(["Traceback (most recent call last):", *lines, raised])
    said = "pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:\n"
    return PROXY + said + traceback + JVM


@pytest.mark.parametrize(
    "raised", ["KeyError: 'fare'", "trips.FareRefused: a fare of -3", "pyarrow.lib.ArrowInvalid: no"]
)
def test_the_last_line_of_the_users_own_code_is_named(raised: str) -> None:
    frames = [(f"{OURS}/pipeline/combine.py", 61), ("/home/me/trips.py", 12), (f"{LIBRARY}/pyarrow/array.py", 3)]
    (problem,) = explain_failure(in_a_worker(*frames, raised=raised)).problems
    assert (problem.file, problem.line) == ("/home/me/trips.py", 12)
    assert problem.message == f"the query failed: {raised}"


def test_a_message_of_several_lines_becomes_one() -> None:
    error = explain_failure(in_a_worker(("/home/me/trips.py", 12), raised="ValueError: first\nsecond"))
    assert "ValueError: first second; correct it" in str(error)


def test_where_no_code_of_the_user_took_part_debug_is_offered() -> None:
    error = explain_failure(in_a_worker((f"{OURS}/pipeline/combine.py", 61), raised="IndexError: 3"))
    assert str(error) == "the query failed: IndexError: 3; run with --debug to see where"


def test_our_own_sentence_is_handed_on() -> None:
    text = in_a_worker(
        (f"{OURS}/sources/files/source.py", 9), raised="millrace_api.errors.MillraceError: in/1.csv:3: bad; fix it"
    )
    assert str(explain_failure(text)) == "in/1.csv:3: bad; fix it"


def test_two_rows_of_one_key_in_a_changelog_are_one_sentence_of_ours() -> None:
    raised = f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {collision(['city', 'since'])} SQLSTATE: P0001"
    error = explain_failure(PROXY + raised + JVM)
    assert str(error).startswith(
        "spec.sink.files.key: two rows of the result have the same city, since, so one of them "
    )
    assert str(error).endswith("; write a key that identifies the rows of the result")


def test_spark_speaks_without_its_error_class_and_state() -> None:
    said = "pyspark.errors.exceptions.captured.SparkException: [STREAM_STOPPED] It has stopped. SQLSTATE: XXKST"
    error = explain_failure(PROXY + said + JVM)
    assert str(error) == "the query failed: It has stopped.; run with --debug to see where"


@pytest.mark.parametrize(
    "text", ["java.io.IOException: No space left on device" + JVM, "OSError: [Errno 28] No space left on device: 'x'"]
)
def test_a_full_disk_is_one_sentence_with_a_remedy(text: str) -> None:
    assert "a disk is full; free some space, then run the same command again" in str(explain_failure(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no reason was given"),
        ("\n  org.apache.spark.SparkException: Job aborted\n", "org.apache.spark.SparkException: Job aborted"),
        ("Traceback (most recent call last):\nValueError: odd", "ValueError: odd"),
    ],
)
def test_any_other_failure_is_quoted_by_its_first_words(text: str, said: str) -> None:
    assert str(explain_failure(text)) == f"the query failed: {said}; run with --debug to see where"


SDK = "software.amazon.awssdk"


@pytest.mark.parametrize(
    ("text", "said", "may_pass"),
    [
        (
            f"java.net.ConnectException: Writing Object on a/b: {SDK}.core.exception.SdkClientException: Unable to execute "
            f"HTTP request: Connection refused (SDK Attempt Count: 4):    {SDK}.core.exception.SdkClientException: Unable",
            "the object a/b cannot be used: Unable to execute HTTP request: Connection refused; check that",
            True,
        ),
        (
            f"org.apache.hadoop.fs.s3a.AWSServiceThrottledException: open s3a://lake/a at 0 on s3a://lake/a: {SDK}.services"
            ".s3.model.S3Exception: Reduce your request rate. (Service: S3, Status Code: 503, Request ID: 1)",
            "the object s3a://lake/a cannot be used: Reduce your request rate; check that",
            True,
        ),
        (
            f"java.nio.file.AccessDeniedException: a/b: Writing Object on a/b: {SDK}.services.s3.model.S3Exception: The "
            "provided token has expired. (Service: S3, Status Code: 403, Request ID: 1, Extended Request ID: 2)",
            "the object a/b cannot be used: The provided token has expired; check that",
            False,
        ),
    ],
)
def test_an_object_store_is_quoted_and_tried_again_unless_it_refuses(text: str, said: str, may_pass: bool) -> None:
    error = explain_failure(f"An error occurred while calling o77.close.\n: {text}{JVM}")
    assert said in str(error)
    assert error.problems[0].field == "spec.checkpoint"
    assert isinstance(error, TransientError) is may_pass
    assert class_of(failed_query(text)) is FailureClass.STORE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MillraceError("Kafka at kafka:9092 refused the login"), FailureClass.SOURCE),
        (MillraceError(Problem("cannot be read: AccessDenied", file="s3a://lake/a")), FailureClass.SOURCE),
        (TransientError(Problem("no answer", field="spec.checkpoint")), FailureClass.SOURCE),
        (MillraceError(Problem("it is full", field="spec.checkpoint")), FailureClass.STATE),
        (MillraceError(Problem("no such Secret", field="spec.s3.secretAccessKey")), FailureClass.CONFIG),
        (MissingInputError("no file matches this path"), FailureClass.SOURCE_MISSING),
    ],
)
def test_an_error_without_a_field_is_of_the_part_that_failed(error: MillraceError, expected: FailureClass) -> None:
    with pytest.raises(type(error)), attributed_to(FailureClass.SOURCE):
        raise error
    assert class_of(error) is expected
