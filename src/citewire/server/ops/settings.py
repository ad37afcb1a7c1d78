"""All settings of the server, declared once: the command line, its help and the docs are generated from here.

A value comes from the command line, else from the environment (`CITEWIRE_PORT`), else from a TOML file (`port
= 8787`), else it is the default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, fields

from citewire.channels.rules import Duration, Rule, is_pattern
from citewire.errors import CitewireError
from citewire.redaction import redact
from citewire.server.ops.proxies import is_network

__all__ = ["Option", "PatternRule", "SettingError", "Settings", "options", "read_toml", "unknown_names"]

_PREFIX = "CITEWIRE_"
# Names with our prefix that are read elsewhere or by the tests.
_OTHERS = frozenset(
    {"CITEWIRE_AUDIT_KEY", "CITEWIRE_CASES", "CITEWIRE_OCR_LANGUAGES", "CITEWIRE_REQUIRE", "CITEWIRE_SECRET"}
)

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Texts: TypeAlias = tuple[str, ...]
# The upper bounds exclude values that no clock or allocator could handle.
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=366 * 86400, extra={"kind": "SECONDS"})]
_Bytes: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 40, extra={"kind": "BYTES"})]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000, extra={"kind": "NUMBER"})]


class SettingError(CitewireError):
    """A setting that cannot be used. The message names the setting and its origin, never its value."""

    code = "bad_setting"


class PatternRule(Struct, frozen=True):
    """A rule, and the channel or pattern it applies to."""

    pattern: str
    rule: Rule


class Settings(Struct, frozen=True, kw_only=True):
    """The server's settings. `Settings.load` validates user input; values passed in code are not checked."""

    agent: Annotated[
        str | None,
        Meta(
            description="The agent that answers: the URL of an AG-UI agent, or module:object of this Python. "
            "Without it the librarian answers from the sources.",
            extra={"kind": "URL|MODULE:OBJECT"},
        ),
    ] = None
    agent_headers: Annotated[
        _Texts,
        Meta(
            description="A header `Name: value` that the agent at a URL is sent. May be repeated. "
            "What is secret belongs into the environment or the file: others see a command line.",
            extra={"kind": "HEADER", "flag": "--agent-header"},
        ),
    ] = ()
    model: Annotated[
        _Text | None,
        Meta(
            description="A model such as `anthropic:claude-sonnet-4-5` that writes the librarian's answers; "
            "needs the extra `llm` and the provider's key.",
            extra={"kind": "PROVIDER:MODEL"},
        ),
    ] = None
    agent_name: Annotated[
        _Text | None,
        Meta(
            description="The client id of the agent in the channels `ai:<thread>`; by default `librarian`, "
            "or `agent` for one of your own.",
            extra={"kind": "NAME"},
        ),
    ] = None
    verifier: Annotated[
        str | None,
        Meta(
            description="Who checks quotes in the place of this server, and against their own sources: the "
            "URL of another citewire, or of a server with DeepCitation's API.",
            extra={"kind": "URL"},
        ),
    ] = None
    verifier_key: Annotated[
        _Text | None,
        Meta(
            description="The API key for the verifier. It belongs into the environment or the file: others "
            "see a command line.",
            extra={"kind": "KEY"},
        ),
    ] = None
    verify_jobs: Annotated[
        bool,
        Meta(
            description="Leave the checking of quotes to workers (`citewire worker`) that have the same "
            "Postgres database."
        ),
    ] = False
    sources: Annotated[
        _Texts, Meta(description="Files, folders and URLs to look in.", extra={"kind": "PATH…"})
    ] = ()
    watch: Annotated[bool, Meta(description="Follow what changes in the folders among the sources.")] = True
    data: Annotated[
        _Text,
        Meta(
            description="The folder in which everything is kept; with a Postgres database, only copies.",
            extra={"kind": "DIR"},
        ),
    ] = ".citewire"
    store: Annotated[
        _Text | None,
        Meta(
            description="Where the log is: a folder, as a path or as `sqlite:PATH`, by default the data "
            "folder; or a Postgres database that several servers share, as `postgresql://USER@HOST/NAME` "
            "(needs the extra `postgres`). A password belongs into the environment or the file.",
            extra={"kind": "PATH|DSN"},
        ),
    ] = None
    host: Annotated[
        _Text,
        Meta(
            description="The address to listen on. Other addresses than loopback need keys.",
            extra={"kind": "ADDRESS"},
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(description="The port; 0 takes a free one.", ge=0, le=65535, extra={"kind": "NUMBER"})
    ] = 8787
    public_url: Annotated[
        str | None,
        Meta(
            description="The address by which others reach the server, for links in answers.",
            extra={"kind": "URL"},
        ),
    ] = None
    origins: Annotated[
        _Texts,
        Meta(
            description="A web origin, such as https://app.example.com, whose pages may call the server with "
            "a key or a token; `*` is every origin. May be repeated.",
            extra={"kind": "ORIGIN", "flag": "--origin"},
        ),
    ] = ()
    link_lifetime: Annotated[_Seconds, Meta(description="How long a signed link to a proof works.")] = 86400.0
    trusted_proxies: Annotated[
        _Texts,
        Meta(
            description="The address or network of a proxy whose `X-Forwarded-For` and `X-Forwarded-Proto` "
            "count; those of all others are ignored. May be repeated.",
            extra={"kind": "ADDRESS"},
        ),
    ] = ()
    open_browser: Annotated[
        bool, Meta(description="Open the page in a browser at the start, where a terminal and a display are.")
    ] = True
    session_lifetime: Annotated[
        _Seconds, Meta(description="How long a browser stays signed in; never longer than its token holds.")
    ] = 43200.0
    linger: Annotated[_Seconds, Meta(description="How long a run goes on that nobody watches any more.")] = (
        60.0
    )
    run_timeout: Annotated[
        _Seconds, Meta(description="How long a run may take in all; it ends with the code `timed_out`.")
    ] = 3600.0
    deadline: Annotated[
        _Seconds, Meta(description="How long the end of an answer waits for its verdicts.")
    ] = 30.0
    resume_runs: Annotated[
        Literal["librarian", "always", "never"],
        Meta(description="Whose runs are asked again when a restart cut them off."),
    ] = "librarian"
    rules: Annotated[
        tuple[PatternRule, ...],
        Meta(
            description="What is so in a channel, a namespace as `support:*`, or all as `*`: `mutable`, "
            "`retention=30d`, or both with a comma between. May be repeated.",
            extra={"kind": "PATTERN=RULE", "flag": "--rule"},
        ),
    ] = ()
    keep_threads: Annotated[
        Duration | None,
        Meta(
            description="How long a thread is kept in which nothing happens any more, in minutes, hours or "
            "days: `90d`; by default for ever.",
            extra={"kind": "DURATION"},
        ),
    ] = None
    audit_interval: Annotated[
        _Seconds,
        Meta(description="How often a signed head is written, if anything has changed."),
    ] = 3600.0
    audit_heads: Annotated[
        _Text | None,
        Meta(
            description="A file to which every signed head is appended.",
            extra={"kind": "FILE"},
        ),
    ] = None
    audit_key_file: Annotated[
        _Text | None,
        Meta(
            description="The key that signs heads and exports, unless `CITEWIRE_AUDIT_KEY` has it; by "
            "default one is made in the data folder.",
            extra={"kind": "FILE"},
        ),
    ] = None
    sandbox: Annotated[
        bool,
        Meta(
            description="Let anybody make apps with keys of their own (`POST /apps`), as the test suites of "
            "Ably's clients do. Never where others can reach the server."
        ),
    ] = False
    workers: Annotated[
        _Count | None, Meta(description="Processes that look quotes up; by default one per core, up to 8.")
    ] = None
    readers: Annotated[
        _Count | None, Meta(description="Sources that are read at once; by default one per core.")
    ] = None
    reader_memory: Annotated[
        Annotated[int, Meta(ge=2 << 30, le=1 << 40, extra={"kind": "BYTES"})] | None,
        Meta(
            description="Memory that all processes which read sources may take together, tesseract among "
            "them; by default half of the machine's or container's, between 2 and 16 GiB."
        ),
    ] = None
    max_client_unread: Annotated[
        _Count, Meta(description="Sources of one key, or of one address without a key, that wait to be read.")
    ] = 1000
    worker_memory: Annotated[
        _Bytes, Meta(description="Memory that one process which looks quotes up may take.")
    ] = 4 << 30
    max_runs: Annotated[_Count, Meta(description="Runs at a time.")] = 1000
    max_connections: Annotated[_Count, Meta(description="Open connections at a time.")] = 2000
    max_requests: Annotated[_Count, Meta(description="Requests at a time, open streams among them.")] = 1500
    max_client_requests: Annotated[
        _Count, Meta(description="Requests at a time of one key, or of one address without a key.")
    ] = 1000
    rate: Annotated[
        float,
        Meta(
            description="Requests per second of one key, or of one address without a key.",
            gt=0,
            le=1_000_000,
            extra={"kind": "NUMBER"},
        ),
    ] = 100.0
    burst: Annotated[_Count, Meta(description="Requests that may come at once before the rate counts.")] = (
        1000
    )
    publish_rate: Annotated[
        _Count, Meta(description="Messages and annotations per second of one realtime connection.")
    ] = 10_000
    key_publish_rate: Annotated[
        _Count, Meta(description="The same of all who publish with one key, over REST too.")
    ] = 20_000
    max_body: Annotated[_Bytes, Meta(description="Largest body of a request.")] = 16 << 20
    max_upload: Annotated[_Bytes, Meta(description="Largest source that may be uploaded.")] = 100 << 20
    max_headers: Annotated[_Count, Meta(description="Headers of a request.")] = 100
    max_header_bytes: Annotated[_Bytes, Meta(description="All headers of a request together.")] = 32 << 10
    max_url: Annotated[_Bytes, Meta(description="Longest path and query of a request.")] = 8 << 10
    header_timeout: Annotated[
        _Seconds, Meta(description="How long a connection may take to send the head of a request.")
    ] = 10.0
    body_timeout: Annotated[
        _Seconds, Meta(description="How long a body may take to come; a large one has longer, at 16 KiB/s.")
    ] = 30.0
    write_timeout: Annotated[
        _Seconds, Meta(description="How long a client may read nothing of what it is sent.")
    ] = 30.0
    shutdown_timeout: Annotated[
        _Seconds, Meta(description="How long open streams have to end when the server is stopped.")
    ] = 10.0
    min_free_disk: Annotated[
        _Bytes, Meta(description="Free bytes on the disk of the data folder below which `/readyz` is 503.")
    ] = 64 << 20
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least that is logged.")
    ] = "info"
    log_format: Annotated[Literal["text", "json"], Meta(description="How a line of the log is written.")] = (
        "text"
    )

    @classmethod
    def load(cls, flags: Mapping[str, Any], environ: Mapping[str, str], toml: Mapping[str, Any]) -> Settings:
        """Combine command line, environment and file into settings.

        `flags` are keyed by field name. A flag of None and an empty environment variable count as not set.
        Raises `SettingError`.
        """
        if unknown := sorted(set(toml) - set(cls.__struct_fields__)):
            raise SettingError(f"the file has a setting that does not exist: {unknown[0]}")
        given: dict[str, Any] = {}
        for option in options():
            if (flag := flags.get(option.name)) is not None:
                given[option.name] = option.convert(flag, option.flag, strict=False)
            elif text := environ.get(option.env):
                value = _split(text) if option.many else text
                given[option.name] = option.convert(value, option.env, strict=False)
            elif option.name in toml:
                given[option.name] = option.convert(toml[option.name], f"{option.name} in the file")
        return cls(**given)

    @property
    def dsn(self) -> str | None:
        """The address of the shared Postgres database, or None if the log is in a folder."""
        return self.store if self.store and _POSTGRES.match(self.store) else None

    @property
    def store_folder(self) -> Path:
        """The folder of the log, if it is in a folder."""
        return Path(self.data if self.store is None else self.store.removeprefix("sqlite:"))

    def __repr__(self) -> str:
        """Show only settings that differ from the defaults, without secrets."""
        defaults = asdict(Settings())
        shown = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        for name in ("agent_headers", "verifier_key", *(["store"] if self.dsn else [])):
            if name in shown:
                shown[name] = "…"
        return f"Settings({', '.join(f'{name}={redact(repr(value))}' for name, value in shown.items())})"


