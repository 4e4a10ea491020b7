"""What a spec names outside of its query is declared by its fields, and found wherever they are."""

import re
from collections.abc import Iterator
from typing import Any, get_args

from millrace_api.model.base import Model
from millrace_api.model.externals import External, ExternalKind, externals, given
from millrace_api.model.streamquery import Spec

NAMES_SOMETHING = re.compile("(.*_)?(url|uri|host|hosts|servers|endpoint|registry|path|location|file|folder|arn)")
OWN_RULES = {("CheckpointSpec", "uri")}
"""Fields that policies and checks know by themselves, since no connector has them."""

LOGIN = {
    "mechanism": "OAUTHBEARER",
    "awsMskIam": {"region": "eu-west-1", "roleArn": "arn:aws:iam::123456789012:role/a"},
}
DATABASE = {"host": "db-1, db-2:6432", "database": "sales", "user": "ada", "password": {"file": "/secrets/password"}}
KAFKA = {"bootstrapServers": "b-1:9098,b-2,", "topic": "trips", "sasl": LOGIN, "options": {"client.rack": "a"}}


def spec() -> Spec:
    return Spec.model_validate(
        {
            "sources": {
                "trips": {
                    "kafka": KAFKA,
                    "schema": "id BIGINT",
                    "corruptRecords": {"policy": "DeadLetter", "path": "bad"},
                },
                "files": {"files": {"path": "s3a://lake/in", "format": "csv"}, "schema": "id BIGINT"},
            },
            "query": {"sql": "SELECT 1"},
            "sink": {"iceberg": {"catalog": {"postgres": DATABASE}, "table": "a.b"}},
            "s3": {"endpoint": "https://minio:9000"},
            "lineage": {"http": {"url": "https://marquez/api"}},
        }
    )


def held(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in get_args(annotation):
        yield from held(part)


def below(model: type[Model], seen: set[type[Model]]) -> set[type[Model]]:
    if model not in seen:
        seen.add(model)
        for info in model.model_fields.values():
            for each in held(info.annotation):
                below(each, seen)
    return seen


def test_a_field_that_names_a_server_or_a_path_declares_it():
    fields = [(model, name, info) for model in below(Spec, set()) for name, info in model.model_fields.items()]
    undeclared = {
        (model.__name__, name)
        for model, name, info in fields
        if NAMES_SOMETHING.fullmatch(name) and not any(isinstance(each, External) for each in info.metadata)
    }
    assert undeclared == OWN_RULES


def test_everything_that_a_spec_names_is_found_with_its_field():
    found = [
        (each.field, each.kind.value, each.address) for each in externals(spec(), "spec") if each.value is not None
    ]
    trips, catalog = "spec.sources.trips", "spec.sink.iceberg.catalog.postgres"
    assert [each for each in found if each[1] not in ("client_options", "identities")] == [
        (f"{trips}.kafka.bootstrapServers", "brokers", "b-1:9098"),
        (f"{trips}.kafka.bootstrapServers", "brokers", "b-2:9092"),
        (f"{trips}.kafka.sasl.awsMskIam.roleArn", "role_arns", "arn:aws:iam::123456789012:role/a"),
        (f"{trips}.corruptRecords.path", "files", "bad"),
        ("spec.sources.files.files.path", "data", "s3a://lake/in"),
        (f"{catalog}.host", "databases", "db-1:5432"),
        (f"{catalog}.host", "databases", "db-2:6432"),
        (f"{catalog}.password.file", "logins", "/secrets/password"),
        ("spec.s3.endpoint", "s3_endpoints", "https://minio:9000"),
        ("spec.lineage.http.url", "lineage", "https://marquez/api"),
    ]


def test_a_field_that_is_left_out_is_known_by_name_only():
    left_out = [each.field for each in externals(spec(), "spec") if each.value is None]
    assert "spec.sink.iceberg.location" in left_out
    assert list(given(spec(), "spec", ExternalKind.TABLES)) == []


def test_options_and_identities_of_clients_are_found():
    (options,) = given(spec(), "spec", ExternalKind.CLIENT_OPTIONS)
    (identity,) = given(spec(), "spec", ExternalKind.IDENTITIES)
    assert options.value == {"client.rack": "a"}
    assert identity.field == "spec.sources.trips.kafka.sasl.awsMskIam"
