"""The meaning of every field that a command prints with `--json`; `compile` prints the `report.json` of its artifact.

A path names the keys from the outside in: `rows[].mfu` is `mfu` of each element of `rows`; a key in angle brackets, as
in `strategy.<axis>`, differs from program to program. docs/reference/json.md is made from this table, and a test
compares it with what the commands print.
"""

from __future__ import annotations

from typing import Final

_STAGGER: Final = {
    "link_model": "the link model that the delays were simulated with",
    "delays_found": "delays that the pass would make",
    "delays_kept": "delays with which the simulated step was shortest",
    "simulated_whole": "whether the whole step was simulated, and not a shorter one of the same loops",
    "step_seconds": "simulated time of a step with the delays kept; null where none was found",
    "step_seconds_before": "the same without any delay",
    "words": "the result in a sentence",
}

_SEARCH: Final = {
    "live_dies": "dies of the wafer that are alive",
    "dies[]": "numbers of dies for which strategies were looked at",
    "strategies": "strategies that were looked at",
    "estimated": "strategies whose step was estimated from their sharded program",
    "compiled": "strategies that were compiled",
    "simulated": "compiled strategies whose step was simulated",
    "refused.<code>": "strategies that were refused with this code",
    "ended": "what ended the search: bounds that rule out the rest, or the budget",
    "best": "the strategy found, as `--parallel` takes it",
    "step_seconds": "simulated time of a step of the best strategy",
    "bound_seconds": "a time that no strategy looked at goes below",
}

_LINK: Final = {
    "from[]": "row and column of the die that sends over the link",
    "to[]": "row and column of the die at its other end",
    "util": "share of the step in which the link is busy",
    "peak_util": "the largest such share of one call",
    "peak_call": "the procedure of that call",
    "bytes": "bytes that cross the link in a step",
    "messages": "messages that cross it in a step",
    "queueing_seconds": "time that messages waited for the link, summed",
    "conflicts": "messages that had to wait for it",
}

_ORIGIN: Final = {
    "op": "the op of the graph that is behind it",
    "kind": "the kind of op or collective",
    "file": "the `.wsl` file",
    "line": "the line in it, 0 if none is",
}

_SUMS: Final = {
    "total_bytes": "bytes on all dies",
    "once_bytes": "bytes of one copy",
    "redundancy": "the former over the latter: 1.0 where nothing is stored twice",
}


def _under(prefix: str, fields: dict[str, str]) -> dict[str, str]:
    return {prefix + path: meaning for path, meaning in fields.items()}


