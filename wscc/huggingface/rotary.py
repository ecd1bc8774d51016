"""Rotary positions as a `config.json` describes them: base, what of a head is turned, and the scaling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from wscc.huggingface.config import Config

_PLAIN: Final = frozenset({"rope_theta", "partial_rotary_factor"})  # fields of an object that names no type


@dataclass(frozen=True, slots=True)
class Rotary:
    """The options of `rope`. `width`: the elements of a head that are turned, or None for all; `factor`, `low`, `high`
    and `original` scale frequencies, not at all if `factor` is 1. `interleaved`: neighbours are turned, not halves."""

    theta: float
    width: int | None = None
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: float = 0.0
    interleaved: bool = False

    @property
    def options(self) -> dict[str, float]:
        """Those that a program has to say."""
        out = {} if self.theta == 10000 else {"theta": self.theta}
        out |= {} if self.width is None else {"width": self.width}
        if self.factor == 1:
            return out
        bands = {"low": self.low, "high": self.high, "original": self.original} if self.original else {}
        return {**out, "factor": self.factor, **bands}


def rotary(config: Config, size: int, *, base: str = "rope_theta", part: float | None = 1.0) -> Rotary:
    """The rotary positions of heads of `size` elements. `base` is the name of the field of theta, and `part` what of a
    head is turned if the config does not say it; None where the model type turns whole heads. W105 for a scaling that
    `rope` has not."""
    out = Rotary(config.positive(base, 10000.0))
    fraction = _part(config, part)
    for name in ("rope_scaling", "rope_parameters"):  # the second is the newer spelling, with the base in it
        inner = config.section(name)
        if inner is None:
            continue
        out = _scaled(config, name, inner, replace(out, theta=inner.positive("rope_theta", out.theta)))
        fraction = _part(inner, None if part is None else fraction)
    width = int(size * fraction)
    if width % 2 or not 0 < width <= size:
        name = "head_dim" if fraction == 1 else _part_name(config)
        config.refuse(
            name,
            f"`{name}`: rotary positions turn pairs, and {width} of the {size} elements of a head are none",
        )
    return out if width == size else replace(out, width=width)


def rotary_by_kind(config: Config) -> tuple[Rotary, Rotary]:
    """The rotary positions of full and of sliding attention (Gemma 3); a scaling without a kind is of the former. W105
    for one that `rope` has not."""
    full = Rotary(config.positive("rope_theta", 1e6))
    sliding = Rotary(config.positive("rope_local_base_freq", 1e4))
    if (inner := config.section("rope_scaling")) is not None:
        full = _scaled(config, "rope_scaling", inner, full)
    if (both := config.section("rope_parameters")) is not None:
        if (inner := both.section("full_attention")) is not None:
            plain = replace(full, theta=inner.positive("rope_theta", full.theta))
            full = _scaled(config, "rope_parameters", inner, plain)
        if (inner := both.section("sliding_attention")) is not None:
            plain = replace(sliding, theta=inner.positive("rope_theta", sliding.theta))
            sliding = _scaled(config, "rope_parameters", inner, plain)
        if both.fields and not both.asked & both.fields.keys():
            config.refuse("rope_parameters", "`rope_parameters` names no kind of attention")
    return full, sliding


def _part_name(config: Config) -> str:
    return "rotary_pct" if config.has("rotary_pct") else "partial_rotary_factor"


def _part(config: Config, default: float | None) -> float:
    name = _part_name(config)
    fraction = config.positive(name, 1.0 if default is None else default)
    if fraction > 1 or (default is None and fraction != 1):
        config.refuse(name, f"`{name}` is not 1, and this model type turns whole heads")
    return fraction


def _scaled(config: Config, name: str, inner: Config, plain: Rotary) -> Rotary:
    """The rotary positions with the scaling of an object `rope_scaling` or `rope_parameters`."""
    default = "default" if inner.fields.keys() <= _PLAIN else "unnamed"
    kind = inner.word("rope_type", "type", default=default)
    if kind == "default":
        return plain
    if kind not in ("linear", "llama3"):
        config.refuse(
            name, f"`{name}` of type `{kind[:40]}` cannot be said: `rope` scales as `linear` or `llama3` do",
            "set it to null only if you mean to train the model without it",
        )  # fmt: skip
    factor = _number(inner, "factor")
    if kind == "linear":
        return replace(plain, factor=factor)
    low, high = _number(inner, "low_freq_factor"), _number(inner, "high_freq_factor")
    if low >= high:
        config.refuse(name, f"`{name}`: `low_freq_factor` is {low:g}, not below `high_freq_factor` {high:g}")
    original = float(inner.size("original_max_position_embeddings"))
    return replace(plain, factor=factor, low=low, high=high, original=original)


def _number(inner: Config, name: str) -> float:
    if not inner.has(name):
        raise inner.missing(name)
    return inner.positive(name, 1.0)
