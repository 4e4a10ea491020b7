"""Kubernetes' own metadata of an object, as far as users write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from millrace_api.model.base import Model
from millrace_api.model.changes import CheckpointChange
from millrace_api.model.values import ObjectName, Text


class ObjectMeta(Model):
    """Kubernetes' own metadata; of these fields a user writes name, namespace, labels and annotations."""

    name: Annotated[ObjectName, CheckpointChange.NAME] = Field(
        description="Name of the query.", examples=["trips-by-cell"]
    )
    namespace: Annotated[Text, Field(max_length=63)] | None = Field(default=None, description="Namespace.")
    labels: dict[str, str] = Field(default={}, description="Labels.")
    annotations: dict[str, str] = Field(default={}, description="Annotations.")
    generate_name: str | None = Field(default=None, description="Set by Kubernetes.")
    uid: str | None = Field(default=None, description="Set by Kubernetes.")
    resource_version: str | None = Field(default=None, description="Set by Kubernetes.")
    generation: int | None = Field(default=None, description="Set by Kubernetes.")
    creation_timestamp: str | None = Field(default=None, description="Set by Kubernetes.")
    deletion_timestamp: str | None = Field(default=None, description="Set by Kubernetes.")
    deletion_grace_period_seconds: int | None = Field(default=None, description="Set by Kubernetes.")
    finalizers: tuple[str, ...] = Field(default=(), description="Set by controllers.")
    owner_references: tuple[dict[str, Any], ...] = Field(default=(), description="Set by controllers.")
    managed_fields: tuple[dict[str, Any], ...] = Field(default=(), description="Set by Kubernetes.")
    self_link: str | None = Field(default=None, description="Set by Kubernetes.")
