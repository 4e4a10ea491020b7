"""Probes of look-ups by other pods: who may ask, by which certificate, and from where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.lookups.service import TokenFile
from millrace_jobs.run.lookups import service_settings
from millrace_jobs.secrets import Secret
from millrace_operator.resources.network import job_network_policy
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.pods import driver_pod

from .documents import BROKERS, KAFKA, query
from .of_kafka import ENV, OWNER, secret_probes
from .probe import ABSENT, Document, Probe, written

TABLE = {"table": BROKERS | {"topic": "by-city"}}


def served(asked: StreamQuery) -> object:
    """Return which tokens the service takes, and its certificate and key."""
    if asked.spec.lookups is None:
        return None
    with TemporaryDirectory() as folder:
        settings = service_settings(asked.spec.lookups, "10.0.0.1", 8082, Path(folder))
        tokens = TokenFile(settings.tokens)
        files = [None if path is None else Path(path).read_text() for path in (settings.certificate, settings.key)]
        return tokens._digests, Path(settings.tokens).read_text(), files


def opened(asked: StreamQuery) -> object:
    """Return who reaches which port, and the ports of the driver."""
    pod = driver_pod(asked, OWNER, PodDefaults("image"), {})
    policy = job_network_policy(OWNER, (), asked.spec.lookups)
    return policy["spec"]["ingress"], pod["spec"]["containers"][0]["ports"]


def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
    """Yield the references to tokens, certificate and key."""
    lookups = asked.spec.lookups
    if lookups is not None:
        yield "tokens", Secret.of("tokens", lookups.tokens)
        if lookups.tls is not None:
            yield "certificate", Secret.of("certificate", lookups.tls.certificate)
            yield "key", Secret.of("key", lookups.tls.key)


def of_lookups() -> Iterator[Probe]:
    """Yield the probes of all fields."""
    lookups: Document = {"tokens": ENV[0]}
    base = query(KAFKA, sink=TABLE, lookups=lookups)
    tls = {"certificate": ENV[0], "key": ENV[1]}
    with_tls = written(base, "spec.lookups.tls", tls)
    yield Probe("spec.lookups", query(KAFKA, sink=TABLE), (ABSENT, lookups), opened)
    yield Probe("spec.lookups.tls", base, (ABSENT, tls), served)
    yield Probe("spec.lookups.namespaces", with_tls, (ABSENT, ["web"], ["web", "desk"], ["*"]), opened)
    places = ["tokens", "tls.certificate", "tls.key"]
    yield from secret_probes([(f"spec.lookups.{place}", with_tls) for place in places], served, references)
