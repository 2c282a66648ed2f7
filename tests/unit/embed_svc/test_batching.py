"""Which texts run together, and that every caller gets its own results back."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embed_svc.batching import Batcher, Limits, take_batch
from embed_svc.errors import Overloaded, TooLarge, Unavailable
from embed_svc.observe import Observer

LENGTHS = st.lists(st.integers(1, 3_000), min_size=1, max_size=120)
LIMITS = st.builds(Limits, tokens_max=st.integers(1, 2_048), waste_max=st.floats(0, 0.9), texts_max=st.integers(1, 64))


@given(LENGTHS, LIMITS)
def test_a_batch_names_each_text_once_and_only_texts_that_wait(waiting: list[int], limits: Limits) -> None:
    taken = take_batch(waiting, limits)
    assert taken == sorted(set(taken))
    assert set(taken) <= set(range(len(waiting)))


@given(LENGTHS, LIMITS)
def test_a_batch_of_several_keeps_area_waste_and_count(waiting: list[int], limits: Limits) -> None:
    lengths = [waiting[index] for index in take_batch(waiting, limits)]
    if len(lengths) > 1:
        area = max(lengths) * len(lengths)
        assert area <= limits.tokens_max
        assert sum(lengths) >= (1 - limits.waste_max) * area
        assert len(lengths) <= limits.texts_max


@given(LENGTHS, LIMITS)
def test_the_oldest_always_runs_so_no_text_waits_longer_than_those_before_it(
    waiting: list[int], limits: Limits
) -> None:
    left = list(enumerate(waiting))
    for turn in range(len(waiting)):
        if not left:
            break
        taken = take_batch([length for _, length in left], limits)
        assert taken[0] == 0
        assert all(place >= turn for place, _ in left)
        left = [ticket for index, ticket in enumerate(left) if index not in set(taken)]
    assert not left


@given(LENGTHS, LIMITS)
def test_no_text_is_lost_and_none_runs_twice(waiting: list[int], limits: Limits) -> None:
    left = list(range(len(waiting)))
    ran: list[int] = []
    while left:
        taken = {left[index] for index in take_batch([waiting[place] for place in left], limits)}
        ran.extend(taken)
        left = [place for place in left if place not in taken]
    assert sorted(ran) == list(range(len(waiting)))


def test_a_text_over_the_budget_runs_alone() -> None:
    assert take_batch([5_000, 5_000, 3], Limits(tokens_max=1_024)) == [0]


def test_the_nearest_lengths_join_first_and_the_older_among_equals() -> None:
    assert take_batch([10, 40, 9, 11, 10], Limits(tokens_max=33)) == [0, 2, 4]
    assert take_batch([10, 10, 10, 10], Limits(tokens_max=20)) == [0, 1]


def test_a_full_batch_of_equal_lengths_fills_the_area_exactly() -> None:
    assert len(take_batch([16] * 100, Limits(tokens_max=1_024, texts_max=100))) == 64


class Runner:
    """Answers each item with itself doubled; holds while its gate is shut."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, items: list[int]) -> list[int]:
        self.entered.set()
        assert self.gate.wait(10)
        self.batches.append(items)
        if 13 in items:
            raise ArithmeticError("thirteen")
        return [2 * item for item in items]


@pytest.fixture
def runner() -> Runner:
    return Runner()


@pytest.fixture
def batcher(runner: Runner) -> Iterator[Batcher[int, int]]:
    made: Batcher[int, int] = Batcher(
        runner, lambda item: item, Limits(tokens_max=100, queue_texts_max=10), Observer(lambda: 0)
    )
    yield made
    runner.gate.set()
    made.close()


def result(future: "Future[list[int]]") -> list[int]:
    return future.result(timeout=10)


def hold(batcher: Batcher[int, int], runner: Runner, item: int) -> "Future[list[int]]":
    """Occupy the worker with one item until the gate opens."""
    runner.gate.clear()
    future = batcher.submit([item])
    assert runner.entered.wait(10)
    return future