class Option(Struct, frozen=True):
    """One setting, as shown on the command line and in the docs."""

    name: str
    flag: str
    env: str
    kind: str
    type: Any
    default: Any
    help: str

    @property
    def many(self) -> bool:
        """Whether it accepts a list."""
        return isinstance(self.default, tuple)

    @property
    def shown_default(self) -> str:
        """The default as readable text, or empty if there is none."""
        match self.default:
            case None | ():
                return ""
            case bool():
                return str(self.default).lower()
            case float():
                return f"{self.default:g}"
            case _:
                return str(self.default)

    def convert(self, value: Any, where: str, *, strict: bool = True) -> Any:
        """Convert and validate a value. Raises `SettingError`."""
        try:
            value = _listed(value) if self.name == "rules" else value
            converted = msgspec.convert(value, self.type, strict=strict)
        except msgspec.ValidationError as exc:
            raise SettingError(f"{where}: {_said(str(exc), self.kind)}") from exc
        if problem := _problem(self.name, converted):
            raise SettingError(f"{where}: {problem}")
        return converted


def _make_options() -> tuple[Option, ...]:
    hints = get_type_hints(Settings, include_extras=True)
    return tuple(_option(each.name, hints[each.name], each.default) for each in fields(Settings))


def options() -> tuple[Option, ...]:
    """Return all settings, in the order they are displayed."""
    return _OPTIONS


