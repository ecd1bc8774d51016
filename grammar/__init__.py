"""The grammars, as package data: `wsl` (the language), `wir` (textual IR), `wsa` (per-die assembly)."""

from importlib.resources import files


def text(name: str) -> str:
    """The grammar `name` (`"wsl"`, `"wir"`, `"wsa"`) as lark source."""
    return files(__package__).joinpath(f"{name}.lark").read_text(encoding="utf-8")
