"""What a confined process reads and writes: links are followed before a path is compared with its folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.confinement import Confinement
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.marker import checkpoint_above
from millrace_jobs.confinement import VARIABLE, confine, confinement, require_data
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.run.inputs import require_other_places, require_outside
from millrace_jobs.run.query_file import query_of
from millrace_jobs.sinks.connector import require_folder
from millrace_jobs.sources.base import CorruptRecords, Source
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.dead_letters import BadRecordHandler
from millrace_jobs.sources.formats.decoding import BadRecord
from unit.api.documents import MINIMAL

REFUSED = "is not on a volume that the query mounts for data"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder for data of a confined process; beside it is a file with a token, and a folder of logins."""
    for name in ("data", "logins", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "token").write_text("cell\nsecret\n", encoding="utf-8")
    folders = Confinement(folders=(str(tmp_path / "data"),), logins=(str(tmp_path / "logins"),), functions=())
    monkeypatch.setenv(VARIABLE, folders.to_json())
    return tmp_path / "data"


def files(path: Path, state: Path) -> Source:
    spec = {"files": {"path": str(path), "format": "csv"}, "schema": "cell STRING"}
    return open_source("trips", SourceSpec.model_validate(spec, by_name=False), state, state)


def read(source: Source) -> list[Any]:
    start = source.initial()
    pieces = source.slices(start, source.latest(start, everything=True), 1)
    return [item for piece in pieces for item in source.read(piece, "0")]


def test_a_file_in_the_folder_is_read(data: Path) -> None:
    (data / "a.csv").write_text("cell\nx\n", encoding="utf-8")
    (data / "link.csv").symlink_to("a.csv")
    (batch, *_) = read(files(data / "*.csv", data.parent / "state"))
    assert batch.to_pydict() == {"cell": ["x"]}


@pytest.mark.parametrize("pattern", [".", "*.csv", "**/*.csv", "a.csv"])
@pytest.mark.parametrize("target", ["../token", "other", "/proc/self/environ"])
def test_a_link_that_leaves_the_folder_is_not_followed(data: Path, pattern: str, target: str) -> None:
    (data / "other").symlink_to(data.parent / "token")
    (data / "a.csv").symlink_to(target)
    with pytest.raises(MillraceError, match=REFUSED):
        read(files(data / pattern, data.parent / "state"))


def test_a_folder_that_is_a_link_is_not_followed(data: Path) -> None:
    (data / "below").symlink_to(data.parent)
    with pytest.raises(MillraceError, match=REFUSED):
        read(files(data / "below" / "tok*", data.parent / "state"))


def test_a_file_that_has_become_a_link_since_it_was_listed_is_not_read(data: Path) -> None:
    (data / "a.csv").write_text("cell\nabcdef\n", encoding="utf-8")
    source = files(data / "*.csv", data.parent / "state")
    start = source.initial()
    (piece,) = source.slices(start, source.latest(start, everything=True), 1)
    (data / "a.csv").unlink()
    (data / "a.csv").symlink_to("../token")
    with pytest.raises(MillraceError, match=REFUSED):
        list(source.read(piece, "0"))


