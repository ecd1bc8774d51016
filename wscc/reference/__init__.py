"""One device, plain NumPy: what a forward module means, with its own reverse-mode tape and optimizer.

The judge of compiled programs: it shares no kernel and no derivative with `wscc.passes` or `wscc.backends`,
and never imports them.
"""

from wscc.reference.training import History, Step, evaluate, train

__all__ = ["History", "Step", "evaluate", "train"]
