"""The program that a command names: an artifact folder, or a model that is compiled on the spot."""

from __future__ import annotations

from pathlib import Path

from wscc.api.program import Program, compiled, load
from wscc.api.request import Request
from wscc.cli.common import ModelOptions
from wscc.diagnostics import Code, Diagnostic, UsageError, fail
from wscc.files import read_source


def model_request(model: str, options: ModelOptions) -> Request:
    """The request to compile a `.wsl` file. Raises `CompileError` W002 if it cannot be read."""
    return Request(read_source(model), options.overrides, options.choices)


def read_program(program: str, options: ModelOptions) -> Program:
    """The program in a folder, or that of a model.

    Raises `UsageError` W006 for options that change a model, with a folder; else whatever compiling or loading raises.
    """
    if not Path(program).is_dir() or program.endswith(".wsl"):
        if not program.endswith(".wsl"):
            _refuse_no_program(Path(program))
        return compiled(model_request(program, options))
    if options.option_names:
        raise UsageError(
            Diagnostic(
                Code.OPTION,
                f"`{program}` is compiled already; {' and '.join(options.option_names)} can only change a .wsl",
                help="run the .wsl file, or compile it again",
            )
        )
    return load(program)


def _refuse_no_program(path: Path) -> None:
    """Raise `CompileError` W002, with what was meant, where a path is neither a model nor an artifact."""
    if not path.exists():
        raise fail(
            Code.UNREADABLE, f"cannot read `{path}`: no such file or folder",
            help=f"an artifact is made by `wscc compile MODEL -o {path}`",
        )  # fmt: skip
    if (path.parent / "manifest.json").exists():
        raise fail(
            Code.UNREADABLE,
            f"`{path}` is a file inside an artifact",
            help=f"give the folder: `{path.parent}`",
        )
