"""The user's own code: files that the driver fetches when it starts, each verified by its digest."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import AfterValidator, Field

from millrace_api.model.base import Model, problem
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.values import text

_HINT = (
    "write s3a://BUCKET/KEY, https://HOST/PATH, or file:PATH on one machine, of a .whl, a .zip or a .jar, without a "
    "login, a query and a fragment"
)


def _plain(uri: str) -> str:
    if any(part in (".", "..") for part in urlsplit(uri).path.split("/")) and not uri.startswith("file:"):
        raise problem(f'"{uri}" has the part . or .., which a URI does not need', "write it without")
    return uri


CodeUri = Annotated[
    str,
    *text(
        r"(s3a://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9._+=/-]*[A-Za-z0-9_+=-]|"
        r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/[A-Za-z0-9._~%!+=/-]*[A-Za-z0-9_~%!+=-]|"
        r"file:(/(//)?)?[^/?#\s]([^?#\s]*[^/?#\s])?)\.(whl|zip|jar)",
        2048,
        "the URI of code",
        _HINT,
    ),
    AfterValidator(_plain),
]
Sha256 = Annotated[
    str,
    *text("[0-9a-f]{64}", 64, "a SHA-256 digest", "write its 64 digits in lower case, as sha256sum prints them"),
]


class CodeFile(Model):
    """A file of code, and the digest that it must have."""

    uri: Annotated[CodeUri, External(ExternalKind.CODE)] = Field(
        description="A Python package as .whl, folders of Python modules as .zip, or classes for Spark as .jar.",
        examples=["s3a://code/routes-1.4.0-py3-none-any.whl"],
    )
    sha256: Sha256 = Field(
        description="SHA-256 digest of the file, which is verified before anything of it is used.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )

    @property
    def name(self) -> str:
        """Name of the file."""
        return os.fsdecode(unquote_to_bytes(self.uri.rpartition("/")[2].removeprefix("file:")))

    @property
    def is_jar(self) -> bool:
        """Whether Spark loads it, and not Python."""
        return self.uri.endswith(".jar")

    @property
    def path(self) -> str | None:
        """The path of a file of one machine, which may be relative to that of the query; None for another URI."""
        if not self.uri.startswith("file:"):
            return None
        return os.fsdecode(unquote_to_bytes(self.uri.removeprefix("file:").removeprefix("//")))
