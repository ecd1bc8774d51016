"""The reference: a forward module run and trained on one device, in plain NumPy, with a tape and optimizer of its own.

Compiled programs are compared with it: it shares no kernel and no derivative with `wscc.passes` or `wscc.backends`,
and never imports them.
"""

from wscc.reference.training import History, Step, evaluate, train

__all__ = ["History", "Step", "evaluate", "train"]
