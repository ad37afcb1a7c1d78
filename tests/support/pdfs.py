"""Small PDFs, made where they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 595, 842

# Glyphs without a name that says which character they are. `/ToUnicode` may say it instead.
_TYPE3 = (
    b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1000 1000] /FontMatrix [.001 0 0 .001 0 0] "
    b"/CharProcs << /g1 %(glyph)d 0 R /g2 %(glyph)d 0 R >> "
    b"/Encoding << /Type /Encoding /Differences [1 /g1 /g2] >> "
    b"/FirstChar 1 /LastChar 2 /Widths [600 600] /Resources << >> %(map)s >>"
)
_GLYPH = b"600 0 0 0 600 700 d1 0 0 500 700 re f"
_CMAP = (
    b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def "
    b"1 begincodespacerange <00> <FF> endcodespacerange %d beginbfchar %s endbfchar endcmap end end"
)
_FIELD = (
    b"<< /Type /Annot /Subtype /Widget /FT /Tx /F 4 /T (field) /V (%s) /Rect [100 300 300 320] "
    b"/AP << /N %d 0 R >> >>"
)


@dataclass(frozen=True)
class Line:
    """Text with its baseline at (x, y), from the bottom left; `turn` is the text matrix: 0 1 -1 0 goes up.

    Bytes are shown in a font whose glyphs 1 and 2 have no names. `paint` are operators that say how.
    """

    text: str | bytes
    x: float = 72
    y: float = 700
    size: float = 12
    turn: str = "1 0 0 1"
    paint: str = ""

    def operators(self) -> bytes:
        font, shown = ("T", self.text) if isinstance(self.text, bytes) else ("F", self.text.encode("cp1252"))
        place = f"/{font} {self.size} Tf {self.turn} {self.x} {self.y} Tm <{shown.hex()}> Tj"
        return f"q BT {self.paint} {place} ET Q\n".encode()


@dataclass(frozen=True)
class Sheet:
    """A page. `crop` is left, bottom, right, top; `field` is what a text field on it shows.

    `under` are operators that paint before the lines.
    """

    lines: Sequence[Line] = ()
    rotate: int = 0
    crop: tuple[float, float, float, float] | None = None
    image: bool = False
    field: str = ""
    broken: bool = False
    under: str = ""


class _File:
    """Objects by number, from 1; the first is the catalogue, the second the pages."""

    def __init__(self) -> None:
        self.objects: list[bytes] = [b"", b""]

    def add(self, body: bytes) -> int:
        self.objects.append(body)
        return len(self.objects)

    def stream(self, data: bytes, more: bytes = b"") -> int:
        return self.add(b"<< /Length %d %s >> stream\n%s\nendstream" % (len(data), more, data))

    def written(self, trailer: bytes) -> bytes:
        out, offsets = bytearray(b"%PDF-1.7\n"), list[int]()
        for number, body in enumerate(self.objects, 1):
            offsets.append(len(out))
            out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
        table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
        out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(offsets) + 1, table)
        start = out.index(b"xref\n")
        out += b"trailer << /Size %d /Root 1 0 R %s >>\n" % (len(offsets) + 1, trailer)
        return bytes(out + b"startxref\n%d\n%%%%EOF\n" % start)


def make_pdf(
    *sheets: Sheet, title: str | None = None, locked: bool = False, to_unicode: Sequence[str] = ()
) -> bytes:
    """A PDF. `to_unicode` names the characters of the nameless glyphs, one string for each."""
    file = _File()
    fonts = b"/F %d 0 R /T %d 0 R" % (
        file.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"),
        _nameless(file, to_unicode),
    )
    pages = [file.add(_page(file, sheet, fonts)) for sheet in sheets]
    kids = b" ".join(b"%d 0 R" % page for page in pages)
    file.objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    file.objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages))
    trailer = b""
    if title is not None:
        trailer += b"/Info %d 0 R " % file.add(
            b"<< /Title <FEFF%s> >>" % title.encode("utf-16-be").hex().encode()
        )
    if locked:
        # No password leads to this check value, so none opens the file.
        lock = b"<< /Filter /Standard /V 1 /R 2 /P -1 /O <%s> /U <%s> >>" % (b"00" * 32, b"11" * 32)
        trailer += b"/Encrypt %d 0 R /ID [<00> <00>]" % file.add(lock)
    return file.written(trailer)


def _nameless(file: _File, to_unicode: Sequence[str]) -> int:
    pairs = [
        b"<%02x> <%s>" % (code, text.encode("utf-16-be").hex().encode())
        for code, text in enumerate(to_unicode, 1)
    ]
    map_entry = b"/ToUnicode %d 0 R" % file.stream(_CMAP % (len(pairs), b" ".join(pairs))) if pairs else b""
    return file.add(_TYPE3 % {b"glyph": file.stream(_GLYPH), b"map": map_entry})


def _page(file: _File, sheet: Sheet, fonts: bytes) -> bytes:
    if sheet.broken:
        return b"<< /Type /Nothing >>"
    content = f"q {sheet.under} Q\n".encode() + b"".join(line.operators() for line in sheet.lines)
    more = b"/CropBox [%s]" % " ".join(map(str, sheet.crop)).encode() if sheet.crop else b""
    images = b""
    if sheet.image:
        pixel = (
            b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8"
        )
        images = b"/XObject << /I %d 0 R >>" % file.stream(b"\x00", pixel)
        content += b"q 400 0 0 400 50 50 cm /I Do Q"
    if sheet.field:
        shown = Line(sheet.field, 2, 5).operators()
        look = b"/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << %s >> >>" % fonts
        field = file.add(_FIELD % (sheet.field.encode("cp1252"), file.stream(shown, look)))
        more += b"/Annots [%d 0 R]" % field
    return (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Rotate %d /Contents %d 0 R "
        b"/Resources << /Font << %s >> %s >> %s >>"
    ) % (WIDTH, HEIGHT, sheet.rotate, file.stream(content), fonts, images, more)
