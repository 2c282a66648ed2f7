"""Which waiting texts run together (`take_batch`, pure), and the queue with its one worker thread."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

import msgspec

from embed_svc.errors import Overloaded, TooLarge, Unavailable
from embed_svc.observe import Observer
from embed_svc.spans import NO_SPAN, Span, Turn

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_AHEAD_TEXTS = 512
_RETRY_SECONDS_MAX = 60
_RECENT = 0.1
_GATHER_SHARE = 0.25


class Limits(msgspec.Struct, frozen=True):
    """What bounds a batch (padded tokens, share of them that is padding, texts) and the queue (texts, tokens).

    `gather_seconds_max` bounds the wait for one more of the callers that were answered together.
    """

    tokens_max: int = 512
    waste_max: float = 0.15
    texts_max: int = 64
    queue_texts_max: int = 4_096
    queue_tokens_max: int = 262_144
    gather_seconds_max: float = 0.004


async def awaited(answer: Future[Result]) -> Result:
    """Return what another thread answers, or raise what it fails with; cancelled, it cancels the answer."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    answer.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(wake))
    try:
        await waiter
    except asyncio.CancelledError:
        answer.cancel()
        raise
    return answer.result()


def take_batch(waiting: Sequence[int], limits: Limits) -> list[int]:
    """Return which of the waiting texts run next, as ascending indices; `waiting` is their tokens, oldest first.

    The oldest always runs, so none waits for ever; those nearest to it in length join, older first among equals,
    while all padded to the longest stay within the limits. A text over the token limit runs alone.
    """
    oldest = waiting[0]
    if len(waiting) == 1:
        return [0]
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
    """The texts of one caller: done when the last has its result, the first has failed, or the caller has left."""

    def __init__(self, count: int, span: Span) -> None:
        # Never marked as running, so that it can be cancelled until it is answered.
        self.answer: Future[list[Result]] = Future()
        self.results: dict[int, Result] = {}
        self.count = count
        self.span = span

    def wanted(self) -> bool:
        """Whether its caller still waits."""
        return not self.answer.done()

    def settle(self, index: int, result: Result) -> None:
        """Take the result of one text."""
        self.results[index] = result
        if len(self.results) == self.count:
            with suppress(InvalidStateError):
                self.answer.set_result([self.results[place] for place in range(self.count)])

    def fail(self, error: BaseException) -> None:
        """Answer with a failure, unless the caller has left."""
        with suppress(InvalidStateError):
            self.answer.set_exception(error)


class _Ticket(Generic[Item, Result]):
    """One waiting text of a job."""

    def __init__(self, job: _Job[Result], index: int, item: Item, tokens: int, since: float) -> None:
        self.job = job
        self.index = index
        self.item = item
        self.tokens = tokens
        self.since = since
        self.alone = False


