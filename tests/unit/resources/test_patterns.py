"""Patterns of a policy match what an administrator means, and nothing that only looks like it."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from millrace_api.model.externals import ExternalKind, ExternalValue
from millrace_operator.resources.patterns import (
    BrokerPattern,
    CatalogPattern,
    CheckpointPattern,
    ImagePattern,
    NamePattern,
    PathPattern,
    RolePattern,
    SettingPattern,
    UrlPattern,
    absolute_path,
    checkpoint_folder,
    image_repository,
    matches,
    matches_any,
    server_address,
    url_address,
)

ALLOWED = "registry.example.com"
WORDS = st.text("abyz019", min_size=1, max_size=4)
TRICKY = st.one_of(
    st.text(max_size=60),
    st.text("./:@-_aA*?[]{}%\\ registry.example.com", max_size=60),
    st.lists(
        st.sampled_from(
            [ALLOWED, "evil.com", "..", ".", "", "/", "//", "@", ":", "a", "A", "docker.io", "%2e%2e", "*", "\n", "#"]
        ),
        max_size=8,
    ).map("".join),
)
"""Texts of the parts by which a prefix or an expression is evaded."""


def is_pattern(kind, text):
    try:
        TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return False
    return True


@given(TRICKY)
@example("registry.example.com.evil.com/a")
@example("registry.example.com@evil.com/a")
@example("registry.example.com/../evil.com/a")
@example("registry.example.com:443/a")
@example("registry.example.com")
@example("registry.example.com/a\n")
def test_no_image_outside_an_allowed_registry_matches(image):
    """A container runtime takes what is before the first slash for the registry, if it can be a host."""
    if matches_any([f"{ALLOWED}/**"], image_repository(image)):
        host, _, path = image.partition("/")
        assert host.lower() == ALLOWED
        assert re.fullmatch(r"[a-z0-9][a-zA-Z0-9._:@/-]*", path)
        assert not {"", ".", ".."} & set(path.split("/"))


@given(
    st.sampled_from([ALLOWED, "Registry.Example.com"]),
    st.lists(WORDS, min_size=1, max_size=3),
    st.sampled_from(["", ":1.0", ":Latest_7", "@sha256:" + "a" * 64, ":1@sha256:" + "0" * 64]),
)
def test_each_image_of_an_allowed_registry_matches_whatever_its_tag_and_digest(registry, path, version):
    repository = "/".join(path)
    assert image_repository(f"{registry}/{repository}{version}") == f"{ALLOWED}/{repository}"
    assert matches_any([f"{ALLOWED}/**"], image_repository(f"{registry}/{repository}{version}"))


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1", "docker.io/library/busybox"),
        ("team/busybox", "docker.io/team/busybox"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/busybox", "docker.io/library/busybox"),
        ("localhost/busybox", "localhost/busybox"),
        ("registry:5000/busybox", "registry:5000/busybox"),
        ("evil.com/busybox", "evil.com/busybox"),
        ("Evil/busybox", "evil/busybox"),
        ("registry.example.com/a//b", None),
        ("registry.example.com/a/./b", None),
        ("https://registry.example.com/a", None),
        ("registry.example.com/a:1:2", None),
        ("registry.example.com/a@sha256:12", None),
        ("", None),
    ],
)
def test_images_are_completed_as_container_runtimes_do(image, repository):
    assert image_repository(image) == repository


@given(TRICKY)
@example("/data/team/../other")
@example("/data/team/link/../x")
@example("/data/team/%2e%2e/other")
@example("data/team/x")
@example("/data/team-b/x")
@example("//data/team")
def test_no_path_outside_an_allowed_folder_matches(path):
    if matches_any(["/data/team/**"], absolute_path(path)):
        assert [part for part in path.split("/") if part not in ("", ".")][:2] == ["data", "team"]
        assert ".." not in path.split("/")


@given(st.lists(st.sampled_from(["a", "ab", "*", "a*", "?b", "[a]", "**"]), min_size=1, max_size=3), WORDS, WORDS)
@example(["**"], "a", "b")
def test_a_users_own_glob_matches_no_more_than_the_pattern_does(parts, one, two):
    """Two folders are one more than ``/data/*`` stands for: ``**`` in a path is not taken for its text."""
    path = "/data/" + "/".join(parts)
    if matches("/data/*", path):
        assert parts != ["**"]
        assert not fnmatchcase(f"{one}/{two}", parts[0]) or "*" in parts[0]
        assert len(parts) == 1
    assert matches("/data/**", path)


def test_brackets_in_a_users_own_glob_are_not_the_text_between_them():
    """``*[!-team-a-]*`` has the text ``-team-a-``, and names folders of all other teams."""
    assert matches("s3a://lake/*-team-a-*/**", "s3a://lake/x-team-a-y/z")
    assert not matches("s3a://lake/*-team-a-*/**", "s3a://lake/*[!-team-a-]*/z")
    assert matches("s3a://lake/*/a", "s3a://lake/[xy]/a")
    assert not matches("/data/x*/a", "/data/x[yz]/a")


@given(TRICKY)
@example("file:///mnt/state/%2e%2e/%2e%2e/tmp")
@example("file:///mnt/state%2f..%2f..%2ftmp")
@example("file://host/mnt/state/a")
@example("file:///mnt/state?/../../tmp")
def test_no_checkpoint_outside_an_allowed_folder_matches(text):
    for uri in (text, f"file://{text}", f"file:///mnt/state/{text}"):
        folder = checkpoint_folder(uri)
        if folder is not None and matches_any(["file:///mnt/state/**"], f"file://{folder}"):
            assert folder.split("/")[:3] == ["", "mnt", "state"]
            assert not {"..", "."} & set(folder.split("/"))


