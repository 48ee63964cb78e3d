"""RuleForm: the form of a file with rules that a higher layer reads, such as the arcs of an automaton."""

from __future__ import annotations

from abc import ABC, abstractmethod


class RuleForm(ABC):
    """Reads the rules of a file. Subclasses are immutable, hashable and picklable, because plans contain them."""

    @abstractmethod
    def read(self, text: str) -> tuple[object, ...]:
        """Return the rules of a text. Raises WatchlistError for the first invalid rule."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The file that is expected, for messages."""
