"""The command line. Results go to stdout, messages and progress to stderr; nothing else here prints or exits.

Exit status: 0 done, 1 the program has errors, 2 the command line has.
"""

from __future__ import annotations

import sys

import click

from wscc.cli.common import report_error
from wscc.cli.compile import compile_command
from wscc.cli.inspect import explain_command, fmt_command, opt_command, passes_command
from wscc.cli.run import run_command
from wscc.diagnostics import CompileError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wscc", prog_name="wscc")
def cli() -> None:
    """Compile a transformer and a wafer to one instruction stream per die, and run it."""


for command in (compile_command, run_command, opt_command, passes_command, explain_command, fmt_command):
    cli.add_command(command)


def main(argv: list[str]) -> int:
    """Run one command; the exit status."""
    try:
        result = cli.main(args=argv, prog_name="wscc", standalone_mode=False)
    except click.ClickException as problem:
        problem.show(sys.stderr)
        return 2
    except click.Abort:
        return 130
    except CompileError as error:
        return report_error(error, as_json="--json" in argv)
    except BrokenPipeError:
        # The reader of our output has seen enough.
        sys.stderr.close()
        return 0
    return result if isinstance(result, int) else 0


def entry() -> None:
    sys.exit(main(sys.argv[1:]))
