"""Compiled programs stay the same to the last byte until somebody changes them on purpose."""

from __future__ import annotations

import json

import pytest

from tests.support.programs import MODELS, PROGRAMS, program_hashes


@pytest.mark.parametrize("model", MODELS)
def test_the_program_of_a_sample_is_the_one_that_was_blessed(model: str) -> None:
    blessed = json.loads(PROGRAMS.read_text(encoding="utf-8"))[model]
    now = program_hashes(model)
    changed = [name for name in sorted({*blessed, *now}) if blessed.get(name) != now.get(name)]
    assert not changed, (
        f"the compiler writes other bytes for {', '.join(changed)} of samples/{model}.wsl; if that is meant, "
        "`make bless` records them, and the commit says why they changed"
    )