def test_the_folder_itself_may_be_reached_by_a_link(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``/var/run`` is one to ``/run``."""
    (data.parent / "mount").symlink_to("data")
    folders = Confinement(folders=(str(data.parent / "mount"),), logins=(), functions=())
    monkeypatch.setenv(VARIABLE, folders.to_json())
    require_data(data / "a.csv")


def test_a_recording_is_not_read_elsewhere(data: Path) -> None:
    replay = {"path": str(data.parent / "token"), "format": "csv", "timeColumn": "at"}
    spec = SourceSpec.model_validate({"replay": replay, "schema": "cell STRING, at TIMESTAMP"}, by_name=False)
    with pytest.raises(MillraceError, match=REFUSED):
        open_source("trips", spec, data.parent / "state", data.parent / "state")


def test_dead_letters_are_not_written_elsewhere(data: Path) -> None:
    (data / "dead").symlink_to("../state")
    for folder in (data / "dead", data / ".." / "state", data.parent / "new"):
        letters = BadRecordHandler("trips", CorruptRecords("DeadLetter", str(folder)), "0")
        with letters, pytest.raises(MillraceError, match=REFUSED):
            letters.reject("a.csv", BadRecord("x", "no reason", 1))
    assert list((data.parent / "state").iterdir()) == []


def test_results_are_not_written_elsewhere(data: Path) -> None:
    (data / "out").symlink_to("../state")
    for folder in (data / "out", data / "out" / "below", data / ".." / "state", data.parent / "new"):
        with pytest.raises(MillraceError, match=REFUSED):
            require_folder(folder, "spec.sink.files.path")
    assert not (data.parent / "new").exists()
    require_folder(data / "results", "spec.sink.files.path")


def login(file: Path) -> Connection:
    sasl = {"mechanism": "PLAIN", "username": {"file": str(file)}, "password": {"file": str(file)}}
    document = {"bootstrapServers": "kafka:9092", "sasl": sasl}
    return Connection.of(KafkaConnection.model_validate(document, by_name=False))


def test_a_login_is_not_read_elsewhere(data: Path) -> None:
    (data.parent / "logins" / "..data").mkdir()
    (data.parent / "logins" / "..data" / "password").write_text("open-sesame", encoding="utf-8")
    (data.parent / "logins" / "password").symlink_to("..data/password")  # as kubelet does
    assert login(data.parent / "logins" / "password").settings()["sasl.password"] == "open-sesame"
    (data.parent / "logins" / "token").symlink_to("../token")
    for path in (data.parent / "token", data.parent / "logins" / "token"):
        with pytest.raises(MillraceError, match="is not on a volume that the query mounts for logins"):
            login(path).settings()


def test_without_a_confinement_everything_may_be_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    (batch, *_) = read(files(data.parent / "token", data.parent / "state"))
    assert batch.to_pydict() == {"cell": ["secret"]}


def test_a_process_is_confined_by_the_file_beside_its_query(data: Path) -> None:
    file, other = data / "query.yaml", Confinement(folders=("/data",), logins=(), functions=("reflect",))
    (data / "confinement.json").write_text(other.to_json(), encoding="utf-8")
    confine(file)
    assert confinement() == other
    (data / "confinement.json").write_text("", encoding="utf-8")
    confine(file)
    assert confinement() is None
    for damaged in ("{}", "nothing", json.dumps({**other.to_document(), "more": 1})):
        (data / "confinement.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(ValueError, match="Confinement"):
            confine(file)


def test_in_a_pod_nothing_is_imported_from_beside_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "query.yaml").write_text(MINIMAL, encoding="utf-8")
    query_of(tmp_path / "query.yaml", in_pod=True)
    assert os.environ["PYTHONPATH"] == ""


def a_query(**spec: Any) -> StreamQuery:
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "trips"}}
    parts = {"sources": {"trips": {"rate": {}}}, "query": {"sql": "SELECT key FROM trips"}, "sink": {"console": {}}}
    return read_query(document | {"spec": parts | spec})


def test_nothing_is_written_into_a_checkpoint(tmp_path: Path) -> None:
    """With or without a policy: neither the query's own, nor that of another one, by whatever path."""
    checkpoint = Checkpoint(tmp_path / "bank")
    checkpoint.open(a_query(), 1)
    (tmp_path / "link").symlink_to("bank/spark")
    try:
        for folder in ("bank", "bank/spark/state", "link/out", "other/../bank/sources"):
            place = str(tmp_path / folder)
            results = a_query(sink={"files": {"path": place}})
            with pytest.raises(MillraceError, match="which is the checkpoint of a query"):
                require_other_places(results.spec, {})
            for report in ({"eventLog": {"path": place}}, {"lineage": {"file": place}}):
                with pytest.raises(MillraceError, match="which is the checkpoint of a query"):
                    require_other_places(a_query(**report).spec, {})
        require_other_places(a_query(sink={"files": {"path": str(tmp_path / "bank-results")}}).spec, {})
        for folder in ("bank/out", "link/out"):
            results = a_query(sink={"files": {"path": str(tmp_path / folder)}})
            with pytest.raises(MillraceError, match="is within the query's own checkpoint"):
                require_outside(results.spec, checkpoint.root)
            logged = a_query(eventLog={"path": str(tmp_path / folder)})
            with pytest.raises(MillraceError, match="is within the query's own checkpoint"):
                require_outside(logged.spec, checkpoint.root)
        (tmp_path / "above").symlink_to(".")
        results = a_query(sink={"delta": {"path": str(tmp_path / "above")}})
        with pytest.raises(MillraceError, match=r"own checkpoint is within .*above.*, among the results"):
            require_outside(results.spec, checkpoint.root)
        (tmp_path / "table").mkdir()
        (tmp_path / "by-a-link").symlink_to("table")
        log = {"eventLog": {"path": str(tmp_path / "by-a-link" / "events")}}
        logged = a_query(sink={"delta": {"path": str(tmp_path / "table")}}, **log)
        with pytest.raises(MillraceError, match=r"by-a-link/events.* is among the results in"):
            require_outside(logged.spec, checkpoint.root)
        require_outside(a_query(sink={"files": {"path": str(tmp_path / "bank-results")}}).spec, checkpoint.root)
        with pytest.raises(MillraceError, match="is within the checkpoint"):
            Checkpoint(tmp_path / "bank" / "sources" / "mine").open(a_query(), 1)
    finally:
        checkpoint.close()
    assert checkpoint_above(tmp_path) is None
