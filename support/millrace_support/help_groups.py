"""How the command line reads: the help of ``millrace`` in groups of commands, ``--debug`` of each, and missing options.

The help has each command's whole first sentence. It is plain text, in a terminal and in a pipe, and imports nothing
that typer has not loaded already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

HERE = "On this machine"
CLUSTER = "On a cluster"
PLANNING = "Plan and compare"
ADMINISTRATION = "Administration"

WIDTH = 120
"""Columns that the help takes at most, in a terminal that has them."""

_SENTENCE = 1000
"""Characters that a first sentence may have: it is wrapped, and not cut."""


class GroupedHelp(TyperGroup):
    """The commands of an application, under the headings of their ``rich_help_panel`` in the order above.

    All of them have ``--debug``, which ``main`` looks for: those that do nothing else with it get it here.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for command in _leaves(self.commands):
            if all("--debug" not in option.opts for option in command.params):
                command.params.append(_debug_option())

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in (HERE, CLUSTER, PLANNING, ADMINISTRATION)}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None) or HERE
                rows.setdefault(heading, []).append((name, command.get_short_help_str(_SENTENCE)))
        for heading, commands in rows.items():
            if commands:
                with formatter.section(heading):
                    formatter.write_dl(commands)


def _leaves(commands: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the commands of an application and of its groups."""
    for command in commands.values():
        if hasattr(command, "commands"):
            yield from _leaves(command.commands)
        else:
            yield command


def _debug_option() -> Any:
    """Return an option whose value no command gets."""
    application = typer.Typer(add_completion=False)

    @application.command()
    def template(
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    ) -> None: ...

    (option,) = typer.main.get_command(application).params
    option.expose_value = False
    return option


class AllMissingOptions(TyperCommand):
    """A command that reports all required options that are missing, and not the first one alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options. Raises typer.BadParameter if one is missing or does not fit."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if hasattr(error, "param_type"):  # only the error of a missing parameter has it
                values = self.make_parser(ctx).parse_args(given)[0]
                missing = [each for each in self.get_params(ctx) if each.required and each.name not in values]
                error.param_hint = ", ".join(f"'{each.opts[0]}'" for each in missing)
            raise