class Batcher(Generic[Item, Result]):
    """Owns the queue, bounded in texts and tokens, and one worker thread that runs batch after batch."""

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
        self._arrived = threading.Condition(self._lock)
        self._waiting: list[_Ticket[Item, Result]] = []
        self._waiting_tokens = 0
        self._closed = False
        self._inside = 0
        self._seconds_a_text = 0.0
        self._last_seconds = 0.0
        self._began = 0.0
        self._expected_callers = 0
        self._gather_end = 0.0
        observer.follow("embed_queue_texts", lambda: self._inside)
        observer.follow("embed_queue_tokens", lambda: self._waiting_tokens)
        observer.follow("embed_queue_age_seconds", self._age_seconds)
        self._worker = threading.Thread(target=self._work, name="embed-worker", daemon=True)
        self._worker.start()

    @contextmanager
    def room(self, count: int) -> Iterator[None]:
        """Hold room for `count` texts from their arrival to their answer. Raises Overloaded where the queue is full."""
        with self._lock:
            if self._inside + count > self._limits.queue_texts_max:
                raise self._full(f"{self._inside} of {self._limits.queue_texts_max} texts wait")
            self._inside += count
        try:
            yield
        finally:
            with self._lock:
                self._inside -= count

    def submit(self, items: Sequence[Item], span: Span = NO_SPAN) -> Future[list[Result]]:
        """Queue the items of one caller; the future holds their results in order, or what `run` raised.

        Cancelling it takes those that have not run yet out of the queue. `span` is told when they waited and ran.
        Raises Unavailable when closed, Overloaded where the tokens that wait leave no room, TooLarge where these alone
        are more than may ever wait.
        """
        job: _Job[Result] = _Job(len(items), span)
        now = time.monotonic()
        tickets = [_Ticket(job, index, item, self._tokens(item), now) for index, item in enumerate(items)]
        tokens = sum(ticket.tokens for ticket in tickets)
        if tokens > self._limits.queue_tokens_max:
            raise TooLarge(f"the texts hold {tokens} tokens, over {self._limits.queue_tokens_max}: send fewer at once")
        with self._lock:
            if self._closed:
                raise Unavailable("the service is stopping: try another instance, or later")
            if self._waiting_tokens + tokens > self._limits.queue_tokens_max:
                raise self._full(f"{self._waiting_tokens} of {self._limits.queue_tokens_max} tokens wait")
            self._waiting += tickets
            self._waiting_tokens += tokens
            self._arrived.notify()
        job.answer.add_done_callback(lambda answer: self._drop(job) if answer.cancelled() else None)
        return job.answer

    def close(self) -> None:
        """Fail what waits, let the batch at work end, stop the worker."""
        with self._lock:
            self._closed = True
            jobs = {ticket.job for ticket in self._waiting}
            self._wait([])
            self._arrived.notify()
        for job in jobs:
            job.fail(Unavailable("the service stopped before this text's turn: try again"))
        self._worker.join()

    def _wait(self, tickets: list[_Ticket[Item, Result]]) -> None:
        """With the lock held: let these wait, and no other."""
        self._waiting = tickets
        self._waiting_tokens = sum(ticket.tokens for ticket in tickets)

    def _drop(self, job: _Job[Result]) -> None:
        with self._lock:
            self._wait([ticket for ticket in self._waiting if ticket.job is not job])

    def _full(self, why: str) -> Overloaded:
        seconds = min(max(1, math.ceil(self._inside * self._seconds_a_text)), _RETRY_SECONDS_MAX)
        return Overloaded(f"the queue is full ({why}): try again later", retry_after_seconds=seconds)

    def _age_seconds(self) -> float:
        with self._lock:
            return time.monotonic() - self._waiting[0].since if self._waiting else 0.0

    def _work(self) -> None:
        """In the worker: batch after batch, each caller answered when its last text has run."""
        while batch := self._next():
            try:
                results = self._measured([ticket.item for ticket in batch])
            except BaseException as error:  # noqa: BLE001 - whatever it is, the callers are told and the next batch runs
                self._fail(batch, error)
            else:
                self._answer(batch, results)
                self._tell(batch)

    def _answer(self, batch: list[_Ticket[Item, Result]], results: list[Result]) -> None:
        """Give the callers their results, and note how many may soon ask again."""
        with self._lock:
            waiting = self._callers()
        for ticket, result in zip(batch, results, strict=True):
            ticket.job.settle(ticket.index, result)
        answered = len({ticket.job for ticket in batch if not ticket.job.wanted()})
        # Where more wait than were answered, the next batch is no small one anyway.
        self._expected_callers = answered + waiting if waiting < answered else 0
        self._gather_end = time.monotonic() + _GATHER_SHARE * self._last_seconds

    def _tell(self, batch: list[_Ticket[Item, Result]]) -> None:
        """Tell the callers' spans of the batch that has just run; by now they have their answers."""
        told = {ticket.job: ticket.since for ticket in batch if ticket.job.span.is_told}
        for job, came in told.items():
            job.span.ran(Turn(came, self._began, self._began + self._last_seconds, len(batch)), batch[0].job.span)

    def _next(self) -> list[_Ticket[Item, Result]]:
        """Wait for the next batch; none once closed."""
        with self._lock:
            while not self._closed:
                self._gather()
                if self._waiting and (batch := self._take()):
                    return batch
                self._arrived.wait()
        return []

    def _gather(self) -> None:
        """With the lock held: where several callers were answered just now, wait a little for them to ask again.

        Else the first to come back runs alone while the others wait, and a text alone costs more. It ends when as many
        wait as may come, when none has come for a moment, or with a share of the time that the last batch took.
        """
        while not self._closed and 0 < self._callers() < self._expected_callers and self._has_room():
            left = self._gather_end - time.monotonic()
            if left <= 0 or not self._arrived.wait(min(left, self._limits.gather_seconds_max)):
                return

    def _callers(self) -> int:
        return len({ticket.job for ticket in self._waiting})

    def _has_room(self) -> bool:
        return self._waiting_tokens < self._limits.tokens_max and len(self._waiting) < self._limits.texts_max

    def _take(self) -> list[_Ticket[Item, Result]]:
        waiting = [ticket for ticket in self._waiting if ticket.job.wanted()]
        ahead = waiting[:LOOK_AHEAD_TEXTS]
        if ahead and ahead[0].alone:
            ahead = ahead[:1]
        taken = take_batch([ticket.tokens for ticket in ahead], self._limits) if ahead else []
        chosen = set(taken)
        self._wait([ticket for index, ticket in enumerate(waiting) if index not in chosen])
        return [ahead[index] for index in taken]

    def _measured(self, items: list[Item]) -> list[Result]:
        self._began, started = time.monotonic(), time.perf_counter()
        results = list(self._run(items))
        if len(results) != len(items):
            raise RuntimeError(f"{len(items)} texts ran and {len(results)} results came")
        seconds = time.perf_counter() - started
        self._last_seconds = seconds
        self._seconds_a_text += _RECENT * (seconds / len(items) - self._seconds_a_text)
        self._observer.batch([self._tokens(item) for item in items], seconds)
        return results

    def _fail(self, batch: list[_Ticket[Item, Result]], error: BaseException) -> None:
        """Give the callers the failure.

        Where texts failed together each runs again by itself, so that one caller's text is no other's failure.
        """
        with self._lock:
            if len(batch) > 1 and not self._closed:
                for ticket in batch:
                    ticket.alone = True
                self._wait([*batch, *self._waiting])
                return
            if len(batch) > 1:
                error = Unavailable("the service stopped before this text's turn: try again")
        for ticket in batch:
            ticket.job.fail(error)
