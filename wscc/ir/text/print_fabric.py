"""The text of buffers and statements of the fabric level."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import assert_never

from wscc.ir.fabric import Buffer, FabricStmt, Kernel, KernelAttr, Post, Send, Transfer, Wait
from wscc.ir.per_die import NOBODY, Ints, PerDie
from wscc.ir.text.die_text import spell_ints
from wscc.ir.text.words import spell_name, spell_scalar, spell_word
from wscc.ir.types import DType
from wscc.ir.views import View, contiguous_strides


def buffer_line(b: Buffer) -> str:
    """The line that declares a local of a procedure."""
    address = f" address={b.address}" if b.address != -1 else ""
    slot = " slot=true" if b.slot else ""
    return f"  buffer %{spell_name(b.name)} : {b.dtype}[{b.elements}]{address}{slot}"


def fabric_line(stmt: FabricStmt, dtypes: Mapping[str, DType]) -> str:
    """The line of a statement; `dtypes` are those of the procedure's buffers and arguments, which a view need not
    repeat."""
    match stmt:
        case Kernel():
            return f"  {_kernel(stmt, dtypes)}"
        case Transfer():
            return f"  {_transfer(stmt, dtypes)}"
        case Post(channel, sender, write):
            return f"  post {channel} {_view(write, dtypes)} from {ints(sender)}"
        case Send(channel, to, read, route, source):
            moved = f"{_view(read, dtypes)} to {ints(to)} route {ints(route)}"
            return f"  send {channel} {moved}{_source(source)}"
        case Wait(channel, sent, where):
            return f"  wait {'sent' if sent else 'received'} {channel}{_where(where)}"
        case _:
            assert_never(stmt)


def _kernel(k: Kernel, dtypes: Mapping[str, DType]) -> str:
    writes = ", ".join(_view(v, dtypes) for v in k.writes)
    reads = ", ".join(_view(v, dtypes) for v in k.reads)
    attrs = "".join(f" {spell_word(name)}={_attr(v)}" for name, v in k.attrs)
    targets = f" {writes}" if k.writes else ""
    sources = f" <- {reads}" if k.reads else ""
    return f"{spell_word(k.opcode)}{targets}{sources}{attrs}{_where(k.where)}{_source(k.source)}"


def _transfer(t: Transfer, dtypes: Mapping[str, DType]) -> str:
    moved = f"{_view(t.read, dtypes)} -> {_view(t.write, dtypes)} to {ints(t.to)}"
    group = f" group {spell_word(t.group)}" if t.group else ""
    content = f" content {spell_word(t.content)}" if t.content else ""
    phase = f" phase {t.phase}" if t.phase != -1 else ""
    route = f" route {ints(t.route)}" if t.route != NOBODY else ""
    hop = " one_hop" if t.one_hop else ""
    return f"transfer {t.channel} {moved}{group}{content}{phase}{route}{hop}{_source(t.source)}"


def ints(value: Ints) -> str:
    """A plain integer, or one for each die in angle brackets."""
    return str(value) if isinstance(value, int) else spell_ints(value.values)


def _attr(value: KernelAttr) -> str:
    return spell_ints(value.values) if isinstance(value, PerDie) else spell_scalar(value)


def _where(where: Ints) -> str:
    return "" if where == 1 else f" where {ints(where)}"


def _source(source: str) -> str:
    return f" of %{spell_name(source)}" if source else ""


def _view(view: View, dtypes: Mapping[str, DType]) -> str:
    is_declared = dtypes.get(view.buffer) is view.dtype
    return _window(view) + ("" if is_declared else f":{view.dtype}")


@lru_cache(maxsize=8192)
def _window(view: View) -> str:
    """`%x+64[8,16:32]`: offset, then sizes, with strides where they are not those of a contiguous view."""
    offset = "" if view.offset == 0 else f"+{ints(view.offset)}"
    if view.strides == contiguous_strides(view.shape):
        dims = ",".join(map(str, view.shape))
    else:
        dims = ",".join(f"{n}:{s}" for n, s in zip(view.shape, view.strides, strict=True))
    return f"%{spell_name(view.buffer)}{offset}[{dims}]"