_COMPILE: Final = {
    "strategy.<axis>": "degree of the axis: the number of ways that it splits",
    "dies_used": "dies that have a part in the program",
    "compile_seconds.total": "time of the compilation",
    "compile_seconds.passes.<pass>": "time of a pass; `bounds` are those of the links, `emit` writes the streams",
    "params": "elements of all parameters; tied ones count once",
    "parameter_groups[].lr": "learning rate of these parameters before `lr_schedule`; 0: frozen",
    "parameter_groups[].weight_decay": "their weight decay",
    "parameter_groups[].params": "their elements",
    "parameter_groups[].arrays[]": "their names",
    "flops_per_step": "FLOPs of contractions and attention in a step, recomputation not counted",
    "hidden_flops": "FLOPs of attention that no die computes, because a causal mask hides whole shards",
    "replicated_flops.<op>": "FLOPs of an op that dies repeat after one another, summed over dies",
    "instructions": "instructions of all programs",
    "traffic_bytes": "bytes x links that messages cross in a step",
    "sequence_order": "`contiguous`, or `zigzag` where dies hold an early and a late piece of the sequence",
    "weights_converted": "how often weights are converted to the type of computation",
    "memory.peak_bytes_per_die_max": "bytes that the fullest die needs",
    "memory.peak_bytes_per_die[]": "bytes that each logical die needs",
    "memory.live_peak_bytes": "bytes that the fullest die would need if its locals were packed without a gap",
    "memory.capacity": "bytes that a die has, SRAM and HBM together",
    "memory.by_category.<kind>": "bytes of the fullest die by kind of array, and its `locals`",
    "storage.arrays[].name": "a parameter, gradient, compute copy or optimizer state",
    "storage.arrays[].kind": "which of these it is",
    "storage.arrays[].layout": "type of one of its elements, with the axes that split each dimension",
    "storage.arrays[].split[]": "axes along which dies hold different parts",
    "storage.arrays[].replicated[]": "axes along which dies hold the same",
    "storage.arrays[].copies": "dies that hold each element",
    "storage.arrays[].stages[]": "pipeline stages that hold some of it",
    "storage.arrays[].bytes_per_die": "bytes on the fullest die",
    **_under("storage.arrays[].", _SUMS),
    **_under("storage.by_kind.<kind>.", _SUMS),
    "placement.method": "how dies were placed",
    "placement.rings": "groups that lie as a closed ring of neighbours",
    "placement.paths": "groups that lie as an open path of neighbours",
    "placement.axes.<axis>.lies": "how the groups of the axis lie: as rings, paths, or otherwise",
    "placement.axes.<axis>.hops": "hops between consecutive dies of all its groups, summed",
    "placement.axes.<axis>.note": "why they do not lie better; empty where they do",
    "phases[].name": "procedure and number of a phase, of transfers that may be in flight together",
    "phases[].xy_max_link_bytes": "bytes over the busiest link with XY routes",
    "phases[].max_link_bytes": "bytes over the busiest link with the routes chosen",
    "phases[].lp_bound_bytes": "bytes that no routing can be below; null where that was not computed",
    "phases[].gap_percent": "how far the load is above that bound",
    "procedures[].name": "a procedure that sends messages",
    "procedures[].max_link_bytes": "bytes over its busiest link in one call",
    "procedures[].lp_bound_bytes": "bytes that no routing of the call can be below",
    **_under("stagger.", _STAGGER),
    **_under("search.", _SEARCH),
    "modules.<pass>": "text of the module after the pass, with `--emit` and `--print-after`",
}

_RUN: Final = {
    "losses[]": "loss of each step",
    "validation[].step": "number of steps after which the rows that are held out were looked at",
    "validation[].loss": "their loss then: the mean over all their labels that count",
    "data.source": "what was trained on: `arrays`, a `text`, or tokens from the `seed`",
    "data.rows": "rows to train on; of a text, places where a sequence may begin; 0 for tokens from the seed",
    "data.validation_rows": "rows that are held out",
    "data.labels_counted": "labels of all steps that count",
    "data.labels_ignored": "labels of all steps that are -100",
    "seconds_per_step": "time of a step on this computer, not on the wafer",
    "peak_bytes_per_die_max": "bytes that the fullest die needs",
    "notes[]": "what of the file of weights was left out",
    "check.ok": "whether each step equals that of one device, from the same weights, within the limits of the types",
    "check.dtype": "type of computation",
    "check.types": "types of computation, parameters and gradients; one, if they are the same",
    "check.loss_rel_err": "largest relative error of a loss, compared with f64; null where it is not finite",
    "check.grad_rel_err": "largest relative error of a gradient of any step, compared with f64; null likewise",
    "check.weight_rel_err": "largest relative error of a weight, by an update with its gradient; null likewise",
    "check.worst": "the comparison that is nearest to its limit",
    "check.worst_of_limit": "its error over its limit, at most 1 where it is right",
}

_VERIFY: Final = {
    "ok": "whether nothing is wrong",
    "min_slot_depth": "receive slots that a die needs at least for the messages on their way to it",
    "findings[].check": "the check that found something",
    "findings[].message": "what is wrong, with its numbers",
    "findings[].die": "place of the die; empty for all",
    "findings[].procedure": "the procedure; empty for none in particular",
    "findings[].instruction": "number of the instruction in it from 0, -1 for none in particular",
}

