"""Sources of generated records: at a rate, and those of the NEXMark benchmark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from millrace_api.model.base import Model
from millrace_api.model.values import Count, Number, Positive, PositiveDuration, WholeNumber


class RateSourceSpec(Model):
    """Generated records ``timestamp TIMESTAMP, key STRING, value DOUBLE``."""

    records_per_second: Positive = Field(default=1000.0, description="Records per second.")
    keys: Count = Field(default=1000, description="Number of distinct keys.")
    skew: Annotated[Number, Field(ge=0, le=10)] = Field(
        default=0.0, description="Zipf exponent of the keys; 0 is uniform."
    )
    seed: WholeNumber = Field(default=0, description="Seed of the generator.")


class NexmarkStream(StrEnum):
    """The three streams of the NEXMark benchmark."""

    BID = "bid"
    AUCTION = "auction"
    PERSON = "person"


class NexmarkSourceSpec(Model):
    """Generated records of the NEXMark auction site; streams with the same settings belong together."""

    stream: NexmarkStream = Field(default=NexmarkStream.BID, description="Which of the three streams.")
    records_per_second: Positive = Field(
        default=1000.0,
        description="Events per second of all three streams: of 50, 46 are bids, 3 auctions, and 1 is a person.",
    )
    skew: Annotated[Number, Field(ge=0, le=10)] = Field(
        default=0.0, description="Zipf exponent of the popularity of auctions and people; 0 is uniform."
    )
    drift: PositiveDuration | None = Field(
        default=None,
        description="How often the popular keys change; default, and the most often possible: after every 100 new "
        "auctions, and after every 1000 new people.",
    )
    seed: WholeNumber = Field(default=0, description="Seed of the generator.")

    @property
    def schema_text(self) -> str:
        """Spark DDL of its columns."""
        return _NEXMARK_SCHEMAS[self.stream]


_NEXMARK_SCHEMAS = {
    NexmarkStream.BID: "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "date_time TIMESTAMP, extra STRING",
    NexmarkStream.AUCTION: "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, "
    "reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    NexmarkStream.PERSON: "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, "
    "state STRING, date_time TIMESTAMP, extra STRING",
}
