"""How the command line reads: its help in groups, completion, and what several options lack."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from millrace_jobs.cli import _add_other_commands, app

EXAMPLE = Path(__file__).parents[2] / "examples/01-delays-by-destination.yaml"


def millrace(*arguments: str, typed: str = "", **variables: str):
    _add_other_commands()
    return CliRunner().invoke(app, arguments, input=typed, env=variables, prog_name="millrace")


def help_sections() -> dict[str, dict[str, str]]:
    """Return the commands of each section of the help, with their sentences."""
    sections: dict[str, dict[str, str]] = {}
    for heading, body in re.findall(r"^(\S.*):\n((?:  .*\n)+)", millrace("--help").stdout, re.M):
        entries = re.findall(r"^  ([a-z]\S*) +((?:.*\n)(?:   +.*\n)*)", body, re.M)
        sections[heading] = {name: " ".join(text.split()) for name, text in entries}
    return sections


def test_the_help_groups_what_is_for_this_machine_and_what_for_a_cluster() -> None:
    sections = help_sections()
    assert list(sections)[1:] == ["On this machine", "On a cluster", "Plan and compare", "Administration"]
    assert {"init", "validate", "run", "explain", "get"} <= sections["On this machine"].keys()
    assert {"status", "diff", "scale"} <= sections["On a cluster"].keys()
    assert {"compare", "calibrate", "simulate", "bench", "flow", "model"} == sections["Plan and compare"].keys()
    assert {"crd", "operator"} == sections["Administration"].keys()


def test_sentences_of_the_help_are_wrapped_and_not_cut() -> None:
    sections = help_sections()
    assert sections["On a cluster"]["diff"] == (
        "Show what applying a file would do: which fields restart what, for how long, and what is refused."
    )
    assert [text for commands in sections.values() for text in commands.values() if text.endswith("...")] == []


@pytest.mark.parametrize("command", ["driver", "partitioner", "compared-version"])
def test_commands_that_others_start_are_there_but_not_in_the_help(command: str) -> None:
    assert all(command not in commands for commands in help_sections().values())
    assert millrace(command, "--help").exit_code == 0


def test_the_shell_completes_commands() -> None:
    asked = {"_MILLRACE_COMPLETE": "complete_bash", "COMP_WORDS": "millrace s", "COMP_CWORD": "1"}
    assert set(millrace(**asked).stdout.split()) == {"snapshot", "state", "status", "suspend", "scale", "simulate"}
    assert "--install-completion" in millrace("--help").stdout


def commands_of(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_every_command_takes_debug() -> None:
    _add_other_commands()
    found = dict(commands_of(typer.main.get_command(app)))
    assert {"run", "state show", "status", "model minimize", "simulate", "crd"} <= found.keys()
    for name, command in found.items():
        assert [option.opts for option in command.params].count(["--debug"]) == 1, name
    assert millrace("crd", "--debug").exit_code == 0


def test_all_missing_options_are_reported_at_once() -> None:
    result = millrace("bench", "partitioners", "--key", "user")
    assert result.exit_code == 2
    assert "Missing option '--input', '--workers', '--window', '--algorithm'." in result.stderr
    assert "No such option: --worker" in millrace("bench", "partitioners", "--worker", "3").stderr


def test_a_query_from_standard_input_is_checked_and_its_problems_have_their_lines() -> None:
    query = EXAMPLE.read_text()
    assert millrace("validate", "--no-inputs", "-", typed=query).stdout == "1 file without a problem\n"
    result = millrace("validate", "--no-inputs", "-", typed=query.replace("batchInterval: 2s", "batchInterval: soon"))
    assert result.exit_code == 1
    assert re.match(r"stdin:\d+: spec\.batchInterval: ", result.stdout), result.stdout
