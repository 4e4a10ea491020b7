"""Options of the Kafka client: which a query may set, as the library itself lists and takes them."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from pydantic import ValidationError

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.kafka_options import (
    ALLOWED,
    REFUSED,
    ZONE,
    ZONE_VARIABLE,
    ChoiceOption,
    IntegerOption,
    refusal,
)
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.option_check import option_problems, require_options


class Property(NamedTuple):
    """A row of the library's own table of properties."""

    name: str
    range: str


def library_table(folder: Path) -> list[Property]:
    """Return the properties that the library documents of itself."""
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    library, libc = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    out = folder / "properties.md"
    file = libc.fopen(str(out).encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [[cell.strip() for cell in line.split("|")] for line in out.read_text().splitlines() if line.count("|") > 3]
    return [Property(row[0], row[2]) for row in rows if re.fullmatch(r"[a-z][a-z0-9._]+", row[0])]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    found = library_table(tmp_path_factory.mktemp("library"))
    assert len(found) > 150
    return found


def connection(**options: str) -> Connection:
    spec = {"bootstrapServers": "kafka:9092", "options": options}
    return Connection.of(KafkaConnection.model_validate(spec))


def given(name: str, value: str) -> Connection:
    return connection(**{name: value})


def test_every_property_of_the_library_may_be_set_or_is_refused_with_a_reason(table):
    """If this fails for a new version: read what its new properties do, and list them."""
    without_reason = [each.name for each in table if (refusal(each.name) or ("",))[0].endswith("no such option")]
    assert without_reason == []
    assert set(ALLOWED) <= {each.name for each in table}


def test_every_reason_is_one_for_a_property_of_the_library(table):
    assert [start for start in REFUSED if not any(each.name.startswith(start) for each in table)] == []


def test_what_may_be_set_names_no_file_and_no_security():
    reached = re.compile(r"location|path|file|ssl|sasl|https|security|plugin|interceptor|providers|engine|cmd|_cb$")
    assert [name for name in ALLOWED if reached.search(name)] == []


def test_ranges_are_the_library_s(table):
    ranges = {each.name: each.range for each in table}
    for name, option in ALLOWED.items():
        if isinstance(option, IntegerOption):
            assert ranges[name] == f"{option.least} .. {option.most}", name
        elif isinstance(option, ChoiceOption):
            assert ranges[name].split(", ") == list(option.words), name


def values(name: str) -> list[str]:
    option = ALLOWED[name]
    if isinstance(option, IntegerOption):
        return [str(option.least), str(option.most)]
    return list(option.words) if isinstance(option, ChoiceOption) else ["rack-1"]


TOGETHER = {"reconnect.backoff.ms": "reconnect.backoff.max.ms", "reconnect.backoff.max.ms": "reconnect.backoff.ms"}
"""Options whose extremes need another one of the same value."""


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_the_library_takes_every_value(name):
    for value in values(name):
        options = {name: value} | ({TOGETHER[name]: value} if name in TOGETHER else {})
        spec = KafkaConnection.model_validate({"bootstrapServers": "kafka:9092", "options": options})
        require_options(spec, "spec.sink.kafka")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("plugin.library.paths", "/tmp/x.so", "it would load code into the process; leave it out"),
        ("ssl.ca.location", "/etc/passwd", "it is part of how the connection is secured; write tls and sasl"),
        ("ssl.engine.location", "/tmp/x.so", "it is part of how the connection is secured"),
        ("sasl.kerberos.kinit.cmd", "sh -c id", "it is part of how the connection is secured"),
        ("enable.ssl.certificate.verification", "false", "it is part of how the connection is secured"),
        ("sasl.oauthbearer.assertion.file", "/etc/passwd", "it is part of how the connection is secured"),
        ("group.id", "g", "the source joins no group: its offsets are in the checkpoint"),
        ("transactional.id", "g", "results are written exactly once by it"),
        ("enable.auto.commit", "true", "the source joins no group"),
        (
            "isolation.level",
            "read_uncommitted",
            "records of aborted transactions must not be read; leave it out: it is",
        ),
        ("bootstrap.servers", "evil:9092", "it is a field of its own; write bootstrapServers"),
        ("offset.store.path", "/tmp", "the source joins no group"),
        ("client.rak", "a", "the Kafka client has no such option; did you mean client.rack?"),
        ("Plugin.Library.Paths", "/tmp/x.so", "the Kafka client has no such option; correct its name"),
        (" ssl.ca.location", "/etc/passwd", "the Kafka client has no such option; correct its name"),
        ("secretKeyRef", "a", "the Kafka client has no such option; correct its name"),
    ],
)
def test_a_refused_option_has_its_reason(name, value, said):
    with pytest.raises(ValidationError) as raised:
        given(name, value)
    assert f'"{name}" may not be set: {said}' in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("socket.timeout.ms", "9", '"9" is not a value of socket.timeout.ms; write a whole number from 10 to 300000'),
        ("socket.timeout.ms", "1e3", '"1e3" is not a value'),
        ("socket.timeout.ms", "--1", '"--1" is not a value'),
        ("compression.type", "brotli", "write one of none, gzip, snappy, lz4, zstd"),
        ("client.rack", "a b", "write letters, digits, '.', '_' and '-', or {zone}"),
        ("client.id", "{zone}", "write letters, digits, '.', '_' and '-'"),
        ("client.id", "a\nssl.ca.location=/x", "is not the value of an option"),
    ],
)
def test_a_wrong_value_is_quoted_with_those_that_are_right(name, value, said):
    with pytest.raises(ValidationError) as raised:
        given(name, value)
    assert said in str(raised.value)


def test_options_go_before_the_settings_of_every_client_and_after_those_of_the_connection():
    settings = connection(**{"client.id": "team-a", "reconnect.backoff.max.ms": "5000"}).settings()
    assert settings["client.id"] == "team-a"
    assert settings["reconnect.backoff.max.ms"] == "5000"
    assert settings["bootstrap.servers"] == "kafka:9092"
    assert settings["log_level"] == 0


@pytest.mark.parametrize(("zone", "rack"), [("eu-west-1a", "az-eu-west-1a"), ("", None), (None, None)])
def test_the_rack_is_the_zone_of_the_node_where_it_has_one(zone, rack, monkeypatch):
    if zone is None:
        monkeypatch.delenv(ZONE_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(ZONE_VARIABLE, zone)
    assert given("client.rack", f"az-{ZONE}").settings().get("client.rack") == rack


def test_options_that_do_not_go_together_are_said_to_be_so_by_the_library():
    options = {"reconnect.backoff.ms": "5000"}
    source = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "trips", "options": options}, "format": "raw"}
    spec = a_query("spec", "sources", value={"trips": source}).spec
    (problem,) = option_problems(spec)
    assert str(problem) == (
        "spec.sources.trips.kafka.options: the Kafka client refuses these options: reconnect.backoff.max.ms must be "
        ">= reconnect.backoff.ms; correct them"
    )
    kafka = spec.sources["trips"].kafka
    assert kafka is not None
    with pytest.raises(MillraceError, match="refuses these options"):
        require_options(kafka, "spec.sources.trips.kafka")


def test_the_page_lists_what_may_be_set_and_nothing_else():
    page = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text(encoding="utf-8")
    part = page.partition("## Options of the client")[2].partition("- **Everything else")[0]
    assert set(re.findall(r"`([a-z.]+\.[a-z.]+)`", part)) == set(ALLOWED)
