"""Errors of object stores, folders and table libraries as sentences for the user, and which of them may pass."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.stores.objects import in_short
from millrace_support.backoff import Backoff

_ATTEMPTS = 10
"""How often a commit is tried while other writers get in its way, or the store or the catalog does not answer."""


class MetastoreError(Exception):
    """What a Hive metastore has answered, or why it has not."""


class _Cause(NamedTuple):
    """What an error means, what to do about it, and whether it may pass by itself."""

    what: str
    hint: str
    passes: bool = False


_MEANINGS: tuple[tuple[str, _Cause], ...] = (
    (r"NoSuchBucket", _Cause("the bucket does not exist", "create it, or correct the path")),
    (r"ExpiredToken|TokenRefreshRequired", _Cause("the login has expired", "renew it, and start the query again")),
    (
        r"SignatureDoesNotMatch|InvalidAccessKeyId|Unauthorized|CredentialsNotLoaded",
        _Cause("the login is refused", "check the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"),
    ),
    (
        r"AccessDenied|Forbidden|Permission denied|PermissionDenied",
        _Cause("the login may not do that", "let it list, read, write and delete objects or files there"),
    ),
    (r"No space left", _Cause("a disk is full", "free some space, and start the query again")),
    (
        r"[Uu]nsupported (reader|writer) feature|not supported by|[Uu]nsupported table feature|reader version",
        _Cause("the table has a feature that Millrace cannot write", "write to another table, or drop the feature"),
    ),
    (
        r"[Cc]oncurrent|[Cc]ommit failed|Failed to commit|Transaction failed",
        _Cause("other writers of the table got in the way", "look for other writers of the same rows", passes=True),
    ),
    (
        r"Object at location .* not found|Failed to open local file .*No such file",
        _Cause(
            "a file of the table is gone",
            "let other programs keep files for as long as readers and writers may use them",
            passes=True,
        ),
    ),
    (
        r"SlowDown|InternalError|ServiceUnavailable|Service Unavailable|[Tt]imed? ?out|error sending request|"
        r"[Cc]onnection|connect error|dns error|Generic S3 error|HTTP error",
        _Cause("the store does not answer as it should", "check that it and the network are healthy", passes=True),
    ),
)
"""Meanings of what libraries say; the first that matches wins."""


def lakehouse_error(error: Exception, doing: str, field: str) -> MillraceError:
    """Return the error of a library as a sentence; a TransientError if it may pass by itself.

    ``doing`` is what has failed, such as ``writing batch 7 to the table s3a://lake/trips``.
    """
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    detail = in_short(text)
    known = next((meaning for pattern, meaning in _MEANINGS if re.search(pattern, text)), None)
    if known is None:
        return MillraceError(Problem(f"{doing} failed: {detail}", "see what the table has there", field=field))
    problem = Problem(f"{doing} failed, because {known.what} ({detail})", known.hint, field=field)
    return TransientError(problem) if known.passes else MillraceError(problem)


def retried(attempt: Callable[[], None]) -> None:
    """Repeat what looks at the table's newest version first, while what is in its way may pass.

    Raises:
        MillraceError: as the last attempt, or one whose failure does not pass by itself.
    """
    pauses = Backoff(first=0.1, longest=3.0, jitter=0.5)
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except TransientError:
            time.sleep(pauses.next())
    return attempt()
