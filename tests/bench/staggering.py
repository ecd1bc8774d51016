"""Where staggered starts help: patterns of traffic x meshes x link models, each step simulated whole."""

from __future__ import annotations

from wscc.driver.compile import compile_file
from wscc.frontend.overrides import Overrides
from wscc.machine.links import LINK_MODELS
from wscc.passes.choices import Choices

# Replicas that send to the next stage over common links; groups of tp and sp whose members are not all neighbours.
PATTERNS = (
    ("1x6", "pp=2,dp=3", "cpsat"), ("1x8", "pp=2,dp=4", "cpsat"), ("1x8", "pp=2,dp=4", "smap"),
    ("1x8", "pp=4,dp=2", "smap"), ("2x8", "pp=2,dp=8", "cpsat"), ("4x4", "pp=2,dp=8", "cpsat"),
    ("4x4", "pp=4,dp=4", "cpsat"), ("1x8", "pp=2,dp=2,tp=2", "cpsat"), ("3x4", "dp=3,tp=4", "cpsat"),
    ("4x3", "dp=3,tp=4", "smap"), ("2x4", "sp=2,tp=4", "smap"), ("2x4", "dp=2,sp=2,tp=2", "smap"),
    ("2x4", "dp=2,tatp=4", "cpsat"),
)  # fmt: skip
LINKS = ("100 GB/s", "400 GB/s")


def show_staggering(quick: bool) -> None:
    print(
        "staggered starts: microseconds of a step, all at once and with the delays that help, simulated whole"
    )
    print(
        f"{'mesh':<6}{'strategy':<16}{'mapper':<8}{'link':<10}{'link model':<19}{'kept':>8}{'before':>10}{'after':>10}"
    )
    for mesh, strategy, mapper in PATTERNS[: 5 if quick else None]:
        for bandwidth in LINKS[: 1 if quick else None]:
            for link_model in LINK_MODELS:
                if not _show(mesh, strategy, mapper, bandwidth, link_model):
                    break
    print()


def _show(mesh: str, strategy: str, mapper: str, bandwidth: str, link_model: str) -> bool:
    """Print a row; whether there was something to try."""
    sets = (
        f"wafer.mesh={mesh}", "wafer.link.latency=10 ns", f"wafer.link.bandwidth={bandwidth}", "train.batch=48",
        "train.microbatch=2", "model.d=120", "model.heads=12", "model.layers=4", "model.vocab=240",
    )  # fmt: skip
    overrides = Overrides(sets=sets, parallel=strategy)
    choices = Choices(mapper=mapper, stagger=link_model)
    told = compile_file("samples/gpt-tiny.wsl", overrides, choices=choices).report["stagger"]
    start = f"{mesh:<6}{strategy:<16}{mapper:<8}{bandwidth:<10}"
    if not told["delays_found"]:
        print(f"{start}no two clusters share a hot link")
        return False
    before, after = (1e6 * told[k] for k in ("step_seconds_before", "step_seconds"))
    kept = f"{told['delays_kept']} of {told['delays_found']}"
    more = "" if told["simulated_whole"] else "  (composed)"
    print(
        f"{start}{link_model:<19}{kept:>8}{before:>10.2f}{after:>10.2f}{1 - after / before:>8.2%}{more}",
        flush=True,
    )
    return True
