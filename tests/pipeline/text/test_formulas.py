"""LaTeX in words."""

from __future__ import annotations

import pytest

from pipeline.text.formulas import read_formulas, unfinished


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (r"\(\pi r^2\)", "pi r squared"),
        (r"$$E = mc^2$$", "E equals mc squared"),
        (r"\[ \sqrt{x} \leq 5 \]", "the square root of x is at most 5"),
        (r"$\frac{1}{2}$", "1/2"),
        (r"\frac{a+b}{c}", "a plus b over c"),
        (r"$x_1 = 4$", "x 1 equals 4"),
        (r"40^\circ", "40 degrees"),
        (r"10^{-3}", "10 to the power of -3"),
        (r"\text{Total} \approx 5", "Total is about 5"),
        (r"3 \times 4 \neq 5 \pm 1", "3 times 4 is not 5 plus or minus 1"),
        ("It costs $5 and $10.", "It costs $5 and $10."),
        (r"costs \$5, or 20\%", "costs $5, or 20%"),
        ("^_^ a_b", "^_^ a_b"),
    ],
)
def test_a_formula_is_read_as_a_person_reads_it(written: str, spoken: str) -> None:
    assert " ".join(read_formulas(written, "en").split()) == spoken


def test_an_arabic_formula_has_arabic_words() -> None:
    assert read_formulas(r"\(\pi r^2 = 5\)", "ar").split() == ["باي", "r", "تربيع", "يساوي", "5"]


@pytest.mark.parametrize(
    "written", [r"so \(a", r"so $x^", r"so \frac{a + b}{", r"so $$", "so \\", r"so \[a = \("]
)
def test_a_formula_that_is_not_all_there_is_waited_for(written: str) -> None:
    assert unfinished(written) == 3


@pytest.mark.parametrize("written", ["$5", "a $", r"so \(a\) b", "x" * 400])
def test_nothing_else_is_waited_for(written: str) -> None:
    assert unfinished(written) >= len(written) - 1


@pytest.mark.parametrize("mark", ["\\", "$", "\\frac{", "^{", "_{", "\\sqrt[", "\\(", "$$"])
def test_formulas_without_an_end_take_no_long_time(mark: str) -> None:
    text = mark * 2_000
    assert unfinished(text) <= len(text)
    read_formulas(text, "en")
