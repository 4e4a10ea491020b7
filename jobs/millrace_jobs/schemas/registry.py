"""A schema registry with Confluent's interface, over HTTP: what it has, and what is registered in it.

An answer that may be another one later (429, 5xx, none at all) is waited for, ``PATIENCE`` seconds. Logins are read for
each request, and are in no message.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, NamedTuple, Self
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.registries import RegistryLogin
from millrace_jobs.secrets import Secret
from millrace_support.backoff import Backoff

PATIENCE = 30.0
"""Seconds to keep trying while a registry does not answer."""

MOST_BYTES = 8 << 20
"""Most bytes of an answer."""

_TIMEOUT = 10.0
_PAUSE = 1.0
_SHOWN = 400
_URL_HINT = "write http://host:8081"
_JSON = "application/vnd.schemaregistry.v1+json, application/json"
_MISSING = {40401, 40402, 40403}
"""Error codes of a registry without the subject, the version or the schema; another 404 is no registry's."""

AVRO = "AVRO"
"""The type of schemas of which a registry does not say it."""

MOST_SCHEMAS = 1024
"""Most schemas that a process keeps."""

_MOST_REFERENCES = 256


@dataclass(frozen=True)
class RegistryCredentials:
    """References to what a registry asks for; picklable, because no secret is in it."""

    username: Secret | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: Secret | None = None
    certificate: Secret | None = None
    key: Secret | None = None

    @classmethod
    def of(cls, login: RegistryLogin | None) -> Self:
        """Return the references of a spec; read nothing."""
        if login is None:
            return cls()
        named = {
            "username": ("the user name", login.username),
            "password": ("the password", login.password),
            "token": ("the token", login.token),
        }
        if login.tls is not None:
            named["ca"] = ("the certificate authority", login.tls.ca)
            named["certificate"] = ("the client certificate", login.tls.certificate)
            named["key"] = ("the key of the client certificate", login.tls.key)
        return cls(
            **{
                name: Secret.of(f"{what} for the schema registry", value)
                for name, (what, value) in named.items()
                if value is not None
            }
        )

    @property
    def given(self) -> bool:
        """Whether there is a login besides trust in the registry's certificate."""
        return any(each is not None for each in (self.username, self.token, self.certificate))

    def header(self) -> dict[str, str]:
        """Return the header of a request with the login. Raises MillraceError if a secret cannot be read."""
        if self.token is not None:
            return {"Authorization": f"Bearer {_line(self.token)}"}
        if self.username is not None and self.password is not None:
            pair = f"{_line(self.username)}:{_line(self.password)}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    def context(self) -> ssl.SSLContext | None:
        """Return the settings of TLS; None for the usual ones. Raises MillraceError if a secret is not usable."""
        if self.ca is None and self.certificate is None:
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca.resolve() if self.ca is not None else None)
        except ssl.SSLError:
            raise _unusable(self.ca) from None
        if self.certificate is not None and self.key is not None:
            pair = f"{self.certificate.resolve()}\n{self.key.resolve()}\n"
            with tempfile.TemporaryDirectory() as folder:  # only its owner can look into it
                file = Path(folder, "client.pem")
                file.write_text(pair, encoding="ascii", errors="replace")
                try:
                    context.load_cert_chain(file)
                except (ssl.SSLError, OSError):
                    raise _unusable(self.certificate) from None
        return context


def _line(secret: Secret) -> str:
    value = secret.resolve()
    if not value.isprintable():
        message = f"{secret.what} has characters that an HTTP header cannot have"
        raise MillraceError(Problem(message, "write it in one line, without blanks around it"))
    return value


