"""Count the rows of the Iceberg table of examples/shop/query.yaml, in the pod of its driver, whose secrets it reads.

kubectl -n shop exec -i clicks-by-tier-driver-0 -- python - < examples/shop/lake.py
"""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import load_catalog

SECRETS = Path("/etc/millrace/secrets/shop")


def main() -> None:
    """Print the number of rows, clicks and snapshots, and the latest window."""
    catalog = load_catalog(
        "shop",
        **{
            "type": "rest",
            "uri": "http://catalog:8181",
            "s3.endpoint": "http://s3:7070",
            "s3.region": "us-east-1",
            "s3.access-key-id": (SECRETS / "accessKey").read_text(),
            "s3.secret-access-key": (SECRETS / "secretKey").read_text(),
        },
    )
    table = catalog.load_table("shop.clicks_by_tier")
    rows = table.scan().to_arrow().to_pylist()
    clicks = sum(row["clicks"] for row in rows)
    latest = max((row["since"] for row in rows), default=None)
    print(f"{len(rows)} rows with {clicks} clicks in {len(table.snapshots())} snapshots; the latest window: {latest}")


if __name__ == "__main__":
    main()
