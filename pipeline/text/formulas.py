"""Puts LaTeX into words, as a person reads a formula aloud.

Formulas stand between `\\(` and `\\)`, `\\[` and `\\]`, `$$` or `$`. Commands, powers and indices are read
without such marks too. What has no words (spacing, fonts) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LONGEST: Final = 300
"""Characters after which an open mark begins no formula."""

_FORMULA: Final = re.compile(
    r"\\\((?P<round>.{1,300}?)\\\)|\\\[(?P<square>.{1,300}?)\\\]|\$\$(?P<double>.{1,300}?)\$\$"
    r"|\$(?P<single>(?=[^$\n]{0,200}[\\^_=])[^$\s](?:[^$\n]{0,200}?[^$\s])?)\$(?!\d)",
    re.DOTALL,
)
_OPEN: Final = re.compile(
    r"\\\((?:(?!\\\)).){0,300}\Z|\\\[(?:(?!\\\]).){0,300}\Z"
    r"|(?<![\w})\]\\$])(?:\$\$[^$]{0,300}\$?|\$(?![\d\s])[^$\n]{0,200})\Z"
    r"|\\[A-Za-z]{0,30}(?:[\[{][^\s]{0,300})?\Z|\^(?:\{[^{}]{0,60}|\d{0,8})\Z",
    re.DOTALL,
)
_LATEX: Final = re.compile(r"\\[A-Za-z%$&#]|\^[\d{]")
_LAYOUT: Final = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|quad|qquad|big|Big|bigl|bigr|,|;|!|:|\s)(?![A-Za-z])"
)
_FONT: Final = re.compile(
    r"\\(?:text|mathrm|mathbf|mathit|mathbb|textbf|textit|operatorname|boxed)\{([^{}]*)\}"
)
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}|\\[dt]?frac(\d)(\d)")
_ROOT: Final = re.compile(r"\\sqrt(?:\[[^\[\]]{0,20}\])?\s*\{([^{}]*)\}")
_POWER: Final = re.compile(r"\^(?:\{([^{}]*)\}|(\\?[A-Za-z]+|\d+|\S))")
_INDEX: Final = re.compile(r"_(?:\{([^{}]*)\}|(\w))")
_COMMAND: Final = re.compile(r"\\([A-Za-z]+)|\\([%$&#{}])")

_ENGLISH: Final[Mapping[str, str]] = MappingProxyType(
    {
        "=": "equals", "+": "plus", "-": "minus", "−": "minus", "*": "times", "/": "over",
        "<": "is less than",
        ">": "is greater than", "frac": "over", "sqrt": "the square root of", "^2": "squared", "^3": "cubed",
        "^": "to the power of", "circ": "degrees", "times": "times", "cdot": "times", "div": "divided by",
        "pm": "plus or minus", "leq": "is at most", "le": "is at most", "geq": "is at least",
        "ge": "is at least", "neq": "is not", "ne": "is not", "approx": "is about", "sim": "is about",
        "equiv": "is the same as", "infty": "infinity", "to": "to", "rightarrow": "to", "sum": "the sum of",
        "int": "the integral of", "prod": "the product of", "lim": "the limit of", "ldots": "and so on",
        "dots": "and so on", "cdots": "and so on", "percent": "percent", "in": "in", "degree": "degrees",
        "sin": "sine", "cos": "cosine", "tan": "tangent", "log": "log", "ln": "natural log",
    }
)  # fmt: skip
_ARABIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "=": "يساوي", "+": "زائد", "-": "ناقص", "−": "ناقص", "*": "ضرب", "/": "على", "<": "أصغر من",
        ">": "أكبر من", "frac": "على", "sqrt": "الجذر التربيعي ل", "^2": "تربيع", "^3": "تكعيب", "^": "أس",
        "circ": "درجة", "times": "ضرب", "cdot": "ضرب", "div": "تقسيم", "pm": "زائد أو ناقص",
        "leq": "لا يزيد على", "le": "لا يزيد على", "geq": "لا يقل عن", "ge": "لا يقل عن", "neq": "لا يساوي",
        "ne": "لا يساوي", "approx": "يساوي تقريباً", "sim": "يساوي تقريباً", "infty": "ما لا نهاية",
        "to": "إلى",
        "rightarrow": "إلى", "sum": "مجموع", "int": "تكامل", "degree": "درجة", "pi": "باي", "alpha": "ألفا",
        "beta": "بيتا", "gamma": "غاما", "delta": "دلتا", "Delta": "دلتا", "theta": "ثيتا", "lambda": "لامدا",
        "mu": "ميو", "sigma": "سيغما", "omega": "أوميغا",
    }
)  # fmt: skip
_GREEK: Final = frozenset(
    (
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu",
        "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
    )
)  # fmt: skip
_MARKS: Final = re.compile(r"(?<=[\w)\s}])\s*([=+\-−*<>])(?=\s*[\w(\\{])|^\s*([-−])(?=\s*\w)")


def unfinished(text: str) -> int:
    """Where a formula begins that `text` breaks off in; the length of `text` for none."""
    if "\\" not in text and "$" not in text and "^" not in text:
        return len(text)
    text = _FORMULA.sub(lambda match: "x" * len(match[0]), text)
    begun = max(0, len(text) - LONGEST)
    opened = _OPEN.search(text, begun)
    if opened:
        return opened.start()
    command = text.rfind("\\", begun)
    cut_short = command >= 0 and text.count("{", command) > text.count("}", command)
    return command if cut_short else len(text)


def read_formulas(text: str, language: str) -> str:
    """`text` with its formulas in words of `language` (English, Arabic; for others in English)."""
    if "\\" not in text and "$" not in text and "^" not in text:
        return text
    words = _ARABIC if language.lower().startswith("ar") else _ENGLISH
    text = _FORMULA.sub(lambda match: f" {_words(_inside(match), words)} ", text)
    return _commands(text, words, whole=False) if _LATEX.search(text) else text


def _inside(match: re.Match[str]) -> str:
    return next(part for part in match.groups() if part is not None)


def _words(formula: str, words: Mapping[str, str]) -> str:
    """A whole formula, in which signs are signs and not punctuation."""
    spoken = _signs(_commands(formula, words, whole=True), words)
    return " ".join(re.sub(r"(?<!\d)/(?!\d)", f" {words['/']} ", spoken).replace("\\", " ").split())


def _signs(formula: str, words: Mapping[str, str]) -> str:
    return _MARKS.sub(lambda sign: f" {words[sign[1] or sign[2]]} ", formula)


def _commands(text: str, words: Mapping[str, str], *, whole: bool) -> str:
    """Commands, powers and indices, from the innermost braces outwards. `whole`: nothing else is in it."""
    text = _LAYOUT.sub(" ", text)
    for _ in range(12):
        before = text
        text = _FONT.sub(r"\1", text)
        text = _POWER.sub(lambda power: _power(power, words), text)
        text = _INDEX.sub(lambda index: f" {index[1] or index[2]}", text) if whole else text
        text = _ROOT.sub(lambda root: f" {words['sqrt']} {root[1]} ", text)
        text = _FRACTION.sub(lambda fraction: _fraction(fraction, words), text)
        if text == before:
            break
    text = _COMMAND.sub(lambda command: _command(command, words, whole=whole), text)
    return re.sub(r"[{}]", " ", text)


def _power(power: re.Match[str], words: Mapping[str, str]) -> str:
    exponent = (power[1] or power[2] or "").strip()
    if exponent in ("\\circ", "∘"):
        return f" {words['circ']}"
    known = words.get(f"^{exponent}")
    return f" {known}" if known else f" {words['^']} {exponent}"


def _fraction(fraction: re.Match[str], words: Mapping[str, str]) -> str:
    above, below = (part.strip() for part in (fraction[1] or fraction[3], fraction[2] or fraction[4]))
    if above.isdigit() and below.isdigit():
        return f" {above}/{below} "
    return f" {_signs(above, words)} {words['frac']} {_signs(below, words)} "


def _command(command: re.Match[str], words: Mapping[str, str], *, whole: bool) -> str:
    name = command[1]
    if name is None:
        return "" if command[2] in "{}" else command[2]
    known = words.get(name)
    if known is None and name.lower() in _GREEK and words is _ENGLISH:
        known = name.lower()
    return f" {known or ('' if whole else name)} "