def _option(name: str, hint: Any, default: Any) -> Option:
    metas = _metas(hint)
    extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
    description = next(meta.description for meta in metas if meta.description)
    flag = extra.get("flag", f"--{name.replace('_', '-')}")
    plain = get_args(hint)[0]
    kind = "|".join(get_args(plain)) if get_origin(plain) is Literal else extra.get("kind", "true|false")
    return Option(name, flag, _PREFIX + name.upper(), kind, hint, default, description)


def _metas(hint: Any) -> list[Meta]:
    """Return the metadata of a type, including that of its optional inner type."""
    metas = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Meta)]
    inner = [each for each in get_args(hint) if each is not NoneType and not isinstance(each, Meta)]
    return metas + [meta for each in inner for meta in _metas(each)]


def _split(text: str) -> Any:
    """Parse a list in the environment: JSON, or values separated by commas."""
    if not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _listed(value: Any) -> Any:
    """Return rules as a list, from texts `PATTERN=RULE` or from the tables of a file."""
    if isinstance(value, dict):
        return [{"pattern": name, "rule": rule} for name, rule in cast("dict[str, Any]", value).items()]
    listed = [_ruled(each) for each in msgspec.convert(value, list[str])]
    if len({each["pattern"] for each in listed}) < len(listed):
        raise msgspec.ValidationError("Two rules for one pattern")
    return listed


