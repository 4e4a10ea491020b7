"""Objects that another process has deleted, in a store that reports a missing object as Azure does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from millrace_jobs.sources.static_tables import TableContents
from millrace_jobs.stores import objects
from millrace_jobs.stores.objects import ObjectPath


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    store = LocalStore(tmp_path)
    monkeypatch.setattr(objects, "client_of", lambda scheme, bucket: store)
    return ObjectPath("abfss", "lake@account.blob.core.windows.net", "checkpoint")


def test_a_missing_object_is_an_error_unless_it_may_be_missing(place: ObjectPath) -> None:
    (place / "one").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (place / "one").unlink()


def test_missing_objects_do_not_stop_the_removal_of_others(place: ObjectPath) -> None:
    for name in ("a", "c", "kept"):
        (place / name).write_bytes(b"1")
    place.remove(["none", "a", "b", "c"])
    assert [name for name, _ in place.objects()] == ["kept"]


def test_a_place_is_removed_while_another_process_removes_it(
    place: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (place / name).write_bytes(b"1")
    delete = LocalStore.delete

    def after_another(self: LocalStore, keys: str | list[str]) -> None:
        if isinstance(keys, list):
            delete(self, keys[0])
        delete(self, keys)

    monkeypatch.setattr(LocalStore, "delete", after_another)
    place.remove_all()
    assert not list(place.objects())


def test_an_empty_object_that_is_deleted_while_it_is_listed_is_left_out(
    place: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (place / name).write_bytes(b"")
    get = LocalStore.get

    def after_another(self: LocalStore, key: str) -> Any:
        if key.endswith("/a"):
            self.delete(key)
        return get(self, key)

    monkeypatch.setattr(LocalStore, "get", after_another)
    assert list(place.objects()) == [("b", 0)]


def test_half_a_content_of_a_table_is_removed(place: ObjectPath) -> None:
    (place / "tables" / "0.parquet").write_bytes(b"1")
    TableContents(place / "tables").remove("0")
    assert not list(place.objects())
