"""Text forms of the IR: modules (`.wir`), types, per-die integers and the order of calls, printed and parsed."""
