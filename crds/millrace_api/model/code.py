"""The user's own code: files that the driver fetches when it starts, each verified by its digest."""

from __future__ import annotations

import os
import re
from typing import Annotated, ClassVar
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import AfterValidator, Field

from millrace_api.model.base import Model, Rule, exactly_one, problem
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.values import text

CONFIG_MAPS = "/etc/millrace/code"
"""Folder of a driver's pod with the code that comes from ConfigMaps: a folder for each, with a file for each key."""

_HINT = (
    "write s3a://BUCKET/KEY, https://HOST/PATH, or file:PATH on one machine, of a .py, a .whl, a .zip or a .jar, "
    "without a login, a query and a fragment"
)


def _plain(uri: str) -> str:
    if any(part in (".", "..") for part in urlsplit(uri).path.split("/")) and not uri.startswith("file:"):
        raise problem(f'"{uri}" has the part . or .., which a URI does not need', "write it without")
    if uri.endswith(".py") and not re.search(r"[:/][A-Za-z_][A-Za-z0-9_]*\.py$", uri):
        raise problem(f'"{uri}" has no name that Python can import', "name the file by letters, digits and _")
    return uri


CodeUri = Annotated[
    str,
    *text(
        r"(s3a://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[A-Za-z0-9._+=/-]*[A-Za-z0-9_+=-]|"
        r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/[A-Za-z0-9._~%!+=/-]*[A-Za-z0-9_~%!+=-]|"
        r"file:(/(//)?)?[^/?#\s]([^?#\s]*[^/?#\s])?)\.(py|whl|zip|jar)",
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
ConfigMapName = Annotated[
    str,
    *text(
        r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?",
        253,
        "the name of a ConfigMap",
        "write lower-case letters, digits, - and ., such as fares-1",
    ),
]
ConfigMapKey = Annotated[
    str,
    *text(
        r"[A-Za-z_][A-Za-z0-9_]*\.py|[A-Za-z0-9_][A-Za-z0-9._-]*\.(whl|zip|jar)",
        253,
        "a key with code",
        "write the name of a module and .py, such as fares.py, or of a .whl, a .zip or a .jar",
    ),
]


class CodeConfigMap(Model):
    """A file of code in a ConfigMap, which has room for 1 MiB."""

    name: Annotated[ConfigMapName, External(ExternalKind.CODE_CONFIG_MAPS)] = Field(
        description="Name of a ConfigMap in the query's own namespace.", examples=["fares-1"]
    )
    key: ConfigMapKey = Field(
        description="Key of the file: a module as .py, or a .whl, .zip or .jar in binaryData. On a laptop, the file of "
        "this name beside the query's file is used instead.",
        examples=["fares.py"],
    )


class CodeFile(Model):
    """A file of code, and the digest that it must have."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "uri", "config_map", hint="write where the file is, such as configMap: {name: fares-1, key: fares.py}"
        ),
    )

    uri: Annotated[CodeUri | None, External(ExternalKind.CODE)] = Field(
        default=None,
        description="A Python module as .py, a package as .whl, folders of modules as .zip, or classes for Spark as "
        ".jar.",
        examples=["s3a://code/routes-1.4.0-py3-none-any.whl"],
    )
    config_map: CodeConfigMap | None = Field(
        default=None, description="A file in a ConfigMap, which the driver's pod mounts."
    )
    sha256: Sha256 = Field(
        description="SHA-256 digest of the file, which is verified before anything of it is used.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )

    @property
    def name(self) -> str:
        """Name of the file."""
        if self.config_map is not None:
            return self.config_map.key
        return os.fsdecode(unquote_to_bytes((self.uri or "").rpartition("/")[2].removeprefix("file:")))

    @property
    def is_jar(self) -> bool:
        """Whether Spark loads it, and not Python."""
        return self.name.endswith(".jar")

    @property
    def place(self) -> str:
        """Where the file is, as messages name it."""
        if self.config_map is not None:
            return f"{self.config_map.key} of ConfigMap {self.config_map.name}"
        return self.uri or ""

    @property
    def place_field(self) -> str:
        """Name of the field that says where the file is."""
        return "uri" if self.config_map is None else "configMap"

    @property
    def path(self) -> str | None:
        """The path of a ``file:`` URI, which may be relative to that of the query; None for any other place."""
        if self.uri is None or not self.uri.startswith("file:"):
            return None
        return os.fsdecode(unquote_to_bytes(self.uri.removeprefix("file:").removeprefix("//")))
