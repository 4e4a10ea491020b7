"""Download of a file of code, within bounds of size and time, with its digest verified at the end.

A tenant's server may be slow on purpose, and the start of a driver waits for its code. So each download runs on a
thread that is abandoned when the time for all of them is over; sockets have time limits only for each read.
"""

from __future__ import annotations

import errno
import hashlib
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, IncompleteRead
from pathlib import Path
from typing import IO, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.code import CONFIG_MAPS, CodeConfigMap, CodeFile
from millrace_api.model.status import FailureClass
from millrace_jobs.confinement import confinement, require_data
from millrace_jobs.stores.objects import ObjectPath
from millrace_support.backoff import Backoff

SECONDS = 120.0
"""Time for all files of a query. The operator gives a driver five minutes to start, Spark included."""

PATIENCE = 30.0
"""Seconds to keep trying while a server does not answer."""

MOST_BYTES = 256 << 20
"""Most bytes of all files of a query together. What is larger belongs into an image."""

_MOUNTED = Path(CONFIG_MAPS)
_SOCKET_SECONDS = 10.0
_CHUNK = 1 << 20
_ANSWERS_LATER = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
_REFUSALS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}
_LOGIN_HINT = "check spec.s3 or the login of the environment, and that it may read there"
_DIGEST_HINT = "write this digest if it is that of the file you mean, or put that file back"


@dataclass
class Budget:
    """What is left of time and bytes for the files of a query."""

    seconds: float = SECONDS
    bytes: int = MOST_BYTES
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline; not positive after it."""
        return self.deadline - time.monotonic()


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def fetch(file: CodeFile, target: Path, folder: Path, budget: Budget, where: str) -> None:
    """Write a file of code to ``target``, which exists afterwards only with the right digest.

    Args:
        file: the file.
        target: where it goes, in a folder that only this user may enter.
        folder: the folder that relative paths are in.
        budget: what all files may take.
        where: the field of the spec.

    Raises:
        TransientError: the server does not answer, or is too slow.
        MillraceError: there is no such file, it may not be read, is too large, or has another digest.
    """
    failure: list[BaseException] = []

    def attempt() -> None:
        try:
            _fetch(file, target, folder, budget, where)
        except BaseException as error:
            target.unlink(missing_ok=True)
            failure.append(error)

    thread = threading.Thread(target=attempt, name=f"fetch {file.name}", daemon=True)
    thread.start()
    thread.join(max(budget.left, 0.0))
    if thread.is_alive():
        raise _too_slow(file, budget, where)
    if failure:
        raise failure[0]


def _fetch(file: CodeFile, target: Path, folder: Path, budget: Budget, where: str) -> None:
    patience, pauses = time.monotonic() + PATIENCE, Backoff(0.5, longest=5.0, jitter=0.5)
    before = budget.bytes
    while True:
        try:
            found = _attempt(file, target, folder, budget, where)
            break
        except TransientError:
            pause, budget.bytes = pauses.next(), before
            if time.monotonic() + pause > min(patience, budget.deadline):
                raise
            time.sleep(pause)
    if found != file.sha256:
        message = f"{file.place} has the digest {found}, and not {file.sha256}"
        raise _config(Problem(message, _DIGEST_HINT, field=f"{where}.sha256"))


def _attempt(file: CodeFile, target: Path, folder: Path, budget: Budget, where: str) -> str:
    """Fetch a file once; return its digest."""

    def copy(source: _Readable) -> str:
        return _copy(source, target, file, budget, where)

    if file.config_map is not None:
        return _from_config_map(file, file.config_map, folder, copy, where)
    if file.path is not None:
        require_data(folder / file.path)
        return _from_disk(file, folder / file.path, copy, where)
    uri = file.uri or ""
    if uri.startswith("s3a://"):
        return _from_store(file, uri, copy, where)
    return _from_server(file, uri, budget, copy, where)


def _copy(source: _Readable, target: Path, file: CodeFile, budget: Budget, where: str) -> str:
    digest = hashlib.sha256()
    with target.open("wb", buffering=0) as written:
        while content := source.read(_CHUNK):
            budget.bytes -= len(content)
            if budget.bytes < 0:
                raise _too_large(file, where)
            if budget.left <= 0:
                raise _too_slow(file, budget, where)
            digest.update(content)
            try:
                written.write(content)
            except OSError as error:
                raise disk_error(error, target.parent) from None
    return digest.hexdigest()


def _from_config_map(
    file: CodeFile, config_map: CodeConfigMap, folder: Path, copy: Callable[[_Readable], str], where: str
) -> str:
    """Read a key that the pod mounts; elsewhere, the file of its name beside the query's file."""
    if not _MOUNTED.is_dir():
        path = folder / config_map.key
        require_data(path)
        if not path.is_file():
            message = f"this machine has no ConfigMap {config_map.name}, and no file {path} in its place"
            hint = f"put {config_map.key} there, or write uri: file:PATH for this machine"
            raise _unavailable(Problem(message, hint, field=f"{where}.configMap"))
        return _from_disk(file, path, copy, where)
    path = _MOUNTED / config_map.name / config_map.key
    if not path.is_file():
        message = f"the namespace has no ConfigMap {config_map.name} with the key {config_map.key}"
        raise _unavailable(Problem(message, "make it, or write another name or key", field=f"{where}.configMap"))
    return _from_disk(file, path, copy, where)


