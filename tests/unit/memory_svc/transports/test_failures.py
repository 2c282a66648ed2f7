"""The failure table: every kind has its row, and one body tells it everywhere."""

import json

import pytest

from memory_svc import errors
from memory_svc.transports.failures import TABLE, failed, unrouted

KINDS = errors.Problem.__subclasses__()


def test_every_kind_of_problem_is_in_the_table() -> None:
    assert {each.kind for each in KINDS} == set(TABLE)
    assert [row.problem for row in TABLE.values() if row.problem not in KINDS] == []


@pytest.mark.parametrize(
    ("kind", "status", "retry"),
    [
        ("invalid", 400, False),
        ("unauthenticated", 401, False),
        ("denied", 403, False),
        ("not_found", 404, False),
        ("conflict", 409, False),
        ("too_large", 413, False),
        ("overloaded", 429, True),
        ("unavailable", 503, True),
        ("internal", 500, False),
    ],
)
def test_a_kind_has_its_status_and_says_whether_to_try_again(kind: str, status: int, retry: bool) -> None:
    failure = failed(TABLE[kind].problem("text"), "r1")
    assert failure.status == status
    assert (failure.body["ok"], failure.body["code"], failure.body["retry"]) == (False, kind, retry)
    assert failure.body["request_id"] == "r1"


def test_details_follow_the_text_and_never_replace_what_every_failure_has() -> None:
    problem = errors.Conflict("changed", revision=3, ok=True, code="x", messages=[])
    assert json.loads(failed(problem, "r1").encoded()) == {
        "ok": False,
        "error": "changed",
        "code": "conflict",
        "retry": False,
        "revision": 3,
        "messages": [],
        "request_id": "r1",
    }


def test_the_time_to_wait_is_told_in_whole_seconds_in_a_header_and_exactly_in_the_body() -> None:
    failure = failed(errors.Overloaded("full", retry_after_seconds=1.2), "r1")
    assert failure.headers["Retry-After"] == "2"
    assert failure.body["retry_after_seconds"] == 1.2


def test_a_missing_token_is_answered_with_the_scheme_that_is_wanted() -> None:
    assert failed(errors.Unauthenticated("who?"), "r1").headers == {"WWW-Authenticate": "Bearer"}


@pytest.mark.parametrize("error", [ValueError("the password is tomato"), errors.Internal("the password is tomato")])
def test_what_nobody_foresaw_hides_its_text_and_is_logged_with_its_trace(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise error
    except Exception as raised:  # noqa: BLE001
        failure = failed(raised, "r1")
    assert failure.status == 500
    assert b"tomato" not in failure.encoded()
    assert "tomato" in caplog.text
    assert "Traceback" in caplog.text


def test_a_lone_surrogate_in_a_text_does_not_break_the_body() -> None:
    assert json.loads(failed(errors.Invalid("name \ud800"), "r1").encoded())["error"] == "name \\ud800"


def test_a_detail_that_json_does_not_know_is_told_as_text() -> None:
    assert json.loads(failed(errors.Invalid("x", at={"where": object}), "r1").encoded())["at"]


def test_inside_json_rpc_the_same_body_is_the_data_of_the_error() -> None:
    failure = failed(errors.Denied("no"), "r1")
    message = json.loads(failure.as_json_rpc())
    assert message["jsonrpc"] == "2.0"
    assert message["id"] is None
    assert message["error"]["message"] == "no"
    assert message["error"]["data"] == failure.body


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, "not_found"),
        (405, "invalid"),
        (400, "invalid"),
        (413, "too_large"),
        (503, "unavailable"),
        (500, "internal"),
    ],
)
def test_a_status_of_the_framework_has_a_kind(status: int, kind: str) -> None:
    assert unrouted(status, "GET", "/x").kind == kind
