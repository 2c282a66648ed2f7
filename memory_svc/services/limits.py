"""What one caller may ask of the service at once and in a second."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

from memory_svc.domain.access.rate import Bucket, take
from memory_svc.errors import Overloaded

BURST_SECONDS = 2.0


class Limits:
    """Counts the calls of each principal. 0 = no limit."""

    def __init__(
        self, calls_per_second: float, calls_at_once: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls_per_second = calls_per_second
        self._calls_at_once = calls_at_once
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._under_way: Counter[str] = Counter()

    @contextlib.contextmanager
    def call(self, principal: str) -> Iterator[None]:
        """One call of this principal, counted until the block ends.

        Raises Overloaded, with the seconds to wait, where it has too many under way or calls too often.
        """
        if self._calls_at_once and self._under_way[principal] >= self._calls_at_once:
            raise Overloaded(
                f"{self._calls_at_once} calls of this caller are under way; wait for one of them",
                retry_after_seconds=1.0,
            )
        if self._calls_per_second:
            burst = max(1.0, self._calls_per_second * BURST_SECONDS)
            bucket = self._buckets.get(principal)
            self._buckets[principal], wait = take(bucket, self._clock(), self._calls_per_second, burst)
            if wait:
                raise Overloaded(
                    f"This caller makes more than {self._calls_per_second:g} calls a second; slow down",
                    retry_after_seconds=wait,
                )
        self._under_way[principal] += 1
        try:
            yield
        finally:
            self._under_way[principal] -= 1