def _from_disk(file: CodeFile, path: Path, copy: Callable[[_Readable], str], where: str) -> str:
    if not path.is_file():  # also a pipe, which nothing may ever be written to
        raise _missing(file, f"there is no file {path}", where)
    try:
        with path.open("rb") as source:
            return copy(source)
    except PermissionError:
        problem = Problem(f"{path} may not be read", "let this user read it", field=f"{where}.{file.place_field}")
        raise _unavailable(problem) from None


def _from_store(file: CodeFile, uri: str, copy: Callable[[_Readable], str], where: str) -> str:
    try:
        with ObjectPath.of_file(uri).open() as source:
            return copy(source)
    except FileNotFoundError:
        raise _missing(file, f"there is no object {file.place}", where) from None
    except PermissionError as error:
        message = f"{file.place} may not be read: {error.strerror}"
        raise _unavailable(Problem(message, _LOGIN_HINT, field=f"{where}.{file.place_field}")) from None
    except OSError as error:
        raise _unanswered(file, str(error.strerror or error), where) from None


def _from_server(file: CodeFile, uri: str, budget: Budget, copy: Callable[[_Readable], str], where: str) -> str:
    request = Request(uri, headers={"Accept-Encoding": "identity", "User-Agent": "millrace"})
    opener = build_opener(_Redirects)
    try:
        with opener.open(request, timeout=max(0.1, min(_SOCKET_SECONDS, budget.left))) as answer:
            if (answer.length or 0) > budget.bytes:
                raise _too_large(file, where)
            found = copy(_PartialReads(answer))
            if answer.length:  # the connection has ended, and http.client says nothing of it
                raise IncompleteRead(b"", answer.length)
            return found
    except HTTPError as error:
        raise _refused(file, error, where) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            message = f"the certificate of {urlsplit(uri).netloc} is not trusted: {reason.verify_message}"
            hint = "add its authority to those of the image, or name a file with it by SSL_CERT_FILE"
            raise _unavailable(Problem(message, hint, field=f"{where}.{file.place_field}")) from None
        raise _unanswered(file, str(reason) or type(reason).__name__, where) from None


class _PartialReads:
    """An answer of which each read returns what has arrived, so that a slow one meets the deadline between reads."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def read(self, size: int, /) -> bytes:
        """Return some bytes of the answer, at least one before its end."""
        return self._answer.read1(size)


class _Answer(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class _Redirects(HTTPRedirectHandler):
    """Follows redirections to other servers only where no policy says which may be asked, and never to plain HTTP."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        weaker = after.scheme != "https" and after.scheme != before.scheme
        if weaker or (after[:2] != before[:2] and confinement() is not None):
            raise HTTPError(req.full_url, code, f"it refers to {after.scheme}://{after.hostname}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refused(file: CodeFile, error: HTTPError, where: str) -> MillraceError:
    said = " ".join(f"HTTP {error.code} {error.reason}".split())
    if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return _missing(file, f"there is no {file.place}: {said}", where)
    if error.code >= 500 or error.code in _ANSWERS_LATER:
        return _unanswered(file, said, where)
    if error.code in _REFUSALS:
        hint = "let the server give it out without a login, or write an s3a:// URI, which spec.s3 logs in to"
        return _unavailable(Problem(f"{file.place} may not be read: {said}", hint, field=f"{where}.{file.place_field}"))
    hint = "write the URI that it refers to, if that is allowed" if 300 <= error.code < 400 else "write another URI"
    return _config(Problem(f"{file.place} cannot be fetched: {said}", hint, field=f"{where}.{file.place_field}"))


def disk_error(error: OSError, folder: Path) -> MillraceError:
    """Return the error for a temporary folder that code cannot be written to."""
    problem = Problem(f"the code cannot be written to {folder}: {error.strerror}", "free some space, or set TMPDIR")
    found = MillraceError(problem)
    found.failure = FailureClass.DISK_FULL if error.errno == errno.ENOSPC else FailureClass.OTHER
    return found


def _missing(file: CodeFile, message: str, where: str) -> MillraceError:
    hint = f"put {file.name} there, or write where it is"
    return _unavailable(Problem(message, hint, field=f"{where}.{file.place_field}"))


def _too_large(file: CodeFile, where: str) -> MillraceError:
    message = f"the code is larger than {MOST_BYTES >> 20} MiB with {file.place}"
    return _config(Problem(message, "put what is large into an image", field=f"{where}.{file.place_field}"))


def _too_slow(file: CodeFile, budget: Budget, where: str) -> TransientError:
    message = f"{file.place} did not arrive within the {budget.seconds:g} s that all code may take"
    hint = "check that its server is fast enough, or put the code into an image"
    return _transient(Problem(message, hint, field=f"{where}.{file.place_field}"))


def _unanswered(file: CodeFile, why: str, where: str) -> TransientError:
    hint = "check the URI, and whether its server runs"
    return _transient(Problem(f"{file.place} cannot be fetched: {why}", hint, field=f"{where}.{file.place_field}"))


def _transient(problem: Problem) -> TransientError:
    error = TransientError(problem)
    error.failure = FailureClass.CODE
    return error


def _unavailable(problem: Problem) -> MillraceError:
    error = MillraceError(problem)
    error.failure = FailureClass.CODE
    return error


def _config(problem: Problem) -> MillraceError:
    error = MillraceError(problem)
    error.failure = FailureClass.CONFIG
    return error
