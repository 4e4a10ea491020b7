"""Probes of schemas of messages: descriptors, and registries with their logins; none is asked."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from google.protobuf import descriptor_pb2

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.schemas.registry import SchemaRegistry
from millrace_jobs.secrets import Secret

from .probe import ABSENT, Document, Probe, probes, written

ENV = ({"env": "FIRST_SECRET"}, {"env": "SECOND_SECRET"})
RegistryOf = Callable[[StreamQuery], SchemaRegistry]
SecretProbes = Callable[..., Iterator[Probe]]


def registry_probes(place: str, base: Document, registry: RegistryOf, secret_probes: SecretProbes) -> Iterator[Probe]:
    """Yield the probes of a registry's URL and of the login to it; ``base`` has an https URL at ``place``."""

    def settings(asked: StreamQuery) -> object:
        found = registry(asked)
        return found.url, found.credentials.header(), {name: each.resolve() for name, each in references(asked)}

    def references(asked: StreamQuery) -> Iterable[tuple[str, Secret]]:
        return [(name, each) for name, each in vars(registry(asked).credentials).items() if each is not None]

    login, tls = f"{place}.login", f"{place}.login.tls"
    pair = {"certificate": ENV[0], "key": ENV[0]}
    basic = written(base, login, {"username": ENV[0], "password": ENV[0]})
    token = written(base, login, {"token": ENV[0]})
    secured = written(base, login, {"tls": pair | {"ca": ENV[0]}})
    yield Probe(f"{place}.registry", base, ("https://first", "https://second"), settings)
    yield Probe(login, base, (ABSENT, {"token": ENV[0]}), settings)
    yield from probes(basic, settings, login, username=ENV, password=ENV)
    yield from probes(token, settings, login, token=(ABSENT, *ENV), tls=(ABSENT, {"ca": ENV[0]}))
    yield from probes(secured, settings, tls, ca=(ABSENT, *ENV), certificate=(ABSENT, *ENV), key=(ABSENT, *ENV))
    secrets = [(f"{login}.{name}", basic) for name in ("username", "password")] + [(f"{login}.token", token)]
    secrets += [(f"{tls}.{name}", secured) for name in ("ca", "certificate", "key")]
    yield from secret_probes(secrets, settings, references)


def described(*names: str) -> str:
    """Return a descriptor set with messages whose fields have these names, in base64."""
    file = descriptor_pb2.FileDescriptorProto(name="trips.proto", package="trips", syntax="proto3")
    for message in ("Trip", "Ride"):
        fields = file.message_type.add(name=message).field
        for number, name in enumerate(names, start=1):
            fields.add(name=f"{name}_{message}", number=number, type=5, label=1)
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()


def descriptor_file(*names: str) -> str:
    """Return the path of a file with such a descriptor set."""
    file = Path(mkdtemp(prefix="millrace-fields-"), "trips.binpb")
    file.write_bytes(base64.b64decode(described(*names)))
    return str(file)