def broker(address):
    return server_address(
        ExternalValue("spec.sink.kafka.bootstrapServers", ExternalKind.BROKERS, address, 9092).address
    )


@given(TRICKY)
@example("kafka.example.com:9092@evil:9092")
@example("SSL://evil:9092")
@example("kafka.example.com.evil.com:9092")
@example("kafka.example.com:90921")
def test_no_broker_but_the_allowed_one_matches(address):
    if matches_any(["kafka.example.com:9092"], broker(address)):
        assert address.strip().lower() in ("kafka.example.com:9092", "kafka.example.com")


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("kafka:9092", "kafka", True),
        ("kafka:9092", " KAFKA:9092", True),
        ("kafka:9092", "kafka:9093", False),
        ("kafka:*", "kafka:9093", True),
        ("*.kafka.example.com:9092", "b-1.kafka.example.com:9092", True),
        ("*.kafka.example.com:9092", "kafka.example.com:9092", False),
        ("*.kafka.example.com:9092", "evilkafka.example.com:9092", False),
        ("kafka:9092", "[::1]:9092", False),
    ],
)
def test_patterns_of_brokers_match_host_and_port(pattern, address, expected):
    assert matches_any([pattern], broker(address)) is expected


@given(TRICKY)
@example("https://schemas.example.com@evil.com/")
@example("https://schemas.example.com\\@evil.com/")
@example("https://evil.com#https://schemas.example.com")
def test_no_url_of_another_host_matches(text):
    for url in (text, f"https://{text}", f"https://schemas.example.com{text}"):
        if matches_any(["https://schemas.example.com/**"], url_address(url)):
            assert re.match(r"https://schemas\.example\.com(/|$)", url, re.IGNORECASE)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ImagePattern, "millrace-jobs"),
        (ImagePattern, "team/*"),
        (ImagePattern, "*"),
        (ImagePattern, "**"),
        (ImagePattern, "*/jobs"),
        (ImagePattern, "registry.example.com"),
        (ImagePattern, "registry.example.com/"),
        (ImagePattern, "registry.example.com*/**"),
        (ImagePattern, "registry.*/**"),
        (ImagePattern, "registry.example.com/../a"),
        (ImagePattern, "registry.example.com/a:1"),
        (ImagePattern, "registry.example.com/**/a"),
        (ImagePattern, "registry.example.com/a**"),
        (ImagePattern, "Registry.example.com/a"),
        (BrokerPattern, "kafka"),
        (BrokerPattern, "*:9092"),
        (BrokerPattern, "kafka*:9092"),
        (BrokerPattern, "SSL://kafka:9092"),
        (BrokerPattern, "a:1,b:2"),
        (PathPattern, "data/x"),
        (PathPattern, "/"),
        (PathPattern, "/data/"),
        (PathPattern, "/data/../x"),
        (PathPattern, "/data/**/x"),
        (PathPattern, "/data/[ab]"),
        (CheckpointPattern, "/mnt/state"),
        (CheckpointPattern, "gs://bucket/**"),
        (CheckpointPattern, "abfss://lake@account.example.org/**"),
        (CheckpointPattern, "file://host/mnt"),
        (UrlPattern, "schemas.example.com"),
        (UrlPattern, "https://user:secret@schemas.example.com"),
        (UrlPattern, "ftp://schemas.example.com"),
        (CatalogPattern, "thrift://metastore"),
        (CatalogPattern, "thrift://metastore:9083/**"),
        (CatalogPattern, "ftp://catalog.example.com"),
        (NamePattern, ""),
        (NamePattern, "a/b"),
        (RolePattern, "arn:aws:iam::*:role/streams"),
        (RolePattern, "arn:aws:iam::123456789012:role*/streams"),
        (RolePattern, "arn:aws:iam::123456789012:user/streams"),
        (RolePattern, "streams-*"),
        (SettingPattern, "spark sql"),
    ],
)
def test_a_pattern_that_could_mean_more_than_it_says_is_refused(kind, text):
    assert not is_pattern(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ImagePattern, "docker.io/library/*"),
        (ImagePattern, "registry.example.com/**"),
        (ImagePattern, "*.example.com:5000/streams-*/a_b/**"),
        (ImagePattern, "localhost/jobs"),
        (ImagePattern, "registry:5000/jobs"),
        (BrokerPattern, "kafka.example.com:9092"),
        (BrokerPattern, "*.example.com:*"),
        (PathPattern, "/**"),
        (PathPattern, "/data/my folder/*.json"),
        (CheckpointPattern, "file:///mnt/*/state/**"),
        (UrlPattern, "https://schemas.example.com"),
        (UrlPattern, "http://*.example.com:8081/v1/**"),
        (CatalogPattern, "https://catalog.example.com/**"),
        (CatalogPattern, "thrift://*.example.com:9083"),
        (NamePattern, "streams-*"),
        (RolePattern, "arn:aws-cn:iam::123456789012:role/team-a/streams-*"),
        (RolePattern, "arn:aws:iam::123456789012:role/**"),
        (SettingPattern, "spark.sql.*"),
    ],
)
def test_a_pattern_in_use_is_accepted(kind, text):
    assert is_pattern(kind, text)


@given(st.lists(WORDS, min_size=1, max_size=4), st.data())
def test_a_star_stands_for_one_part_and_two_at_the_end_for_the_rest(parts, data):
    value = "/".join(parts)
    at = data.draw(st.integers(0, len(parts) - 1))
    assert matches("/".join([*parts[:at], "*", *parts[at + 1 :]]), value)
    assert matches("/".join([*parts[:at], "**"]), value)
    assert not matches("/".join([*parts, "*"]), value)
    assume(len(parts) > 1)
    assert not matches("*", value)
