"""Keys, tokens, sessions and links: who is let in, and that nobody else is."""

from __future__ import annotations

import json
import stat
import string
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.server.access.capability import FULL, Capability
from citewire.server.access.errors import (
    AccessRefused,
    BadCredentials,
    BadToken,
    Forbidden,
    NoCredentials,
    TokenExpired,
)
from citewire.server.access.keys import Caller, Keyring, NoKeys, check_binding
from citewire.server.access.secret import Secret
from citewire.server.storage.vault import KeyringError

NOW = 1_800_000_000
HOUR = 3600
NAME = "shop.reader"
READ = Capability.of({"thread:*": ["read"]})
READ_AND_RUN = Capability.of({"thread:*": ["read", "run"]})


class Clock:
    now = float(NOW)

    def __call__(self) -> float:
        return self.now


class Door:
    """A keyring with one key."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.keyring = Keyring(folder, clock=self.clock)
        self.key = self.keyring.create(READ_AND_RUN, NAME)
        self.secret = self.key.partition(":")[2]

    def signed(self, secret: str | None = None, kid: Any = NAME, **claims: Any) -> str:
        """A token as somebody else's program makes it; a claim of None is left out."""
        said = {"iat": NOW, "exp": NOW + HOUR} | claims
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, secret or self.secret, "HS256", headers={"kid": kid})

    def bearer(self, token: str) -> Caller:
        return self.keyring.caller(f"Bearer {token}")


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.fixture(scope="module")
def shared() -> Iterator[Door]:
    """For properties, which do not change it."""
    with TemporaryDirectory() as folder:
        yield Door(Path(folder))


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


# --- keys


@pytest.mark.parametrize("sent", ["Basic {base64}", "basic  {base64} ", "Bearer {key}", "bearer {base64}"])
def test_the_holder_of_a_key_is_known(door: Door, sent: str) -> None:
    caller = door.keyring.caller(sent.format(key=door.key, base64=base64(door.key)))
    assert caller == door.keyring.caller(None, door.key) == Caller(NAME, READ_AND_RUN, "*")


@pytest.mark.parametrize("sent", [(None, None), ("", None), (None, ""), ("Bearer ", None), ("Basic", None)])
def test_nothing_sent(door: Door, sent: tuple[str | None, str | None]) -> None:
    with pytest.raises(NoCredentials) as refused:
        door.keyring.caller(*sent)
    assert (refused.value.code, refused.value.status) == ("no_credentials", 401)


def test_a_header_counts_before_the_query(door: Door) -> None:
    with pytest.raises(BadCredentials):
        door.keyring.caller(f"Basic {base64(f'{NAME}:wrong')}", door.key)


@pytest.mark.parametrize(
    "key",
    [
        f"{NAME}:wrong",
        f"{NAME}:",
        "shop.other:wrong",
        ":",
        "shop.other:",
        f"{NAME}:\u00e9",
        f"{NAME}:\ud800",
    ],
)
def test_an_unknown_key_and_a_wrong_secret_are_refused_alike(door: Door, key: str) -> None:
    with pytest.raises(BadCredentials) as refused:
        door.keyring.caller(None, key)
    assert str(refused.value) == "this is no valid key [bad_credentials]"


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic ???", "Basic YQ", "Basic YR==", "Basic YQ==", f"Basic {NAME}", "Digest x", "Bearer .",
        "Bearer ?", "Bearer ..", "Bearer a.b.c", "Bearer é.é.é", "Bearer 4pyT", "Bearer \ud800.", "nonsense",
    ],
)  # fmt: skip
def test_nonsense_is_refused(door: Door, authorization: str) -> None:
    with pytest.raises((BadCredentials, BadToken)):
        door.keyring.caller(authorization)


@given(st.text(), st.sampled_from(["", "Basic ", "Bearer ", "Bearer x.", "Basic Og=="]))
def test_any_text_is_refused(shared: Door, text: str, before: str) -> None:
    with pytest.raises(AccessRefused):
        shared.keyring.caller(before + text)
    with pytest.raises(AccessRefused):
        shared.keyring.caller(None, text)


def test_a_key_of_another_server_is_refused(door: Door, tmp_path: Path) -> None:
    other = Door(tmp_path / "other")
    with pytest.raises(BadCredentials):
        door.keyring.caller(None, other.key)


