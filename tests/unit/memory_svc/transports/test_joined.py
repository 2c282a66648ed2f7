"""What is written together leaves together, and nothing is kept back."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from memory_svc.transports.joined import Joined


class Transport:
    """Takes note of what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.closed_after = -1

    def writelines(self, data: Sequence[bytes]) -> None:
        self.sent.append(list(data))

    def close(self) -> None:
        self.closed_after = len(self.sent)

    def is_closing(self) -> bool:
        return self.closed_after >= 0


async def made() -> tuple[Any, Transport]:
    transport = Transport()
    return Joined(cast(asyncio.Transport, transport), asyncio.get_running_loop()), transport


async def test_head_and_body_leave_in_one_piece() -> None:
    joined, transport = await made()
    joined.write(b"head")
    joined.write(b"body")
    assert transport.sent == []
    joined.flush()
    assert transport.sent == [[b"head", b"body"]]


async def test_what_nothing_follows_leaves_at_the_loops_next_turn() -> None:
    joined, transport = await made()
    joined.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    await asyncio.sleep(0)
    assert transport.sent == [[b"HTTP/1.1 100 Continue\r\n\r\n"]]
    await asyncio.sleep(0)
    assert len(transport.sent) == 1


async def test_what_was_written_leaves_before_the_end() -> None:
    joined, transport = await made()
    joined.write(b"head")
    joined.close()
    assert (transport.sent, transport.closed_after) == ([[b"head"]], 1)
    assert joined.is_closing()


async def test_what_the_other_side_did_not_wait_for_is_dropped() -> None:
    joined, transport = await made()
    joined.write(b"head")
    transport.close()
    await asyncio.sleep(0)
    assert transport.sent == []
