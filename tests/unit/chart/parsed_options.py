"""Options of the operator, as its program parses them."""

from __future__ import annotations

import typer.main

from millrace_operator.commands import operator, queries, uninstall

COMMANDS = {"operator": operator.operator, "status": queries.status, "check-uninstall": uninstall.check_uninstall}


def parsed(command):
    """A command line of Millrace, as its parser reads it."""
    program, name, *arguments = command
    assert program == "millrace"
    app = typer.Typer()
    app.command()(COMMANDS[name])
    return typer.main.get_command(app).make_context(name, list(arguments)).params
