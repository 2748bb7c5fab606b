"""Counting the work on a sequence: its elements stay in the grader, and the code under test asks for each operation.

The code gets a stand-in that is a ``collections.abc.Sequence``. Its elements can be compared with each other and with
nothing else: they are no numbers and not hashable. So whatever a function knows of the order of the values it has asked
for, and every question is counted here, through whatever helper, copy or thread it came.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pytest_llmbench.sandbox.calls import Overdrawn, Remote

DEFAULT_OPERATIONS_CAP: Final = 5_000_000
"""Reads, and comparisons, that one call may make where no cap is given."""

_COMPARE: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "__lt__": operator.lt,
    "__le__": operator.le,
    "__gt__": operator.gt,
    "__ge__": operator.ge,
    "__eq__": operator.eq,
    "__ne__": operator.ne,
}


class CountedSequence(Remote):
    """An argument for ``Worker.call`` that counts what the called function does with it.

    Reading an index costs one read, a slice its length, iterating one read per element that was handed out; ``in``,
    ``index`` and ``count`` cost the reads and comparisons they make. The length is free. A comparison costs one, also
    one with something that is no element of this sequence (which is unequal to every element and not ordered).
    Attempts to change the sequence raise ``TypeError`` in the code and are counted. Each call starts from zero.

    Args:
        values: what the sequence holds.
        reads_cap: where more reads are made the call ends at once, as ``Broken`` with the limit ``reads``.
        comparisons_cap: likewise for comparisons, with the limit ``comparisons``.
    """

    def __init__(self, values: Sequence[int], reads_cap: int | None = None, comparisons_cap: int | None = None) -> None:
        self._values = tuple(values)
        self._reads_cap = DEFAULT_OPERATIONS_CAP if reads_cap is None else reads_cap
        self._comparisons_cap = DEFAULT_OPERATIONS_CAP if comparisons_cap is None else comparisons_cap
        self.begin()

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"CountedSequence({list(self._values)!r})"

    def begin(self) -> None:
        """Start from zero."""
        self._read_at = array("q")
        self.comparisons = 0
        """Comparisons that were asked for."""
        self.mutations = 0
        """Attempts to change the sequence."""

    @property
    def reads(self) -> int:
        """Elements that were handed out."""
        return len(self._read_at)

    def operate(
        self, operation: str | None, left: int, right: int, foreign: int, mutations: int, reads: Sequence[int]
    ) -> bool:
        """Count what is reported, and compare."""
        if reads:
            if max(reads) >= len(self._values):
                raise IndexError("no such position")
            self._read_at.extend(reads)
            if len(self._read_at) > self._reads_cap:
                raise Overdrawn("reads")
        self.mutations += mutations
        self.comparisons += foreign + (operation is not None)
        if self.comparisons > self._comparisons_cap:
            raise Overdrawn("comparisons")
        if operation is None:
            return False
        return _COMPARE[operation](self._values[self._read_at[left]], self._values[self._read_at[right]])
