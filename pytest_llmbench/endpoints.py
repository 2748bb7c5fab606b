"""Which worker measures on which endpoint: by its number, which stays where a worker crashes and is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from pytest_llmbench.campaign.models import endpoint_key


@dataclass(frozen=True)
class Seats:
    """The places at the session's endpoints: worker n sits at endpoint n // concurrency, workers beyond sit at none."""

    urls: Sequence[str] = ()
    """Values of ``--llm-endpoint``; without any, each kind of model has the one endpoint that it finds itself."""
    concurrency: int = 1

    @property
    def count(self) -> int:
        return max(1, len(self.urls)) * self.concurrency

    @property
    def fixed(self) -> bool:
        """Whether models belong to certain workers, or to whichever takes the first node of theirs."""
        return bool(self.urls) or self.concurrency > 1

    def url(self, worker: int) -> str | None:
        """The endpoint of a worker; None where it has none of its own."""
        place = worker // self.concurrency
        return self.urls[place] if place < len(self.urls) else None

    def check(self, workers: int, *, spread: bool) -> None:
        """Hold the seats against the workers that the session has.

        Args:
            workers: number of xdist workers; 0 where one process measures.
            spread: the workers may run on several machines (``--tx``), where one URL can mean several servers.

        Raises:
            pytest.UsageError: naming the flags and the way out.
        """
        keys = [endpoint_key(url) for url in self.urls]
        if len(set(keys)) < len(keys) and not spread:
            twice = next(url for url, key in zip(self.urls, keys, strict=True) if keys.count(key) > 1)
            raise pytest.UsageError(
                f"--llm-endpoint={twice} is given more than once. Leave one, with --llm-concurrency=N where the server "
                "may get N requests at a time; the same URL on several machines goes with --tx."
            )
        if max(1, workers) >= self.count:
            return
        wanted = f"--llm-concurrency={self.concurrency}" if self.concurrency > 1 else ""
        if len(self.urls) > 1:
            wanted = f"--llm-endpoint is given {len(self.urls)} times" + (f" with {wanted}" if wanted else "")
        has = f"-n or --tx gives {workers}" if workers else "one process has no workers"
        raise pytest.UsageError(
            f"{wanted}: every request at a time needs a worker of its own, {self.count} in all, and {has}. "
            f"Write -n {self.count} (pytest-xdist)" + (", or leave one --llm-endpoint." if len(self.urls) > 1 else ".")
        )
