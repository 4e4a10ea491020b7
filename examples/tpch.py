"""Write three streams of TPC-H: all line items, these with their order and its customer, and orders with their items.

    python examples/tpch.py out/data

The script needs tpchgen-cli, which is in the extra ``examples``. Query 3 joins three tables. In the stream, a line item
carries the columns of the other two, as an order system would publish it. The orders are objects of JSON, each with its
customer and the array of its items.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_ORDER = ["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"]
_CUSTOMER = pa.schema([("c_custkey", pa.int64()), ("c_mktsegment", pa.string())])
_ITEM = ["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"]


def tables(scale: float) -> dict[str, pa.Table]:
    """Return the tables customer, orders and lineitem at a scale (1 is 6 million line items)."""
    names = ("customer", "orders", "lineitem")
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("tpchgen-cli")), "parquet", f"--scale-factor={scale}"]
        subprocess.run([*command, f"--tables={','.join(names)}", f"--output-dir={folder}"], check=True)
        return {name: pq.read_table(Path(folder, f"{name}.parquet")) for name in names}


def ordered_items(tables: dict[str, pa.Table]) -> pa.Table:
    """Return the line items with order and customer, sorted by order date."""
    customers = tables["customer"].select(_CUSTOMER.names).cast(_CUSTOMER)  # Arrow cannot join views of strings
    orders = tables["orders"].select(_ORDER).join(customers, "o_custkey", "c_custkey")
    items = tables["lineitem"].select(_ITEM).join(orders, "l_orderkey", "o_orderkey")
    return items.sort_by([("o_orderdate", "ascending"), ("l_orderkey", "ascending")])


def nested_orders(items: pa.Table) -> Iterator[str]:
    """Yield the orders with their items as JSON, by date; the time of an order is a number of milliseconds."""
    for _, rows in groupby(items.to_pylist(), key=lambda row: row["l_orderkey"]):
        first, *others = rows
        order = {
            "placed": {"time": (first["o_orderdate"] - date(1970, 1, 1)).days * 86_400_000},
            "customer": {"key": first["o_custkey"], "segment": first["c_mktsegment"]},
            "items": [
                {"price": str(item["l_extendedprice"]), "shipped": item["l_shipdate"].isoformat()}
                for item in (first, *others)
            ],
        }
        yield json.dumps(order)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    made = tables(0.01)
    pq.write_table(made["lineitem"], target / "lineitem.parquet")
    ordered = ordered_items(made)
    pq.write_table(ordered, target / "ordered-items.parquet")
    (target / "orders.json").write_text("".join(f"{order}\n" for order in nested_orders(ordered)), encoding="utf-8")
