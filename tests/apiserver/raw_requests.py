"""Requests to the API server with a token, without ``kubectl``, which costs more and asks for more than it is told."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import NamedTuple

from lab.control_plane import ControlPlane


class Answer(NamedTuple):
    """Status and text of an answer."""

    status: int
    text: str


def send(plane: ControlPlane, token: str, method: str, path: str, document: object) -> Answer:
    """Send a document, or JSON as text, as the owner of a token; PATCH is a merge patch."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    body = document if isinstance(document, str) else json.dumps(document)
    request = urllib.request.Request(f"{plane.url}{path}", data=body.encode(), headers=headers, method=method)
    context = ssl.create_default_context(cafile=str(plane.authority))
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.read().decode())


def queries_in(namespace: str, name: str = "") -> str:
    """Return the path of the queries of a namespace, or of one of them."""
    path = f"/apis/millrace.io/v1alpha1/namespaces/{namespace}/streamqueries"
    return f"{path}/{name}" if name else path
