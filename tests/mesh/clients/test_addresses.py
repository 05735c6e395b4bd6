"""Which address a client dials next."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.clients.addresses import TOLD_MAX, Addresses, Place, is_acceptable

HOSTS = [f"tcp://10.0.0.{number}:7770" for number in range(1, 9)]
UNSAFE = ["ipc:///run/a.sock", "inproc://a", "tcp://127.0.0.1:7770", "tcp://localhost:1", "ws://[::1]:80/"]


def test_a_single_address_is_dialled_forever_and_announced_ones_change_nothing() -> None:
    addresses = Addresses(Place(("tcp://a:1",)), random.Random(1))
    for _ in range(3):
        assert addresses.next() == "tcp://a:1"
        addresses.began()
        addresses.told(HOSTS)
        assert addresses.lost(lasted=True) == 0


def test_the_default_addresses_are_dialled_in_order_until_one_listens() -> None:
    addresses = Addresses(Place(("ipc:///a", "tcp://b:1")), random.Random(1))
    assert addresses.next() == "ipc:///a" and addresses.failed("refused", refused=True) == 1
    assert addresses.next() == "tcp://b:1" and addresses.tried == "nobody listens at ipc:///a, and "
    assert addresses.failed("refused", refused=True) == 0, "the round is over"
    assert (
        addresses.next() == "ipc:///a" and addresses.failed("it speaks another protocol", refused=False) == 0
    )
    assert addresses.next() == "ipc:///a", "somebody is there: no other place is looked at"
    addresses.began()
    assert addresses.lost(lasted=True) == 0 and addresses.next() == "ipc:///a"


def test_a_lost_session_leads_to_every_other_address_before_its_own() -> None:
    first = set()
    for seed in range(40):
        addresses = Addresses(Place(tuple(HOSTS[:3]), moves=True), random.Random(seed))
        was = addresses.next()
        addresses.began()
        addresses.told(HOSTS[3:5])
        assert addresses.lost(lasted=True) == 4
        order = [addresses.next() for _ in range(5)]
        assert order[-1] == was and set(order) == set(HOSTS[:5])
        first.add(order[0])
    assert first == set(HOSTS[:5]), "drawn at random"


def test_sessions_that_end_at_once_are_attempts_of_one_round() -> None:
    """Otherwise a mesh that ends each session would be dialled without a pause."""
    addresses = Addresses(Place(tuple(HOSTS[:3]), moves=True), random.Random(1))
    left = []
    for _ in range(6):
        addresses.next()
        addresses.began()
        left.append(addresses.lost(lasted=False))
    assert left == [2, 1, 0, 2, 1, 0]


@pytest.mark.parametrize(
    ("url", "given", "taken"),
    [
        ("tcp://b:1", "tcp://a:1", True),
        ("tls+tcp://b:1", "tcp://a:1", True),
        ("tcp://b:1", "tls+tcp://a:1", False),
        ("ws://b:1/", "wss://a:1/", False),
        ("wss://b:1/", "tls+tcp4://a:1", True),
        ("ipc:///b", "ipc:///a", False),
        ("tcp://b:1", "ipc:///a", True),
        ("tcp://127.0.0.1:2", "ipc:///a", True),
        ("tcp://127.0.0.1:2", "tcp://127.0.0.1:1", True),
        ("tcp://127.0.0.1:2", "tcp://a:1", False),
        ("tcp://[::1]:2", "tcp://a:1", False),
        ("tcp://LOCALHOST:2", "tcp://a:1", False),
        ("tcp://" + "b" * 250 + ":1", "tcp://a:1", False),
    ],
)
def test_an_announced_address_must_be_as_safe_as_those_given(url: str, given: str, taken: bool) -> None:
    assert is_acceptable(url, [given]) is taken


def test_a_client_with_one_plain_address_accepts_announced_plain_ones() -> None:
    assert is_acceptable("tcp://b:1", ["tls+tcp://a:1", "tcp://a:2"])


class Dialling(RuleBasedStateMachine):
    """A moving client: sessions begin, last or not, and end; brokers tell any addresses."""

    @initialize(seed=st.integers(0, 99), given=st.lists(st.sampled_from(HOSTS), min_size=1, max_size=4))
    def begin(self, seed: int, given: list[str]) -> None:
        self.given = given
        self.addresses = Addresses(Place(tuple(given), moves=True), random.Random(seed))
        self.there = False
        self.last = ""
        self.visited: list[str] = []
        """The addresses of this round, without those told in the middle of it."""

    @precondition(lambda self: not self.there)
    @rule(begins=st.booleans(), refused=st.booleans())
    def attempt(self, begins: bool, refused: bool) -> None:
        known = self.addresses.known
        new_round = self.addresses.left == 0
        if new_round:
            self.visited = []
        url = self.addresses.next()
        assert url not in self.visited, "each once a round"
        if new_round:
            assert self.addresses.left == len(known) - 1, "a round has all of them"
        assert len(known) == 1 or url != self.last or self.addresses.left == 0, "the lost one comes last"
        self.visited.append(url)
        if begins:
            self.addresses.began()
            self.there, self.last = True, url
        else:
            self.addresses.failed("why", refused=refused)

    @precondition(lambda self: self.there)
    @rule(lasted=st.booleans())
    def lose(self, lasted: bool) -> None:
        others = self.addresses.lost(lasted=lasted)
        self.there = False
        if lasted:
            self.visited = []
            assert others == len(self.addresses.known) - 1
        assert 0 <= others <= len(self.given) + TOLD_MAX

    @rule(urls=st.lists(st.sampled_from(HOSTS + UNSAFE), max_size=2 * TOLD_MAX))
    def tell(self, urls: list[str]) -> None:
        self.addresses.told(urls)

    @invariant()
    def bounded_and_safe(self) -> None:
        known = self.addresses.known
        assert set(self.given) <= set(known) <= set(HOSTS)
        assert len(known) <= len(self.given) + TOLD_MAX + 1
        assert self.addresses.url in HOSTS


TestDialling = Dialling.TestCase
