"""A training that goes on: weights and optimizer state in a folder, read back bit for bit.

    folder/model.safetensors             the weights, as `--save FILE` writes them
    folder/optimizer.safetensors         moments by their names, `t` (the steps done), `weights` (a digest of those)
    folder/optimizer.next.safetensors    the same, of weights that are being replaced

Invariant: n steps, and m from the folder that they leave, are the m last of n + m steps of the same program and data.
The state of new weights is whole before they take the place of the old ones, and takes the place of the old state
after that: whenever a save ends, one of the two files belongs to the weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter import host_io
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, CompileError, fail
from wscc.files.write import make_folder, move_file
from wscc.huggingface.checkpoint import Checkpoint, refuse_unwritable, write
from wscc.ir.array import Role
from wscc.ir.streams.artifact import HostTensor

WEIGHTS_FILE: Final = "model.safetensors"
STATE_FILE: Final = "optimizer.safetensors"
_NEXT_FILE: Final = "optimizer.next.safetensors"
Ready = Callable[[Path], None]
STEPS: Final = "t"  # the array of a program that counts its steps, and its name in the file
_DIGEST: Final = "weights"


def weights_file(path: Path) -> Path:
    """The file of weights at a path: its own, or that of a folder."""
    return path / WEIGHTS_FILE if path.is_dir() else path


def is_folder(path: Path) -> bool:
    """Whether `--save` makes a folder of a path: of one, and of what is not there and does not end in .safetensors."""
    return path.is_dir() or not (os.path.lexists(path) or path.suffix == ".safetensors")


def refuse_unsavable_folder(path: Path) -> None:
    """Raise W002 if `save_folder` could not write into a folder, or make it."""
    if path.is_dir():
        for name in (WEIGHTS_FILE, STATE_FILE, _NEXT_FILE):
            refuse_unwritable(path / name)
    else:
        missing = [path, *path.parents]
        refuse_unwritable(next(p for p in missing if p.parent.exists()))


def save_folder(folder: Path, machine: Machine, save_weights: Callable[[Path, Ready], None]) -> None:
    """Write weights and the optimizer state of a machine into a folder, which is made if needed. `save_weights` writes
    the weights to a path, and calls its second argument with the new file before that is there. W002 if it fails."""
    make_folder(folder)
    save_weights(folder / WEIGHTS_FILE, lambda new: _save_state(folder / _NEXT_FILE, new, machine))
    move_file(folder / _NEXT_FILE, folder / STATE_FILE)


def _save_state(path: Path, weights: Path, machine: Machine) -> None:
    tensors = {t.name: _whole(machine, t) for t in _moments(machine)}
    tensors[STEPS] = host_io.read(machine, STEPS).reshape(1)
    tensors[_DIGEST] = _digest(weights)
    write(path, tensors, lambda new: Checkpoint(new).shapes)


def load_state(path: Path, machine: Machine) -> int:
    """The number of steps done before, with the optimizer state of a folder in the machine; 0, and nothing done, for
    the path of a file. W505 if the folder has none, or one of another program or of other weights."""
    if not path.is_dir():
        return 0
    file = _state_beside(path)
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


def _state_beside(folder: Path) -> Checkpoint:
    """The state of the weights in a folder: the next one, where a save was cut off before it took its place."""
    coming = folder / _NEXT_FILE
    if coming.is_file():
        file = Checkpoint(coming)
        if _DIGEST in file.shapes and np.array_equal(file.read(_DIGEST), _digest(folder / WEIGHTS_FILE)):
            return file
    return Checkpoint(folder / STATE_FILE)


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
