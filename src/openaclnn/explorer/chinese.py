"""The Chinese form of what a declaration says: sentences by a table, shared rules by patterns, formulas by phrases."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from openaclnn.core.declare import Operator
from openaclnn.core.products import PRODUCTS

WORDS = Path(__file__).with_name("chinese.toml")
SYMBOLS = frozenset({
    "exp", "log", "sum", "sign", "lse", "ls", "nll", "NaN", "none", "mean", "batchmean", "scale", "max", "min", "tanh", "erf", "GELU",
    "log1p", "sqrt", "pi", "alpha", "Phi", "phi", "lo",
})  # fmt: skip
"""What formulas say in every language, beside parameters' names."""


_IN_PLACE = ", written over its input."


class UntranslatedError(LookupError):
    """Sentences without a Chinese form."""

    def __str__(self) -> str:
        return "\n  ".join([f"{WORDS.name} has no Chinese form of", *map(repr, self.args)])


@cache
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


def chinese(text: str) -> str:
    """A sentence of the page or of a declaration; what has no letters, and shapes such as (N, C), stay."""
    alone = text.removesuffix(_IN_PLACE)
    if alone and alone != text:
        return chinese(f"{alone}.").removesuffix("。") + chinese(_IN_PLACE)
    known = _words()["sentences"].get(text)
    if known is not None or not re.search("[a-z]", text):
        return known or text
    for pattern, form in _words()["rules"].items():
        match = re.fullmatch(pattern, text)
        if match is not None:
            return form.format(*(_part(part) for part in match.groups()))
    raise UntranslatedError(text)


def _part(text: str) -> str:
    """Names stay; a sentence has its own form."""
    if re.fullmatch(r"\w+(, \w+)*", text):
        return text
    return chinese(text)


def chinese_formula(operator: Operator) -> str:
    """The formula with its words in Chinese."""
    text = operator.formula
    for phrase, form in _words()["formulas"].items():
        text = text.replace(phrase, form)
    names = SYMBOLS.union(p.name.removesuffix("Optional") for p in operator.parameters)
    for word in re.findall(r"(?<!z-)\b[A-Za-z]\w+", text):
        if word not in names and not re.search(r"_|[a-z][A-Z]", word):
            raise UntranslatedError(f"{word!r} in the formula of {operator.name}")
    return text


def _sentences(operator: Operator) -> Iterator[str]:
    yield operator.summary
    for parameter in operator.parameters:
        yield from (text for text in (parameter.text, parameter.shape) if text)
    yield from (check.rule for check in operator.checks)
    yield from (sample.title for sample in operator.samples)


def missing(operator: Operator) -> list[str]:
    """What an operator's page says that has no Chinese form."""
    sentences = []
    for text in _sentences(operator):
        try:
            chinese(text)
        except UntranslatedError as error:
            sentences.append(str(error.args[0]))
    try:
        chinese_formula(operator)
    except UntranslatedError as error:
        sentences.append(str(error.args[0]))
    return sentences


def vocabulary(operators: Iterable[Operator]) -> dict[str, str]:
    """The Chinese form of everything that the explorer's page says; what has none is shown in English."""
    words = {**_words()["page"], **{product.title: chinese(product.title) for product in PRODUCTS}}
    for operator in operators:
        for text in _sentences(operator):
            with suppress(UntranslatedError):
                words[text] = chinese(text)
        with suppress(UntranslatedError):
            words[operator.formula] = chinese_formula(operator)
    return words


def answered(*texts: str) -> dict[str, str]:
    """The Chinese forms of what a call or a comparison is told, where there are some."""
    return {text: form for text in texts if (form := _answer(text)) != text}


def _answer(text: str) -> str:
    patterns = _words()["answers"]
    if text in patterns:  # a whole sentence
        return patterns[text]
    for pattern, form in patterns.items():
        match = re.fullmatch(pattern, text)
        if match is not None:
            return form.format(*map(_answer, match.groups()))
    try:
        return chinese(text)
    except UntranslatedError:
        return text
