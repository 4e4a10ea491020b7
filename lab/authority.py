"""Certificates for tests: authorities, and what one of them has signed for 127.0.0.1."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .cache import require


def make_authority(folder: Path) -> Path:
    """Make ``ca.pem``, ``other.pem`` and ``server.pem``: key and certificate for 127.0.0.1, signed by ca."""
    require("openssl")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ["-newkey", "rsa:2048", "-nodes"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *new, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    openssl("req", *new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=lab")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    openssl("x509", "-req", "-in", "server.csr", *signing, "-out", "server.crt")
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())
    return folder
