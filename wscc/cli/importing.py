"""The command `wscc import`."""

from __future__ import annotations

import click

from wscc.cli.output import json_option, say, show_json
from wscc.files import read_source, write_file
from wscc.files.kinds import CONFIG
from wscc.huggingface.config import read_config
from wscc.huggingface.fields import unread
from wscc.huggingface.text import imported


@click.command("import")
@click.argument("config")
@click.option("-o", "--output", metavar="FILE", help="where to write the program instead of printing it")
@click.option(
    "--seq", type=click.IntRange(1), metavar="N", help="tokens of a sequence (default: as the config allows)"
)
@json_option
def import_command(config: str, output: str | None, seq: int | None, as_json: bool) -> int:
    """Turn CONFIG, the config.json of a Hugging Face checkpoint, into a .wsl file.

    GPT-2, OPT, GPT-NeoX (Pythia), GPT-J, Falcon, Llama to 3.3, Qwen2 to Qwen3, Phi-3, StableLM, Gemma, Granite, BLOOM,
    Mistral, BERT, ViT and mixtures of experts (Mixtral, OLMoE, Qwen); what cannot be said exactly is refused. The
    weights go to `wscc run --weights`.
    """
    fields = read_config(read_source(config, CONFIG))
    program = imported(fields, seq)
    text = program.text
    if output is not None:
        write_file(output, [text], help="without `-o` it is printed")
    if as_json:
        show_json({"text": text, "unread": unread(fields), "notes": list(program.notes)})
        return 0
    for note in program.notes:
        say(f"note: {note}")
    if unread(fields):
        say(f"note: not read: {', '.join(f'`{name}`' for name in unread(fields))}")
    if output is None:
        click.echo(text, nl=False)
    return 0
