"""`python -m tests.fuzz SECONDS [SEED]`: random programs; each is equal to one device, or refused by name."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

from tests.fuzz.hunt import HANG, hunt


def _hangs(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"no result after {HANG} s")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _hangs)
    first = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    result = hunt(first, seconds=float(sys.argv[1]))
    print(f"{result}; from seed {first}")
    sys.exit(bool(result.failures))