def test_results_come_back_in_the_callers_order_whatever_ran_together(batcher: Batcher[int, int]) -> None:
    assert result(batcher.submit([50, 1, 49, 2, 48, 3])) == [100, 2, 98, 4, 96, 6]


def test_callers_share_batches_and_each_gets_its_own(batcher: Batcher[int, int], runner: Runner) -> None:
    first = hold(batcher, runner, 90)
    one, other = batcher.submit([20, 21]), batcher.submit([20, 22])
    runner.gate.set()
    assert (result(first), result(one), result(other)) == ([180], [40, 42], [40, 44])
    assert runner.batches == [[90], [20, 21, 20, 22]]


def test_a_failure_reaches_the_callers_of_its_batch_and_no_other(batcher: Batcher[int, int], runner: Runner) -> None:
    first = hold(batcher, runner, 90)
    bad, good = batcher.submit([13, 80]), batcher.submit([40])
    runner.gate.set()
    assert result(first) == [180]
    with pytest.raises(ArithmeticError):
        result(bad)
    assert result(good) == [80]
    assert [80] not in runner.batches


def test_a_text_that_fails_among_others_fails_its_own_caller_alone(batcher: Batcher[int, int], runner: Runner) -> None:
    first = hold(batcher, runner, 90)
    good, bad, other = batcher.submit([14]), batcher.submit([13]), batcher.submit([14, 15])
    runner.gate.set()
    assert (result(first), result(good), result(other)) == ([180], [28], [28, 30])
    with pytest.raises(ArithmeticError):
        result(bad)
    assert runner.batches[1] == [14, 13, 14, 15]
    assert runner.batches[2:] == [[14], [13], [14], [15]]


def test_a_run_that_answers_too_few_fails_its_callers_instead_of_holding_them() -> None:
    batcher: Batcher[int, int] = Batcher(lambda items: items[1:], lambda item: item, Limits(), Observer(lambda: 0))
    with pytest.raises(RuntimeError, match="1 texts ran and 0 results came"):
        result(batcher.submit([1]))
    batcher.close()


def test_a_caller_that_leaves_before_its_turn_takes_its_texts_along(batcher: Batcher[int, int], runner: Runner) -> None:
    first = hold(batcher, runner, 90)
    gone, stays = batcher.submit([30, 31]), batcher.submit([30])
    assert gone.cancel()
    runner.gate.set()
    assert (result(first), result(stays)) == ([180], [60])
    assert runner.batches == [[90], [30]]


def test_a_caller_that_leaves_between_its_batches_takes_the_rest_along(
    batcher: Batcher[int, int], runner: Runner
) -> None:
    runner.gate.clear()
    gone = batcher.submit([90, 80, 70])
    assert runner.entered.wait(10)
    assert gone.cancel()
    runner.gate.set()
    assert result(batcher.submit([5])) == [10]
    assert runner.batches == [[90], [5]]


def test_tokens_that_wait_bound_the_queue() -> None:
    runner = Runner()
    made: Batcher[int, int] = Batcher(runner, lambda item: item, Limits(queue_tokens_max=50), Observer(lambda: 0))
    first = hold(made, runner, 40)
    second = made.submit([30])
    with pytest.raises(Overloaded, match="30 of 50 tokens wait"):
        made.submit([21])
    third = made.submit([20])
    assert second.cancel()
    fourth = made.submit([21, 9])
    with pytest.raises(TooLarge, match="hold 51 tokens, over 50"):
        made.submit([26, 25])
    runner.gate.set()
    assert (result(first), result(third), result(fourth)) == ([80], [40], [42, 18])
    made.close()


def test_the_age_of_the_oldest_that_waits_is_told() -> None:
    runner, observer = Runner(), Observer(lambda: 0)
    made: Batcher[int, int] = Batcher(runner, lambda item: item, Limits(), observer)
    assert b"embed_queue_age_seconds 0.0" in observer.exposition()
    first = hold(made, runner, 90)
    waiting = made.submit([2_000])
    time.sleep(0.05)
    (line,) = [line for line in observer.exposition().splitlines() if line.startswith(b"embed_queue_age_seconds ")]
    assert float(line.split()[1]) >= 0.05
    runner.gate.set()
    assert (result(first), result(waiting)) == ([180], [4_000])
    made.close()