def _ruled(text: str) -> dict[str, Any]:
    """Parse `support:*=mutable,retention=30d` into a table."""
    pattern, given, rule = text.partition("=")
    fields = [field.strip().partition("=") for field in rule.split(",")]
    table = {name: value if equals else True for name, equals, value in fields}
    return {"pattern": pattern, "rule": table if given else None}


def _said(message: str, kind: str) -> str:
    """Rewrite a validation message for people."""
    if message.startswith("Invalid enum"):
        return f"one of {kind.replace('|', ', ')}"
    if "matching regex" in message:
        return "expected a time such as `90m`, `36h` or `30d`"
    return message[:1].lower() + message[1:]


_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_OBJECT = re.compile(f"{_NAME}:{_NAME}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t ]*[!-~]([\t -~]*[!-~])?[\t ]*")
_ORIGIN = re.compile(r"https?://[^/?#@A-Z]+")
_DSN = re.compile(r"[a-z][a-z0-9+]+:", re.IGNORECASE)
_POSTGRES = re.compile(r"postgres(ql)?://")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return is_http and text.isprintable() and " " not in text
    except ValueError:
        return False


def _is_agent(text: str) -> bool:
    return _is_url(text) or bool(_OBJECT.fullmatch(text))


def _is_client(text: str) -> bool:
    return text.isprintable() and len(text.encode()) <= 256 and text not in ("*", "citewire")


