"""Paths and URIs of a query, as they are written: those that would name another place are refused."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.validation.places import (
    bucket_and_prefix,
    folder_of,
    may_be_object,
    object_problem,
    path_problem,
    uri_problem,
)

from .documents import MINIMAL, changed, problems

PLAIN = [
    "in",
    "in/*.csv",
    "./s3a:/lake",
    "./~/out",
    "my project/größe/a+b%20c#d?e",
    "/data/a:b/c",
    "a:b",
    "out ",
    "-out",
    "./x$HOME",
    "/data/./${DATE}/x",
    "lib/Outer$Inner.csv",
    "cost$/$1",
    "/" + "/".join(["x" * 255] * 4),
    "ä" * 127,
]


@pytest.mark.parametrize("path", ["s3a://lake/a", "s3a://lake/day=*/[a-c]?.json", "s3a://lake/a b/ü", "s3a://lake/**/"])
def test_data_in_s3_may_have_all_characters_that_are_not_expanded(path):
    assert object_problem(path) is None
    assert may_be_object("spec.sources.trips.files.path", path)
    assert not may_be_object("spec.sources.trips.replay.path", path)


@pytest.mark.parametrize(
    "path", ["s3a://lake", "s3a://L/a", "s3a://lake/../a", "s3a://lake/~/a", "s3a://lake/$A", "s3a://"]
)
def test_other_places_in_s3_are_refused(path):
    found = object_problem(path)
    assert found is not None
    assert found[1].startswith("write a bucket and the key of an object")


@pytest.mark.parametrize("path", PLAIN)
def test_a_plain_path_is_taken_as_it_is(path):
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("s3a://lake/revenue", "the scheme s3a: is not supported", "or ./s3a:/... for a folder of this name"),
        ("S3://key:secret@lake/x", "the scheme S3: is not supported", "write the path of a mounted folder"),
        ("hdfs://host:9000/x", "the scheme hdfs: is not supported", "write the path of a mounted folder"),
        ("dbfs:/x", "the scheme dbfs: is not supported", "or ./dbfs:/... for a folder of this name"),
        ("C:/x", "the scheme C: is not supported", "write the path of a mounted folder"),
        ("file:///lake/my%20data/*.csv", "is a URI", "write /lake/my data/*.csv"),
        ("file:/lake", "is a URI", "write /lake"),
        ("FILE:///lake", "is a URI", "write /lake"),
        ("file://host/lake", "the scheme file: is not supported", "write the path of a mounted folder"),
        ("~/out", '"~/out" begins with ~, which is not expanded', 'or "./~/out" for a folder of this name'),
        ("~", '"~" begins with ~', 'or "./~"'),
        ("$HOME/out", '"$HOME/out" has the variable $HOME, which is not expanded', 'or "./$HOME/out"'),
        ("${HOME}/out", '"${HOME}/out" has the variable ${HOME}', "write the path in full"),
        ("/data/$DATE/x", '"/data/$DATE/x" has the variable $DATE, which is', 'or "/data/./$DATE/x" for a folder of'),
        ("/data/${DATE}", '"/data/${DATE}" has the variable ${DATE}, which', 'or "/data/./${DATE}" for a folder of'),
        ("./a/day-$DAY2.csv", "has the variable $DAY2, which is not expanded", 'or "./a/./day-$DAY2.csv"'),
        ("a\0b", r"'a\x00b' has a NUL character, which no path can have", "leave it out"),
        ("a\ud800b", r"'a\ud800b' is not UTF-8", "rename the folder, or write another one"),
        ("in/" + "x" * 256, "of 256 bytes, and a file system allows 255", "write a shorter one"),
        ("ä" * 128, "of 256 bytes, and a file system allows 255", "write a shorter one"),
    ],
)
def test_a_path_that_names_another_place_than_it_seems_to_is_refused(path, message, hint):
    found = path_problem(path)
    assert found is not None
    assert message in found[0]
    assert hint in found[1]
    assert "secret" not in found[0] + found[1]


PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20)


@given(st.lists(PARTS.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4))
def test_the_uri_of_a_folder_names_this_folder(parts):
    folder = Path("/", *parts)
    assert folder_of(folder.as_uri()) == str(folder)
    assert uri_problem(folder.as_uri()) is None


def test_a_uri_may_name_a_folder_whose_name_is_not_utf_8():
    folder = Path(os.fsdecode(b"/a\xff"))
    assert folder_of(folder.as_uri()) == str(folder)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("gs://bucket/prefix", "the scheme gs: is not supported; write s3a:// with a bucket and a prefix, or file://"),
        (
            "s3a://bucket",
            "is not a bucket and a prefix of letters, digits, points, hyphens and underscores; write s3a://",
        ),
        ("s3a://Bucket/prefix", "is not a bucket and a prefix"),
        (
            "abfss://lake@account.dfs.core.windows.net/trips",
            "is not a container at the blob endpoint of a storage account, and a prefix; write "
            "abfss://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX: an account without a hierarchical namespace",
        ),
        ("abfss://lake@account.blob.core.windows.net/", "is not a container at the blob endpoint"),
        ("abfss://lake@account.blob.core.windows.net.example.org/trips", "is not a container at the blob endpoint"),
        ("abfss://a--b@account.blob.core.windows.net/trips", "is not a container at the blob endpoint"),
        ("abfs://lake@account.blob.core.windows.net/trips", "the scheme abfs: is not supported"),
        ("s3a://bucket/a b", "is not a bucket and a prefix"),
        ("s3a://bucket/a//b", "is not a bucket and a prefix"),
        ("s3a://bucket/a/../b", "is not a bucket and a prefix"),
        ("s3a://bucket/.", "is not a bucket and a prefix"),
        ("s3a://key:secret@bucket/a", "is not a bucket and a prefix"),
        ("file://host/x", "has a host, a query or a fragment"),
        ("file:///a?b", "has a host, a query or a fragment"),
        ("file:///a#b", "write file:/// and the path, with %3F for ? and %23 for #"),
        ("file:///a%00b", "has a NUL character"),
        ("file:///a%FFb", r"'/a\udcffb' is not UTF-8; rename the folder"),
    ],
)
def test_a_uri_that_no_checkpoint_can_have_is_refused(uri, said):
    assert said in "; ".join(uri_problem(uri) or ())


@pytest.mark.parametrize("uri", ["s3a://lake/a/b/", "abfss://my-lake@account7.blob.core.windows.net/a/b/"])
def test_a_prefix_in_an_object_store_is_parted(uri):
    scheme, _, place = uri.partition("://")
    assert uri_problem(uri) is None
    assert bucket_and_prefix(uri) == (scheme, place.partition("/")[0], "a/b")
    assert uri_problem("file:///a;b=c") is None
    assert folder_of("file:///a;b=c") == "/a;b=c"


@pytest.mark.parametrize("uri", ["s3a://bucket/prefix", "s3a://my.bucket-1/a/b_c/d.e-f/"])
def test_a_prefix_in_an_object_store_can_be_used(uri):
    assert uri_problem(uri) is None


REPLAY = "format: csv, timeColumn: at"
SCHEMA = "      schema: cell STRING, fare DOUBLE, at TIMESTAMP"


@pytest.mark.parametrize(
    ("line", "replacement", "field"),
    [
        (7, "      files: {path: 'gs://x/y', format: csv}", "sources.trips.files.path"),
        (7, f"      replay: {{path: 's3a://x/y', {REPLAY}}}", "sources.trips.replay.path"),
        (
            8,
            f"{SCHEMA}\n      corruptRecords: {{policy: DeadLetter, path: 's3a://x'}}",
            "sources.trips.corruptRecords.path",
        ),
        (11, "  sink: {files: {path: 'gs://lake/revenue'}}", "sink.files.path"),
        (12, "  checkpoint: {uri: 'hdfs://lake/revenue'}", "checkpoint.uri"),
    ],
)
def test_each_place_of_a_query_is_checked(tmp_path, line, replacement, field):
    (problem,) = problems(tmp_path, changed(MINIMAL, line, replacement))
    assert re.search(rf"spec\.{re.escape(field)}: the scheme (s3a|gs|hdfs): is not supported; write ", problem)
