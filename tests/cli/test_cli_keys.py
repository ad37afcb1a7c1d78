"""`citewire keys`: the key alone on stdout, one line for what is wrong, nothing left where one only looks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from citewire import cli
from citewire.server.access.errors import BadCredentials
from citewire.server.access.keys import Keyring
from support.app import opened_app

READER = {"thread:*": ["read"], "verify": ["verify"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder that is taken where none is named."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".citewire"


def keys(*arguments: str, **environ: str) -> Result:
    env = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", **environ}
    return CliRunner(env=env).invoke(cli.app, ["keys", *arguments], color=True, prog_name="citewire")


def made(*arguments: str, **environ: str) -> str:
    """The key, which is all of stdout; that it is shown once is said apart."""
    result = keys("create", *arguments, **environ)
    assert (result.exit_code, result.stderr) == (0, "note: this key is not shown again\n")
    (key,) = result.stdout.splitlines()
    return key


def listed(*arguments: str) -> list[dict[str, Any]]:
    result = keys("list", "--format", "json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_a_key_may_do_everything_unless_it_is_told_what(folder: Path) -> None:
    full, reader = made(), made("--name", "shop.reader", "--capability", json.dumps(READER))
    keyring = Keyring(folder)
    assert keyring.caller(None, full).may("publish", "[meta]log")
    assert reader.startswith("shop.reader:")
    caller = keyring.caller(None, reader)
    assert [caller.may("read", "thread:1"), caller.may("run", "thread:1")] == [True, False]


def test_a_list_has_every_key_and_no_secret() -> None:
    made("--name", "shop.reader", "--capability", json.dumps(READER))
    made("--name", "shop.admin")
    keys("revoke", "shop.reader")
    one, two = listed()
    assert one == {
        "name": "shop.reader",
        "created": one["created"],
        "revoked": one["revoked"],
        "capability": READER,
    }
    assert one["revoked"] >= one["created"] > 1e9
    assert (two["name"], two["revoked"], two["capability"]) == ("shop.admin", None, {"[*]*": ["*"]})


def test_a_list_is_a_table(folder: Path) -> None:
    """Harmless on a terminal, whatever somebody wrote into the file."""
    rows: list[dict[str, Any]] = [
        {"name": "shop.reader", "created": 0, "revoked": 86400, "capability": READER},
        {"name": "\x1b[31m\nx", "created": 10**18, "capability": {}},
    ]
    made()
    (folder / "keys.json").write_text(json.dumps([{"salt": "", "hash": "", **row} for row in rows]), "utf-8")
    result = keys("list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "name         created               revoked               capability\n"
        'shop.reader  1970-01-01 00:00:00Z  1970-01-02 00:00:00Z  {"thread:*":["read"],"verify":["verify"]}\n'
        "\\nx          1000000000000000000   -                     {}\n"
    )


def test_a_revoked_key_is_refused_and_its_name_is_spent(folder: Path) -> None:
    key = made("--name", "shop.reader")
    for _ in range(2):
        result = keys("revoke", "shop.reader")
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "shop.reader is revoked; it and the tokens signed with it are refused\n"
    with pytest.raises(BadCredentials):
        Keyring(folder).caller(None, key)
    assert "there is, or was, a key" in keys("create", "--name", "shop.reader").stderr


def test_a_server_that_runs_knows_at_once(folder: Path) -> None:
    async def main() -> None:
        async with opened_app(folder) as app:
            key = made("--name", "shop.reader")
            assert (await app.ask("GET", "/threads", key=key)).status == 200
            keys("revoke", "shop.reader")
            assert (await app.ask("GET", "/threads", key=key)).status == 401

    asyncio.run(main())


def test_the_folder_is_that_of_the_server(tmp_path: Path) -> None:
    """The flag, else the environment, else the file, else the default, as for `citewire serve`."""
    (tmp_path / "citewire.toml").write_text('data = "of-file"\n', "utf-8")
    made("--name", "a.file")
    made("--name", "a.environment", CITEWIRE_DATA="of-environment")
    made("--name", "a.flag", "--data", "of-flag", CITEWIRE_DATA="of-environment")
    (tmp_path / "citewire.toml").unlink()
    made("--name", "a.default")
    folders = {"a.file": "of-file", "a.environment": "of-environment", "a.flag": "of-flag"}
    for name, data in {**folders, "a.default": ".citewire"}.items():
        assert [row["name"] for row in listed("--data", data)] == [name]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "--name", "reader"], "a key is named app.key, in letters, digits, - and _ [bad_keyring]"),
        (["create", "--name", "a.\x1b[31m"], "a key is named app.key"),
        (["create", "--name", "shop.admin"], "there is, or was, a key 'shop.admin' already [bad_keyring]"),
        (["create", "--capability", "{"], "--capability: $: "),
        (["create", "--capability", ""], "--capability: $: "),
        (["create", "--capability", "\udcff"], "--capability: $: "),
        (["create", "--capability", "[]"], "--capability: $: not a capability: Expected `object`"),
        (["create", "--capability", '{"a": []}'], "--capability: $[...]: not a capability: "),
        (["create", "--capability", '{"a": ["Read"]}'], "--capability: $[...][0]: not a capability: "),
        (["create", "--data", "file"], "cannot read file/secret: Not a directory [bad_keyring]"),
        (["create", "--data", "file/in"], "cannot read file/in/secret: Not a directory [bad_keyring]"),
        (["create", "--data", ""], "--data: expected `str` of length >= 1 [bad_setting]"),
        (["list", "--data", "file"], "cannot read file/keys.json: Not a directory [bad_keyring]"),
        (["list", "--data", "nowhere"], "there are no keys in nowhere"),
        (["list", "--format", "html"], "Invalid value for '--format': "),
        (["revoke", "shop.nobody"], "there is no key 'shop.nobody' [bad_keyring]"),
        (["revoke", "\x1b[31m\n"], "there is no key "),
        (["revoke", "shop.admin", "--data", "empty"], "there are no keys in empty"),
        (["revoke"], "Missing argument 'NAME'."),
        (["crate"], "No such command 'crate'. Did you mean 'create'?"),
        ([], "Missing command."),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    made("--name", "shop.admin")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    result = keys(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"citewire: {said}")
    assert result.stderr.rstrip("\n").isprintable()
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("arguments", [["list"], ["revoke", "shop.admin"], ["create"]])
def test_a_damaged_keyring_is_left_as_it_is(folder: Path, arguments: list[str]) -> None:
    made()
    (folder / "keys.json").write_text('[{"name": 1}]', "utf-8")
    result = keys(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("citewire: .citewire/keys.json is damaged: ")
    assert (folder / "keys.json").read_text("utf-8") == '[{"name": 1}]'
