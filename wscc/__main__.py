"""`python -m wscc`."""

from wscc.cli import entry

entry()
