"""A part of every preset runs a GPT and a Llama as one device does, with routes free of deadlock: exit status 1 if not.

python -m tests.machine.every_preset
"""

from __future__ import annotations

import sys

from tests.end_to_end.test_fabrics import part_of
from tests.fuzz.strategies import judged_artifact, reference
from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt, llama
from wscc.backends.verify import verify_program
from wscc.machine.presets import PRESETS

_SHAPE = Shape(batch=4, calls=1, seq=4, d=8, heads=2, kv=1, ffn=8, vocab=8, layers=1)


def main() -> int:
    wrong = 0
    for name in PRESETS:
        for family in (gpt, llama):
            for degrees in ({"dp": 2, "tp": 2}, {"tatp": 4}):
                module = family(degrees, _SHAPE, wafer=part_of(name))
                artifact = artifact_of(module)
                check = judged_artifact(artifact, module, reference(family, _SHAPE, "adamw"), checked=False)
                findings = verify_program(artifact).findings
                wrong += not check.ok or bool(findings)
                words = " ".join(f"{a}={n}" for a, n in degrees.items())
                verdict = "equal" if check.ok else str(check)
                print(
                    f"{name:<18}{family.__name__:<7}{words:<11}{verdict}, {len(findings)} findings",
                    flush=True,
                )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
