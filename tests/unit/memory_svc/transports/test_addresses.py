"""The addresses of resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Ref
from memory_svc.transports.addresses import Address


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["mem:1", "ep:123456789012345678", "profile"])
)
def test_an_address_is_read_back_whatever_the_agent_is_called(agent: str, name: str) -> None:
    address = Address(agent, name)
    assert Address.parse(address.uri) == address
    assert address.uri.isascii()


@pytest.mark.parametrize(
    ("agent", "uri"),
    [
        ("me", "memory://me/profile"),
        ("", "memory:///profile"),
        ("a/b c", "memory://a%2Fb%20c/profile"),
        ("会議", "memory://%E4%BC%9A%E8%AD%B0/profile"),
    ],
)
def test_an_agent_is_percent_encoded_and_the_one_without_a_name_is_left_out(agent: str, uri: str) -> None:
    assert Address(agent, "profile").uri == uri


def test_a_profile_stands_under_its_agent_and_a_row_under_its_ref() -> None:
    assert Address.of_row("me", Ref(Kind.PROFILE, 7)).name == "profile"
    assert Address.of_row("me", Ref(Kind.EPISODE, 7)).name == "ep:7"


@pytest.mark.parametrize(
    "text",
    ["", "memory://", "memory:/me/profile", "memory://me/mem:", "memory://me/mem:x", "memory://me/mem:1?x", "MEMORY://me/mem:1"],
)  # fmt: skip
def test_what_is_no_address_of_ours_is_none(text: str) -> None:
    assert Address.parse(text) is None
