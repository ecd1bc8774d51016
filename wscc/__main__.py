"""The program `wscc`, also `python -m wscc`."""

from __future__ import annotations

import sys


def entry() -> None:
    """Run the command line. To load it takes most of a second, in which one may think better of it."""
    try:
        from wscc.cli import entry as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    entry()
