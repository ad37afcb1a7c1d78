"""Makes the sample documents that are not written by hand: a PDF and a DOCX, from the texts beside this file.

Run by `make samples`. With the same Chromium and the Liberation fonts the same bytes come out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
TARGET = HERE.parent / "src/citewire/samples"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# When the report says that it was signed; as long as the date that it replaces.
DATE = b"D:20260312090000+00'00'"

TYPES = """<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">\
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>\
<Override PartName="/word/document.xml" ContentType=\
"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>\
<Override PartName="/word/styles.xml" ContentType=\
"application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml"/></Types>"""
RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">\
<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}" \
Target="{target}"/></Relationships>"""
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STYLES = f"""<w:styles {WORD}><w:docDefaults><w:rPrDefault><w:rPr>\
<w:rFonts w:ascii="Georgia" w:hAnsi="Georgia"/><w:sz w:val="22"/></w:rPr></w:rPrDefault>\
<w:pPrDefault><w:pPr><w:spacing w:after="140" w:line="300"/></w:pPr></w:pPrDefault>\
</w:docDefaults><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/>\
<w:pPr><w:keepNext/><w:spacing w:before="280"/><w:outlineLvl w:val="0"/></w:pPr>\
<w:rPr><w:b/><w:color w:val="1F4A3D"/><w:sz w:val="28"/></w:rPr></w:style></w:styles>"""
LINES = "".join(f'<w:{side} w:val="single" w:sz="4"/>' for side in ("top", "bottom", "insideH"))


def main() -> None:
    """Write both."""
    (TARGET / "report.pdf").write_bytes(make_pdf(HERE / "report.html"))
    text = (HERE / "warranty.txt").read_text("utf-8")
    with zipfile.ZipFile(TARGET / "warranty.docx", "w", zipfile.ZIP_DEFLATED) as package:
        for name, xml in docx_parts(text).items():
            # Without a date of its own an entry would have today's.
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(entry, f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>{xml}')


def make_pdf(page: Path) -> bytes:
    """The page as Chromium prints it, dated like the report."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("no Chromium: install the package chromium")
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder, "report.pdf")
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer")
        command = [
            browser,
            *options,
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={printed}",
            page.as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603  # all of it is ours
        return re.sub(rb"D:\d{14}\+00'00'", DATE, printed.read_bytes())


def docx_parts(text: str) -> dict[str, str]:
    """The parts of a Word file with `# headings`, paragraphs and `| tables |`."""
    blocks = [line for line in text.splitlines() if line]
    body = "".join(
        table(rows) if is_table else "".join(map(paragraph, rows))
        for is_table, rows in groupby(blocks, lambda line: line.startswith("|"))
    )
    return {
        "[Content_Types].xml": TYPES,
        "_rels/.rels": RELATIONS.format(kind="officeDocument", target="word/document.xml"),
        "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
        "word/_rels/document.xml.rels": RELATIONS.format(kind="styles", target="styles.xml"),
        "word/styles.xml": STYLES,
    }


def paragraph(line: str) -> str:
    """A line as a paragraph, or as a heading where it starts with `# `."""
    words = line.removeprefix("# ")
    style = '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>' if words != line else ""
    return f"<w:p>{style}<w:r><w:t>{escape(words)}</w:t></w:r></w:p>"


def table(rows: Iterable[str]) -> str:
    """Lines of `| one | two |` as a table."""
    cells = [
        "".join(f"<w:tc>{paragraph(cell.strip())}</w:tc>" for cell in row.strip("|").split("|"))
        for row in rows
    ]
    drawn = "".join(f"<w:tr>{row}</w:tr>" for row in cells)
    width = '<w:tblW w:w="5000" w:type="pct"/>'
    return f"<w:tbl><w:tblPr>{width}<w:tblBorders>{LINES}</w:tblBorders></w:tblPr>{drawn}</w:tbl>"


if __name__ == "__main__":
    main()
