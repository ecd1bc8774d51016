"""The pages and tables that are made from code say what the code says now."""

from __future__ import annotations

from difflib import unified_diff

import pytest

from tests.support.json_outputs import seen_fields
from tests.support.paths import ROOT
from tests.support.reference import ARCHITECTURE, REFERENCE, generated
from wscc.cli import COMMANDS, Named
from wscc.cli.json_fields import FIELDS

pytestmark = pytest.mark.bounds


def test_every_page_says_what_the_code_says() -> None:
    for path, now in generated().items():
        shown = path.read_text(encoding="utf-8").splitlines()
        changes = list(unified_diff(shown, now.splitlines(), "shown", "now", lineterm=""))
        assert not changes, "\n".join(
            [*changes, f"run `make bless`, then read {path.relative_to(ROOT)} again"]
        )


def test_no_page_is_left_that_nothing_makes() -> None:
    assert set(REFERENCE.iterdir()) == set(generated()) - {ARCHITECTURE}


@pytest.mark.parametrize("command", FIELDS)
def test_every_field_of_json_has_a_meaning_and_every_meaning_a_field(command: str) -> None:
    assert set(seen_fields()[command]) == set(FIELDS[command])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_the_list_of_commands_says_of_each_what_its_own_help_says(command: Named) -> None:
    own = command.load()
    assert own.get_short_help_str(200) == command.get_short_help_str(200)
    assert (own.name, own.hidden) == (command.name, command.hidden)


def test_every_command_that_prints_json_tells_its_fields() -> None:
    shown = {str(c.name): c.load() for c in COMMANDS if not c.hidden}
    printing = {name for name, c in shown.items() if any(p.name == "as_json" for p in c.params)}
    assert set(FIELDS) == printing | {"error"}
