"""What `wscc verify` and `wscc simulate` cost besides reading the program: CPU seconds of one check, and of one
simulation and its figures, in a new process; what is compared with what is in `scaling`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from wscc.backends.artifact.load import load_artifact
from wscc.backends.verify import verify_program
from wscc.driver.simulate import simulate


@dataclass(frozen=True, slots=True)
class Simulating:
    """CPU seconds of a simulation and of a check before it, the dies of the program, and the instructions that all of
    them have in total."""

    cpu: float
    verifying: float
    dies: int
    instructions: int


def simulating(folder: Path) -> Simulating:
    """What it costs to simulate an artifact."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.simulating", str(folder)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return Simulating(**json.loads(done.stdout))


def main() -> None:
    artifact = load_artifact(Path(sys.argv[1]))
    streams = artifact.streams
    bodies = {p.role: sum(len(c.body) for c in p.procedures) for p in streams.programs}
    begun = time.process_time()
    assert verify_program(artifact).ok
    verifying = time.process_time() - begun
    begun = time.process_time()
    simulate(artifact).figures()
    cpu = time.process_time() - begun
    print(json.dumps({
        "cpu": cpu, "verifying": verifying, "dies": len(streams.dies),
        "instructions": sum(bodies[role] for role in streams.roles),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
