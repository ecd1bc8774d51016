"""Progress of a search, on a terminal."""

from __future__ import annotations

import click

from wscc.cli.output import on_terminal, say


class Progress:
    """A count of plans on one line of a terminal; it says nothing elsewhere."""

    def __init__(self) -> None:
        self.shown = on_terminal()

    def one(self, words: str, done: int, of: int) -> None:
        if self.shown:
            click.echo(f"\r  {done} of {of} plans {words} ", err=True, nl=False)

    def end(self) -> None:
        if self.shown:
            say("")
