"""What to write instead of a source that this machine does not reach."""

from builders import a_query
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.calibration.calibration_endpoints import with_sample_hint

FILES = {"files": {"path": "data", "format": "csv"}, "schema": "at TIMESTAMP"}
TOPIC = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "t"}, "format": "json", "schema": "at TIMESTAMP"}


def hint(sources, message, before=""):
    spec = a_query("spec", "sources", value=sources).spec
    (problem,) = with_sample_hint(spec, MillraceError(Problem(message, before))).problems
    return problem.hint


def test_a_topic_that_is_not_reached_can_be_a_file():
    found = hint({"trips": TOPIC}, "no broker of kafka:9092 answers", "check the address")
    assert found.startswith("check the address; where this machine does not reach it, write some thousands")
    assert found.endswith("in place of kafka of source trips: files: {path: sample.jsonl, format: json}")


def test_the_source_that_the_error_names_is_the_one_to_replace():
    assert "of source late" in hint({"early": TOPIC, "late": TOPIC}, "source late: the topic does not exist")


def test_a_file_that_is_missing_has_its_own_hint():
    for sources in ({"trips": TOPIC, "zones": FILES}, {"zones": FILES}):
        assert hint(sources, "source zones: no file matches this path", "write a file") == "write a file"
