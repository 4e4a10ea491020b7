"""Files of own code for tests: packages whose bytes are always the same, and entries of ``spec.code``."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """A zip file with these files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def wheel(modules: Mapping[str, str | bytes], name: str = "routes", version: str = "1.0") -> bytes:
    """A wheel of pure Python with these modules."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return zipped({**modules, f"{info}/METADATA": metadata, f"{info}/WHEEL": WHEEL, f"{info}/RECORD": ""})


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def entry(uri: str, content: bytes) -> dict[str, Any]:
    """The entry of ``spec.code`` for a file."""
    return {"uri": uri, "sha256": digest(content)}


def write(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Write a file, and return its entry."""
    (folder / name).write_bytes(content)
    return entry(f"file:{name}", content)
