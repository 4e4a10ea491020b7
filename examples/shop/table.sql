CREATE TABLE clicks_by_tier (
    since timestamptz,
    page text,
    tier text,
    clicks bigint,
    PRIMARY KEY (since, page, tier)
);
