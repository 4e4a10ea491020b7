"""Arguments and options of ``millrace get``.

It imports only what the command line has loaded already.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="Keys: the text of the key column; for several columns a,b or a JSON array. Without KEY, the first rows.",
        show_default=False,
    ),
]
Prefix = Annotated[
    bool, typer.Option("--prefix", help="Show all rows whose first key columns are KEY; its last text may end with *.")
]
WindowStart = Annotated[
    str | None, typer.Option("--window", help="Start of the window; KEY then has only the other key columns.")
]
AtTime = Annotated[
    str | None, typer.Option("--at", help="Event time: rows as they were then, where the table keeps a history.")
]
Limit = Annotated[int | None, typer.Option(help="Most rows of a page, up to 1000; by default 100.", show_default=False)]
After = Annotated[str | None, typer.Option(help="Continue after the page that ended with this.")]
AnswerFormat = Annotated[Literal["table", "json"], typer.Option(help="table, or json.")]
