"""The expected results of the examples, computed by DuckDB over the same data."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import assert_same, latest, rows_of, without_zones
from .questions import Hop

FOLDER = Path(__file__).parents[2] / "examples"

_SCRIPTS = {
    "flights.py": "out/data/flights.parquet",
    "nexmark.py": "out/data",
    "words.py": "out/data/words.csv",
    "rides.py": "out/data/rides.csv",
    "rides_by_hour.py": "out/data/rides-by-hour",
    "rides_database.py": "out/data/rides.db",
    "tasks.py": "out/data/tasks.csv",
    "tpch.py": "out/data",
}

TABLES = {
    "flights": "SELECT * FROM 'out/data/flights.parquet'",
    "bid": "SELECT * FROM 'out/data/bid.parquet'",
    "auction": "SELECT * FROM 'out/data/auction.parquet'",
    "person": "SELECT * FROM 'out/data/person.parquet'",
    "side_input": "SELECT * FROM read_csv('out/data/side-input.csv')",
    "words": "SELECT * FROM read_csv('out/data/words.csv', header = true, all_varchar = true)",
    "lineitem": "SELECT * FROM 'out/data/lineitem.parquet'",
    "items": "SELECT * FROM 'out/data/ordered-items.parquet'",
    "orders": """SELECT * REPLACE (make_timestamp(placed.time * 1000) AS placed) FROM read_json('out/data/orders.json',
        columns = {placed: 'STRUCT(time BIGINT)', customer: 'STRUCT(key BIGINT, segment VARCHAR)',
        items: 'STRUCT(price DECIMAL(15,2), shipped DATE)[]'})""",
    "rides": """SELECT * REPLACE (make_timestamp(pickup * 1000000) AS pickup) FROM read_csv('out/data/rides.csv',
        header = false, columns = {taxi: 'VARCHAR', miles: 'DOUBLE', pickup: 'BIGINT', start_x: 'INT', start_y: 'INT',
        end_x: 'INT', end_y: 'INT', fare: 'DOUBLE', tip: 'DOUBLE'})""",
    "rides_by_hour": """SELECT * REPLACE (make_timestamp(pickup * 1000000) AS pickup, hour::BIGINT AS hour)
        FROM read_csv('out/data/rides-by-hour/*/*/*.csv.gz', hive_partitioning = true)""",
    "tasks": """SELECT * REPLACE (make_timestamp(time) AS time) FROM read_csv('out/data/tasks.csv', header = false,
        columns = {time: 'BIGINT', missing: 'INT', job: 'BIGINT', task: 'INT', machine: 'BIGINT', event: 'INT',
        user: 'VARCHAR', class: 'INT', priority: 'INT', cpu: 'DOUBLE', memory: 'DOUBLE', disk: 'DOUBLE',
        different: 'INT'})""",
}
"""Tables of the recordings in ``out/data``."""


def windows(table: str, column: str, size: int, slide: int) -> str:
    """Return a query of each record once per window, with the window in ``since`` and ``until``."""
    unnested = Hop(column, size, slide).unnested(table, "true")
    return f"""(SELECT *, make_timestamp(window_start) AS since,
                       make_timestamp(window_start + {size * 1_000_000}) AS until FROM {unnested})"""


@dataclass(frozen=True)
class Example:
    """An example, by the prefix of its file's name: SQL for DuckDB, and the number of key columns.

    ``results`` is the folder of its results, and ``updates`` is set if a key's last row is its answer. ``repeats`` is set
    if results are records, which may repeat. ``final`` is the folder of an additional output, which has each row once.
    ``opens_files`` is set if code of the example opens files of the project by themselves.
    """

    sql: str
    keys: int
    results: str
    updates: bool = False
    repeats: bool = False
    final: str = ""
    opens_files: bool = False


_ROUTES = f"""SELECT until, start_x, start_y, end_x, end_y, count(*)
    FROM {windows("rides", "pickup", 1800, 300)} GROUP BY ALL HAVING count(*) >= 5"""
_PRICES = """count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000),
    count(*) FILTER (price >= 1000000)"""
_SESSIONS = """
    WITH marked AS (SELECT *, date_time > lag(date_time) OVER before + INTERVAL 2 SECONDS AS later FROM bid
                    WINDOW before AS (PARTITION BY bidder ORDER BY date_time)),
         numbered AS (SELECT *, count(*) FILTER (later) OVER (PARTITION BY bidder ORDER BY date_time) AS number
                      FROM marked)
    SELECT min(date_time), max(date_time) + INTERVAL 2 SECONDS, bidder, count(*) FROM numbered
    GROUP BY bidder, number"""

EXAMPLES = {
    "01": Example(
        f"""SELECT until, dest, count(*), count(dep_delay), round(avg(dep_delay), 1), max(dep_delay)
            FROM {windows("flights", "departure", 604800, 86400)} GROUP BY ALL HAVING count(*) >= 20""",
        2,
        "delays-by-destination",
    ),
    "02": Example(
        f"""SELECT since, until, carrier, list(dest ORDER BY n DESC, dest)[:5], list(n ORDER BY n DESC, dest)[:5]
            FROM (SELECT since, until, carrier, dest, count(*) AS n
                  FROM {windows("flights", "departure", 604800, 604800)} GROUP BY ALL) GROUP BY ALL""",
        3,
        "top-destinations",
    ),
    "03": Example("SELECT word, count(*) FROM words GROUP BY word", 1, "word-count", updates=True),
    "04": Example(
        """SELECT list(word), list(times) FROM (SELECT word, count(*) AS times FROM words GROUP BY word
           ORDER BY times DESC, word LIMIT 10)""",
        0,
        "top-words",
        updates=True,
    ),
    "05": Example(_ROUTES, 5, "frequent-routes"),
    "06": Example(
        f"""SELECT since, until, start_x, start_y, median(fare + tip), count(*)
            FROM {windows("rides", "pickup", 900, 300)} GROUP BY ALL""",
        4,
        "profitable-areas",
    ),
    "07": Example(
        f"""SELECT until, job, avg(cpu), count(cpu) FROM {windows("tasks", "time", 2700, 300)}
            GROUP BY ALL HAVING count(cpu) > 0""",
        2,
        "cpu-by-job",
    ),
    "08": Example(
        f"""SELECT until, class, sum(cpu) FROM {windows("tasks", "time", 60, 1)} WHERE cpu IS NOT NULL
            GROUP BY ALL""",
        2,
        "cpu-by-class",
    ),
    "09": Example(
        """SELECT l_returnflag, l_linestatus, sum(l_quantity)::DOUBLE, sum(l_extendedprice)::DOUBLE,
                  sum(l_extendedprice * (1 - l_discount))::DOUBLE,
                  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))::DOUBLE,
                  round(avg(l_quantity), 6), round(avg(l_extendedprice), 6), round(avg(l_discount), 6), count(*)
           FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL""",
        2,
        "tpch-q1",
        updates=True,
    ),
    "10": Example(
        """SELECT l_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount))::DOUBLE FROM items
           WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
           GROUP BY ALL""",
        3,
        "tpch-q3",
        updates=True,
    ),
    "12": Example("SELECT auction, bidder, 0.908 * price, date_time FROM bid", 2, "nexmark-q1", repeats=True),
    "13": Example("SELECT auction, price FROM bid WHERE auction % 123 = 0", 2, "nexmark-q2", repeats=True),
    "14": Example(
        """SELECT name, city, state, a.id FROM auction a ASOF JOIN person p ON seller = p.id AND a.date_time >= p.date_time
           WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
        4,
        "nexmark-q3",
    ),
    "15": Example(
        f"""SELECT until, max(bids), arg_max(auction, (bids, -auction)) FROM (SELECT until, auction, count(*) AS bids
            FROM {windows("bid", "date_time", 10, 2)} GROUP BY ALL) GROUP BY until""",
        1,
        "nexmark-q5",
    ),
    "16": Example(
        f"""SELECT until, max(price), arg_max(bidder, (price, bidder, auction)),
                   arg_max(auction, (price, bidder, auction)) FROM {windows("bid", "date_time", 10, 10)}
            GROUP BY until""",
        1,
        "nexmark-q7",
    ),
    "17": Example(
        f"""SELECT p.id, name, p.since, count(*) FROM {windows("person", "date_time", 10, 10)} p
            JOIN {windows("auction", "date_time", 10, 10)} a ON p.id = a.seller AND p.since = a.since GROUP BY ALL""",
        3,
        "nexmark-q8",
    ),
    "18": Example(_SESSIONS, 3, "nexmark-q11"),
    "19": Example(
        f"SELECT since, channel, {_PRICES} FROM {windows('bid', 'date_time', 60, 60)} GROUP BY ALL", 2, "nexmark-q16"
    ),
    "20": Example(
        f"""SELECT auction, {_PRICES}, min(price), max(price), avg(price), sum(price)::BIGINT FROM bid
            GROUP BY ALL""",
        1,
        "nexmark-q17",
        updates=True,
    ),
    "21": Example(
        """SELECT auction, bidder, price, b.date_time, item_name, seller FROM bid b
           ASOF JOIN auction a ON auction = a.id AND b.date_time >= a.date_time WHERE category = 10""",
        6,
        "nexmark-q20",
        repeats=True,
    ),
    "22": Example(
        """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
                  split_part(url, '/', 6) FROM bid""",
        7,
        "nexmark-q22",
        repeats=True,
    ),
    "29": Example(
        "SELECT auction, bidder, price, date_time, value FROM bid JOIN side_input ON auction % 10000 = key",
        5,
        "nexmark-q13",
        repeats=True,
    ),
    "30": Example(
        f"""SELECT since, channel, count(*), max(price) FROM {windows("bid", "date_time", 60, 60)} GROUP BY ALL""",
        2,
        "nexmark-live",
        updates=True,
        final="nexmark-final",
    ),
    "33": Example(
        f"""SELECT since, customer.segment, count(*), sum(len(items))::BIGINT, max(items[1].price)::DOUBLE
            FROM {windows("orders", "placed", 30 * 86_400, 30 * 86_400)} GROUP BY ALL""",
        2,
        "orders-with-items",
    ),
    "37": Example(
        f"""SELECT since, start_x, start_y, count(*), day, hour
            FROM {windows("rides_by_hour", "pickup", 600, 600)} GROUP BY ALL""",
        3,
        "rides-by-hour",
    ),
    "41": Example(
        """SELECT n, count(*), max(word) FROM (SELECT word, len(regexp_extract_all(word, '[aeiouy]+'))
               - regexp_matches(word, '[aeiouy].*[^aeiouy]e$')::INT AS n FROM words) WHERE n > 0 GROUP BY n""",
        1,
        "words-by-syllables",
        updates=True,
    ),
    "42": Example(
        f"""WITH ride AS {windows("rides", "pickup", 1_800, 1_800)},
            going AS (SELECT since, start_x, start_y, end_x || '/' || end_y AS destination, count(*) AS n
                FROM ride GROUP BY ALL),
            best AS (SELECT since, start_x, start_y, list({{value: destination, count: n, at_most: n}}
                ORDER BY n DESC, destination)[:2] AS destinations FROM going GROUP BY ALL)
            SELECT since, start_x, start_y, count(*), round(avg(fare), 2), list(fare ORDER BY fare DESC)[:3],
                [count(*) FILTER (fare < 10), count(*) FILTER (fare >= 10 AND fare < 20), count(*) FILTER (fare >= 20)],
                destinations
            FROM ride JOIN best USING (since, start_x, start_y) GROUP BY since, start_x, start_y, destinations""",
        3,
        "fares-by-area",
    ),
    "44": Example("SELECT word, count(*) FROM words GROUP BY word", 1, "word-count-by-fewest-keys", updates=True),
    "45": Example(
        f"""SELECT since, start_x, start_y, count(*), round(sum(fare), 2)
            FROM {windows("rides", "pickup", 900, 900)} GROUP BY ALL""",
        3,
        "fares-by-cell",
        opens_files=True,
    ),
}