def test_a_full_queue_refuses_and_tells_when_to_come_again(batcher: Batcher[int, int]) -> None:
    with batcher.room(8):
        with pytest.raises(Overloaded, match="8 of 10") as refused, batcher.room(3):
            pass
        assert refused.value.retry_after_seconds is not None
        assert refused.value.retry_after_seconds >= 1
        with batcher.room(2):
            pass
    with batcher.room(10):
        pass


def test_closing_ends_the_batch_at_work_and_fails_what_waits(batcher: Batcher[int, int], runner: Runner) -> None:
    first = hold(batcher, runner, 90)
    waiting = batcher.submit([95])
    closing = threading.Thread(target=batcher.close)
    closing.start()
    with pytest.raises(Unavailable):
        result(waiting)
    runner.gate.set()
    closing.join(10)
    assert result(first) == [180]
    with pytest.raises(Unavailable):
        batcher.submit([1])


@pytest.fixture
def slow() -> Iterator[tuple[Batcher[int, int], list[list[int]]]]:
    """One whose runs take so long that callers who come back at once are within a small part of it."""
    batches: list[list[int]] = []

    def run(items: list[int]) -> list[int]:
        batches.append(items)
        time.sleep(0.8)
        return items

    made: Batcher[int, int] = Batcher(run, lambda item: item, Limits(gather_seconds_max=5), Observer(lambda: 0))
    yield made, batches
    made.close()


def test_callers_that_were_answered_together_and_ask_again_run_together_again(
    slow: tuple[Batcher[int, int], list[list[int]]],
) -> None:
    batcher, batches = slow
    first = batcher.submit([90])
    until_one_runs(batches)
    together = [batcher.submit([item]) for item in (20, 21, 22)]
    result(first)
    for answer in together:
        result(answer)
    again = []
    for item in (20, 21, 22):
        again.append(batcher.submit([item]))
        time.sleep(0.02)
    for answer in again:
        result(answer)
    assert batches == [[90], [20, 21, 22], [20, 21, 22]]


def test_those_that_do_not_ask_again_hold_nobody_up_for_long(slow: tuple[Batcher[int, int], list[list[int]]]) -> None:
    batcher, batches = slow
    first = batcher.submit([90])
    until_one_runs(batches)
    together = [batcher.submit([item]) for item in (20, 21, 22)]
    result(first)
    for answer in together:
        result(answer)
    alone = batcher.submit([20])
    time.sleep(0.4)
    assert len(batches) == 3
    assert result(alone) == [20]


def test_closing_waits_for_nobody_that_might_ask_again(slow: tuple[Batcher[int, int], list[list[int]]]) -> None:
    batcher, batches = slow
    first = batcher.submit([90])
    until_one_runs(batches)
    together = [batcher.submit([item]) for item in (20, 21)]
    result(first)
    for answer in together:
        result(answer)
    left = batcher.submit([20])
    batcher.close()
    with pytest.raises(Unavailable):
        result(left)


def until_one_runs(batches: list[list[int]]) -> None:
    """Poll until the first batch runs."""
    while not batches:
        time.sleep(0.001)


def test_many_callers_at_once_lose_nothing() -> None:
    batcher: Batcher[int, int] = Batcher(
        lambda items: [2 * item for item in items], lambda item: item, Limits(tokens_max=64), Observer(lambda: 0)
    )
    failed: list[int] = []

    def call(start: int) -> None:
        items = [1 + (start * 7 + step) % 60 for step in range(20)]
        if result(batcher.submit(items)) != [2 * item for item in items]:
            failed.append(start)

    callers = [threading.Thread(target=call, args=(start,)) for start in range(40)]
    started = time.monotonic()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    batcher.close()
    assert not failed
    assert time.monotonic() - started < 30