_SIMULATE: Final = {
    "link_model": "`cut-through` or `store-and-forward`",
    "step_seconds": "time of a step on the wafer",
    "mfu": "FLOPs of the model over what all live dies could compute in that time",
    "dies_used": "dies that have a part in the program",
    "live_dies": "dies of the wafer that are alive",
    "die_util.mean": "share of the step in which a used die computes, on average",
    "die_util.min": "the same of the die that computes least",
    "link_util.mean": "share of the step in which a live link is busy, on average",
    "link_util.max": "the same of the busiest link",
    "energy_joules": "energy of a step",
    "energy.compute": "joules of it for FLOPs",
    "energy.links": "joules of it for bytes over links",
    "bound_seconds.compute": "the least time that the FLOPs of a die take, in any order",
    "bound_seconds.hbm": "the least time that its bytes from and to HBM take",
    "bound_seconds.links": "the least time that the bytes of a link take",
    "bubble_fraction": "share of die time spent waiting for other stages",
    "exposed_comm_fraction": "share of die time spent waiting for messages on their way",
    "time.model": "share of die time for FLOPs of the model: the MFU",
    "time.extra_flops": "share for FLOPs recomputed, or repeated on several dies",
    "time.tile_rounding": "share for tiles that are not full",
    "time.hbm": "share that instructions take longer because of HBM",
    "time.exposed.<collective>": "share spent waiting for messages of this kind on their way",
    "time.delayed": "share spent starting later on purpose (`--stagger`)",
    "time.bubble": "share spent waiting for another stage",
    "time.idle": "share spent waiting for a die of the own stage, or for the end of the step",
    "time.unused_dies": "share of dies without a part in the program",
    **_under("stagger.", _STAGGER),
}

_MONITOR: Final = {
    "metric": "what was asked for",
    "mesh[]": "rows and columns of the wafer",
    "step_seconds": "simulated time of a step",
    "step_seconds_at_twice_the_bandwidth": "the same if links had twice the bandwidth; only where one is hot",
    "groups[].first_die[]": "row and column of the first die of a block (`--group`)",
    "groups[].mean": "mean of the dies of the block, for `die_util`",
    "groups[].max": "maximum over the block, for the other metrics",
    **_under("links[].", _LINK),
    **_under("hot[].", _LINK),
    "hot[].traffic[].procedure": "procedure that sends over the link",
    "hot[].traffic[].bytes": "bytes of a step that it sends there",
    **_under("hot[].traffic[].", _ORIGIN),
    "hot[].relief[]": "what would make room on the link",
    "dies[].die[]": "row and column of the die",
    "dies[].util": "share of the step in which it computes; for `memory`, share of its bytes that are live at once",
    "dies[].flops": "share of the step for its FLOPs at the peak of the die",
    "dies[].tile_rounding": "share for tiles that are not full",
    "dies[].hbm": "share that instructions take longer because of HBM",
    "dies[].delayed": "share spent starting later on purpose",
    "dies[].bubble": "share spent waiting for another stage",
    "dies[].idle": "share spent waiting for a die of its stage, or for the end",
    "dies[].exposed.<collective>": "share spent waiting for messages of this kind on their way",
    "dies[].live_peak_bytes": "most bytes of the die that are live at once",
    "capacity": "bytes that a die has",
    "stages[].stage": "number of a pipeline stage",
    "stages[].live_peak_bytes": "most bytes of one of its dies that are live at once",
    "stages[].peak_seconds": "time in the step at which they are",
    "stages[].peak_call": "procedure that runs then",
    "stages[].resident.<kind>": "bytes of arrays that live through the whole step, by kind",
    "stages[].at_peak[].bytes": "bytes of something that is live at the peak",
    "stages[].at_peak[].what": "what it is",
    **_under("stages[].at_peak[].", _ORIGIN),
    "stages[].over_time[].seconds": "a time in the step",
    "stages[].over_time[].resident": "bytes then of arrays that live through the step",
    "stages[].over_time[].kept": "bytes then of arrays that are kept for a later call",
    "stages[].over_time[].locals": "bytes then of the locals of the call",
}

_ROWS_OF_SEARCH: Final = {
    "strategy": "a strategy, as `--parallel` takes it",
    "dies_used": "dies that it uses",
    "given": "whether the file or `--parallel` gives it",
    "estimate_seconds": "estimated time of a step; null where it was not estimated",
    "bound_seconds": "time that no program of the strategy goes below",
    "least_seconds": "time that its compiled program does not go below; the former where it was not compiled",
    "step_seconds": "simulated time; null where it was not simulated",
    "mfu": "FLOPs of the model over what all live dies could compute; null where it was not simulated",
    "peak_bytes_per_die_max": "bytes that the fullest die needs; null where it was not compiled",
}

