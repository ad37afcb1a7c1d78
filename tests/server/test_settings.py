"""Settings: where a value comes from, what is refused, and that help and docs say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from citewire import cli
from citewire.server.ops.settings import Option, SettingError, Settings, options, read_toml, unknown_names
from support.cases import ROOT

SECRET = "s3cr3t-Zq9xWv8uT7"


def load(
    flags: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    toml: dict[str, Any] | None = None,
) -> Settings:
    return Settings.load(flags or {}, environ or {}, toml or {})


@pytest.mark.parametrize(
    ("flags", "environ", "toml", "port"),
    [
        ({}, {}, {}, 8787),
        ({}, {}, {"port": 1}, 1),
        ({}, {"CITEWIRE_PORT": "2"}, {"port": 1}, 2),
        ({"port": "3"}, {"CITEWIRE_PORT": "2"}, {"port": 1}, 3),
        ({"port": None}, {"CITEWIRE_PORT": ""}, {"port": 1}, 1),
        ({"port": "0"}, {"CITEWIRE_PORT": "2"}, {}, 0),
    ],
)
def test_where_a_value_comes_from(
    flags: dict[str, Any], environ: dict[str, str], toml: dict[str, Any], port: int
) -> None:
    assert load(flags, environ, toml) == Settings(port=port)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a, b/c ,", ("a", "b/c")),
        ('["a, b", "c"]', ("a, b", "c")),
        ("[]", ()),
    ],
)
def test_lists_in_the_environment(text: str, expected: tuple[str, ...]) -> None:
    assert load(environ={"CITEWIRE_SOURCES": text}).sources == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"agent": "https://example.com/agui"}, {"agent": "https://example.com/agui"}),
        ({"agent": "my_agents.main:app.agent"}, {"agent": "my_agents.main:app.agent"}),
        (
            {"agent_headers": ["Authorization: Bearer a, b"]},
            {"agent_headers": ("Authorization: Bearer a, b",)},
        ),
        ({"watch": "false"}, {"watch": False}),
        ({"watch": False}, {"watch": False}),
        ({"linger": "0.5"}, {"linger": 0.5}),
        ({"origins": ["https://a.example:8443", "*"]}, {"origins": ("https://a.example:8443", "*")}),
        ({"public_url": "https://a.example/citewire/"}, {"public_url": "https://a.example/citewire/"}),
        ({"log_format": "json"}, {"log_format": "json"}),
        ({"workers": "3"}, {"workers": 3}),
    ],
)
def test_values(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert load(given) == Settings(**expected)


@pytest.mark.parametrize(
    ("store", "folder"),
    [(None, "here"), ("there", "there"), ("sqlite:there", "there"), ("sqlite:///there", "/there")],
)
def test_store(store: str | None, folder: str) -> None:
    settings = load({"store": store, "data": "here"})
    assert (settings.store_folder, settings.dsn) == (Path(folder), None)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://a/b", "postgres://u:hush@a:5432/b", "postgresql://u:hush@a,b:1,[::1]:2/c?sslmode=require",
        "postgresql://u@/b?host=/run/pg&port=5432&password=hush", "postgresql://",
    ],
)  # fmt: skip
def test_a_database_is_shown_without_its_password(dsn: str) -> None:
    settings = load({"store": dsn})
    assert settings.dsn == dsn
    assert repr(settings) == "Settings(store='…')"


BAD: list[tuple[str, Any, str]] = [
    ("port", "65536", "<= 65535"),
    ("port", "-1", ">= 0"),
    ("port", "eighty", "`int`"),
    ("port", "9" * 400, "<= 65535"),
    ("rate", "0", "> 0"),
    ("rate", "nan", "> 0"),
    ("linger", "inf", "<="),
    ("linger", "-1", "> 0"),
    ("watch", "perhaps", "`bool`"),
    ("workers", "0", ">= 1"),
    ("log_level", "loud", "one of debug, info, warning, error"),
    ("resume_runs", "", "one of librarian, always, never"),
    ("data", "", "length >= 1"),
    ("agent", "", "the URL of an agent, or module:object"),
    ("agent", "ftp://example.com", "the URL of an agent"),
    ("agent", "https://", "the URL of an agent"),
    ("agent", "https://[::1", "the URL of an agent"),
    ("agent", "https://example.com/\n", "the URL of an agent"),
    ("agent", "1module:object", "the URL of an agent"),
    ("agent_headers", ["A: b", "A"], "number 2: expected a header `Name: value`"),
    ("agent_headers", ["A: b\r\nC: d"], "number 1: expected a header"),
    ("agent_headers", ["A :b"], "number 1: expected a header"),
    ("origins", ["https://a.example/"], "number 1: expected a web origin"),
    ("origins", ["https://A.example"], "number 1: expected a web origin"),
    ("origins", ["null"], "number 1: expected a web origin"),
    ("public_url", "https://a.example/?x", "without query"),
    ("store", "mysql://a/b", "expected a path, sqlite:PATH or postgresql://USER@HOST/NAME"),
    ("store", "postgresql://u:pa/ss@a/b", "expected a path, sqlite:PATH or postgresql://"),
    ("store", "postgresql://u:12/3@a/b", "expected a path, sqlite:PATH or postgresql://"),
    ("store", "postgresql://a:0/b", "expected a path, sqlite:PATH or postgresql://"),
    ("store", "postgresql://u:pa ss@a/b", "expected a path, sqlite:PATH or postgresql://"),
    ("store", "postgres://u:p#a@b/c", "expected a path, sqlite:PATH or postgresql://"),
    ("store", "sqlite:", "expected a path"),
    ("store", "", "length >= 1"),
]


@pytest.mark.parametrize(("name", "value", "said"), BAD)
def test_bad_values_name_the_option(name: str, value: Any, said: str) -> None:
    option = next(option for option in options() if option.name == name)
    with pytest.raises(SettingError) as caught:
        load({name: value})
    assert caught.value.message.startswith(f"{option.flag}: ")
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("environ", "toml", "said"),
    [
        ({"CITEWIRE_PORT": "x"}, {}, "CITEWIRE_PORT: expected `int`, got `str`"),
        ({"CITEWIRE_SOURCES": "[1]"}, {}, "CITEWIRE_SOURCES: expected `str`, got `int`"),
        ({"CITEWIRE_SOURCES": "[x"}, {}, "CITEWIRE_SOURCES: expected `array`"),
        ({}, {"port": "8787"}, "port in the file: expected `int`, got `str`"),
        ({}, {"port": True}, "port in the file: expected `int`, got `bool`"),
        ({}, {"sources": "docs"}, "sources in the file: expected `array`, got `str`"),
        ({}, {"agent": {"url": "x"}}, "agent in the file: expected `str | null`"),
        ({}, {"prot": 1}, "a setting that does not exist: prot"),
        ({}, {"server": {"port": 1}}, "a setting that does not exist: server"),
    ],
)
def test_bad_values_name_their_place(environ: dict[str, str], toml: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        load({}, environ, toml)
    assert said in caught.value.message


@given(
    st.sampled_from(
        ["agent", "agent_headers", "store", "origins", "public_url", "model", "port", "log_level"]
    ),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_no_error_shows_a_value(name: str, before: str, after: str) -> None:
    value = before + SECRET + after
    for place in (
        {"flags": {name: value}},
        {"environ": {f"CITEWIRE_{name.upper()}": value}},
        {"toml": {name: value}},
    ):
        assert SECRET not in problem(**place)


def problem(**place: Any) -> str:
    try:
        load(**place)
    except SettingError as exc:
        return str(exc)
    return ""


def test_no_secret_is_shown() -> None:
    shown = Settings(
        agent=f"https://user:{SECRET}@example.com/?key={SECRET}", agent_headers=(f"X: {SECRET}",), port=1
    )
    assert repr(shown) == "Settings(agent='https://…@example.com/?key=…', agent_headers='…', port=1)"


@pytest.mark.parametrize("option", options(), ids=lambda option: option.name)
def test_defaults_are_valid(option: Option) -> None:
    assert option.convert(msgspec.to_builtins(option.default), "the default") == option.default


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "citewire.toml"
    file.write_text('port = 1\nsources = ["a"]\n', "utf-8")
    assert load(toml=read_toml(file)) == Settings(port=1, sources=("a",))


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"port = ", "not a TOML file"), (b"\xff", "not UTF-8"), (f"a = {SECRET}".encode(), "not a TOML file")],
)
def test_toml_that_cannot_be_read(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "citewire.toml"
    file.write_bytes(data)
    with pytest.raises(SettingError, match=said) as caught:
        read_toml(file)
    assert SECRET not in str(caught.value)
    with pytest.raises(SettingError, match="No such file"):
        read_toml(tmp_path / "nowhere.toml")


def test_names_that_are_no_settings() -> None:
    known = {option.env: "x" for option in options()}
    others = {
        "CITEWIRE_CASES": "",
        "CITEWIRE_REQUIRE": "",
        "CITEWIRE_OCR_LANGUAGES": "",
        "PORT": "",
        "PATH": "",
    }
    assert unknown_names(known | others) == []
    assert unknown_names({"CITEWIRE_PROT": "1"}) == ["CITEWIRE_PROT"]


# The command line and the docs


def serve(*arguments: str, **environ: str) -> Any:
    env = {"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb", **environ}
    return CliRunner(env=env).invoke(cli.app, ["serve", *arguments], prog_name="citewire")


def test_help_has_every_option() -> None:
    """And no other one."""
    shown = " ".join(serve("--help").stdout.replace("│", " ").split())
    switches = {
        each.flag: f"--no-{each.flag.removeprefix('--')}"
        for each in options()
        if isinstance(each.default, bool)
    }
    rows = [f"{each.flag} {switches.get(each.flag, each.kind)} {_said(each)}" for each in options()]
    assert [row for row in rows if row.replace("`", "") not in shown] == []
    flags = set(re.findall(r"(?<= )--[a-z-]+(?= )", shown.partition("Options")[2].partition("Examples")[0]))
    assert flags - {option.flag for option in options()} == {"--config", "--help", *switches.values()}


def _said(option: Option) -> str:
    return option.help + (f" [default: {option.shown_default}]" if option.shown_default else "")


def row(option: Option) -> str:
    flag = option.flag + ("" if option.kind == "true|false" else f" {option.kind}")
    cells = (f"`{flag}`", f"`{option.env}`", f"`{option.name}`", option.shown_default or "–", option.help)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def test_the_docs_have_every_option() -> None:
    """In the same words and order; what is expected can be pasted."""
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `--")]
    assert rows == [row(option) for option in options()]


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--port", "x"], {}, "citewire: --port: expected `int`, got `str` [bad_setting]"),
        (["--config", "nowhere.toml"], {}, "citewire: nowhere.toml: No such file or directory [bad_setting]"),
        ([], {"CITEWIRE_LOG_LEVEL": "x"}, "citewire: CITEWIRE_LOG_LEVEL: one of debug"),
        (["--nothing"], {}, "citewire: No such option: --nothing"),
        (["--agent-header", SECRET], {}, "citewire: --agent-header: number 1: expected a header"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], environ: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = serve(*arguments, **environ)
    assert result.exit_code == 2
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1
    assert SECRET not in result.stderr


def test_the_command_finds_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "citewire.toml").write_text("port = 'x'\n", "utf-8")
    assert "port in the file" in serve().stderr
    (tmp_path / "other.toml").write_text("host = 1\n", "utf-8")
    assert "host in the file" in serve("--config", "other.toml").stderr
