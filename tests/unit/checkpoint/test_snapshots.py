"""Snapshots over random sequences of batches, maintenance and faults; damage; copiers that are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint import snapshots
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.snapshot_manifest import MANIFEST, Snapshot
from millrace_jobs.checkpoint.snapshots import outdated, remove, restore, snapshots_of, take, verify
from millrace_jobs.checkpoint.spark_folder import PARTITIONS
from millrace_jobs.places import write_durably
from millrace_jobs.run import checkpoints
from millrace_jobs.sinks.base import LastBatch
from spark_logs import Log, offset

from .stored import Stored, dying_after


def loaded(root: Path, version: int) -> str:
    """What Spark loads as a version of the state."""
    store = root / "spark" / "state" / "0" / "0"
    base = max((int(file.stem) for file in store.glob("*.zip") if int(file.stem) <= version), default=0)
    text = ""
    if base:
        with zipfile.ZipFile(store / f"{base}.zip") as archive:
            metadata = json.loads(archive.read("metadata").decode().partition("\n")[2])
        text = (store / "SSTs" / metadata["sstFiles"][0]["dfsSstFileName"]).read_text()
    return text + "".join((store / f"{n}.changelog").read_text() + "\n" for n in range(base + 1, version + 1))


STEPS = st.lists(st.sampled_from(["batch", "fault", "upload", "clean", "snapshot", "restore"]), max_size=25)


@settings(max_examples=25)
@given(STEPS)
def test_a_snapshot_has_what_a_restart_after_its_batch_reads_whatever_comes_before_and_after(steps):
    with tempfile.TemporaryDirectory() as name:
        stored, taken = Stored(Path(name, "checkpoint")), {}
        for number, step in enumerate(["batch", *steps, "begin", "snapshot", "restore"]):
            if step in ("batch", "fault", "begin"):
                if step == "fault":
                    stored.begin(attempt=1)
                stored.begin()
                if step != "begin":
                    stored.commit()
            elif step == "upload":
                stored.upload()
            elif step == "clean":
                stored.clean()
            elif step == "snapshot":
                snapshot = take(stored.root, f"s{number}")
                assert snapshot.batch == stored.batches - 1
                taken[f"s{number}"] = loaded(stored.root, stored.batches)
            elif taken:
                last, target = [*taken][-1], Path(name, f"restored-{number}")
                restore(stored.root / "snapshots" / last, target)
                batch = verify(stored.root / "snapshots" / last).batch
                assert loaded(target, batch + 1) == taken[last]
                assert Checkpoint(target).last_batch() == LastBatch(batch, batch)
        for snapshot in taken:
            verify(stored.root / "snapshots" / snapshot)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def change(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "why"), [(Path.unlink, "is gone"), (cut, "bytes, and had"), (change, "other content")]
)
def test_a_damaged_snapshot_is_refused_with_the_file(stored, tmp_path, damage, why):
    taken = take(stored.root, "one")
    place = stored.root / "snapshots" / "one"
    for file in taken.files:
        copied = tmp_path / "copied"
        shutil.copytree(place, copied)
        damage(copied / file.name)
        for use in (verify, lambda each: restore(each, tmp_path / "never")):
            with pytest.raises(MillraceError, match=f"{file.name} .*{why}"):
                use(copied)
        assert not (tmp_path / "never").exists()
        shutil.rmtree(copied)
    verify(place)


def test_only_what_is_new_is_stored(stored):
    take(stored.root, "one")
    stored.commit()
    stored.begin()
    taken = take(stored.root, "two")
    shared = [
        file.name
        for file in taken.files
        if file.name.startswith("spark/")
        and (stored.root / "snapshots" / "two" / file.name).samefile(stored.root / file.name)
    ]
    assert sorted(shared) == sorted(file.name for file in taken.files if file.name.startswith("spark/"))


def test_snapshots_are_pruned_by_number_and_age_and_keep_a_checkpoint_from_being_removed(stored):
    for name in ("b", "c", "a"):
        take(stored.root, name, datetime(2024, 3, "bca".index(name) + 1, tzinfo=UTC))
    found, now = snapshots_of(stored.root), datetime(2024, 3, 3, tzinfo=UTC)
    assert [each.name for each in found] == ["b", "c", "a"]
    assert [each.name for each in outdated(found, 1, None, now)] == ["b", "c"]
    assert [each.name for each in outdated(found, 1, timedelta(days=1), now)] == ["b"]
    assert [each.name for each in outdated(found, 0, timedelta(days=1), now)] == ["b"]
    assert outdated(found, 4, None, now) == []
    with pytest.raises(MillraceError, match="has snapshots: a, b, c"):
        checkpoints.remove(stored.root)
    checkpoints.copy(stored.root, stored.root.parent / "copy")
    assert not (stored.root.parent / "copy" / "snapshots").exists()
    for name in "abc":
        remove(stored.root / "snapshots" / name)
    checkpoints.remove(stored.root)
    assert not stored.root.exists()


def test_the_copier_tries_again_if_maintenance_or_a_commit_comes_between(stored, monkeypatch):
    real, left = snapshots.files_at, iter([True, False])

    def first_time_too_late(spark, batch):
        for name in real(spark, batch):
            if name.endswith(".zip") and next(left):
                stored.commit()
                stored.upload()
                stored.clean()
            yield name

    monkeypatch.setattr(snapshots, "files_at", first_time_too_late)
    assert take(stored.root, "one").batch == 2
    verify(stored.root / "snapshots" / "one")


@pytest.mark.parametrize("seed", range(2))
def test_a_copier_that_is_killed_leaves_a_whole_snapshot_or_one_that_is_refused(tmp_path, seed):
    stored, chance = Stored(tmp_path / "checkpoint"), random.Random(seed)
    for _ in range(150):
        stored.begin()
        stored.commit()
    root = stored.root
    program = "import sys; from pathlib import Path; from millrace_jobs.checkpoint.snapshots import take\n"
    program += "print('ready', flush=True); take(Path(sys.argv[1]), 'one')"
    for _ in range(4):
        copier = subprocess.Popen([sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE)
        assert copier.stdout is not None
        copier.stdout.readline()
        time.sleep(chance.uniform(0, 0.15))
        os.kill(copier.pid, signal.SIGKILL)
        copier.wait()
        copier.stdout.close()
        place = root / "snapshots" / "one"
        if (place / MANIFEST).exists():
            verify(place)
            remove(place)
        else:
            with pytest.raises(MillraceError, match="is not whole"):
                verify(place)
            with suppress(MillraceError):  # it may have been killed before its first file
                remove(place)
    take(root, "one")
    verify(root / "snapshots" / "one")
    assert [each.batch for each in snapshots_of(root)] == [149]


def test_a_restore_that_is_interrupted_can_be_repeated_and_is_no_checkpoint_until_then(stored, tmp_path, monkeypatch):
    taken, root = take(stored.root, "one"), tmp_path / "new"
    place = stored.root / "snapshots" / "one"
    for written in range(1, len(taken.files)):
        with dying_after(written, monkeypatch):
            restore(place, root)
        with pytest.raises(MillraceError, match="is being restored from a snapshot, or that was interrupted"):
            Checkpoint(root).open(a_query())
    restore(place, root)
    checkpoint = Checkpoint(root)
    checkpoint.open(a_query())
    assert checkpoint.last_batch().committed == taken.batch
    assert loaded(root, taken.batch + 1) == loaded(place, taken.batch + 1)
    assert not (root / "restoring").exists()
    checkpoint.close()


def test_a_snapshot_is_restored_only_where_there_is_nothing_and_never_run_itself(stored, tmp_path):
    take(stored.root, "one")
    place = stored.root / "snapshots" / "one"
    write_durably(tmp_path / "used" / "sources" / "trips" / "old.jsonl", b"old")
    for target in (tmp_path / "used", stored.root):
        with pytest.raises(MillraceError, match="is not empty"):
            restore(place, target)
    shutil.copytree(place, tmp_path / "copied")
    with pytest.raises(MillraceError, match="is a snapshot, which never changes"):
        Checkpoint(tmp_path / "copied").open(a_query())


def test_a_manifest_in_which_anything_has_changed_is_refused(stored):
    take(stored.root, "one")
    place = stored.root / "snapshots" / "one"
    content = (place / MANIFEST).read_bytes()
    for at in range(len(content)):
        changed = content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        (place / MANIFEST).write_bytes(changed)
        with pytest.raises(MillraceError, match="is not what Millrace writes there"):
            Snapshot.read(place)
    assert snapshots_of(stored.root) == []


@pytest.mark.parametrize("name", ["../evil", "spark/../../evil", "spark//x", "/etc/passwd", "lease.json", "spark"])
def test_a_manifest_that_leads_elsewhere_is_refused(stored, tmp_path, name):
    take(stored.root, "one")
    place = stored.root / "snapshots" / "one"
    whole = Snapshot.read(place)
    replace(whole, files=(replace(whole.files[0], name=name), *whole.files[1:])).write(place)
    with pytest.raises(MillraceError, match="is not what Millrace writes there"):
        restore(place, tmp_path / "new")
    assert snapshots_of(stored.root) == []


def test_a_name_is_taken_by_one_process_and_a_snapshot_has_that_of_its_folder(stored):
    (stored.root / "snapshots" / "one").mkdir(parents=True)
    (stored.root / "snapshots" / "one" / "taking").touch()
    with pytest.raises(MillraceError, match="another process is taking the snapshot"):
        take(stored.root, "one")
    remove(stored.root / "snapshots" / "one")
    take(stored.root, "one")
    with pytest.raises(MillraceError, match="there is a snapshot"):
        take(stored.root, "one")
    (stored.root / "snapshots" / "one").rename(stored.root / "snapshots" / "kept")
    take(stored.root, "one")
    assert {each.name for each in snapshots_of(stored.root)} == {"kept", "one"}


def test_old_entries_of_the_logs_need_not_stay_while_a_snapshot_is_taken(tmp_path, monkeypatch):
    stored, real = Stored(tmp_path / "checkpoint"), snapshots._keep
    for _ in range(30):
        stored.begin()
        stored.commit()
    stored.upload()

    def purging(*arguments):
        stored.clean()
        return real(*arguments)

    monkeypatch.setattr(snapshots, "_keep", purging)
    taken = take(stored.root, "one")
    logs = {file.name for file in taken.files if file.name.startswith(("spark/offsets", "spark/commits"))}
    assert logs == {f"spark/{log}/{number}" for log in ("offsets", "commits") for number in (28, 29)}


def test_a_zip_that_is_replaced_while_it_is_copied_is_not_kept_without_its_files(stored, monkeypatch):
    real, left = snapshots.files_at, iter([True, False])

    def first_time_replaced(spark, batch):
        found = real(spark, batch)
        if next(left):
            stored.upload()
        return found

    monkeypatch.setattr(snapshots, "files_at", first_time_replaced)
    take(stored.root, "one")
    assert loaded(stored.root / "snapshots" / "one", 2) == loaded(stored.root, 2)


def test_stores_of_partitions_that_a_repartition_has_left_over_are_left_out(tmp_path):
    stored = Stored(tmp_path / "checkpoint")
    for partitions in (2, 1):
        stored.begin()
        stored.commit()
        log = Log(Checkpoint(stored.root))
        log.begin(stored.batches - 1, offset(stored.batches - 1), conf={PARTITIONS: str(partitions)})
        if partitions == 2:
            write_durably(stored.store.with_name("1") / "1.changelog", b"of the second partition")
    taken = take(stored.root, "one")
    assert not any(file.name.startswith("spark/state/0/1/") for file in taken.files)
    assert loaded(stored.root / "snapshots" / "one", 2) == loaded(stored.root, 2)
    log.begin(stored.batches - 1, offset(stored.batches - 1), conf={PARTITIONS: "2"})
    with pytest.raises(MillraceError, match="1: it has no version 2"):
        take(stored.root, "two")


def test_files_with_ids_are_refused(stored):
    (stored.store / "3_0f9d.changelog").write_bytes(b"")
    with pytest.raises(MillraceError, match="several files for a version"):
        take(stored.root, "one")
    assert snapshots_of(stored.root) == []
