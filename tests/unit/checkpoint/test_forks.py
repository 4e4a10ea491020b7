"""A query that begins from a snapshot of another one: under its own id, in places of its own, also after a fault."""

import pytest

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_jobs.checkpoint import snapshots
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshots import place_of_snapshot, take

from .stored import dying_after


@pytest.fixture
def stored(stored):
    """A checkpoint of two batches with a snapshot."""
    take(stored.root, "one")
    return stored


@pytest.fixture
def fork(stored, tmp_path):
    """Another query that begins from the snapshot."""
    return forked(stored.root, tmp_path)


def forked(root, tmp_path, **spec):
    document = a_query().to_document()
    document["metadata"]["name"] = "another"
    place = place_of_snapshot(root, "one")
    document["spec"]["checkpoint"] = {"uri": (tmp_path / "new").as_uri(), "fromSnapshot": place.as_uri()}
    document["spec"]["sink"] = {"files": {"path": "elsewhere", "format": "csv"}}
    return StreamQuery.model_validate(document | {"spec": document["spec"] | spec})


def state_in(root):
    """Return the files of the state in a checkpoint or a snapshot, with their content."""
    store = root / "spark" / "state" / "0" / "0"
    return {each.name: each.read_bytes() for each in store.rglob("*") if each.is_file()}


def opened(root, query):
    checkpoint = Checkpoint(root)
    checkpoint.open(query)
    checkpoint.close()
    return checkpoint


def test_a_query_begins_from_a_snapshot_once_and_under_an_id_of_its_own(stored, fork, tmp_path):
    root = tmp_path / "new"
    checkpoint = opened(root, fork)
    assert checkpoint.last_batch().committed == 1
    assert state_in(root) == state_in(place_of_snapshot(stored.root, "one"))
    marker = Marker.read(root)
    assert marker.id != Marker.read(stored.root).id
    assert marker.query.name == "another"
    (place_of_snapshot(stored.root, "one") / snapshots.MANIFEST).unlink()
    opened(root, fork)  # what it began from is read once
    assert Marker.read(root).id == marker.id


def test_a_driver_that_dies_while_it_begins_begins_again(stored, fork, tmp_path, monkeypatch):
    root = tmp_path / "new"
    for written in range(len(snapshots.verify(place_of_snapshot(stored.root, "one")).files)):
        with dying_after(written, monkeypatch):
            Checkpoint(root).open(fork)
        if written:
            with pytest.raises(MillraceError, match="is being restored from a snapshot, or that was interrupted"):
                Checkpoint(root).open(a_query())
    opened(root, fork)
    assert state_in(root) == state_in(place_of_snapshot(stored.root, "one"))
    assert not (root / "restoring").exists()


def test_a_checkpoint_without_a_batch_gives_way_to_the_snapshot(stored, fork, tmp_path):
    root = tmp_path / "new"
    opened(root, a_query())
    (root / "sources" / "trips").mkdir(parents=True)
    (root / "sources" / "trips" / "old.jsonl").touch()
    assert opened(root, fork).last_batch().committed == 1
    assert not (root / "sources" / "trips" / "old.jsonl").exists()


def test_another_driver_keeps_a_query_from_beginning(stored, fork, tmp_path):
    root = tmp_path / "new"
    first = Checkpoint(root)
    first.open(a_query())
    with pytest.raises(MillraceError, match="another run is using the checkpoint"):
        Checkpoint(root).open(fork)
    assert first.last_batch().begun is None
    first.close()


def test_what_keeps_a_query_from_beginning_changes_nothing(stored, fork, tmp_path):
    place, root = place_of_snapshot(stored.root, "one"), tmp_path / "new"
    spec = a_query("spec", "sources", "trips", "files", "path", value="other/*.csv").to_document()["spec"]
    refused = [
        (
            forked(stored.root, tmp_path, sink=spec["sink"]),
            "spec.sink: is where fares writes, whose snapshot this query starts from",
        ),
        (forked(stored.root, tmp_path, sources=spec["sources"]), "spec.sources.trips.files.path: the checkpoint"),
        (forked(tmp_path / "nowhere", tmp_path), "spec.checkpoint.fromSnapshot: there is no snapshot"),
    ]
    for query, message in refused:
        with pytest.raises(MillraceError) as raised:
            Checkpoint(root).open(query)
        assert message in str(raised.value)
        assert not (root / "spark").exists()
    damaged = next(place.rglob("*.sst"))
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    with pytest.raises(MillraceError, match=r"fromSnapshot: .*\.sst has other content than when it was taken"):
        Checkpoint(root).open(fork)
    assert not (root / "spark").exists()


@pytest.mark.parametrize(
    ("checkpoint", "snapshot", "problem"),
    [
        ("file:///a", "file:///b/snapshots/one", ""),
        ("s3a://lake/a", "s3a://other/b/snapshots/one", ""),
        ("file:///a", "hdfs://b/snapshots/one", "the scheme hdfs: is not supported"),
        ("file:///a", "s3a://lake/b/snapshots/one", "is not in the store of the checkpoint"),
        ("s3a://lake/a", "file:///b/snapshots/one", "is not in the store of the checkpoint"),
        (
            "abfss://lake@account.blob.core.windows.net/a",
            "abfss://lake@other.blob.core.windows.net/b",
            "is not in the store of the checkpoint",
        ),
    ],
)
def test_a_snapshot_is_in_a_place_that_the_checkpoints_login_reads(checkpoint, snapshot, problem):
    asked = a_query("spec", "checkpoint", value={"uri": checkpoint, "fromSnapshot": snapshot})
    found = [str(each) for each in check_query(asked) if each.field == "spec.checkpoint.fromSnapshot"]
    assert len(found) == bool(problem)
    assert all(problem in each for each in found)
