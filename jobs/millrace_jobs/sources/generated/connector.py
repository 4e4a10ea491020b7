"""The connectors of the sources ``rate`` and ``nexmark``."""

from __future__ import annotations

from millrace_api.model.generators import NexmarkSourceSpec, RateSourceSpec
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.generated.rows import RateSource


class RateConnector(SourceConnector[RateSourceSpec]):
    """Opens generated records with keys and values."""

    def open(self, spec: RateSourceSpec, context: SourceContext) -> Source:
        """Return the source."""
        return RateSource(context.name, spec.records_per_second, keys=spec.keys, skew=spec.skew, seed=spec.seed)


class NexmarkConnector(SourceConnector[NexmarkSourceSpec]):
    """Opens generated records of the NEXMark benchmark."""

    def open(self, spec: NexmarkSourceSpec, context: SourceContext) -> Source:
        """Return the source of one of its streams."""
        from millrace_jobs.sources.generated.nexmark import (
            NexmarkSource,  # building its text tables takes half a second
        )

        return NexmarkSource(
            context.name,
            self.schema(context.source),
            spec.stream.value,
            spec.records_per_second,
            skew=spec.skew,
            drift=spec.drift.seconds if spec.drift else None,
            seed=spec.seed,
        )