_FAULTS: Final = {
    "strategy.<axis>": "degree of the axis in the file's strategy",
    "dies": "dies of the wafer",
    "dies_used": "dies that the strategy uses",
    "seeds": "patterns of each kind and rate",
    "step_seconds": "time of a step on the wafer as the file has it, by the load model",
    "model": "the load model in a sentence",
    "rows[].rate": "share of dies or links that die",
    "rows[].damage": "what dies, and where: anywhere, or in clusters",
    "rows[].dead": "how many dies or links that are",
    "rows[].patterns": "patterns that were tried",
    "rows[].compiled": "patterns with which the program still compiles",
    "rows[].nearest.<strategy>": "patterns for which this smaller strategy was taken",
    "rows[].refused.<code>": "patterns that were refused with this code",
    "rows[].kept.median": "throughput that is kept, the median of the patterns that compile",
    "rows[].kept.least": "the least that one of them keeps",
    "rows[].kept.mean": "their mean",
}

_ROUTE: Final = {
    "flows": "flows that were routed",
    "xy_max_link_bytes": "bytes over the busiest link with XY routes",
    "max_link_bytes": "bytes over the busiest link with the routes found",
    "lp_bound_bytes": "bytes that no routing can be below; null with `--no-bound`",
    "gap_percent": "how far the load is above that bound",
    "seconds": "time that the router took",
    "bound_seconds": "time that the bound took",
}

_COLLECTIVE: Final = {
    "op": "the collective",
    "mesh[]": "rows and columns of the wafer",
    "dies": "live dies that take part",
    "bytes": "bytes that were asked for",
    "algorithm": "the algorithm chosen",
    "seconds": "time of its plan in the link model",
    "bound_seconds": "time that no plan can be below",
    "bound_kind": "what gives that bound",
    "ratio": "the time over the bound",
    "why": "what the rest of the time goes to; empty where the bound is met",
    "max_link_bytes": "bytes over the busiest link",
    "messages": "messages of the plan",
    "check.ok": "whether each die ends with what it should (`--check`)",
    "check.elements": "numbers that the plan was executed with",
    "check.wrong[][]": "row and column of each die that ends with something else",
    "rows[].bytes": "a size of the table (`--sweep`)",
    "rows[].algorithm": "the algorithm that is fastest at this size",
    "rows[].bound_seconds": "time that no plan of this size can be below",
    "rows[].seconds.<algorithm>": "time of each algorithm",
}

# By command; `error` is what every command prints instead where it fails.
FIELDS: Final[dict[str, dict[str, str]]] = {
    "error": {
        "error.code": "the code that `wscc explain` takes",
        "error.message": "what is wrong",
        "error.file": "the file; empty where no place is marked",
        "error.line": "line in it, from 1",
        "error.column": "column in it, from 1",
        "error.help": "what to do; may be empty",
        "error.proposals[].options[]": "words that change the program at the end of the command line; it then compiles",
        "error.proposals[].edit.start": "first character, from 0, that a change of the text replaces",
        "error.proposals[].edit.end": "the character behind the last that it replaces",
        "error.proposals[].edit.text": "what stands there instead",
        "error.proposals[].change": "the same change as the file would say it",
    },
    "compile": _COMPILE,
    "run": _RUN,
    "verify": _VERIFY,
    "simulate": _SIMULATE,
    "monitor": _MONITOR,
    "draw": {"svg": "the picture"},
    "search": {
        **_SEARCH,
        **_under("rows[].", _ROWS_OF_SEARCH),
        "refusals[].code": "code of a refusal",
        "refusals[].count": "strategies that were refused for one reason",
        "refusals[].example": "one of them",
        "refusals[].message": "why it was refused",
    },
    "faults": _FAULTS,
    "call-order": {"call_order": "the call order, as a table"},
    "import": {
        "text": "the program",
        "unread[]": "fields of the config that play no part in it",
        "notes[]": "where training differs from what the config describes, as the program says too",
    },
    "route": _ROUTE,
    "collective": _COLLECTIVE,
    "opt": {"module": "text of the module"},
    "passes": {"<pass>": "docstring of the pass"},
    "explain": {"text": "the explanation"},
    "fmt": {"text": "the program in canonical form"},
}
