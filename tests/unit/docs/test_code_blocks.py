"""Code blocks of the docs: queries validate, code compiles, commands exist, and a block that no test runs says why."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache

import pytest
import typer
import yaml

from doc_blocks import PAGES, ROOT, RUN_BY, RUN_FROM_TOP_TO_BOTTOM, Block, blocks, name, why_not_run
from millrace_jobs.cli import _add_other_commands, app
from millrace_jobs.run.query_file import check_file

PLACEHOLDERS = {"DIGEST": "a" * 64, "REGISTRY": "registry.example.org"}

BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def filled(text: str) -> str:
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    return text


QUERIES = [
    (block, number, document)
    for block in BLOCKS
    for number, document in enumerate(block.yaml)
    if re.search(r"^apiVersion: millrace.io/.*\nkind: StreamQuery$", document, re.MULTILINE)
]


def test_the_docs_have_queries_and_commands():
    """The parser of pages finds what it is there for."""
    assert len(QUERIES) >= 8
    assert len(of("sh")) > 80
    assert {block.page for block in BLOCKS if block.title} >= set(RUN_FROM_TOP_TO_BOTTOM[:1])


@pytest.mark.parametrize(("block", "number", "text"), QUERIES, ids=lambda part: str(part)[:60].split("\n")[0])
def test_a_query_on_a_page_validates(block, number, text, tmp_path):
    file = tmp_path / "query.yaml"
    connections = [tmp_path / "connections.yaml"]
    others = [each for each in block.yaml if "kind: Connection" in each]
    connections[0].write_text("---\n".join(filled(each) for each in others), encoding="utf-8")
    file.write_text(filled(text), encoding="utf-8")
    assert [str(problem) for problem in check_file(file, connections if others else (), inputs=False)] == []


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_on_a_page_can_be_read(block):
    assert list(yaml.safe_load_all(filled(block.text)))


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_on_a_page_compiles(block):
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_on_a_page_can_be_read(block):
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        assert all(json.loads(line) for line in block.text.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_shell_block_is_run_by_a_test_or_says_why_it_is_not(page):
    if name(page) in RUN_BY:
        assert (ROOT / RUN_BY[name(page)]).is_file()
    elif name(page) not in RUN_FROM_TOP_TO_BOTTOM and why_not_run(page) is None:
        silent = [
            str(block) for block in blocks(page) if block.language == "sh" and not block.comment.startswith("not run: ")
        ]
        assert silent == [], (
            "write <!-- not run: WHY --> above each, or <!-- the commands of this page are not run: WHY -->"
        )


@cache
def command_line():
    _add_other_commands()
    return typer.main.get_command(app)


def mistakes(words: list[str]) -> list[str]:
    """Return the commands and options that ``millrace`` does not have, of its words up to a pipe."""
    command, wrong = command_line(), []
    for word in words:
        if word in {"|", ">", ">>", "&", "&&", "||", ";", "2>&1"}:
            break
        if hasattr(command, "commands"):
            if word in command.commands:
                command = command.commands[word]
            elif not word.startswith("-"):
                return [word]
            continue
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            wrong.append(option)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_millrace_on_a_page_exist(page):
    wrong = []
    for block in (each for each in blocks(page) if each.language in {"sh", "text"}):
        for line in block.text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\S+=\S+ +)*(?:\S*/)?millrace (.+)", line.strip())
            if found:
                wrong += [f"{block}: millrace {part}" for part in mistakes(shlex.split(found[1], comments=True))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_of_make_on_a_page_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = {
        target
        for block in blocks(page)
        if block.language == "sh"
        for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)
    }
    assert used <= targets
