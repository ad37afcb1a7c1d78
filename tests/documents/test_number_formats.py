"""Numbers of a workbook, as they are stored and as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citewire.documents.number_formats import NumberFormat, format_number

# (stored, format, shown); a format is one of those that all workbooks have, or a code.
SHOWN: list[tuple[str, int | str, str]] = [
    ("0.12", 9, "12%"),
    ("0.1234", 10, "12.34%"),
    ("0.125", "0.0%;(0.0%)", "12.5%"),
    ("99.5", '0.0"%"', "99.5%"),
    ("1234567.891", 4, "1,234,567.89"),
    ("-1234", 37, "(1,234)"),
    ("-1234", 3, "-1,234"),
    ("1000", "#,##0;[Red]\\-#,##0", "1,000"),
    ("1234.5", '"$"#,##0.00', "$1,234.50"),
    ("1234.5", "#,##0.00\\ [$€-407]", "1,234.50 €"),
    ("-3.5", "[$$-409]#,##0.00;[Red]-[$$-409]#,##0.00", "-$3.50"),
    ("0", '0.0;-0.0;"nil"', "nil"),
    ("0", 41, "-"),
    ("-5", 43, "(5.00)"),
    ("12345678", '0.0,,"M"', "12.3M"),
    ("7", '[Red]0" days; or so"_d', "7 days; or so"),
    ("12", "000000", "000012"),
    ("0.5", "#.##", ".5"),
    ("3", "0.0#", "3.0"),
    ("3.14159", "0.0#", "3.14"),
    ("1.005", 2, "1.01"),
    ("2.5", 1, "3"),
    ("-0.001", 2, "0.00"),
    ("12345", 11, "1.23E+04"),
    ("0.00001", "0.0E+00", "1.0E-05"),
    ("9.99", "0.0E+00", "1.0E+01"),
    ("45352", "yyyy\\-mm\\-dd", "2024-03-01"),
    ("45352", 14, "2024-03-01"),
    ("45356.5", 22, "2024-03-05 12:00:00"),
    ("45356.604166666664", "yyyy\\-mm\\-dd hh:mm;@", "2024-03-05 14:30"),
    ("45356", "d mmmm yyyy", "5 March 2024"),
    ("45356", "[$-409]mmm d, yyyy", "Mar 5, 2024"),
    ("45356", "[$-407]d. mmmm yyyy", "2024-03-05"),
    ("45356", "[$-407]dd.mm.yyyy", "05.03.2024"),
    ("45356", "ddd d/m/yy", "Tue 5/3/24"),
    ("45356.5", "mm/dd/yyyy h:mm:ss AM/PM", "03/05/2024 12:00:00 PM"),
    ("0.75", 18, "6:00 PM"),
    ("0.5", 14, "12:00:00"),
    ("1.5", "[h]:mm", "36:00"),
    ("1", 14, "1900-01-01"),
    ("61", 14, "1900-03-01"),
    ("2958465", 14, "9999-12-31"),
    # As they are stored: out of range, not read, or not a number.
    ("2958466", 14, "2958466"),
    ("-1", 14, "-1"),
    ("1E+300", 14, "1E+300"),
    ("1E400", 4, "1E400"),
    ("0.5", "# ?/?", "0.5"),
    ("5551234", "000-0000", "5551234"),
    ("12", "[>=10]0;0.0", "12"),
    ("0.052", "@", "0.052"),
    ("abc", 4, "abc"),
    ("NaN", 4, "NaN"),
    ("0.30000000000000004", 0, "0.3"),
    ("-12.50", 0, "-12.50"),
    ("1.5", "0" * 300, "1.5"),
]


@pytest.mark.parametrize(("stored", "format_", "shown"), SHOWN)
def test_a_number_is_shown_by_its_format(stored: str, format_: int | str, shown: str) -> None:
    made = NumberFormat(format_) if isinstance(format_, int) else NumberFormat(164, format_)
    assert format_number(stored, made, from_1904=False) == shown


def test_days_may_count_from_1904() -> None:
    assert format_number("0", NumberFormat(14), from_1904=True) == "1904-01-01"


@given(
    st.floats() | st.text("0123456789.-+eE", max_size=8),
    st.text('0#?.,%E+-;"\\\\_*[]$ymdhsAP/M@hello ', max_size=12),
)
def test_any_number_has_some_text_by_any_format(stored: object, code: str) -> None:
    assert isinstance(format_number(str(stored), NumberFormat(164, code), from_1904=False), str)
