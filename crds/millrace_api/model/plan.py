"""The plan: how a micro-batch is placed and on how many tasks; and the driver's acknowledgement of it.

Both are entries of one ConfigMap. A new plan takes effect at the next batch.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import ConfigDict, Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.streamquery import Spec
from millrace_api.model.values import Count, Parameters, WholeNumber

PLAN_KEY = "plan.yaml"
"""Entry of the ConfigMap with the plan; the operator writes it."""

APPLIED_KEY = "applied.json"
"""Entry of the ConfigMap with the driver's acknowledgement; the driver writes it."""

FIRST_EPOCH = 1
"""Epoch of the first plan of a query."""


class Plan(Model):
    """The plan of a job, read from a file or a ConfigMap; each batch is pinned to one before it starts."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a plan names one algorithm",
            "write the algorithm itself, such as hash, instead of auto",
            ("algorithm",),
            None,
            lambda plan: plan.algorithm is not Algorithm.AUTO,
        ),
    )

    epoch: WholeNumber = Field(default=0, description="Number of the plan, growing; 0 means the next one.")
    algorithm: Algorithm = Field(description="Partitioning algorithm; never auto.", examples=["hash"])
    parameters: Parameters = Field(default={}, description="Settings of the algorithm.")
    replicas: Count = Field(description="Partitioner replicas m: slices of the input of a batch.", examples=[2])
    parallelism: Count = Field(description="Workers n: combine tasks.", examples=[8])
    executors: Annotated[WholeNumber, Field(le=1_000_000)] = Field(
        default=1,
        description="Executors; ignored when the job runs in one process. With 0, the job rests: it takes one as soon "
        "as tasks wait, until the next plan says how many.",
    )
    placement: Placement = Field(
        default=Placement.INLINE, description="Where replicas run: in the job's tasks, or in processes of their own."
    )

    @classmethod
    def initial(cls, spec: Spec, *, auto: Algorithm = Algorithm.NATIVE) -> Self:
        """Return the first plan of a query; ``auto`` is the algorithm that ``algorithm: auto`` starts with."""
        wanted = spec.partitioner
        return cls(
            epoch=FIRST_EPOCH,
            algorithm=auto if wanted.algorithm is Algorithm.AUTO else wanted.algorithm,
            parameters=wanted.parameters,
            placement=wanted.placement.at_start,
            replicas=wanted.replicas.at_start,
            parallelism=spec.parallelism.at_start,
            executors=spec.executors.initial,
        )


class Applied(Model):
    """The driver's acknowledgement: the plan that its last batch ran under, and the number of executors.

    Unknown fields are ignored: the driver's image may be later than what reads this.
    """

    model_config = ConfigDict(extra="ignore")

    epoch: WholeNumber = Field(description="Epoch of the plan.")
    algorithm: Algorithm = Field(description="Partitioning algorithm; auto may have chosen another than the plan's.")
    state_partitions: Count = Field(description="Number of state partitions, fixed by the checkpoint's first batch.")
    executors_ready: WholeNumber = Field(description="Executors that take tasks.")
    can_rest: bool = Field(
        default=False, description="Whether the driver follows a plan without executors; earlier versions do not."
    )
