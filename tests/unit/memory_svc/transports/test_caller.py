"""What a caller may say beside the arguments."""

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memory_svc.errors import Invalid
from memory_svc.spans import Carrier
from memory_svc.transports.caller import Names, call_for, local_caller, request_id_from

TOKYO = ZoneInfo("Asia/Tokyo")


@pytest.mark.parametrize("asked", ["a", "A-b_c.9", "x" * 64])
def test_a_sane_request_id_is_kept(asked: str) -> None:
    assert request_id_from(asked) == asked


@pytest.mark.parametrize("asked", ["", "x" * 65, "a b", "a\n", "ä", '"', "a/b"])
def test_any_other_request_id_is_replaced(asked: str) -> None:
    made = request_id_from(asked)
    assert made != asked
    assert request_id_from(made) == made


def test_what_is_not_said_takes_the_servers_zone_and_no_key() -> None:
    call = call_for(local_caller(), "mcp-stdio", Names(), TOKYO)
    assert (call.zone, call.idempotency_key, call.wire, call.principal.name) == (TOKYO, "", "mcp-stdio", "owner")


def test_a_zone_is_found_by_its_name() -> None:
    assert call_for(local_caller(), "rest", Names(zone="Asia/Tokyo"), dt.UTC).zone == TOKYO


@pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", 5, "\ud800", "A" * 500, "\0"])
def test_a_zone_that_is_none_is_refused(zone: Any) -> None:
    with pytest.raises(Invalid):
        call_for(local_caller(), "rest", Names(zone=zone), dt.UTC)


@pytest.mark.parametrize("key", [["a"], 5, "x" * 201, "a b", "\ud800", "ä", "a\n"])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    with pytest.raises(Invalid, match="idempotency key"):
        call_for(local_caller(), "rest", Names(idempotency_key=key), dt.UTC)


def test_what_the_message_says_goes_before_its_headers() -> None:
    assert Names("a", None).over(Names("b", "UTC")) == Names("a", "UTC")


def test_a_trace_comes_in_headers_or_in_meta_and_is_taken_whole_from_one_of_them() -> None:
    said = Names.of_meta({"traceparent": "00-a"})
    headed = Names.of_headers({"traceparent": "00-b", "tracestate": "of=others"})
    assert headed.carrier == Carrier("00-b", "of=others")
    assert said.over(headed).carrier == Carrier("00-a")
    assert Names.of_meta({}).over(headed).carrier == headed.carrier
    assert call_for(local_caller(), "rest", headed, dt.UTC).carrier == headed.carrier


@pytest.mark.parametrize("traceparent", [5, ["00-a"], {}, "", "x" * 513])
def test_a_trace_that_is_none_is_left_out(traceparent: Any) -> None:
    assert Names.of_meta({"traceparent": traceparent, "tracestate": "of=others"}).carrier is None
