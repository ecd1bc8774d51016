"""The Python API: programs, their results, models built in Python, own passes and own ops.

`wscc` has each of these names; `docs/api.md` shows what they do.
"""

from __future__ import annotations

from wscc.api import nn as nn
from wscc.api.expressions import Expression
from wscc.api.extending import insert, register_op, registered_op, unregister_op
from wscc.api.model import Block, Model, normal
from wscc.api.program import Program, compile, load
from wscc.api.ranking import search
from wscc.api.results import (
    PassModule,
    Picture,
    Placement,
    Ranked,
    Ranking,
    Refusal,
    Run,
    Simulation,
    Verification,
)  # fmt: skip
from wscc.api.training import Train, adamw, cosine, sgd, warmup
from wscc.api.wafer import Wafer
from wscc.diagnostics import CompileError, UsageError
from wscc.driver.types import Fact, Pass
from wscc.ir.module import Module

__all__ = [
    "Block", "CompileError", "Expression", "Fact", "Model", "Module", "Pass", "PassModule", "Picture", "Placement",
    "Program", "Ranked", "Ranking", "Refusal", "Run", "Simulation", "Train", "UsageError", "Verification", "Wafer",
    "adamw", "compile", "cosine", "insert", "load", "nn", "normal", "register_op", "registered_op", "search", "sgd",
    "unregister_op", "warmup",
]  # fmt: skip
