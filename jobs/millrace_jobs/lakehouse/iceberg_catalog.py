"""Catalogs of Iceberg tables, opened for a query, and their errors as sentences.

Logins are read when a catalog is opened, and nothing of the library's own configuration files and variables is.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate
from pyiceberg.typedef import Identifier
from requests.adapters import HTTPAdapter
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.iceberg import IcebergTableSpec, PostgresCatalogSpec, RestCatalogSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.databases.postgres import PostgresConnection
from millrace_jobs.disk import absolute_path
from millrace_jobs.lakehouse.errors import MetastoreError, lakehouse_error
from millrace_jobs.lakehouse.iceberg_io import FIELD, TableFiles
from millrace_jobs.secrets import Secret
from millrace_jobs.stores.objects import in_short

_FILES = {"py-io-impl": f"{TableFiles.__module__}.{TableFiles.__name__}"}
"""What the library reads and writes files by, as a property of catalogs."""

_NO_ACCESS = re.compile(r"No FileSystem for scheme|[Pp]ermission denied|AccessControl|AccessDenied|ClassNotFound")
"""What a metastore says of a place that it cannot use."""

CONNECT_SECONDS, ANSWER_SECONDS = 5, 30
"""Time-outs of a connection to a catalog, and of its answer."""

_TOKEN_SECONDS = 600.0
"""How long a token is used if its server does not say how long it is valid."""

_ERRORS = (
    RESTError,
    OAuthError,
    requests.RequestException,
    SQLAlchemyError,
    psycopg.Error,
    MetastoreError,
    CommitFailedException,
    ValidationException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchPropertyException,
    OSError,
    ValueError,
)
"""What ``pyiceberg`` raises."""

REFUSED_LOGIN = (UnauthorizedError, OAuthError, AuthorizationExpiredError, ForbiddenError)
"""What it raises if a catalog refuses the login; some catalogs answer 403 for a token that has expired."""


class StagedTransaction(Transaction):
    """A transaction that computes what the table becomes once for each change that is staged.

    With each look at a transaction, sixteen times for a commit, pyiceberg computes it, and copies all snapshots of the
    table for that: with thousands of them, commits become slow. ``with_shared_snapshots`` saves the copies.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._computed: tuple[tuple[TableUpdate, ...], TableMetadata] = (), table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with the changes so far."""
        if self._computed[0] is not self._updates:
            self._computed = self._updates, super().table_metadata
        return self._computed[1]


class _Shared(list[Any]):
    """Values that are never changed, so that a copy of the list has the same ones."""

    def __add__(self, more: Iterable[Any]) -> _Shared:
        return _Shared([*self, *more])

    def __deepcopy__(self, known: dict[int, Any]) -> _Shared:
        return _Shared(self)


def with_shared_snapshots(table: Table) -> Table:
    """Return a table whose snapshots are not copied with its metadata."""
    found = table.metadata
    lists = {"snapshots": _Shared(found.snapshots), "snapshot_log": _Shared(found.snapshot_log)}
    table.metadata = found.model_copy(update=lists)
    return table


def open_catalog(spec: IcebergTableSpec, field: str = FIELD, *, create: bool = True) -> Catalog:
    """Return the catalog of a table; it has been asked at least once.

    ``field`` of the query has ``spec``; with ``create``, a catalog in a file is created if it does not exist.

    Raises MillraceError if a secret cannot be read, or the catalog cannot be used, or it is a file where the query may
    have none.
    """
    with catalog_errors("opening the catalog", field):
        if spec.catalog.rest is not None:
            return _RestCatalog("rest", **rest_settings(spec.catalog.rest), **_FILES)
        if spec.catalog.postgres is not None:
            return _PostgresCatalog(spec.catalog.postgres, **_FILES)
        if spec.catalog.hive is not None:
            from millrace_jobs.lakehouse.iceberg_hive import HiveMetastore  # its calls are 2 MB of generated code

            return HiveMetastore(spec.catalog.hive.uri, **_FILES)
        assert spec.catalog.file is not None
        file = absolute_path(spec.catalog.file)
        require_data(file)
        if not create and not file.exists():
            problem = Problem(f"there is no catalog at {file}", "correct the path", field=f"{field}.catalog.file")
            raise MissingInputError(problem)
        file.parent.mkdir(parents=True, exist_ok=True)
        return _SqlCatalog("millrace", uri=f"sqlite:///{file}", **_FILES)


def require_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """Create the namespace of a new table if it does not exist."""
    for depth in range(1, len(namespace) + 1):
        if not catalog.namespace_exists(namespace[:depth]):
            try:
                catalog.create_namespace(namespace[:depth])
            except NamespaceAlreadyExistsError:
                continue  # of two queries that create it at once, the second finds the first one's


@contextmanager
def catalog_errors(doing: str, field: str = FIELD) -> Iterator[None]:
    """Raise the library's errors as sentences.

    ``doing`` is what fails, such as ``writing batch 7 to the table sales.trips``.
    """
    try:
        yield
    except _ERRORS as error:
        raise _sentence(error, doing, field) from error


def _sentence(error: Exception, doing: str, field: str) -> MillraceError:
    text = str(error)
    detail = in_short(text.splitlines()[0] if text else type(error).__name__)
    of_server = isinstance(error, SQLAlchemyError | psycopg.Error)
    at, passes = f"{field}.catalog", False
    if isinstance(error, CommitFailedException | ValidationException):
        what, hint = "other writers of the table got in the way", "look for other writers of the same rows"
        at, passes = field, True
    elif isinstance(error, UnauthorizedError | OAuthError | AuthorizationExpiredError) or (
        "authentication failed" in text
    ):
        what, hint = "the catalog refuses the login", "check the login, and that it has not expired"
    elif isinstance(error, ForbiddenError) or "permission denied for" in text:
        what, hint = "the catalog does not allow it", "let the login create, read and write the table"
    elif of_server and 'database "' in text and "does not exist" in text:
        what, hint = "the server has no such database", "create it, or correct its name"
        at = f"{at}.postgres.database"
    elif isinstance(error, NoSuchIcebergTableError | NoSuchPropertyException):
        what, hint = "the metastore has another kind of table under this name", "name an Iceberg table, or a new one"
        at = f"{field}.table"
    elif isinstance(error, MetastoreError) and _NO_ACCESS.search(text):
        what = "the metastore itself cannot use the place of the table or database"
        hint = "let it read and write there, too, as it makes their folders"
    elif of_server or isinstance(error, MetastoreError | RESTError | requests.RequestException):
        what, passes = "the catalog does not answer as it should", True
        hint = "check its address, and that it and the network are healthy"
        if isinstance(error, MetastoreError):
            hint = "check its address, that it and the network are healthy, and that it asks for no login and no TLS"
    elif "equality delete" in text:
        what = "the table has equality deletes, which the library cannot read"
        hint = "compact the table by the engine that writes them, or write another table"
        return MillraceError(Problem(f"{doing} failed, because {what}", hint, field=f"{field}.table"))
    else:
        return lakehouse_error(error, doing, field)
    problem = Problem(f"{doing} failed, because {what} ({detail})", hint, field=at)
    return TransientError(problem) if passes else MillraceError(problem)


class _RestCatalog(RestCatalog):
    """A catalog whose requests end: the library's have no time-outs, and no property or public method sets any."""

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Patience())
        return session

    def load_table(self, identifier: str | Identifier) -> Table:
        return with_shared_snapshots(super().load_table(identifier))


