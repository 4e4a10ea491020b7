"""A certificate authority for tests, and the certificates that it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SECONDS = 60


class Authority:
    """An authority that signs certificates. Clients trust ``certificate``."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create a key and a certificate in a folder."""
        self._folder, self._name = folder, name
        self.certificate, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        self._request(self._key, self.certificate, "-x509", "-days", "2", "-subj", f"/CN={name}")

    def sign(self, name: str, alternative: str) -> tuple[Path, Path]:
        """Return certificate and key for a name, and for ``alternative``, such as ``IP:127.0.0.1``."""
        request, certificate, key = (self._folder / f"{self._name}-{name}.{end}" for end in ("csr", "crt", "key"))
        self._request(key, request, "-subj", f"/CN={name}")
        extension = self._folder / f"{self._name}-{name}.ext"
        extension.write_text(f"subjectAltName={alternative}", encoding="utf-8")
        signing = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "2", "-extfile", extension]
        _openssl("x509", "-req", "-in", request, "-out", certificate, *signing)
        return certificate, key

    def _request(self, key: Path, out: Path, *options: str) -> None:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        _openssl("req", *curve, "-nodes", "-keyout", key, "-out", out, *options)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=_SECONDS)
