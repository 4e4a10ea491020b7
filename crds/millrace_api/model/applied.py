"""What a driver reports to the operator about the plan that it follows, in the ConfigMap of the plan."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from millrace_api.model.base import Model
from millrace_api.model.deployment import Algorithm
from millrace_api.model.values import Count, WholeNumber

PLAN_KEY = "plan.yaml"
"""Entry of the ConfigMap with the plan; the operator writes it."""

APPLIED_KEY = "applied.json"
"""Entry of the ConfigMap with the driver's acknowledgement; the driver writes it."""


class Applied(Model):
    """The plan that the last batch ran under, and the executors there are."""

    epoch: WholeNumber = Field(description="Epoch of the plan.")
    algorithm: Algorithm = Field(description="Partitioning algorithm; auto may have chosen another than the plan's.")
    state_partitions: Count = Field(description="Partitions of the state, which a checkpoint keeps for good.")
    executors_ready: WholeNumber = Field(description="Executors that take tasks.")

    def to_json(self) -> str:
        """One line; the same always gives the same text."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What ``to_json`` wrote. Raises pydantic's ``ValidationError`` on anything else."""
        return cls.model_validate_json(text, by_name=False)