class _Patience(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *arguments: Any, **more: Any) -> requests.Response:
        return super().send(request, *arguments, **more | {"timeout": (CONNECT_SECONDS, ANSWER_SECONDS)})


class ClientLogin(AuthManager):
    """Tokens of an OAuth 2 client (RFC 6749, 4.4), which gets the next one before the last one expires."""

    def __init__(self, url: str, client_id: str, client_secret: str, scope: str) -> None:
        self._url = url
        login = {"client_id": client_id, "client_secret": client_secret, "scope": scope}
        self._form = {"grant_type": "client_credentials", **login}
        self._token, self._until, self._lock = "", 0.0, threading.Lock()

    def auth_header(self) -> str:
        """Return the header of a request."""
        with self._lock:
            if time.monotonic() >= self._until:
                answer = requests.post(self._url, data=self._form, timeout=(CONNECT_SECONDS, ANSWER_SECONDS))
                if answer.status_code in (400, 401, 403):
                    raise OAuthError(f"{answer.status_code} from {self._url}")
                answer.raise_for_status()
                found = answer.json()
                self._token = str(found["access_token"])
                self._until = time.monotonic() + float(found.get("expires_in") or _TOKEN_SECONDS) * 0.8
            return f"Bearer {self._token}"


class _SqlCatalog(SqlCatalog):
    def load_table(self, identifier: str | Identifier) -> Table:
        return with_shared_snapshots(super().load_table(identifier))


class _PostgresCatalog(_SqlCatalog):
    """A catalog whose server is reached like that of the sink ``postgres``; no URI has the password."""

    def __init__(self, spec: PostgresCatalogSpec, **properties: str) -> None:
        Catalog.__init__(self, spec.name, uri="postgresql+psycopg://", **properties)
        connection = PostgresConnection.of(spec)

        def connect() -> psycopg.Connection[Any]:
            with tempfile.TemporaryDirectory(prefix="millrace-tls-") as folder:
                settings = connection.settings(Path(folder)) | {"autocommit": False}
                return psycopg.connect(**settings)  # type: ignore[arg-type]

        self.engine = create_engine("postgresql+psycopg://", creator=connect, pool_pre_ping=True, pool_size=1)
        try:
            self._init_catalog()
        except BaseException:
            self.close()
            raise


def rest_secrets(spec: RestCatalogSpec) -> dict[str, Secret]:
    """Return the references to the secrets of a login, by their fields; read none."""
    where = f"for the catalog at {spec.uri}"
    found = {}
    if spec.token is not None:
        found["token"] = Secret.of(f"the token {where}", spec.token)
    if spec.client_secret is not None:
        found["clientSecret"] = Secret.of(f"the secret of the client {where}", spec.client_secret)
    return found


def rest_settings(spec: RestCatalogSpec) -> dict[str, Any]:
    """Return the library's settings of a catalog. Do not store them: they contain the login.

    Raises MillraceError if a secret cannot be read.
    """
    secrets = {name: secret.resolve() for name, secret in rest_secrets(spec).items()}
    found: dict[str, Any] = {
        "uri": spec.uri,
        "header.X-Iceberg-Access-Delegation": "",  # tasks write by the query's own login, not by one of the catalog
    }
    if spec.warehouse is not None:
        found["warehouse"] = spec.warehouse
    if "token" in secrets:
        found["token"] = secrets["token"]
    if "clientSecret" in secrets:
        login = {
            "url": spec.token_uri or f"{spec.uri.rstrip('/')}/v1/oauth/tokens",
            "client_id": spec.client_id,
            "client_secret": secrets["clientSecret"],
            "scope": spec.scope or "catalog",
        }
        found["auth"] = {"type": "custom", "impl": f"{__name__}.{ClientLogin.__name__}", "custom": login}
    return found
