"""The command line. Results go to stdout, messages and progress to stderr; nothing else here prints or exits.

Exit status: 0 done, 1 the program has errors, 2 the command line has.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Final

import click

from wscc.cli.output import report_error, report_usage, say
from wscc.diagnostics import CompileError


class Named(click.Command):
    """A command by its name and the first sentence of its help: the rest is imported when it is called. What one
    command needs can take longer to import than another one takes to run."""

    def __init__(self, name: str, module: str, sentence: str, *, hidden: bool = False) -> None:
        super().__init__(name, help=sentence, hidden=hidden)
        self.module = module

    def load(self) -> click.Command:
        """The command itself, `NAME_command` in its file."""
        function = f"{self.name}_command".replace("-", "_")
        command: click.Command = getattr(import_module(f"wscc.cli.{self.module}"), function)
        return command


class _Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Named) else command, rest


COMMANDS: Final = (
    Named(
        "compile", "compile", "Compile MODEL (a .wsl file) to an artifact: one instruction stream per die."
    ),
    Named("run", "run", "Run PROGRAM, an artifact folder or a .wsl file, with real numbers."),
    Named(
        "verify",
        "verify",
        "Check the compiled program in DIR without running it; with --semantics, also what it computes.",
    ),
    Named(
        "simulate",
        "simulate",
        "Tell how long a step of PROGRAM, an artifact folder or a .wsl file, takes on its wafer, and why.",
    ),
    Named(
        "monitor",
        "monitor",
        "Show where a step of PROGRAM, an artifact folder or a .wsl file, loads its wafer.",
    ),
    Named("draw", "draw", "Draw PROGRAM, an artifact folder or a .wsl file, as an SVG picture."),
    Named(
        "search",
        "search",
        "Find the plan under which a step of MODEL (a .wsl file) is shortest on its wafer.",
    ),
    Named("faults", "faults", "How much damage MODEL (a .wsl file) survives, and how fast it stays."),
    Named(
        "call-order",
        "call_order",
        "Print the calls of a step of MODEL as a table, to be edited and given back with --call-order.",
    ),
    Named("schedule", "call_order", "The old name of `wscc call-order`.", hidden=True),
    Named(
        "import", "importing", "Turn CONFIG, the config.json of a Hugging Face checkpoint, into a .wsl file."
    ),
    Named(
        "route",
        "route",
        "Route plain flows over a mesh of dies, and tell how near to the least possible load that comes.",
    ),
    Named(
        "collective",
        "collective",
        "Plan the collective OP over all live dies of a mesh or system, and show its time against a lower bound.",
    ),
    Named(
        "opt",
        "inspect",
        "Run passes on a textual IR file and print the result; without --passes, print it canonically.",
    ),
    Named("passes", "inspect", "List the passes in pipeline order, or explain one with its options."),
    Named("explain", "inspect", "What a diagnostic code means, with an example and what to do."),
    Named("fmt", "inspect", "Print a .wsl file in canonical form."),
)


@click.group(
    cls=_Commands,
    commands={str(c.name): c for c in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="wscc", prog_name="wscc")
def cli() -> None:
    """Compile a transformer and a wafer to one instruction stream per die, and run it."""


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
    # What a command makes stays until it ends, and has few circles: a search for them takes a tenth of its time.
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 50)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        logging.getLogger().addHandler(logging.NullHandler())
    sys.exit(main(sys.argv[1:]))
