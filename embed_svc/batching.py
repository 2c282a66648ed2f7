"""Which waiting texts run together (`take_batch`, pure), and the queue with its one worker thread."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from embed_svc.errors import Overloaded, Unavailable
from embed_svc.observe import Observer

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_AHEAD_TEXTS = 512
_RETRY_SECONDS_MAX = 60
_RECENT = 0.1


class Limits(msgspec.Struct, frozen=True):
    """What bounds a batch (padded tokens, share of them that is padding, texts) and the queue."""

    tokens_max: int = 1_024
    waste_max: float = 0.15
    texts_max: int = 64
    queue_texts_max: int = 2_000


def take_batch(waiting: Sequence[int], limits: Limits) -> list[int]:
    """Return which of the waiting texts run next, as ascending indices; `waiting` is their tokens, oldest first.

    The oldest always runs, so none waits for ever; those nearest to it in length join, older first among equals,
    while all padded to the longest stay within the limits. A text over the token limit runs alone.
    """
    oldest = waiting[0]
    nearest = sorted(range(1, len(waiting)), key=lambda index: (abs(waiting[index] - oldest), index))
    taken, longest, tokens = [0], oldest, oldest
    for index in nearest:
        count = len(taken) + 1
        if count > limits.texts_max or longest * count > limits.tokens_max:
            break
        joined = max(longest, waiting[index])
        area, filled = joined * count, tokens + waiting[index]
        if area <= limits.tokens_max and filled >= (1 - limits.waste_max) * area:
            taken.append(index)
            longest, tokens = joined, filled
    return sorted(taken)


class _Job(Generic[Result]):
    """The texts of one caller: done when the last has its result, or the first has failed."""

    def __init__(self, count: int) -> None:
        self.answer: Future[list[Result]] = Future()
        self.results: dict[int, Result] = {}
        self.count = count

    def wanted(self) -> bool:
        """Whether its caller still waits; from the first True that follows a start, it cannot be cancelled."""
        return not self.answer.done()

    def start(self) -> bool:
        return self.answer.running() or (self.wanted() and self.answer.set_running_or_notify_cancel())

    def settle(self, index: int, result: Result) -> None:
        self.results[index] = result
        if len(self.results) == self.count:
            self.answer.set_result([self.results[place] for place in range(self.count)])


class _Ticket(Generic[Item, Result]):
    """One waiting text of a job."""

    def __init__(self, job: _Job[Result], index: int, item: Item) -> None:
        self.job = job
        self.index = index
        self.item = item


class Batcher(Generic[Item, Result]):
    """Owns the queue, bounded in texts, and one worker thread that runs batch after batch."""

    def __init__(
        self,
        run: Callable[[list[Item]], Iterable[Result]],
        tokens: Callable[[Item], int],
        limits: Limits,
        observer: Observer,
    ) -> None:
        """`run` answers one result an item, in order; `tokens` tells an item's length."""
        self._run = run
        self._tokens = tokens
        self._limits = limits
        self._observer = observer
        self._lock = threading.RLock()
        self._waiting: list[_Ticket[Item, Result]] = []
        self._busy = False
        self._closed = False
        self._inside = 0
        self._seconds_a_text = 0.0
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed-worker")

    @contextmanager
    def room(self, count: int) -> Iterator[None]:
        """Hold room for `count` texts from their arrival to their answer. Raises Overloaded where the queue is full."""
        with self._lock:
            if self._inside + count > self._limits.queue_texts_max:
                raise Overloaded(
                    f"the queue is full ({self._inside} of {self._limits.queue_texts_max} texts wait): try again later",
                    retry_after_seconds=self._seconds_to_drain(),
                )
            self._hold(count)
        try:
            yield
        finally:
            with self._lock:
                self._hold(-count)

    def submit(self, items: Sequence[Item]) -> Future[list[Result]]:
        """Queue the items of one caller; the future holds their results in order, or what `run` raised.

        Cancelling it before its first item runs takes all of them out of the queue. Raises Unavailable when closed.
        """
        job: _Job[Result] = _Job(len(items))
        with self._lock:
            if self._closed:
                raise Unavailable("the service is stopping: try another instance, or later")
            self._waiting.extend(_Ticket(job, index, item) for index, item in enumerate(items))
            self._start_next()
        return job.answer

    def close(self) -> None:
        """Fail what waits, let the batch at work end, stop the worker."""
        with self._lock:
            self._closed = True
            jobs = {ticket.job for ticket in self._waiting if ticket.job.wanted()}
            self._waiting = []
        for job in jobs:
            if job.start():
                job.answer.set_exception(Unavailable("the service stopped before this text's turn: try again"))
        self._worker.shutdown(wait=True)

    def _hold(self, count: int) -> None:
        self._inside += count
        self._observer.queued(self._inside)

    def _seconds_to_drain(self) -> int:
        return min(max(1, math.ceil(self._inside * self._seconds_a_text)), _RETRY_SECONDS_MAX)

    def _start_next(self) -> None:
        """With the lock held: hand the worker its next batch, unless it has one."""
        if self._busy:
            return
        batch = self._take()
        if not batch:
            return
        self._busy = True
        running = self._worker.submit(self._measured, [ticket.item for ticket in batch])
        running.add_done_callback(partial(self._settle, batch))

    def _take(self) -> list[_Ticket[Item, Result]]:
        self._waiting = [ticket for ticket in self._waiting if ticket.job.wanted()]
        ahead = list(islice(self._waiting, LOOK_AHEAD_TEXTS))
        if not ahead:
            return []
        taken = take_batch([self._tokens(ticket.item) for ticket in ahead], self._limits)
        chosen = set(taken)
        self._waiting = [ticket for index, ticket in enumerate(self._waiting) if index not in chosen]
        return [ahead[index] for index in taken if ahead[index].job.start()] or self._take()

    def _measured(self, items: list[Item]) -> list[Result]:
        started = time.perf_counter()
        results = list(self._run(items))
        if len(results) != len(items):
            raise RuntimeError(f"{len(items)} texts ran and {len(results)} results came")
        seconds = time.perf_counter() - started
        self._seconds_a_text += _RECENT * (seconds / len(items) - self._seconds_a_text)
        self._observer.batch([self._tokens(item) for item in items], seconds)
        return results

    def _settle(self, batch: list[_Ticket[Item, Result]], ran: Future[list[Result]]) -> None:
        """In the worker: give each caller its result or the failure, then go on."""
        error = ran.exception()
        for place, ticket in enumerate(batch):
            if not ticket.job.wanted():
                continue
            if error is None:
                ticket.job.settle(ticket.index, ran.result()[place])
            else:
                ticket.job.answer.set_exception(error)
        with self._lock:
            self._busy = False
            if not self._closed:
                self._start_next()
