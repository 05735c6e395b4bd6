"""Identification at the door, the effect of a reload, and how limits and back-off count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.access import ANONYMOUS, CERTIFIED, Policy, Principal, proofs
from mesh.access.attempts import CHECKED_MAX, FREE, KEPT_MAX, LONGEST_S, Attempts
from mesh.access.door import AboveLimit, Door, NotAllowed, Origin, WrongProof
from mesh.access.keys import SigningKey
from mesh.access.rate import Bucket
from mesh.errors import ConfigError

KEY = SigningKey.generate()
CLIENT = proofs.client_key(b"a-token-of-some-random-text")
STORED = proofs.stored_key(CLIENT)
FAR = Origin(near=False, host="10.0.0.9")


def principal(name: str = "alice", **given: Any) -> Principal:
    return Principal(name, **{"publish": ("#",), **given})


def door(*principals: Principal, **given: Any) -> Door:
    return Door(Policy(principals, **given))


def test_anonymous_clients_have_all_rights_on_this_machine_and_none_elsewhere() -> None:
    found = door().unproven(Origin())
    assert found.standing.name == ANONYMOUS and found.standing.rights is None
    with pytest.raises(NotAllowed, match="anonymous = 'everywhere'"):
        door().unproven(FAR)
    assert door(anonymous="everywhere").unproven(FAR).standing.name == ANONYMOUS
    with pytest.raises(NotAllowed, match="anonymous is 'nowhere'"):
        door(anonymous="nowhere").unproven(Origin())


def test_an_address_that_requires_a_proof_refuses_anonymous_clients() -> None:
    asks = Origin(must_prove=True, url="tcp://:7770")
    with pytest.raises(NotAllowed, match="^tcp://:7770 serves no anonymous clients"):
        door(anonymous="everywhere").unproven(asks)
    shown = Origin(names=("sensor-1",), near=False, must_prove=True)
    assert door().unproven(shown).standing.name == CERTIFIED


def test_a_certificate_names_a_principal_by_any_of_its_names() -> None:
    here = door(principal("sensors", certificates=("sensor-1", "s1.example.org")))
    assert here.unproven(Origin(names=("x", "s1.example.org"), near=False)).standing.name == "sensors"
    assert here.unproven(Origin(names=("x",), near=False)).standing.name == CERTIFIED


def test_a_key_and_a_token_prove_their_principals() -> None:
    here = door(
        principal(keys=(proofs.key_text(KEY.public),)), principal("bob", tokens=(proofs.token_text(STORED),))
    )
    about = proofs.statement(b"h", b"c")
    claim = here.claim("key", KEY.public, FAR, 0.0)
    assert here.proven(claim, about, KEY.sign(about), 0.0).standing.name == "alice"
    claim = here.claim("token", proofs.token_id(STORED), FAR, 0.0)
    assert here.proven(claim, about, proofs.token_proof(CLIENT, about), 0.0).standing.name == "bob"


def test_wrong_and_unknown_proofs_are_refused() -> None:
    here = door(principal(keys=(proofs.key_text(KEY.public),)))
    about = proofs.statement(b"h", b"c")
    with pytest.raises(WrongProof, match="does not belong to the key"):
        here.proven(here.claim("key", KEY.public, FAR, 0.0), about, bytes(64), 0.0)
    with pytest.raises(WrongProof, match="no principal of this broker has this key"):
        here.claim("key", SigningKey.generate().public, FAR, 0.0)
    with pytest.raises(WrongProof, match="no principal of this broker has this token"):
        here.claim("token", b"12345678", FAR, 0.0)
    with pytest.raises(WrongProof, match="kind 'password'"):
        here.claim("password", b"secret", FAR, 0.0)


def test_a_principal_that_a_reload_removes_during_its_challenge_is_refused() -> None:
    here = door(principal(keys=(proofs.key_text(KEY.public),)))
    about = proofs.statement(b"h", b"c")
    claim = here.claim("key", KEY.public, FAR, 0.0)
    here.set_policy(Policy(), 1.0)
    with pytest.raises(WrongProof):
        here.proven(claim, about, KEY.sign(about), 1.0)


def test_a_host_that_fails_again_and_again_hears_of_it_later_and_is_checked_less_often() -> None:
    here = door(principal(keys=(proofs.key_text(KEY.public),)))
    about = proofs.statement(b"h", b"c")

    def guess(now: float) -> WrongProof:
        with pytest.raises(WrongProof) as caught:
            here.proven(here.claim("key", KEY.public, FAR, now), about, b"", now)
        return caught.value

    assert [guess(0.0).held_s for _ in range(FREE + 3)] == [0.0] * (FREE - 1) + [0.5, 1.0, 2.0, 2.0]
    refusals = [guess(5.0) for _ in range(50)]
    checked = [error for error in refusals if "does not belong" in str(error)]
    assert len(checked) == CHECKED_MAX and {error.held_s for error in refusals} == {2.0}
    assert "too many proofs for this key come from this address" in str(refusals[-1])
    claim = here.claim("key", KEY.public, Origin(host="10.0.0.8"), 5.0)
    assert here.proven(claim, about, KEY.sign(about), 5.0), "another host is not concerned"


def test_the_owner_of_a_key_is_not_locked_out_by_wrong_proofs_from_its_own_address() -> None:
    """One wrong proof in half a minute kept it out for as long as somebody liked."""
    here = door(principal(keys=(proofs.key_text(KEY.public),)))
    about = proofs.statement(b"h", b"c")
    for number in range(40):
        with pytest.raises(WrongProof):
            here.proven(here.claim("key", KEY.public, FAR, 0.5 * number), about, b"", 0.5 * number)
    claim = here.claim("key", KEY.public, FAR, 19.6)
    assert here.proven(claim, about, KEY.sign(about), 19.6)
    with pytest.raises(WrongProof) as caught:
        here.proven(here.claim("key", KEY.public, FAR, 19.7), about, b"", 19.7)
    assert caught.value.held_s == 0.0, "a right proof ends the wait"


def test_memory_of_failures_is_bounded_in_number_and_time() -> None:
    attempts = Attempts()
    for number in range(20):
        attempts.failed("one", float(number))
    assert attempts.pause_s("one") == LONGEST_S
    attempts.failed("one", 1000.0)
    assert attempts.pause_s("one") == 0.0, "what was long ago is forgotten"
    for number in range(KEPT_MAX):
        attempts.failed(number, 0.0)
    assert len(attempts._failed) == KEPT_MAX


def test_a_reload_changes_rights_in_place_and_invalidates_removed_proofs() -> None:
    shown = proofs.key_text(KEY.public)
    here = door(principal(keys=(shown,)), principal("old", certificates=("o",)))
    about = proofs.statement(b"h", b"c")
    alice = here.proven(here.claim("key", KEY.public, FAR, 0.0), about, KEY.sign(about), 0.0)
    old = here.unproven(Origin(names=("o",)))
    near = here.unproven(Origin())
    here.set_policy(Policy((principal(keys=(shown,), publish=("a",)),), anonymous="nowhere"), 1.0)
    assert here.is_valid(alice) and not here.is_valid(old) and not here.is_valid(near)
    assert alice.standing.rights is not None and alice.standing.rights.refusal("publish", "b")
    here.set_policy(Policy((principal("bob", keys=(shown,)),)), 2.0)
    assert not here.is_valid(alice), "the key is another's now"


def test_connections_and_subscriptions_are_bounded_by_rules_with_names() -> None:
    here = door(principal(certificates=("a",), connections_max=1, subscriptions_max=1))
    guest = here.unproven(Origin(names=("a",)))
    here.enter(guest)
    with pytest.raises(AboveLimit, match=r"principals\.alice\.connections_max is 1"):
        here.enter(guest)
    here.leave(guest)
    here.enter(guest)
    assert guest.standing.refusal_of_subscription() == ""
    guest.standing.subscriptions = 1
    assert "principals.alice.subscriptions_max is 1" in guest.standing.refusal_of_subscription()


class Owed:
    def __init__(self, bucket: Bucket, size: int) -> None:
        self.bucket, self.size, self.granted = bucket, size, 0

    def grant(self) -> None:
        if self.bucket.take(self.size):
            self.granted += self.size
            self.bucket.waiting[self] = None  # it goes on publishing
        else:
            self.bucket.waiting[self] = None


@given(st.floats(1, 1e5), st.integers(1, 5000), st.lists(st.floats(0.001, 2.0), min_size=1, max_size=50))
def test_a_bucket_gives_no_more_than_its_rate_for_any_steps(
    rate: float, size: int, steps: list[float]
) -> None:
    bucket = Bucket(rate, 0.0)
    owed = Owed(bucket, size)
    owed.grant()
    now = 0.0
    for step in steps:
        now += step
        assert bucket.tick(now) >= now
    assert owed.granted <= rate * now + bucket.burst + size + 1e-6
    if now and all(step * rate <= bucket.burst for step in steps):
        assert owed.granted >= rate * now - size - bucket.burst, "and no less, if it is called in time"


def test_a_reload_that_removes_a_rate_releases_all_delayed_clients() -> None:
    here = door(principal(certificates=("a",), rate_max=1.0))
    standing = here.unproven(Origin(names=("a",))).standing
    granted: list[str] = []

    class Waits:
        def grant(self) -> None:
            if not standing.keeps_back(self, 5):
                granted.append("yes")

    Waits().grant()
    Waits().grant()
    assert granted == ["yes"] and here.tick(1.0) > 1.0
    here.set_policy(Policy((principal(certificates=("a",)),)), 2.0)
    assert granted == ["yes", "yes"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"publish": ()}, "gives no right"),
        ({"publish": ("a..b",)}, "publish has a bad pattern"),
        ({"publish": "news"}, "publish must be a list of strings"),
        ({"keys": ("ed25519:x",)}, "keys has 'ed25519:x', which is no public key"),
        ({"tokens": ("hunter2",)}, "tokens has 'hunter2', which is no hash"),
        ({"certificates": ("",)}, "certificates has an empty name"),
        ({"rate_max": 0}, "rate_max must be a number"),
        ({"connections_max": 0}, "connections_max must be an integer"),
        ({"window_max": True}, "window_max must be an integer"),
        ({"name": "a b"}, "is 'a b'; a name is"),
        ({"name": "anonymous", "certificates": ("a",)}, "is a reserved name"),
    ],
)
def test_an_invalid_principal_is_refused_with_the_name_of_the_key(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Principal(**{"name": "p", "publish": ("#",), **given})
    assert sentence in str(caught.value)


def test_two_principals_share_neither_name_nor_proof() -> None:
    with pytest.raises(ConfigError, match="two principals 'a'"):
        Policy((principal("a"), principal("a")))
    with pytest.raises(ConfigError, match="which is that of 'a'"):
        Policy((principal("a", certificates=("x",)), principal("b", certificates=("x",))))
    hashed = proofs.token_text(STORED)
    upper = proofs.TOKEN_PREFIX + hashed.removeprefix(proofs.TOKEN_PREFIX).upper()
    with pytest.raises(ConfigError, match="which is that of 'a'"):  # the last one got all its clients
        Policy((principal("a", tokens=(hashed,)), principal("b", tokens=(upper,))))
    with pytest.raises(ConfigError, match="anonymous is 'here'"):
        Policy(anonymous="here")  # type: ignore[arg-type]