def file_of(number: str) -> Path:
    """Return the query file of an example."""
    (file,) = FOLDER.glob(f"{number}-*.yaml")
    return file


def write_recordings(folder: Path) -> None:
    """Run the examples' scripts, which write their recordings into ``out/data``."""
    for script, target in _SCRIPTS.items():
        subprocess.run([sys.executable, str(FOLDER / script), target], cwd=folder, check=True)


def make_tables(connection: duckdb.DuckDBPyConnection, folder: Path, tables: dict[str, str]) -> None:
    """Read recordings into DuckDB's tables."""
    connection.execute("SET TimeZone = 'UTC'")
    for name, sql in tables.items():
        table = connection.sql(sql.replace("out/data", f"{folder}/out/data")).to_arrow_table()
        connection.register("given", without_zones(table))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")


def assert_answer(folder: Path, example: Example, tables: duckdb.DuckDBPyConnection) -> None:
    """Check that the results are DuckDB's and not empty."""
    expected = rows_of(tables.sql(example.sql).to_arrow_table())
    assert expected
    if example.final:
        assert_same(rows_of(_results(folder / "out" / example.final)), expected, example.keys)
    found = _results(folder / "out" / example.results)
    if example.updates:
        assert_same(latest(found, example.keys), expected, example.keys)
        return
    rows = rows_of(found.select([name for name in found.column_names if name != BATCH_ID]))
    if example.repeats:
        assert Counter(rows) == Counter(expected)
    else:
        assert_same(rows, expected, example.keys)


def _results(folder: Path) -> pa.Table:
    """Return all result files in a folder."""
    (suffix,) = {file.suffix for file in folder.rglob("batch-*")}
    reader = {".csv": "read_csv", ".json": "read_json", ".parquet": "read_parquet"}[suffix]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table: pa.Table = connection.sql(f"SELECT * FROM {reader}('{folder}/**/batch-*')").to_arrow_table()
    return without_zones(table)
