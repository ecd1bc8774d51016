"""The command line. Results go to stdout, messages and progress to stderr; nothing else here prints or exits.

Exit status: 0 done, 1 the program has errors, 2 the command line has.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import suppress

import click

from wscc.cli.call_order import call_order_command, schedule_command
from wscc.cli.collective import collective_command
from wscc.cli.common import report_error, report_usage, say
from wscc.cli.compile import compile_command
from wscc.cli.draw import draw_command
from wscc.cli.faults import faults_command
from wscc.cli.importing import import_command
from wscc.cli.inspect import explain_command, fmt_command, opt_command, passes_command
from wscc.cli.monitor import monitor_command
from wscc.cli.route import route_command
from wscc.cli.run import run_command
from wscc.cli.search import search_command
from wscc.cli.simulate import simulate_command
from wscc.cli.verify import verify_command
from wscc.diagnostics import CompileError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wscc", prog_name="wscc")
def cli() -> None:
    """Compile a transformer and a wafer to one instruction stream per die, and run it."""


for command in (
    compile_command, run_command, verify_command, simulate_command, monitor_command, draw_command,
    search_command, faults_command, call_order_command, schedule_command, import_command, route_command,
    collective_command, opt_command, passes_command, explain_command, fmt_command,
):  # fmt: skip
    cli.add_command(command)


def main(argv: list[str]) -> int:
    """Run one command; the exit status."""
    try:
        # Not `cli.main`, which would turn a closed pipe into status 1.
        with cli.make_context("wscc", argv) as context:
            result = cli.invoke(context)
        print(end="", flush=True)  # here, where a failure is still told
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as problem:
        return report_usage(problem, as_json="--json" in argv)
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return 130
    except CompileError as error:
        return report_error(error, as_json="--json" in argv)
    except BrokenPipeError:
        # The reader of our output has seen enough.
        _forget_output()
        return 0
    except OSError as problem:
        # Code that reads or writes a file says so itself; what is left is the output.
        _forget_output()
        say(f"error: cannot write {problem.filename or 'the output'}: {problem.strerror or problem}")
        return 1
    return result if isinstance(result, int) else 0


def _forget_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not try again as it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry() -> None:
    """Run the command line of this process. What its user reads are our words: libraries' warnings and logs are shown
    to who asks Python for them, with `-W` or PYTHONWARNINGS."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        logging.getLogger().addHandler(logging.NullHandler())
    sys.exit(main(sys.argv[1:]))
