"""A checkpoint in a container of Azure, with its login by reference, against Microsoft's emulator."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.azurite_server import KEY, AzuriteServer, running_azurite
from lab.parts.cloud_emulators import AZURE_JARS
from lab.store_proxy import Disturbance
from lab.waiting import wait_until
from millrace_jobs.sinks.files.commit_record import CommitRecord
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import AZURE_CLIENT

from .store_runs import MILLRACE, Run, batches, millrace, race
from .test_checkpoint_command import (  # noqa: F401 - the same in this store
    query,
    test_a_checkpoint_goes_to_an_object_store_and_back,
    test_a_checkpoint_that_is_held_is_neither_removed_nor_copied,
    test_checkpoints_are_listed_and_shown,
)
from .test_object_lease import (  # noqa: F401 - the same in this store
    dead,
    take,
    test_a_changed_copy_takes_the_place_of_sparks_part_with_its_last_batch,
    test_a_driver_that_was_replaced_ends_at_its_next_batch,
    test_a_lease_says_who_holds_it_and_is_free_when_released,
    test_a_lease_that_is_renewed_while_it_is_watched_is_not_taken,
    test_an_entry_that_an_old_driver_wrote_late_is_put_right_before_spark_reads_it,
)
from .test_object_path import (  # noqa: F401 - the same in this store
    test_a_folder_has_the_objects_that_are_directly_in_it,
    test_a_version_is_replaced_once,
    test_an_object_is_read_as_it_was_written,
    test_of_many_that_create_one_object_one_does,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FLAT = {"spark.hadoop.fs.azure.account.hns.enabled": "false"}
"""Says what Azure's own servers are asked: the emulator has no answer to it."""


@pytest.fixture(scope="session")
def shared_azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteServer]:
    """The server that tests share. Leave it running."""
    with running_azurite(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture
def azure(shared_azure: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> AzuriteServer:
    """The shared server, as the environment of this process and of those that it starts names it."""
    for name, value in {**shared_azure.environment, AZURE_CLIENT.variable: str(AZURE_JARS.find())}.items():
        monkeypatch.setenv(name, value)
    return shared_azure


@pytest.fixture
def place(azure: AzuriteServer) -> ObjectPath:
    """A place of its own in the container."""
    return ObjectPath.of(f"{azure.place}/{uuid.uuid4().hex[:12]}/checkpoint")


@pytest.fixture
def run(tmp_path: Path, place: ObjectPath) -> Run:
    return Run(tmp_path, place, sparkConf=FLAT)


def test_what_stands_for_a_folder_is_no_object(place: ObjectPath) -> None:
    (place / "a" / "b").write_bytes(b"1")
    (place / "empty").write_bytes(b"")
    for name in ("a", "none"):  # as Hadoop's client makes them
        (place / name)._client.put((place / name).key, b"", attributes={"hdi_isfolder": "true"})
    assert sorted(place.objects()) == [("a/b", 1), ("empty", 0)]
    assert [each.name for each in place.iterdir()] == ["a", "empty", "none"]


def test_a_missing_object_does_not_stop_a_removal(place: ObjectPath) -> None:
    (place / "a").write_bytes(b"1")
    with pytest.raises(FileNotFoundError):
        (place / "none").unlink()
    (place / "none").unlink(missing_ok=True)
    place.remove(["none", "a"])
    assert not list(place.objects())


def test_a_record_that_is_gone_is_withdrawn_and_can_be_made_again(place: ObjectPath) -> None:
    """As after a deletion whose answer was lost, and which the client has sent again."""
    record = CommitRecord(place / "commit.json", "a")
    record.take()
    (place / "commit.json").unlink()
    for _ in range(2):
        record.remove()
    record.take()
    again = CommitRecord(place / "commit.json", "a")
    again.read()
    assert (again.is_ours, again.tag) == (True, record.tag)


def test_a_missing_container_is_named(azure: AzuriteServer) -> None:
    elsewhere = ObjectPath.of(f"{azure.place.replace('//lake@', '//nowhere@')}/checkpoint")
    for act in (elsewhere.read_bytes, lambda: list(elsewhere.iterdir()), lambda: elsewhere.create(b"")):
        with pytest.raises(OSError, match="ContainerNotFound: The specified container does not exist"):
            act()


def test_a_write_whose_answer_is_lost_has_happened(azure: AzuriteServer, place: ObjectPath, take) -> None:  # noqa: F811
    lease = take()
    answers = iter([True])
    once = azure.disturbed(lambda request: Disturbance(loses_answer=request.is_change and next(answers, False)))
    with once, pytest.raises(OSError, match="error sending request"):  # after which a query starts again
        lease.begin(0, lambda _: "v1")
    lease.begin(0, lambda _: "v1")
    assert lease.begun == 0
    assert b'"batch": 0' in (place / "lease.json").read_bytes()


@pytest.mark.parametrize("order", ["112122222222222", "211222212222222", "222122212221222"])
def test_two_drivers_do_not_run_two_batches_of_one_number(
    place: ObjectPath,
    monkeypatch: pytest.MonkeyPatch,
    dead: None,  # noqa: F811
    order: str,
) -> None:
    race(place, [{"1": "first", "2": "second"}[each] for each in order], monkeypatch)


@pytest.mark.in_turn
def test_a_query_is_killed_goes_on_and_is_copied(
    tmp_path: Path, place: ObjectPath, azure: AzuriteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    (tmp_path / "account key").write_text(f"{KEY}\n", encoding="utf-8")
    run = Run(tmp_path, place, sparkConf=FLAT, azure={"accountKey": {"file": str(tmp_path / "account key")}})
    process = run.start()
    wait_until(lambda: batches(process) >= 1, "it finishes a batch", seconds=300)
    process.kill()
    said = run.finish()
    run.check()
    assert KEY not in said
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    assert millrace("checkpoint", "copy", place, tmp_path / "copy").returncode == 0
    assert "state partitions  2\n" in millrace("checkpoint", "show", tmp_path / "copy").stdout
    assert millrace("checkpoint", "rm", place).returncode == 0
    assert not list(place.objects())


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "aHVudGVyMg=="}, "cannot be used: AuthorizationFailure: "),
        ({"AZURE_STORAGE_ACCOUNT_KEY": ""}, "needs a key of its storage account; write spec.azure.accountKey, or set"),
        ({"AZURE_STORAGE_ENDPOINT": "https://127.0.0.1:1"}, "cannot be used: "),
        ({AZURE_CLIENT.variable: "/nowhere"}, "Spark has no client for Azure, which the checkpoint"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_sentence(run: Run, environment: dict[str, str], said: str) -> None:
    ended = subprocess.run(
        [MILLRACE, "run", run.file], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    text = " ".join(ended.stderr.split())
    assert ended.returncode == 1
    assert f"{run.file}:" in text
    assert said in text
    assert "Traceback" not in text
    assert "aHVudGVyMg" not in text
