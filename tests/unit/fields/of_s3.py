"""Probes of the S3 that a query names."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.secrets import Secret
from millrace_jobs.stores.spark import environment_of, keys_of

from .documents import KAFKA, query
from .of_kafka import ENV, secret_probes
from .probe import ABSENT, Probe, probes, written

KEYS = ("accessKeyId", "secretAccessKey")


def environment(asked: StreamQuery) -> object:
    """Return what clients of S3 find in the environment of the driver."""
    return environment_of(asked.spec.s3)


def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
    """Yield the references to the keys."""
    yield from keys_of(asked.spec.s3).items()


def of_s3() -> Iterator[Probe]:
    """Yield the probes of the store and the login."""
    base = query(KAFKA, checkpoint={"uri": "s3a://lake/trips"})
    endpoints = (ABSENT, "https://minio:9000", "http://minio:9000")
    yield Probe("spec.s3", base, (ABSENT, {"region": "eu-central-1"}), environment)
    yield from probes(base, environment, "spec.s3", endpoint=endpoints, region=(ABSENT, "eu-central-1", "us-east-1"))
    with_keys = written(base, "spec.s3", dict.fromkeys(KEYS, ENV[0]))
    for key in KEYS:
        yield Probe(f"spec.s3.{key}", with_keys, (ABSENT, *ENV), environment)
    yield from secret_probes([(f"spec.s3.{key}", with_keys) for key in KEYS], environment, references)