def test_a_revoked_key_is_refused_at_once_and_everywhere(door: Door, tmp_path: Path) -> None:
    elsewhere = Keyring(tmp_path, clock=door.clock)
    token = door.signed()
    assert elsewhere.caller(None, door.key)
    assert elsewhere.caller(None, token)

    door.keyring.revoke(NAME)
    for keyring in (door.keyring, elsewhere):
        with pytest.raises(BadCredentials):
            keyring.caller(None, door.key)
        with pytest.raises(BadToken):
            keyring.caller(None, token)
        assert not keyring.has_keys()
        with pytest.raises(KeyringError):
            keyring.issue_token(NAME, FULL, HOUR)


def test_a_name_is_given_once(door: Door) -> None:
    """What is kept under the name of a key must not become that of another."""
    door.keyring.revoke(NAME)
    with pytest.raises(KeyringError, match="already"):
        door.keyring.create(READ, NAME)
    door.clock.now += 5
    door.keyring.revoke(NAME)
    assert [(key.name, key.revoked) for key in door.keyring.rows()] == [(NAME, NOW)]


@pytest.mark.parametrize(
    "name", ["shop", "shop.", ".reader", "a.b.c", "a b.c", "a.b:c", "é.b", "a.b\n", "a." + "b" * 65]
)
def test_names_that_cannot_be(door: Door, name: str) -> None:
    with pytest.raises(KeyringError):
        door.keyring.create(READ, name)


def test_there_is_nothing_to_revoke(door: Door) -> None:
    with pytest.raises(KeyringError):
        door.keyring.revoke("shop.other")


# --- what is kept


def test_nothing_kept_or_shown_has_the_secret_of_a_key(door: Door, tmp_path: Path) -> None:
    known = door.keyring.caller(None, door.key)
    kept = [file.read_text() for file in tmp_path.iterdir()]
    shown = [repr(door.keyring), repr(vars(door.keyring)), repr(known), repr(door.keyring.rows())]
    assert len(kept) == 3
    master = (tmp_path / "secret").read_text()
    assert not [text for text in kept + shown if door.secret in text]
    assert not [text for text in shown if master in text]


def test_only_the_owner_reads_what_is_kept(door: Door, tmp_path: Path) -> None:
    assert {file.name for file in tmp_path.iterdir()} == {"keys.json", "keys.lock", "secret"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    assert Keyring(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_can_read_is_none(door: Door, tmp_path: Path, mode: int) -> None:
    (tmp_path / "secret").chmod(mode)
    with pytest.raises(KeyringError, match="others can read"):
        Keyring(tmp_path)


def test_keys_are_there_after_a_restart(door: Door, tmp_path: Path) -> None:
    again = Keyring(tmp_path, clock=door.clock)
    assert again.caller(None, door.key) == door.keyring.caller(None, door.key)
    assert again.caller(None, door.signed()) == door.keyring.caller(None, door.signed())


def test_the_secret_may_come_from_outside(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path, secret="s" * 32)
    key = keyring.create()
    assert not (tmp_path / "secret").exists()
    assert Keyring(tmp_path, secret="s" * 32).caller(None, key).may("read", "thread:1")
    with pytest.raises(KeyringError, match="another secret"):
        Keyring(tmp_path, secret="t" * 32).caller(None, key)
    with pytest.raises(KeyringError, match="at least"):
        Keyring(tmp_path, secret="s" * 31)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capability", {"*": ["*"]}),
        ("name", "shop.admin"),
        ("created", NOW + 1),
        ("salt", "00" * 16),
        ("hash", "00" * 32),
        ("hash", "é"),
    ],
)
def test_a_row_that_was_changed_opens_nothing(door: Door, tmp_path: Path, field: str, value: Any) -> None:
    """Nor does anything else until it is put right: whoever runs the server has to know."""
    file = tmp_path / "keys.json"
    other = door.keyring.create(READ)
    before = file.read_bytes()
    rows = json.loads(before)
    rows[0][field] = value
    file.write_text(json.dumps(rows))
    for key in (door.key, other):
        with pytest.raises(KeyringError, match="was changed"):
            door.keyring.caller(None, key)
    with pytest.raises(KeyringError, match="was changed"):
        check_binding("127.0.0.1", Keyring(tmp_path))

    door.keyring.revoke(rows[0]["name"])
    assert door.keyring.caller(None, other)


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[{"name": "a.b"}]', "[[[[", "\udcff"])
def test_a_file_that_was_damaged_opens_nothing(door: Door, tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(KeyringError, match="damaged"):
        door.keyring.caller(None, door.key)


def test_a_file_that_is_gone_opens_nothing(door: Door, tmp_path: Path) -> None:
    (tmp_path / "keys.json").unlink()
    with pytest.raises(BadCredentials):
        door.keyring.caller(None, door.key)


def test_a_secret_file_with_something_else_in_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for data in (b"", b"short", b"\xff" * 40):
        file.write_bytes(data)
        file.chmod(0o600)
        with pytest.raises(KeyringError):
            Keyring(tmp_path)


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyringError, match="cannot"):
        Keyring(tmp_path / "file")
    with pytest.raises(KeyringError, match="cannot"):
        Keyring(tmp_path / "file", secret="s" * 32).create()
    with pytest.raises(KeyringError, match="cannot"):
        Keyring(tmp_path / "file", secret="s" * 32).has_keys()


