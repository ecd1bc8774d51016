"""The error of a check of an artifact, before the folder is known."""

from __future__ import annotations


class Mistake(ValueError):
    """What is wrong, and the file of the artifact that says it."""

    def __init__(self, file: str, words: str) -> None:
        super().__init__(words)
        self.file = file
