"""Checkpoints in S3 of queries on the cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.s3_server import BUCKET, S3Server

LOGIN = "lake"
"""Name of the Secret with the login."""


@dataclass(frozen=True)
class InS3:
    """The prefix of a namespace in the S3 server."""

    server: S3Server
    namespace: str

    def spec(self, name: str = "counts") -> dict[str, Any]:
        """Return the parts of a query's spec that put its checkpoint there."""
        keys = {"accessKeyId": "AWS_ACCESS_KEY_ID", "secretAccessKey": "AWS_SECRET_ACCESS_KEY"}
        login = {field: {"secretKeyRef": {"name": LOGIN, "key": key}} for field, key in keys.items()}
        return {
            "checkpoint": {"uri": f"s3a://{BUCKET}/{self.namespace}/{name}"},
            "s3": {"endpoint": self.server.url, "region": "us-east-1"} | login,
        }

    def checkpoint_id(self, name: str = "counts") -> str:
        """The id drawn when the checkpoint was created."""
        return str(json.loads((self._objects / self.namespace / name / "millrace.json").read_text())["id"])

    @property
    def _objects(self) -> Path:
        return self.server.folder / "objects" / BUCKET