MAKE_KEYS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from citewire.server.access.keys import Keyring

keyring = Keyring(Path(sys.argv[1]))
with ThreadPoolExecutor(4) as threads:
    print(*threads.map(lambda _: keyring.create(), range(8)))
"""


def test_keys_made_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    """By threads of processes that at first find no folder."""
    folder = tmp_path / "data"
    command = [sys.executable, "-c", MAKE_KEYS, str(folder)]
    makers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    keys = [key for maker in makers for key in maker.communicate()[0].split()]
    keyring = Keyring(folder)
    assert len({keyring.caller(None, key).key for key in keys}) == len(keys) == 24
    assert {file.name for file in folder.iterdir()} == {"keys.json", "keys.lock", "secret"}


# --- tokens


def test_the_bearer_of_a_token_is_known(door: Door) -> None:
    token = door.signed()
    caller = Caller(NAME, READ_AND_RUN, None, NOW + HOUR)
    assert door.bearer(token) == door.bearer(base64(token)) == door.keyring.caller(None, token) == caller


@pytest.mark.parametrize(
    ("claims", "capability", "client_id"),
    [
        ({"x-ably-capability": '{"*": ["*"]}', "x-ably-clientId": "ann"}, READ_AND_RUN, "ann"),
        ({"capability": {"*": ["*"]}, "sub": "ann"}, READ_AND_RUN, "ann"),
        ({"x-ably-capability": '{"thread:*": ["read", "delete"]}'}, READ, None),
        ({"x-ably-capability": "{}"}, Capability(), None),
        ({"capability": {"source:*": ["read"]}}, Capability(), None),
        ({"capability": {"a": ["x", "y"]}, "x-ably-capability": '{"a": ["y", "x"]}'}, Capability(), None),
        ({"x-ably-clientId": "*"}, READ_AND_RUN, "*"),
        ({"sub": "ann", "x-ably-clientId": "ann"}, READ_AND_RUN, "ann"),
        ({"iss": "shop", "jti": "1", "nbf": NOW}, READ_AND_RUN, None),
    ],
)
def test_a_token_has_at_most_what_its_key_has(
    door: Door, claims: dict[str, Any], capability: Capability, client_id: str | None
) -> None:
    caller = door.bearer(door.signed(**claims))
    assert (caller.capability, caller.client_id) == (capability, client_id)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None}, {"iat": None}, {"exp": str(NOW + HOUR)}, {"exp": True}, {"iat": -1}, {"exp": 10**400},
        {"exp": NOW}, {"exp": NOW - 1}, {"exp": NOW + 24 * HOUR + 1}, {"iat": NOW - 24 * HOUR},
        {"iat": NOW + 31},
        {"exp": float("inf")}, {"exp": float("nan")}, {"exp": 1e308}, {"exp": [NOW]}, {"nbf": NOW + 31},
        {"aud": "other"}, {"aud": ["citewire"]},
        {"x-ably-capability": ""}, {"x-ably-capability": "null"}, {"x-ably-capability": "[" * 5_000},
        {"x-ably-capability": {"*": ["*"]}}, {"x-ably-capability": '{"*": "*"}'},
        {"capability": "*"}, {"capability": {"a": ["x"]}, "x-ably-capability": '{"a": ["y"]}'},
        {"sub": "ann", "x-ably-clientId": "bob"}, {"sub": ""}, {"sub": 1}, {"x-ably-clientId": "a" * 257},
    ],
)  # fmt: skip
def test_what_a_token_may_not_say(door: Door, claims: dict[str, Any]) -> None:
    with pytest.raises(BadToken):
        door.bearer(door.signed(**claims))


def test_a_token_ends(door: Door) -> None:
    token = door.signed()
    door.clock.now = NOW + HOUR + 29
    assert door.bearer(token).expires == NOW + HOUR
    door.clock.now += 1
    with pytest.raises(TokenExpired) as refused:
        door.bearer(token)
    assert (refused.value.code, refused.value.status) == ("token_expired", 401)


def test_how_long_a_token_may_last_is_a_setting(door: Door, tmp_path: Path) -> None:
    assert door.bearer(door.signed(exp=NOW + 24 * HOUR))
    strict = Keyring(tmp_path, longest_token=60, clock=door.clock)
    assert strict.caller(None, door.signed(exp=NOW + 60))
    with pytest.raises(BadToken):
        strict.caller(None, door.signed(exp=NOW + 61))


def test_a_token_may_be_from_a_clock_that_is_ahead(door: Door) -> None:
    assert door.bearer(door.signed(iat=NOW + 30))


def test_signatures_that_are_none(door: Door, subtests: pytest.Subtests) -> None:
    claims = {"iat": NOW, "exp": NOW + HOUR}
    named = {"kid": NAME}
    body = door.signed().split(".")[1]
    other = door.keyring.create(FULL, "shop.other").partition(":")[2]
    tokens = {
        "none": jwt.encode(claims, "", "none", headers=named),
        "none with a signature": f"{segment({'alg': 'none', 'kid': NAME})}.{body}.{'A' * 43}",
        "HS512": jwt.encode(claims, door.secret * 2, "HS512", headers=named),
        "HS384": jwt.encode(claims, door.secret * 2, "HS384", headers=named),
        "of another key": door.signed(secret=other),
        "of another key, by its name": door.signed(kid="shop.other"),
        "of no key": door.signed(kid="shop.nobody"),
        "with the hash": door.signed(secret=door.keyring.rows()[0].hash),
        "without a key": jwt.encode(claims, door.secret, "HS256"),
        "with a name that is none": f"{segment({'alg': 'HS256', 'kid': [NAME]})}.{body}.{'A' * 43}",
        "with an algorithm that is none": f"{segment({'alg': ['HS256'], 'kid': NAME})}.{body}.{'A' * 43}",
        "nested": f"{segment(nested(5000))}.{body}.{'A' * 43}",
        "with a header that is none": f"{segment([1])}.{body}.{'A' * 43}",
        "with critical headers": jwt.encode(
            claims, door.secret, "HS256", headers=named | {"crit": ["x"], "x": 1}
        ),
        "padded": door.signed() + "=",
        "of four parts": door.signed() + ".A",
        "with a blank": door.signed().replace(".", ". ", 1),
        "with an end of line": door.signed() + "\n.",
    }
    for what, token in tokens.items():
        with subtests.test(what), pytest.raises(BadToken):
            door.keyring.caller(None, token)


def segment(header: Any) -> str:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return urlsafe_b64encode(data).decode().rstrip("=")


def nested(depth: int) -> bytes:
    return b'{"kid":' + b"[" * depth + b"]" * depth + b"}"


def test_a_key_that_is_unknown_is_not_told_from_a_wrong_signature(door: Door) -> None:
    told: set[str] = set()
    for token in (door.signed(kid="shop.nobody"), door.signed(secret="x" * 43)):
        with pytest.raises(BadToken) as refused:
            door.bearer(token)
        told.add(str(refused.value))
    assert len(told) == 1


_LETTERS = st.sampled_from(string.ascii_letters + string.digits + "-_.=+/ \n")


def changed(text: str, at: int, letter: str) -> str:
    at %= len(text)
    return text[:at] + letter + text[at + 1 :]


@given(st.integers(0), _LETTERS)
def test_a_changed_letter_is_refused(shared: Door, at: int, letter: str) -> None:
    """Of a key, of a token, and of a token in base64."""
    for good in (shared.key, shared.signed(), base64(shared.signed())):
        bad = changed(good, at, letter)
        # Blanks around a header's value are no part of it.
        if bad.strip() != good:
            with pytest.raises(AccessRefused):
                shared.keyring.caller(f"Bearer {bad}")


def test_every_last_letter_but_one_is_refused(shared: Door) -> None:
    """Of which decoders of base64 ignore some bits."""
    wrapped = base64(shared.key)
    assert wrapped.endswith("==")
    for good, end in ((shared.signed(), ""), (wrapped.rstrip("="), "==")):
        for letter in set(string.ascii_letters + string.digits + "-_+/") - {good[-1]}:
            with pytest.raises(AccessRefused):
                shared.bearer(good[:-1] + letter + end)
        assert shared.bearer(good + end)


# --- sessions, links, binding


def test_a_session_is_a_short_token_with_less(door: Door) -> None:
    session = door.keyring.issue_token(
        NAME, Capability.of({"thread:*": ["read"], "verify": ["verify"]}), HOUR, "page"
    )
    assert door.keyring.caller(None, session) == Caller(NAME, READ, "page", NOW + HOUR)
    door.clock.now += HOUR + 30
    with pytest.raises(TokenExpired):
        door.keyring.caller(None, session)


def test_what_a_caller_may(door: Door) -> None:
    caller = door.keyring.caller(None, door.key)
    caller.require("run", "thread:1")
    with pytest.raises(Forbidden) as refused:
        caller.require("delete", "thread:1")
    assert (refused.value.code, refused.value.status) == ("forbidden", 403)


def test_a_link_is_good_for_one_thing_and_some_time(door: Door) -> None:
    signature = door.keyring.sign("proof", "p1", NOW + HOUR)
    door.keyring.check("proof", "p1", signature)
    for purpose, text in (("proof", "p2"), ("source", "p1"), ("proof", ""), ("proof", "\ud800")):
        with pytest.raises(BadToken):
            door.keyring.check(purpose, text, signature)
    door.clock.now = NOW + HOUR
    with pytest.raises(TokenExpired):
        door.keyring.check("proof", "p1", signature)


@given(st.text(max_size=9), st.integers(0), st.one_of(_LETTERS, st.characters()))
def test_a_changed_link_is_refused(shared: Door, text: str, at: int, letter: str) -> None:
    good = shared.keyring.sign("proof", text, NOW + HOUR)
    shared.keyring.check("proof", text, good)
    bad = changed(good, at, letter)
    if bad != good:
        with pytest.raises(BadToken):
            shared.keyring.check("proof", text, bad)


@pytest.mark.parametrize("signature", ["", ".", "1.", "x.y", f"{NOW}", "\ud800.\ud800", "9" * 5000 + ".a"])
def test_what_is_no_signature(door: Door, signature: str) -> None:
    with pytest.raises(BadToken):
        door.keyring.check("proof", "p1", signature)


def test_purposes_and_messages_do_not_run_together() -> None:
    secret = Secret("s" * 32)
    derived = [
        secret.derive(*each) for each in (("key", b"a"), ("keya", b""), ("ke", b"ya"), ("link key", b"a"))
    ]
    assert len(set(derived)) == 4
    assert secret.sign("a", "2.b", 1).partition(".")[2] != secret.sign("a", "b", 12).partition(".")[2]


def test_a_development_key_is_made_once(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    key = keyring.create_development_key()
    assert key is not None
    assert keyring.caller(None, key).may("anything", "[meta]at:all")
    assert keyring.create_development_key() is None
    assert Keyring(tmp_path).create_development_key() is None
    keyring.revoke(key.partition(":")[0])
    assert keyring.create_development_key() is not None


def test_others_reach_no_server_without_keys(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    check_binding("127.0.0.1", keyring)
    for host in ("0.0.0.0", "::", "example.org", ""):
        with pytest.raises(NoKeys):
            check_binding(host, keyring)
    key = keyring.create(READ, NAME)
    check_binding("0.0.0.0", keyring)
    keyring.revoke(key.partition(":")[0])
    with pytest.raises(NoKeys):
        check_binding("0.0.0.0", keyring)