def _is_base(text: str) -> bool:
    return _is_url(text) and not {"?", "#"} & set(text)


def _is_origin(text: str) -> bool:
    return text == "*" or (_is_url(text) and bool(_ORIGIN.fullmatch(text)))


def _is_key(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _is_store(text: str) -> bool:
    if _POSTGRES.match(text):
        return _is_database(text)
    return bool(text.removeprefix("sqlite:")) and not _DSN.match(text.removeprefix("sqlite:"))


def _is_database(text: str) -> bool:
    """Whether it is a valid address. Checked here because drivers may quote the password in their errors."""
    try:
        parts = urlsplit(text)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        ports = [urlsplit(f"//{host}").port for host in hosts]
    except ValueError:
        return False
    # A slash, @ or # in a password must be written as %2F, %40, %23.
    is_whole = "@" not in parts.path and not parts.fragment
    return is_whole and text.isprintable() and " " not in text and 0 not in ports


_CHECKS: dict[str, tuple[Callable[[Any], object], str]] = {
    "agent": (_is_agent, "expected the URL of an agent, or module:object"),
    "agent_headers": (_HEADER.fullmatch, "expected a header `Name: value`"),
    "agent_name": (_is_client, "expected a client id of up to 256 bytes, and neither * nor citewire"),
    "public_url": (_is_base, "expected an http or https URL without query and fragment"),
    "origins": (_is_origin, "expected a web origin such as https://app.example.com"),
    "rules": (lambda rule: is_pattern(rule.pattern), "expected a channel, a namespace as `ai:*`, or `*`"),
    "verifier": (_is_base, "expected an http or https URL without query and fragment"),
    "verifier_key": (_is_key, "expected an API key"),
    "trusted_proxies": (is_network, "expected an address, or a network such as 10.0.0.0/8"),
    "store": (_is_store, "expected a path, sqlite:PATH or postgresql://USER@HOST/NAME"),
}


def _problem(name: str, value: Any) -> str:
    """Return what is wrong with a value beyond its type, or an empty string."""
    check, expected = _CHECKS.get(name, (bool, ""))
    if isinstance(value, tuple):
        wrong = [n for n, each in enumerate(cast("tuple[Any, ...]", value), 1) if not check(each)]
        return f"number {wrong[0]}: {expected}" if wrong and expected else ""
    return expected if value is not None and not check(value) else ""


_OPTIONS = _make_options()


def read_toml(path: Path) -> dict[str, Any]:
    """Read the settings in a file. Raises `SettingError`."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise SettingError(f"{path}: {exc.strerror or exc}") from exc
    except ValueError as exc:
        # The parser's message contains no value; that of a bad byte does.
        shown = str(exc) if isinstance(exc, tomllib.TOMLDecodeError) else "not UTF-8"
        raise SettingError(f"{path}: not a TOML file: {shown}") from exc


def unknown_names(environ: Mapping[str, str]) -> list[str]:
    """Return variables with our prefix that are not settings, and are probably misspelt."""
    known = {option.env for option in options()} | _OTHERS
    return sorted(name for name in environ if name.startswith(_PREFIX) and name not in known)
