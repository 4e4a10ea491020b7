"""Connections and queries that refer to them, as objects for the API server."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from unit.api.connection_documents import CONNECTION
from unit.resources.cases import SMALLEST

NAME = "trips-by-cell"


def connection(**kafka: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(CONNECTION)
    document["spec"]["kafka"] |= copy.deepcopy(kafka)
    return document


def query(**spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SMALLEST)
    document["spec"]["sources"]["trips"]["kafka"] = {"connection": "trips", "topic": "trips"}
    document["spec"]["sink"] = {"kafka": {"connection": "trips", "topic": NAME}}
    document["spec"] |= spec
    return document