def _unusable(secret: Secret | None) -> MillraceError:
    what = secret.what if secret is not None else "the certificate"
    message = f"{what} is not a certificate in PEM with its key"
    return MillraceError(Problem(message, "write -----BEGIN CERTIFICATE-----"))


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry, identified by its URL; ``field`` is where the query names it.

    Raises MillraceError if the URL is malformed, is not HTTP or HTTPS, or contains a user or a password.
    """

    url: str
    credentials: RegistryCredentials = RegistryCredentials()
    field: str = "avro.registry"

    def __post_init__(self) -> None:
        parts = _split(self.url)
        if parts is None:  # the URL is not shown, because it may contain a password
            raise MillraceError(Problem("the registry's URL is malformed", _URL_HINT))
        if parts.username or parts.password:
            shown = parts._replace(netloc=f"...@{parts.hostname}").geturl()
            hint = "leave user and password out: a spec is no place for secrets"
            raise MillraceError(Problem(f"the registry's URL {shown} contains a login", hint))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MillraceError(Problem(f"{self.url!r} is not the URL of a registry", _URL_HINT))

    def schema(self, number: int) -> dict[str, Any] | None:
        """Return what the registry has under the id of a schema; None if it has no such id.

        Raises MillraceError if the registry refuses the request, or its answer is not that of a registry. Raises
        TransientError if the registry does not answer for ``PATIENCE`` seconds.
        """
        return self._schema(f"/schemas/ids/{number}", f"schema {number}")

    def version(self, subject: str, version: int | str) -> dict[str, Any] | None:
        """Return a version of a subject, None if there is none; raises as ``schema`` does."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return self._schema(path, f"version {version} of {subject}")

    def registered(self, subject: str, schema: Mapping[str, Any]) -> int | None:
        """Return the id of a schema of a subject; None if the subject does not have it. Raises as ``schema`` does."""
        found = self.request(f"/subjects/{quote(subject, safe='')}", dict(schema))
        return None if found is None else self._id(found, subject)

    def objections(self, subject: str, schema: Mapping[str, Any]) -> str:
        """Return why a subject does not accept a schema; empty if it does. Raises as ``schema`` does."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        found = self.request(path, dict(schema))
        if found is None or found.get("is_compatible", True):
            return ""
        said = [str(each) for each in found.get("messages") or ()]
        return _shortened("; ".join(said) or "it is not compatible with the latest version")

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Return the id under which a schema is now in a subject.

        Raises RefusedSchemaError if the registry does not accept the schema, and other errors as ``schema`` does.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = self.request(path, dict(schema))
        if found is None:
            raise self._unusable(f"{self.url.rstrip('/')}{path}", "it has no place for schemas there")
        return self._id(found, subject)

    def _id(self, answer: Mapping[str, Any], subject: str) -> int:
        number = answer.get("id")
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise self._unusable(self.url, f"its answer for subject {subject} has no id")
        return number

    def request(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the JSON object that answers a request, None if the registry lacks what it asks for.

        Raises RefusedSchemaError if the registry does not accept ``body``, and other errors as ``schema`` does.
        """
        url = f"{self.url.rstrip('/')}{path}"
        deadline, pauses = time.monotonic() + PATIENCE, Backoff(_PAUSE, longest=5.0, jitter=0.5)
        while True:
            try:
                return self._answer(url, body)
            except HTTPError as error:
                why = f"HTTP {error.code} {error.reason}"
                if error.code < 500 and error.code != HTTPStatus.TOO_MANY_REQUESTS:
                    self._raise_unless_missing(url, error, why, is_write=body is not None)
                    return None
            except (URLError, OSError, HTTPException) as error:
                reason = error.reason if isinstance(error, URLError) else error
                why = str(reason) or type(reason).__name__
                if isinstance(reason, ssl.SSLError):
                    raise self._unusable(url, why, f"check {self.field} and login.tls") from None
            if time.monotonic() > deadline:
                hint = f"check {self.field}, and whether the registry runs"
                raise TransientError(Problem(f"the schema registry does not answer at {url}: {why}", hint))
            time.sleep(pauses.next())

    def _schema(self, path: str, what: str) -> dict[str, Any] | None:
        found = self.request(path)
        if found is not None and not isinstance(found.get("schema"), str):
            raise self._unusable(f"{self.url.rstrip('/')}{path}", f"its answer for {what} has no schema")
        return found

    def _answer(self, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": _JSON, **self.credentials.header()}
        if data is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        opener = build_opener(_SameServer, HTTPSHandler(context=self.credentials.context()))
        with opener.open(Request(url, data, headers), timeout=_TIMEOUT) as answer:
            text = answer.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise self._unusable(url, f"its answer is larger than {MOST_BYTES >> 20} MiB")
        document = _object(text)
        if document is None:
            raise self._unusable(url, "its answer is not a JSON object")
        return document

    def _raise_unless_missing(self, url: str, error: HTTPError, why: str, *, is_write: bool) -> None:
        """Return if the registry only lacks what is asked for; else raise what the refusal means."""
        try:
            document = _object(error.read(MOST_BYTES)) or {}
        except (OSError, HTTPException):
            document = {}
        if error.code == HTTPStatus.NOT_FOUND and document.get("error_code") in _MISSING:
            return
        if error.code == HTTPStatus.UNAUTHORIZED:
            login = "refuses the login" if self.credentials.given else "asks for a login"
            raise self._unusable(url, f"it {login} ({why})", f"check {self._login}") from None
        if error.code == HTTPStatus.FORBIDDEN:
            raise self._unusable(url, f"it does not allow this ({why})", f"allow it to the user of {self._login}")
        if is_write and error.code in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise RefusedSchemaError(_shortened(str(document.get("message") or why))) from None
        if 300 <= error.code < 400:
            why = f"{why}: it refers to another server"
        raise self._unusable(url, why) from None

    @property
    def _login(self) -> str:
        return f"{self.field.rpartition('.')[0]}.login"

    def _unusable(self, url: str, why: str, hint: str = "") -> MillraceError:
        message = f"the schema registry cannot be used at {url}: {why}"
        return MillraceError(Problem(message, hint or f"check {self.field}"))


class RefusedSchemaError(Exception):
    """A schema that a registry does not accept; the text is what it says."""


class _SameServer(HTTPRedirectHandler):
    """Follows only redirections within a server: logins are for no other one."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _shortened(said: str) -> str:
    said = " ".join(said.split())
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if a request could not be sent to it.

    Its characters are printable ASCII without blanks, its host has no empty label, and its port is at most 65535.
    """
    if not re.fullmatch("[!-~]*", url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        return None
    return parts


def _object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object that ``body`` holds, or None if it holds anything else."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


class Referenced(NamedTuple):
    """A schema that another one refers to by a name, and where the registry has it."""

    name: str
    subject: str
    version: int
    document: Mapping[str, Any]


def referenced(
    registry: SchemaRegistry, document: Mapping[str, Any], *, is_known: Callable[[str], bool] = lambda _: False
) -> Iterator[Referenced]:
    """Yield the schemas that a schema refers to, each once and after those that it refers to itself.

    Those whose name ``is_known`` are left out. Raises ValueError if the registry does not have one of them, or they are
    too many.
    """
    found: dict[str, Referenced] = {}
    waiting = [(each, False) for each in reversed(_references(document))]
    while waiting:
        reference, ready = waiting.pop()
        name, subject, version = reference["name"], reference["subject"], reference["version"]
        if ready:
            yield found[name]
            continue
        if name in found or is_known(name):
            continue
        if len(found) == _MOST_REFERENCES:
            raise ValueError(f"it refers to more than {_MOST_REFERENCES} schemas")
        answer = registry.version(subject, version)
        if answer is None:
            raise ValueError(f"it refers to version {version} of {subject}, which the registry does not have")
        found[name] = Referenced(name, subject, version, answer)
        waiting.append((reference, True))
        waiting += [(each, False) for each in reversed(_references(answer))]


def _references(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the references of a schema. Raises ValueError if the answer has them in another form."""
    found = document.get("references") or []
    kinds = {"name": str, "subject": str, "version": int}
    for each in found:
        if not isinstance(each, dict) or not all(isinstance(each.get(key), kind) for key, kind in kinds.items()):
            raise ValueError("its references have no name, subject and version")
    return list(found)
