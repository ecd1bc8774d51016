"""A training that goes on: weights and optimizer state in a folder, read back bit for bit.

    folder/model.safetensors        the weights, as `--save FILE` writes them
    folder/optimizer.safetensors    moments by their names, `t` (the steps done), `weights` (a digest of those)

Invariant: n steps, and m from the folder that they leave, are the m last of n + m steps of the same program and data.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter import host_io
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, CompileError, fail
from wscc.huggingface.checkpoint import Checkpoint, refuse_unwritable, write
from wscc.ir.array import Role
from wscc.ir.streams.artifact import HostTensor

WEIGHTS_FILE: Final = "model.safetensors"
STATE_FILE: Final = "optimizer.safetensors"
STEPS: Final = "t"  # the array of a program that counts its steps, and its name in the file
_DIGEST: Final = "weights"


def weights_file(path: Path) -> Path:
    """The file of weights at a path: its own, or that of a folder."""
    return path / WEIGHTS_FILE if path.is_dir() else path


def refuse_unsavable_state(path: Path) -> None:
    """Raise W002 if `save_state` could not write into a folder; nothing for the path of a file."""
    if path.is_dir():
        refuse_unwritable(path / STATE_FILE)


def save_state(folder: Path, machine: Machine) -> None:
    """Write the optimizer state of a machine beside the weights that have just been written. W002 if that fails."""
    tensors = {t.name: _whole(machine, t) for t in _moments(machine)}
    tensors[STEPS] = host_io.read(machine, STEPS).reshape(1)
    tensors[_DIGEST] = _digest(folder / WEIGHTS_FILE)
    write(folder / STATE_FILE, tensors, lambda new: Checkpoint(new).shapes)


def load_state(path: Path, machine: Machine) -> int:
    """The number of steps done before, with the optimizer state of a folder in the machine; 0, and nothing done, for
    the path of a file. W505 if the folder has none, or one of another program or of other weights."""
    if not path.is_dir():
        return 0
    file = Checkpoint(path / STATE_FILE)
    expected = {t.name: (*t.extents, *t.shape) for t in _moments(machine)}
    found = {n: s for n, s in file.shapes.items() if n not in (STEPS, _DIGEST)}
    if found != expected or not {STEPS, _DIGEST} <= file.shapes.keys():
        wrong = sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n))
        raise _misfit(file.path, f"it does not fit the optimizer: {', '.join(f'`{n}`' for n in wrong[:4])}")
    if not np.array_equal(file.read(_DIGEST), _digest(path / WEIGHTS_FILE)):
        raise _misfit(file.path, f"it was not saved with `{WEIGHTS_FILE}` beside it")
    for t in _moments(machine):
        whole = file.read(t.name)
        if whole.dtype != t.type.dtype.numpy:
            raise _misfit(file.path, f"`{t.name}` is {whole.dtype}, and here {t.type.dtype}")
        for index in np.ndindex(*t.extents):
            host_io.write(machine, t.name, index, whole[index])
    steps = file.read(STEPS)
    if steps.shape != (1,) or steps.dtype != np.int32 or steps[0] < 0:
        raise _misfit(file.path, f"`{STEPS}` is no number of steps")
    host_io.write(machine, STEPS, (), steps.reshape(()))
    return int(steps[0])


def _misfit(path: Path, why: str) -> CompileError:
    return fail(
        Code.WEIGHTS, f"`{path}` cannot be gone on from: {why}",
        help=f"give the file `{WEIGHTS_FILE}` to start from its weights alone",
    )  # fmt: skip


def _moments(machine: Machine) -> list[HostTensor]:
    return [t for t in machine.manifest.tensors if t.is_a(Role.MOMENT)]


def _whole(machine: Machine, t: HostTensor) -> NDArray[np.generic]:
    whole = np.empty((*t.extents, *t.shape), t.type.dtype.numpy)
    for index in np.ndindex(*t.extents):
        whole[index] = host_io.read(machine, t.name, index)
    return whole


def _digest(path: Path) -> NDArray[np.uint8]:
    """128 bits that tell the tensors of files apart."""
    file, found = Checkpoint(path), blake2b(digest_size=16)
    for name in sorted(file.shapes):
        found.update(name.encode())
        found.update(file.read(name).tobytes())
    return np.frombuffer(found.digest(), np.uint8).copy()
