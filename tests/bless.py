"""Rewrites what the repository says of itself, after a deliberate change: `make bless`.

Generated pages and tables, the output that README and docs/ show, the hashes of compiled programs. Then read what has
changed: the prose around it may no longer fit. The reason of a changed program goes into the commit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages import PICTURES, pages, pictures, prepare, regenerated
from tests.support.paths import ROOT
from tests.support.programs import PROGRAMS, hashes_text
from tests.support.reference import generated


def contents() -> Iterator[tuple[Path, str]]:
    """Every file that is made from others, with what belongs in it; those first that later ones read."""
    yield from generated().items()
    yield PROGRAMS, hashes_text()
    for path in pages():
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            yield path, regenerated(page, prepare(page, Path(folder)))
            yield from ((ROOT / PICTURES / name, text) for name, text in pictures(Path(folder)).items())


def main() -> int:
    for path, text in contents():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"rewrote {path.relative_to(ROOT)}: read it again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
