"""Names in the package: one meaning each, and nouns for classes."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.cases import ROOT

PACKAGE = ROOT / "src/citewire"

# Words that are no noun by themselves, beyond those that their ending gives away.
NO_NOUNS = frozenset(
    {
        *(
            "Along",
            "Aside",
            "At",
            "Begun",
            "Beside",
            "Beyond",
            "Drawn",
            "Elsewhere",
            "Found",
            "Given",
            "Gone",
        ),
        *("Held", "Kept", "Known", "Late", "Left", "Live", "Made", "Near", "Over", "Past", "Said", "Seen"),
        *("Shown", "Told", "Was", "Which", "Who", "Written"),
    }
)
ENDINGS = re.compile(r"(?:ed|ing|ly)$")
# Why a class may be called by such a word all the same.
EXCEPTIONS = {
    "Aside": "a noun: text that stands beside the running text",
    "Feed": "a noun",
    "Finding": "a noun",
    "Keyring": "a noun",
    "_Tally": "a noun",
    "Citing": "public: `citewire.agui.Citing` puts citewire on an agent",
    "Written": "public: `citewire.Written` is what `citewire.write` gives",
}


def classes() -> Iterator[tuple[str, Path]]:
    """The classes at the top of each module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield node.name, path.relative_to(PACKAGE)


def test_no_public_class_name_stands_in_two_modules() -> None:
    places = defaultdict[str, list[Path]](list)
    for name, path in classes():
        if not name.startswith("_"):
            places[name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def is_no_noun(name: str) -> bool:
    """Whether a name is one word, and that a participle, an adverb or a preposition."""
    words = re.findall(r"[A-Z][a-z]*", name)
    return len(words) == 1 and (words[0] in NO_NOUNS or bool(ENDINGS.search(words[0])))


def test_classes_are_named_by_nouns() -> None:
    found = {name: str(path) for name, path in classes() if is_no_noun(name) and name not in EXCEPTIONS}
    assert found == {}


def test_every_exception_is_needed() -> None:
    assert EXCEPTIONS.keys() <= {name for name, _ in classes() if is_no_noun(name)}
