"""Probes of the login to a checkpoint in Azure."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.secrets import Secret
from millrace_jobs.stores.spark import environment_of, keys_of

from .documents import KAFKA, query
from .of_kafka import ENV, secret_probes
from .probe import ABSENT, Probe, written


def environment(asked: StreamQuery) -> object:
    """Return what clients of Azure find in the environment of the driver."""
    return environment_of(None, asked.spec.azure)


def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
    """Yield the reference to the key."""
    for key in keys_of(None, asked.spec.azure).values():
        yield "spec.azure.accountKey", key


def of_other_stores() -> Iterator[Probe]:
    """Yield the probes of the login."""
    base = query(KAFKA, checkpoint={"uri": "abfss://lake@account.blob.core.windows.net/trips"})
    field = "spec.azure.accountKey"
    with_key = written(base, "spec.azure", {"accountKey": ENV[0]})
    yield Probe("spec.azure", base, (ABSENT, {"accountKey": ENV[0]}), environment)
    yield from secret_probes([(field, with_key)], environment, references)
