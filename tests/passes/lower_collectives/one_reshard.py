"""Programs of one reshard along an axis, and how long the simulator says that they take."""

from __future__ import annotations

from dataclasses import replace

from wscc.backends.emit import emit
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.compose import Composer
from wscc.backends.simulator.costs import SECOND, Costs
from wscc.driver.pipeline import Pipeline
from wscc.ir.array import Array, Kind
from wscc.ir.module import Level, Module, Output, Procedure
from wscc.ir.op import Reshard, Value
from wscc.ir.step import Call, Ref
from wscc.ir.train import Train
from wscc.ir.types import DType, Layout, Reduction, TensorType
from wscc.machine.presets import preset
from wscc.machine.wafer import Wafer
from wscc.passes.choices import Choices
from wscc.passes.place import Place

KINDS = ("all_gather", "reduce_scatter", "all_reduce")


def wafer_of(rows: int, cols: int) -> Wafer:
    """The mesh of temp-4x8 with so many dies, whose SRAM holds all: only links take time."""
    base = preset("temp-4x8")
    return replace(base, rows=rows, cols=cols, die=replace(base.die, sram=1 << 40))


def module_of(wafer: Wafer, kind: str, axes: tuple[tuple[str, int], ...], size: int) -> Module:
    """One reshard along the first axis, of `size` bytes of the whole."""
    axis, n = axes[0]
    elements = max(size // 2 // n, 1) * n
    plain = TensorType((elements,), DType.BF16)
    split, whole = Layout(((axis,),)), Layout(((),))
    partial = whole.with_partial({axis: Reduction.SUM})
    source, target = {
        "all_gather": (split, whole),
        "reduce_scatter": (partial, split),
        "all_reduce": (partial, whole),
    }[kind]
    x, y = Value("x", plain.with_layout(source)), Value("y", plain.with_layout(target))
    reduction = Reduction.SUM if kind == "all_reduce" else None
    op = Reshard(kind, axis, x, y, -1 if kind == "all_reduce" else 0, reduction=reduction)
    arrays = (Array("x", x.type, Kind.CARRIED), Array("y", y.type, Kind.CARRIED))
    procedure = Procedure("go", (x,), (Output(y),), (op,))
    step = (Call("go", (Ref("x"), Ref("y"))),)
    return Module("r", Level.SHARDED, axes, Train(1, 1), wafer, arrays, (procedure,), step)


def simulated(module: Module, allgather: str = "auto") -> float:
    """Seconds of the step of a module that is not placed yet."""
    placed = Place().run(module)
    planned = Pipeline.default(2, Choices(allgather=allgather)).after(Place).run(placed, verify_each=False)
    streams, _ = emit(planned)
    composer = Composer(Builder(streams, Costs.of(module.machine)), None).run()
    return max(composer.now) / SECOND
