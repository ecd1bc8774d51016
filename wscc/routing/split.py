"""Shares of each demand's columns that minimise the largest load of a link: a linear programme, solved by GLOP.

    minimise  z + a little of the mean load     shares of a demand sum to 1, and no link carries more than z

A vertex of it has at most as many split demands as there are full links, so that few demands are split at all. The
dual values of the links are the prices at which the next columns are generated (as in
L. Ford, D. Fulkerson, "A suggested computation for maximal multi-commodity network flows", 1958).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from ortools.linear_solver.python import model_builder_helper as solver

from wscc.routing.columns import Column
from wscc.routing.flows import Floats

# Weight of the mean load beside the largest one: of equal maxima, the one with the least bytes x links.
_MEAN: Final = 1e-3
# A triangular start (I. Maros) takes a third of the time of the default one here.
_PARAMETERS: Final = "initial_basis: MAROS"


@dataclass(frozen=True, eq=False)
class Split:
    """`shares` by column, `load` the largest of a link in byte times, `prices` the dual values of links (they sum to
    about 1)."""

    shares: Floats
    load: float
    prices: Floats


def split(
    columns: Sequence[Column], least: Floats, amounts: Floats, fixed: Floats, scale: float,
    penalty: Floats | None = None,
) -> Split | None:  # fmt: skip
    """The best shares of `columns`, each at least its `least`; every demand has a column, and the least shares of
    its columns sum to at most 1.

    `amounts`: bytes by demand; `fixed`: bytes by link of pinned flows; `scale`: about the answer, to keep
    the numbers of the programme near 1; `penalty`: by column, the cost of all of its demand on it, as a part of the
    largest load. None if the solver finds no optimum.
    """
    demands, links, count = len(amounts), len(fixed), len(columns)
    model = solver.ModelBuilderHelper()
    for j in range(count + 1):
        model.add_var()
        model.set_var_lower_bound(j, float(least[j]) if j < count else 0.0)
        model.set_var_upper_bound(j, inf)
    model.set_var_objective_coefficient(count, 1.0)
    for i in range(demands + links):
        model.add_linear_constraint()
        is_demand = i < demands
        model.set_constraint_lower_bound(i, 1.0 if is_demand else -inf)
        model.set_constraint_upper_bound(i, 1.0 if is_demand else -float(fixed[i - demands]) / scale)
        if not is_demand:
            model.add_term_to_constraint(i, count, -1.0)
    for j, column in enumerate(columns):
        weight = float(amounts[column.demand]) / scale
        model.add_term_to_constraint(column.demand, j, 1.0)
        crossings: float = len(column.links)
        if column.times is None:
            for link in column.links.tolist():
                model.add_term_to_constraint(demands + link, j, weight)
        else:
            crossings = float(column.times.sum())
            for link, times in zip(column.links.tolist(), column.times.tolist(), strict=True):
                model.add_term_to_constraint(demands + link, j, weight * times)
        cost = _MEAN * weight * crossings / links + (0.0 if penalty is None else float(penalty[j]))
        model.set_var_objective_coefficient(j, cost)
    answer = solver.ModelSolverHelper("glop")
    answer.set_solver_specific_parameters(_PARAMETERS)
    answer.solve(model)
    if answer.status() != solver.SolveStatus.OPTIMAL:
        return None
    values, duals = np.array(answer.variable_values()), np.array(answer.dual_values())
    return Split(np.maximum(values[:-1], 0.0), float(values[-1]) * scale, np.maximum(-duals[demands:], 0.0))
