"""Right programs of all kinds in all sets of types, which `wscc run --check` must pass.

python -m tests.fuzz.types [KIND ...]     each of `tests.fuzz.kinds` in 27 sets of types of computation, parameters and
                                          gradients, with its strategies in turn; exit status 1 if one fails
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product

from tests.fuzz.kinds import NAMES, TYPES, Drawn, strategies
from tests.fuzz.verdicts import check
from wscc.diagnostics import CompileError


def main(names: Sequence[str]) -> int:
    failures = 0
    for name in names:
        for number, (compute, params, grads) in enumerate(product(TYPES, repeat=3)):
            found = strategies(name)
            program = Drawn(name, found[number % len(found)], (compute, params, grads))
            try:
                verdict = check(program.artifact(), steps=2, checked=True)
                wrong = "" if verdict.ok else str(verdict)
            except CompileError as error:
                wrong = str(error)
            failures += wrong != ""
            if wrong:
                print(f"{program}: {wrong}", flush=True)
        print(f"{name}: 27 sets of types", flush=True)
    print(f"{failures} false failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or NAMES))
