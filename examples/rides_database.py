"""Write the taxi rides of ``rides.py`` as a table of SQLite, a row for each ride in the order of their ends.

python examples/rides_database.py out/data/rides.db
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from rides import rides


def write(file: Path) -> None:
    """Write all rides into a new database."""
    table = rides()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    marks = ", ".join("?" * table.num_columns)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"CREATE TABLE rides ({', '.join(table.column_names)})")
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        connection.executemany(f"INSERT INTO rides VALUES ({marks})", rows)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
