"""The command line as a script sees it: the payload alone on stdout, all remarks on stderr, an exit code."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import citewire
from citewire.rendering import FORMATS
from support.cli_runner import run

TEXT = "Refunds are available within 30 days. Contact support to start one."
CITATION: dict[str, Any] = {
    "citedReference": {
        "citedReferenceType": "Link",
        "link": {"url": "https://example.com/refunds"},
        "label": "Refund policy",
    },
    "citedDetails": {
        "citedDetailsType": "InlineMetadata",
        "inlineMetadata": [
            {"citedLocationOffset": 37, "claim": {"claimStartOffset": 0, "claimEndOffset": 37}}
        ],
    },
}


def salesforce(*citations: Any, text: Any = TEXT) -> dict[str, Any]:
    return {
        "staticContent": {"formatType": "Text", "text": text, "citationContent": {"citations": [*citations]}}
    }


REFUNDS = json.dumps(salesforce(CITATION))
AGENT_API: dict[str, Any] = {
    "type": "Inform",
    "message": TEXT,
    "citedReferences": [
        {
            "type": "link",
            "value": "https://example.com/refunds",
            "label": "Refund policy",
            "inlineMetadata": [{"claim": "Refunds are available within 30 days.", "location": 37}],
        }
    ],
}
BOTH = json.dumps(salesforce(CITATION) | AGENT_API)
LISTS: dict[str, Any] = {
    "citations": {
        "m1": [{"id": "c1", "index": 1, "title": "Refund policy", "url": "https://example.com/refunds"}]
    }
}


def lines(result: Result) -> list[str]:
    return result.stderr.splitlines()


@pytest.fixture
def refunds(tmp_path: Path) -> str:
    file = tmp_path / "refunds.json"
    file.write_text(REFUNDS, "utf-8")
    return str(file)


LINE = re.compile(r"lost: [a-z_]+(\.[a-z_]+)*( of [\w.-]+)?: \S.*")


@pytest.mark.parametrize("dialect", citewire.dialects())
def test_convert_to(dialect: str, refunds: str) -> None:
    """stdout is the payload that `write` gives; stderr has a line for each loss."""
    written = citewire.write(citewire.read(REFUNDS), dialect)
    result = run("convert", refunds, "--to", dialect)
    assert result.exit_code == 0
    shown = result.stdout if isinstance(written.payload, str) else json.loads(result.stdout)
    assert shown == written.payload
    assert len(lines(result)) == len(written.losses)
    assert all(LINE.fullmatch(line) for line in lines(result))


@pytest.mark.parametrize("dialect", citewire.dialects())
def test_strict(dialect: str, refunds: str) -> None:
    """Exit 1 where something was lost; the payload is written all the same."""
    result = run("convert", refunds, "--to", dialect, "--strict")
    assert result.exit_code == (1 if result.stderr else 0)
    assert result.stdout == run("convert", refunds, "--to", dialect).stdout != ""


def test_convert_and_back() -> None:
    there = run("convert", "-", "--to", "salesforce.agent-api", "--strict", stdin=REFUNDS)
    assert json.loads(there.stdout) == AGENT_API
    back = run(
        "convert", "-", "--from", "salesforce.agent-api", "--to", "salesforce", "--strict", stdin=there.stdout
    )
    assert json.loads(back.stdout) == salesforce(CITATION)
    assert (there.exit_code, back.exit_code) == (0, 0)
    assert there.stderr == back.stderr == ""


def test_stdin_is_the_default() -> None:
    assert (
        run("convert", "--to", "salesforce", stdin=REFUNDS).stdout
        == run("convert", "-", "--to", "salesforce", stdin=REFUNDS).stdout
    )


def test_stdout_is_json_of_utf8() -> None:
    text = "Rückgabe 📈 中文\u2028 in 30 Tagen."
    result = run("convert", "-", "--to", "salesforce", stdin=json.dumps(salesforce(text=text)))
    assert json.loads(result.stdout_bytes.decode("utf-8"))["staticContent"]["text"] == text


def test_many_losses_of_a_kind_share_a_line() -> None:
    result = run("convert", "-", "--to", "openai.responses", stdin=json.dumps(salesforce(*[CITATION] * 6)))
    claims = [line for line in lines(result) if line.startswith("lost: claim")]
    assert claims == ["lost: claim of 6 (c1, c2, c3, c4, …): openai.responses has no place for it"]


def test_what_was_left_out_is_named_with_its_path() -> None:
    result = run(
        "convert", "-", "--to", "salesforce.agent-api", "--strict", stdin=json.dumps(salesforce(5, CITATION))
    )
    path = "$.staticContent.citationContent.citations[0]"
    assert lines(result) == [f"left out: {path}: a citation is not an object [bad_shape]"]
    assert result.exit_code == 1


def test_the_first_of_several_answers() -> None:
    payload = [salesforce(CITATION), salesforce(text="Another.")]
    result = run("convert", "-", "--to", "salesforce.agent-api", "--strict", stdin=json.dumps(payload))
    assert json.loads(result.stdout) == AGENT_API
    assert lines(result) == ["note: the first of 2 answers in this payload"]


def test_text_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_text("Refunds take 30 days[^c1].", "utf-8")
    result = run("convert", "-", "--text", str(file), "--to", "salesforce", stdin=json.dumps(LISTS))
    assert json.loads(result.stdout)["staticContent"]["text"] == "Refunds take 30 days."


@pytest.mark.parametrize(("unit", "claim"), [("codepoints", "📈 Up."), ("utf16", "📈 Up"), ("utf8", "📈 ")])
def test_unit(unit: str, claim: str) -> None:
    place = {"citedLocationOffset": 5, "claim": {"claimStartOffset": 0, "claimEndOffset": 5}}
    cited = CITATION | {"citedDetails": {"citedDetailsType": "InlineMetadata", "inlineMetadata": [place]}}
    payload = json.dumps(salesforce(cited, text="📈 Up. Down."))
    result = run("convert", "-", "--unit", unit, "--to", "salesforce.agent-api", stdin=payload)
    assert json.loads(result.stdout)["citedReferences"][0]["inlineMetadata"][0]["claim"] == claim


def test_list_names_every_dialect() -> None:
    result = run("convert", "--list")
    named = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert list(named) == list(citewire.dialects())
    assert all(dialect.UPSTREAM in named[name] for name, dialect in citewire.dialects().items())
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        ('{"a": ', "$: "),
        ('{"a": 1} x', "$: "),
        ('{"a": NaN}', "$: "),
        ('{"a": "\\ud800"}', "$: "),
        (b'{"a": "\xff"}', "$: "),
        ('{"a":' * 100_000, "$: nested too deeply"),
    ],
)
@pytest.mark.parametrize("command", ["convert", "render"])
def test_broken_json(command: str, stdin: str | bytes, message: str) -> None:
    result = run(command, "-", "--to", "markdown", stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = lines(result)
    assert line.startswith(f"citewire: {message}")
    assert line.endswith(" [bad_json]")


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        pytest.param(
            [],
            json.dumps(salesforce(text=5)),
            "$.staticContent.text: text is not a string [bad_shape]",
            id="shape",
        ),
        pytest.param(
            ["--from", "salesforce"], "5", "$: no staticContent with text in it [bad_shape]", id="no shape"
        ),
        pytest.param([], b"\xff\xfe", "$: the text is not UTF-8 at byte 0 [bad_shape]", id="no text"),
        pytest.param(
            [],
            '{"a": "b"}',
            "no dialect recognises this payload; name one [undetected_dialect]",
            id="undetected",
        ),
        pytest.param(
            [],
            BOTH,
            "the payload fits salesforce and salesforce.agent-api; name one [ambiguous_dialect]",
            id="ambiguous",
        ),
    ],
)
def test_unusable_input(arguments: list[str], stdin: str | bytes, message: str) -> None:
    """One line that names the path and the code, and exit 2."""
    for command in (["convert", "--to", "ngaf"], ["render"]):
        result = run(*command, *arguments, "-", stdin=stdin)
        assert lines(result) == [f"citewire: {message}"]
        assert (result.exit_code, result.stdout) == (2, "")


def test_naming_the_dialect_settles_what_is_ambiguous() -> None:
    assert (
        run("convert", "-", "--from", "salesforce", "--to", "salesforce.agent-api", stdin=BOTH).exit_code == 0
    )


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_unknown_dialect(option: str, refunds: str) -> None:
    result = run("convert", refunds, "--to", "ngaf", option, "nope")
    (line,) = lines(result)
    assert line.startswith("citewire: no dialect is called 'nope'; there are ")
    assert line.endswith("[unknown_dialect]")
    assert all(name in line for name in citewire.dialects())
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "{}"], "citewire: name a dialect with --to, or see --list"),
        (["convert", "missing.json", "--to", "ngaf"], "citewire: missing.json: No such file or directory"),
        (["convert", ".", "--to", "ngaf"], "citewire: .: Is a directory"),
        (
            ["convert", "{}", "--to", "ngaf", "--text", "missing"],
            "citewire: missing: No such file or directory",
        ),
        (["render", "missing.json"], "citewire: missing.json: No such file or directory"),
    ],
)
def test_unusable_arguments(arguments: list[str], message: str, refunds: str) -> None:
    result = run(*(refunds if argument == "{}" else argument for argument in arguments))
    assert lines(result) == [message]
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("name", FORMATS)
def test_render_to(name: str, refunds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    result = run("render", refunds, "--to", name)
    assert result.stdout == citewire.render(citewire.read(REFUNDS), name).rstrip("\n") + "\n"
    assert "Refund policy" in result.stdout
    assert (result.exit_code, result.stderr) == (0, "")


def test_render_is_text_by_default(refunds: str) -> None:
    assert run("render", refunds).stdout == run("render", refunds, "--to", "text").stdout


def test_render_to_an_unknown_format(refunds: str) -> None:
    result = run("render", refunds, "--to", "nope")
    assert lines(result) == [
        f"citewire: no format is called 'nope'; there are {', '.join(FORMATS)} [unknown_format]"
    ]
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "examples"),
    [
        (["convert"], ["citewire convert response.json --to salesforce", "citewire convert --list"]),
        (["render"], ["citewire render response.json --to terminal"]),
        ([], ["convert", "render"]),
    ],
)
def test_help_shows_examples(arguments: list[str], examples: list[str]) -> None:
    result = run(*arguments, "--help")
    assert all(example in " ".join(result.stdout.split()) for example in examples)
    assert result.exit_code == 0


def test_version() -> None:
    assert run("--version").stdout == f"{citewire.__version__}\n"


@pytest.mark.parametrize(
    "name", ["convert", "render", "reduce", "check", "verify", "serve", "keys", "extract"]
)
def test_help_lists_every_command(name: str) -> None:
    assert f" {name} " in run("--help").stdout
    assert run(name, "--help").exit_code == 0


def test_a_misspelt_command_is_known_again() -> None:
    assert lines(run("convrt")) == ["citewire: No such command 'convrt'. Did you mean 'convert'?"]


@pytest.mark.parametrize("arguments", [["--version"], ["convert", "--list"]])
def test_a_command_does_not_wait_for_what_others_need(arguments: list[str]) -> None:
    code = (
        "import atexit, sys; from citewire.cli import main\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, timeout=50, check=True
    )
    loaded = set(done.stderr.decode().split())
    assert "citewire.cli.output" in loaded
    assert (
        loaded & {"asyncio", "citewire.agui", "citewire.documents", "citewire.server", "numpy", "rich"}
        == set()
    )


HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b2J\x00\r\n\x85\u2028\u2029\u202e\u2066\u200f\x7fevil"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def unsafe(text: str) -> list[str]:
    """The characters that move a cursor, start a line or turn the text around, newlines apart."""
    return [
        character
        for character in text
        if character != "\n"
        and (unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} or character in BIDI)
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["convert", HOSTILE.replace("\0", ""), "--to", "ngaf"], id="file"),
        pytest.param(["convert", "{}", "--to", HOSTILE], id="target"),
        pytest.param(["convert", "{}", "--to", "ngaf", "--from", HOSTILE], id="source"),
        pytest.param(["convert", "{}", "--to", "ngaf", "--text", HOSTILE.replace("\0", "")], id="text file"),
        pytest.param(["convert", "{}", "--to", "ngaf", "--unit", HOSTILE], id="unit"),
        pytest.param(["convert", "{}", HOSTILE, "--to", "ngaf"], id="one file too many"),
        pytest.param(["convert", "{}", f"--{HOSTILE}"], id="option"),
        pytest.param(["render", "{}", "--to", HOSTILE], id="format"),
        pytest.param([HOSTILE], id="command"),
    ],
)
def test_hostile_arguments_stay_off_the_terminal(arguments: list[str], refunds: str) -> None:
    result = run(*(refunds if argument == "{}" else argument for argument in arguments))
    assert result.exit_code == 2
    assert unsafe(result.stderr) == []
    assert "evil" in result.stderr


def hostile_record(name: Any = HOSTILE) -> dict[str, Any]:
    return {"id": name, "index": 1, "title": HOSTILE, "url": "https://example.com", HOSTILE: HOSTILE}


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param({"citations": {HOSTILE: [hostile_record()]}}, id="ngaf"),
        pytest.param({"citations": {HOSTILE: [5, hostile_record(7)]}}, id="ngaf, left out"),
        pytest.param({"text": HOSTILE, "citations": {HOSTILE: hostile_record()}}, id="deepcitation"),
        pytest.param(
            {"text": 5, "citations": {HOSTILE: {"pageNumber": HOSTILE}}}, id="deepcitation, left out"
        ),
        pytest.param(salesforce({HOSTILE: HOSTILE}, HOSTILE, text=HOSTILE), id="salesforce"),
        pytest.param({HOSTILE: salesforce({HOSTILE: HOSTILE}, text=5)}, id="salesforce, unusable"),
        pytest.param({HOSTILE: HOSTILE}, id="undetected"),
    ],
)
@pytest.mark.parametrize("target", ["salesforce.agent-api", "openai.responses"])
def test_hostile_contents_stay_off_the_terminal(target: str, payload: Any) -> None:
    result = run("convert", "-", "--to", target, stdin=json.dumps(payload))
    assert result.stderr
    assert unsafe(result.stderr) == []
    assert all(line.startswith(("lost: ", "left out: ", "note: ", "citewire: ")) for line in lines(result))


SCRIPT = Path(sys.executable).with_name("citewire")


def test_as_a_program() -> None:
    done = subprocess.run(
        [SCRIPT, "convert", "-", "--to", "ngaf", "--strict"],
        input=REFUNDS.encode(),
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["state"]["citations"]
    assert done.stderr.startswith(b"lost: ")


@pytest.mark.parametrize(
    "name", [HOSTILE.replace("\0", "").encode(), b"\xff\xfeevil"], ids=["controls", "no UTF-8"]
)
def test_as_a_program_with_a_hostile_file(name: bytes, tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "convert", name, "--to", "ngaf"], cwd=tmp_path, capture_output=True, timeout=50, check=False
    )
    line = done.stderr.decode("utf-8")
    assert (done.returncode, done.stdout) == (2, b"")
    assert line.startswith("citewire: ")
    assert line.endswith("evil: No such file or directory\n")
    assert unsafe(line) == []
    assert line.count("\n") == 1


EVENTS: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m1"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Thirty days.[^policy]"},
    {"type": "REASONING_MESSAGE_START", "messageId": "m1", "role": "reasoning", "timestamp": 1000},
    {"type": "REASONING_MESSAGE_END", "messageId": "m1", "timestamp": 1250},
    {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
    {"type": "TOOL_CALL_START", "toolCallId": "t1", "toolCallName": "look"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "t1", "delta": '{"a":1}'},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "t1", "delta": " "},
    {"type": "TOOL_CALL_END", "toolCallId": "t1"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"citations": {"m1": ["https://example.com/refunds"]}}},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]
LINES = "\n".join(map(json.dumps, EVENTS))


@pytest.mark.parametrize(
    "log",
    [LINES, json.dumps(EVENTS), "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in EVENTS)],
    ids=["lines", "list", "frames"],
)
def test_reduce_shows_the_contract(log: str) -> None:
    result = run("reduce", "-", "--check", stdin=log)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = json.loads(result.stdout)
    assert list(shown) == [
        "status",
        "isLoading",
        "error",
        "messages",
        "toolCalls",
        "state",
        "interrupts",
        "subagents",
        "events",
        "problems",
    ]
    message = shown["messages"][0]
    assert message["citations"] == [{"id": "c1", "index": 1, "url": "https://example.com/refunds"}]
    assert message["reasoningDurationMs"] == 250
    assert shown["toolCalls"][0]["args"] == {"a": 1}


def test_reduce_shows_what_the_client_holds_at_a_number() -> None:
    shown = json.loads(run("reduce", "-", "--view", "agui", "--at", "2", stdin=LINES).stdout)
    assert shown["messages"] == [{"id": "m1", "role": "assistant", "content": ""}]
    assert shown["outcome"] == "completed"


def test_reduce_takes_each_fragment_for_the_whole_when_asked_to() -> None:
    shown = json.loads(run("reduce", "-", "--seed-args", stdin=LINES).stdout)
    assert shown["toolCalls"][0]["args"] == {}


def test_reduce_shows_what_came_before_a_frame_without_end() -> None:
    frames = "".join(f"data: {json.dumps(event)}\n\n" for event in EVENTS[:4])
    result = run("reduce", "-", stdin=frames + "data: " + "x" * (11 << 20))
    assert result.exit_code == 2
    assert "frame_too_large" in result.stderr
    shown = json.loads(result.stdout)
    assert shown["messages"][0]["content"] == "Thirty days.[^policy]"
    assert (shown["status"], shown["problems"][0]["code"]) == ("error", "frame_too_large")


def test_reduce_writes_half_of_a_character_as_an_escape() -> None:
    result = run("reduce", "-", stdin='{"type":"STATE_SNAPSHOT","snapshot":{"a":"\\ud83d"}}')
    assert result.exit_code == 0
    assert '"a": "\\ud83d"' in result.stdout


def test_reduce_does_not_wait_for_what_it_does_not_need() -> None:
    command = [SCRIPT, "reduce", "-", "--at", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{LINES}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.read())["status"] == "running"


@pytest.mark.parametrize(
    ("log", "code", "remark"),
    [
        pytest.param(LINES.replace("TEXT_MESSAGE_END", "CUSTOM"), 1, "rejected: CUSTOM", id="a wrong field"),
        pytest.param(f'{LINES}\n{{"type": "RAW", "event": 1}}', 1, "rejected: RAW", id="after the end"),
        pytest.param(f'{LINES}\n{{"ty', 1, "rejected: Input data was truncated", id="a line that is cut"),
        pytest.param("<html>", 2, "neither JSON nor server-sent events", id="a page"),
        pytest.param(f"[{', '.join(map(json.dumps, EVENTS))}, {{", 1, "rejected: ", id="a list that is cut"),
    ],
)
def test_reduce_says_why_a_stream_is_rejected(log: str, code: int, remark: str) -> None:
    result = run("reduce", "-", "--check", stdin=log)
    assert result.exit_code == code
    assert remark in result.stderr
    if code == 1:
        assert json.loads(result.stdout)["messages"][0]["content"] == "Thirty days.[^policy]"
        assert run("reduce", "-", stdin=log).exit_code == 0


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "fees.txt").write_text("The fee is 40 dollars.\n", "utf-8")
    (folder / "guests.md").write_text("# Guests\n\nGuests pay 60 dollars, not 50.\n", "utf-8")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    return folder


def test_check_answers_each_line_in_order(sources: Path) -> None:
    asked = [
        {"id": 1, "quote": "The fee is 40 dollars"},
        {"id": "b", "quote": "The fee is 41 dollars", "source": "fees.txt"},
        {"id": "c", "quote": "Guests pay 60 dollars", "source": "guests.md", "page": 1},
        {"id": "d", "quote": "Nobody knows the trouble I have seen"},
        {"quote": 5},
    ]
    lines = "\n".join(map(json.dumps, asked)) + "\n{]\n"
    result = run("check", "-", "--sources", str(sources), stdin=lines)
    assert result.exit_code == 0
    assert "broken.pdf" in result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    statuses = ["verified", "altered", "verified", "missed", "skipped", "skipped"]
    assert [answer["status"] for answer in answers] == statuses
    assert [answer["id"] for answer in answers] == ["1", "b", "c", "d", None, None]
    assert answers[1]["diff"][0]["source"] == "40 dollars"
    assert answers[2]["warnings"] == ["it goes on with 'not'"]


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        pytest.param({"page": 1, "line": 3}, "verified", [], id="right"),
        pytest.param({"page": None, "line": None, "prefix": None}, "verified", [], id="null"),
        pytest.param({"line": 30}, "verified", ["on line 3, not 30"], id="another line"),
        pytest.param({"page": 9, "line": 30}, "verified", ["on page 1, not 9"], id="another page"),
        pytest.param({"line": "3"}, "skipped", "Expected `int | null`, got `str` - at `$.line`", id="text"),
        pytest.param({"line": 0}, "skipped", "Expected `int` >= 1 - at `$.line`", id="no line"),
        pytest.param({"page": True}, "skipped", "got `bool` - at `$.page`", id="no page"),
        pytest.param({"suffix": 5}, "skipped", "got `int` - at `$.suffix`", id="no text"),
        pytest.param({"source": 5}, "skipped", "got `int` - at `$.source`", id="no source"),
    ],
)
def test_check_compares_where_a_quote_is_said_to_be(
    tmp_path: Path, more: dict[str, Any], status: str, said: list[str] | str
) -> None:
    (tmp_path / "long.txt").write_text("One.\nTwo.\nThe fee is 40 dollars.\n", "utf-8")
    question = json.dumps({"id": 7, "quote": "The fee is 40 dollars", **more})
    answer = json.loads(run("check", "-", "--sources", str(tmp_path / "long.txt"), stdin=question).stdout)
    assert (answer["id"], answer["status"]) == ("7", status)
    assert said in answer["reason"] if isinstance(said, str) else said == answer["warnings"]


def test_check_knows_a_place_by_what_stands_around_it(tmp_path: Path) -> None:
    text = "Members first. The fee is 40 dollars. Guests next. The fee is 40 dollars. Nobody last."
    (tmp_path / "fees.txt").write_text(text, "utf-8")
    asked = [{"prefix": "Guests next. "}, {"suffix": " Nobody last."}, {"suffix": " Guests"}]
    stdin = "\n".join(json.dumps({"quote": "The fee is 40 dollars.", **each}) for each in asked)
    answers = run("check", "-", "--sources", str(tmp_path / "fees.txt"), stdin=stdin).stdout.splitlines()
    assert [json.loads(answer)["start"] for answer in answers] == [51, 51, 15]
    assert {tuple(json.loads(answer)["warnings"]) for answer in answers} == {("in 2 places",)}


def test_check_answers_before_it_is_asked_again(sources: Path) -> None:
    """And leaves no process behind when it is interrupted while it waits."""
    command = [SCRIPT, "check", "-", "--sources", str(sources / "fees.txt")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin
        assert child.stdout
        for n in range(3):
            child.stdin.write(json.dumps({"id": n, "quote": "The fee is 40 dollars"}).encode() + b"\n")
            child.stdin.flush()
            answer = json.loads(child.stdout.readline())
            assert (answer["id"], answer["status"], answer["source"]) == (str(n), "verified", "fees.txt")
        child.send_signal(signal.SIGINT)
        # Whoever is left would keep it open.
        assert child.stdout.read() == b""
        assert child.wait(50) == 130


def test_a_source_that_cannot_be_read_costs_only_itself(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    bad = [str(tmp_path / "empty"), str(tmp_path / "nowhere.txt"), "ftp://a.test/x", "http://127.0.0.1/x"]
    line = json.dumps({"id": "c", "quote": "Guests pay 60 dollars"})
    result = run("check", "-", "--sources", *bad, str(sources), stdin=line)
    assert json.loads(result.stdout)["status"] == "verified"
    told = sorted(lines(result))
    assert len(told) == 5
    assert [line.split(": ")[1] for line in told] == [
        "broken.pdf",
        "empty",
        "ftp://a.test/x",
        "http://127.0.0.1/x",
        "nowhere.txt",
    ]


def test_check_takes_several_sources(sources: Path) -> None:
    paths = [str(sources / name) for name in ("fees.txt", "guests.md")]
    line = json.dumps({"id": "c", "quote": "Guests pay 60 dollars"})
    assert json.loads(run("check", "-", "--sources", *paths, stdin=line).stdout)["status"] == "verified"


@pytest.mark.parametrize(
    ("arguments", "remark"),
    [
        pytest.param(["check", "-"], "name a source", id="no sources"),
        pytest.param(
            ["check", "-", "--sources", "nowhere.pdf"], "none of the sources can be read", id="none read"
        ),
    ],
)
def test_check_needs_a_source(arguments: list[str], remark: str) -> None:
    result = run(*arguments, stdin="{}")
    assert result.exit_code == 2
    assert remark in result.stderr


def test_verify_reports_each_citation(sources: Path, tmp_path: Path) -> None:
    entries = [
        {"id": "a", "title": "fees.txt", "snippet": "The fee is 40 dollars"},
        {"id": "b", "title": "fees.txt", "snippet": "The fee is 41 dollars"},
    ]
    text = "The fee is 40.[^a] Or is it 41.[^b] Who can tell anyway."
    thread = {
        "messages": [{"id": "m1", "role": "assistant", "content": text}],
        "state": {"citations": {"m1": entries}},
    }
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps(thread), "utf-8")
    result = run("verify", str(answer), "--sources", str(sources / "fees.txt"))
    assert result.exit_code == 0
    assert "✓ verified a  fees.txt p. 1" in result.stdout
    assert "≠ altered  b  fees.txt p. 1" in result.stdout
    assert "number: 41 dollars for 40 dollars" in result.stdout
    assert "1 sentences without a citation:\n    Who can tell anyway." in result.stdout
    assert "1 altered, 1 verified" in result.stdout
    failing = run(
        "verify", str(answer), "--sources", str(sources), "--format", "json", "--fail-on", "altered,missed"
    )
    assert failing.exit_code == 1
    assert json.loads(failing.stdout)["counts"] == {"altered": 1, "verified": 1}
    assert run("verify", str(answer), "--sources", str(sources), "--fail-on", "missed").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "remark"),
    [
        pytest.param(["verify", "-"], "name a source", id="no sources"),
        pytest.param(
            ["verify", "-", "--sources", "x", "--fail-on", "wrong"], "no status is called wrong", id="status"
        ),
    ],
)
def test_verify_says_what_is_wrong_with_its_arguments(arguments: list[str], remark: str) -> None:
    result = run(*arguments, stdin="{}")
    assert result.exit_code == 2
    assert remark in result.stderr
