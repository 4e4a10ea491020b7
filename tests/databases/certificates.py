"""Certificates for the servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.cache import require


def certificate_for(name: str, folder: Path) -> tuple[Path, Path]:
    """Make a certificate for a name or an address, signed by itself; return its file and that of its key."""
    require("openssl")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={'IP' if name[0].isdigit() else 'DNS'}:{name}"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
