"""Objects as paths: what they read and write, what races, and what a store that does not do as asked says."""

import pickle
import threading

import pytest
from pyarrow import fs

from lab.s3_server import ACCESS, SECRET
from lab.store_proxy import Disturbance
from millrace_jobs.stores import clients
from millrace_jobs.stores.objects import ObjectPath


def test_an_object_is_read_as_it_was_written(place):
    file = place / "offsets" / "7"
    assert not file.exists()
    file.write_bytes("é\n".encode())
    assert (file.read_text(), file.read_bytes(), file.exists(), file.name) == ("é\n", b"\xc3\xa9\n", True, "7")
    assert pickle.loads(pickle.dumps(file)).read_text() == "é\n"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        file.read_text()


def test_a_folder_has_the_objects_that_are_directly_in_it(place):
    for name in ("a/2", "a/10", "a/b/3", "ab"):
        (place / name).write_bytes(b"1234")
    assert [each.name for each in (place / "a").iterdir()] == ["10", "2"]
    assert ((place / "a").is_dir(), (place / "none").is_dir(), sorted((place / "a").objects())) == (
        True,
        False,
        [("10", 4), ("2", 4), ("b/3", 4)],
    )
    (place / "a").remove_all()
    assert ((place / "a").is_dir(), (place / "ab").exists()) == (False, True)


def test_of_many_that_create_one_object_one_does(place):
    made: list[str | None] = []

    def create(number):
        made.append((place / "one").create(str(number).encode()))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(tag is not None for tag in made) == 1
    assert (place / "one").read_version()[1] in made


def test_a_version_is_replaced_once(place):
    file = place / "one"
    first = file.create(b"1")
    assert first is not None
    second = file.replace_version(b"2", first)
    assert second is not None
    assert file.replace_version(b"3", first) is None
    assert file.read_version() == (b"2", second)
    file.unlink()
    assert file.replace_version(b"3", second) is None


def test_more_objects_than_one_answer_lists_are_listed_and_removed(place):
    for number in range(1005):
        (place / "many" / str(number)).write_bytes(b"")
    assert len(list((place / "many").iterdir())) == 1005
    (place / "many").remove_all()
    assert not (place / "many").is_dir()


@pytest.mark.parametrize("act", [lambda at: at.read_bytes(), lambda at: list(at.iterdir()), lambda at: at.create(b"")])
def test_a_missing_bucket_is_named(s3, act):
    with pytest.raises(OSError, match="NoSuchBucket: The specified bucket does not exist"):
        act(ObjectPath.of("s3a://nowhere/checkpoint"))


def test_a_refused_login_is_said_in_the_stores_words_without_the_login(place, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    clients.s3_client.cache_clear()
    with pytest.raises(PermissionError) as raised:
        place.read_bytes()
    clients.s3_client.cache_clear()
    assert raised.value.strerror.startswith("SignatureDoesNotMatch: ")
    assert "hunter2" not in str(raised.value)


def test_another_region_is_said_in_the_stores_words(place, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(OSError, match='the region "eu-central-1" is wrong'):
        place.read_bytes()


def test_a_store_that_is_slowed_down_is_asked_again(s3, place):
    refused = iter([503, 503])
    with s3.disturbed(lambda request: Disturbance(status=next(refused, 0))):
        place.write_bytes(b"1")
    assert place.read_bytes() == b"1"


def test_a_store_that_stays_away_is_an_error_in_one_line(place, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1") as raised:
        place.write_bytes(b"1")
    assert "\n" not in raised.value.strerror


def test_what_stands_for_a_folder_is_no_object(place, s3):
    (place / "a" / "b").write_bytes(b"1")
    (place / "empty").write_bytes(b"")
    as_consoles_do = fs.S3FileSystem(access_key=ACCESS, secret_key=SECRET, endpoint_override=s3.url, region="us-east-1")
    for name in ("a/folder", "folder"):
        as_consoles_do.create_dir(f"{place.bucket}/{place.key}/{name}", recursive=False)
    assert sorted(place.objects()) == [("a/b", 1), ("empty", 0)]
