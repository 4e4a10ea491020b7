"""What a run says of its input, and that it does not read what it writes."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_api.model.streamquery import Spec
from millrace_jobs.run.inputs import no_record_note, require_other_places, unread_note, waiting_note
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.generated.rows import RateSource
from millrace_jobs.sources.lakehouse.source import LakehouseSource


def source(tmp_path, path):
    return FilesSource("events", path, "csv", a_schema([("n", "INT")]), str(tmp_path / "log"))


def spec(sink, letters=None, **parts):
    corrupt = {"policy": "DeadLetter", "path": letters} if letters else {}
    files = {"files": {"path": "in", "format": "csv"}, "schema": "n INT", "corruptRecords": corrupt}
    document = {"sources": {"events": files}, "query": {"sql": "SELECT n FROM events"}, "sink": sink}
    return Spec.model_validate(document | parts, by_name=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").touch()
    (tmp_path / "link").symlink_to("in")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", ["in", "in/*.csv", "in/**/*", "link", "{folder}/in"])
@pytest.mark.parametrize("sink", ["in", "./in", "{folder}/in", "link", "out/../in"])
def test_results_that_would_come_back_as_records_are_refused(folder, path, sink):
    sources = {"events": source(folder, path.format(folder=folder))}
    written = spec({"files": {"path": sink.format(folder=folder), "format": "csv"}})
    with pytest.raises(MillraceError, match="so every result would come back as a record; write to another folder"):
        require_other_places(written, sources)
    require_other_places(spec({"files": {"path": "out", "format": "csv"}}), sources)


def test_results_that_would_be_in_a_table_that_is_read_are_refused(folder):
    table = DeltaSourceSpec.model_validate({"path": "in"})
    sources = {"events": LakehouseSource("events", table, a_schema([("n", "INT")]), folder / "state", "iso")}
    with pytest.raises(MillraceError, match="source events reads the Delta table in, so every result would come back"):
        require_other_places(spec({"files": {"path": "in", "format": "csv"}}), sources)
    require_other_places(spec({"files": {"path": "out", "format": "csv"}}), sources)


def test_only_queries_with_a_stream_of_a_table_load_its_source():
    script = "import sys, millrace_jobs.run.job; sys.exit('millrace_jobs.sources.lakehouse.source' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_dead_letters_that_would_come_back_as_records_are_refused(folder):
    with pytest.raises(
        MillraceError, match=r"corruptRecords\.path: source events reads the files in .*every dead letter"
    ):
        require_other_places(spec({"console": {}}, letters=f"{folder}/in"), {"events": source(folder, "in")})
    require_other_places(spec({"console": {}}, letters="in"), {"events": source(folder, "in/*.csv")})


def test_lineage_and_an_event_log_that_would_come_back_as_records_are_refused(folder):
    (folder / "in" / "a.json").touch()
    sources = {"events": source(folder, "in/*.json")}
    with pytest.raises(
        MillraceError, match=r"spec\.lineage\.file: source events reads .* every event of lineage would"
    ):
        require_other_places(spec({"console": {}}, lineage={"file": "link/x.json"}), sources)
    require_other_places(spec({"console": {}}, lineage={"file": "in/x.jsonl"}), sources)
    for log in ("in", "link/"):
        written = spec({"console": {}}, eventLog={"path": log})
        with pytest.raises(MillraceError, match=r"spec\.eventLog\.path: source events reads .* every event of Spark"):
            require_other_places(written, {"events": source(folder, "in/**/*")})
        require_other_places(written, sources)


def test_notes_name_the_files_that_a_run_looked_for(folder):
    sources = {"events": source(folder, "in")}
    assert waiting_note(sources).startswith(
        f"all records were read of the files in {folder}/in: waiting for new files;"
    )
    assert no_record_note(sources, {}) == f"no record was read: source events found no files in {folder}/in"
    offsets = {"events": {"position": {"files": 1}}}
    assert "source events found no record in the files in" in no_record_note(sources, offsets)
    several = sources | {"rate": RateSource("rate", 1.0)}
    assert (waiting_note(several), no_record_note(several, offsets)) == ("", "")


def test_a_run_that_only_closes_windows_does_not_say_how_to_start_over(tmp_path):
    offsets = {"events": {"position": {"files": 1}}}
    checkpoint = SimpleNamespace(committed=lambda: offsets, root=tmp_path / "checkpoint")
    query, sources = spec({"files": {"path": "out", "format": "csv"}}), {"events": source(tmp_path, str(tmp_path))}
    assert "checkpoint and" in unread_note(query, sources, checkpoint, offsets)
    assert unread_note(query, sources, checkpoint, offsets, closes=True) == (
        "no new record was read: this run closed the windows that an earlier run had left open"
    )
