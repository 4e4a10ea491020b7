"""The query file that ``millrace init`` writes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from millrace_jobs.starter.columns import Columns, sql_name

_OTHER_VALUES = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""Words that are not texts for all readers of YAML."""

CONSOLE = "console"
"""The answer for results in the terminal."""


@dataclass(frozen=True)
class Answers:
    """What the user wants.

    ``input`` or ``topic`` is where records come from. ``group_by`` is the path of a column, ``window`` a duration
    such as ``1 hour`` over the event time ``time``; empty for none. ``output`` is ``console`` or a folder for CSV
    files, unless results go to ``output_topic``.
    """

    columns: Columns
    group_by: str
    window: str
    time: str
    output: str
    input: Path | None = None
    format: str = "json"
    topic: str = ""
    output_topic: str = ""
    bootstrap_servers: str = ""

    def text(self, file: Path) -> str:
        """Return the YAML of the query for a file of this name."""
        name = query_name(file)
        servers = _quoted(self.bootstrap_servers)
        if self.input is not None:
            other = self.columns.delimiter if self.columns.delimiter != "," else ""
            delimiter = f", delimiter: {json.dumps(other)}" if other else ""
            origin = f"      files: {{path: {_quoted(str(self.input))}, format: {self.format}{delimiter}}}"
        else:
            origin = (
                f"      kafka: {{bootstrapServers: {servers}, topic: {_quoted(self.topic)}, startingOffsets: Earliest}}"
            )
        lines = [
            f"# Check it: millrace validate {file}",
            f"# Run it:   millrace run {file}{' --once' if self.input is not None else ''}",
            "apiVersion: millrace.io/v1alpha1",
            "kind: StreamQuery",
            f"metadata: {{name: {_quoted(name)}}}",
            "spec:",
            "  sources:",
            "    records:",
            origin,
            *(f"      # {' '.join(note.split())}" for note in self.columns.time_notes),
            "      schema: >-",
            f"        {self.columns.ddl}",
        ]
        if self.columns.time_formats:
            lines.append(f"      timeFormats: {json.dumps(self.columns.time_formats, ensure_ascii=False)}")
        if self.columns.uneven:
            lines.append(f"      corruptRecords: {{policy: DeadLetter, path: {rejected_folder(name)}}}")
        if self.window:
            lines.append(f"      watermark: {{column: {_quoted(self.time)}, delay: 10m}}  # how late a record may be")
        lines += ["  query:", "    sql: |", *(f"      {line}" for line in self._sql())]
        lines += ["  sink:", f"    {self._sink(name)}"]
        if self.window:
            lines.append("  emit: OnWindowClose  # each window once, when it has closed")
        else:
            appends = self.group_by and not self.output_topic and self.output != CONSOLE
            newest = "; of a key, the row with the highest _batch_id is the newest" if appends else ""
            lines.append(f"  emit: OnUpdate  # each result whenever it changes{newest}")
        return "\n".join(lines) + "\n"

    def _sql(self) -> list[str]:
        if not self.window and not self.group_by:
            return ["SELECT *", "FROM records"]
        group = sql_name(self.group_by) if self.group_by else ""
        taken = self.group_by.rpartition(".")[2].lower()
        named = [f"window.start AS {'window_start' if taken == 'since' else 'since'}"] if self.window else []
        named += [group] if group else []
        named.append(f"count(*) AS {'record_count' if taken == 'records' else 'records'}")
        grouped = [f"window({sql_name(self.time)}, '{self.window}')"] if self.window else []
        grouped += [group] if group else []
        return [f"SELECT {', '.join(named)}", "FROM records", f"GROUP BY {', '.join(grouped)}"]

    def _sink(self, name: str) -> str:
        if self.output_topic:
            servers = _quoted(self.bootstrap_servers)
            return f"kafka: {{bootstrapServers: {servers}, topic: {_quoted(self.output_topic)}}}"
        if self.output == CONSOLE:
            return "console: {}  # shows 20 rows of each batch; {rows: 1000} shows more"
        return f"files: {{path: {_quoted(self.output)}, format: csv}}"


def query_name(file: Path) -> str:
    """Return the name of the query that a file of this name gets."""
    return re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")[:40].strip("-") or "query"


def rejected_folder(name: str) -> str:
    """Return the folder for records of a query that cannot be read."""
    return f"rejected/{name}"


def _quoted(text: str) -> str:
    """Return a text as YAML has it: quoted, unless it is a plain word that no reader takes for something else."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w./-]*", text) and text.lower() not in _OTHER_VALUES
    return text if is_plain else json.dumps(text, ensure_ascii=False)
