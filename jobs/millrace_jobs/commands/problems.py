"""How a command prints what is wrong."""

from __future__ import annotations

from rich.console import Console

from millrace_api.errors import Problem


def print_problems(problems: tuple[Problem, ...]) -> None:
    """Print each problem in one sentence, as an error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    for problem in problems:
        console.print("[bold red]error:[/] ", end="")
        console.print(str(problem), markup=False)
