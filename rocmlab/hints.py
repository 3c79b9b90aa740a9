"""Does this value fit this annotation, and what is it then?

Values come from YAML with every scalar as it was written (`Scalar`); the annotation, an `ast` expression that is never
evaluated, says what they are: `convert(Scalar("1032"), <str>)` is the text "1032", with <int> the number.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

NULLS = ("", "~", "null", "none")
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
INTEGER = re.compile(r"[+-]?\d[\d_]*")
FLOAT = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Scalar(str):
    """A YAML scalar as it was written; `plain` is False when it was quoted, which makes it a text and nothing else."""

    plain: bool = True


class Mismatch(Exception):
    """The value is not of the annotated type; the text says what was expected."""


def inferred(default: Any) -> ast.expr:
    """Stand in for a missing annotation: the type of the default; None accepts anything."""
    kind = type(default).__name__
    return ast.parse(kind if kind in ("bool", "int", "float", "str", "list", "dict") else "Any", mode="eval").body


def convert(value: Any, annotation: ast.expr) -> Any:
    """Return the value as the annotation says; raises Mismatch. Unknown types accept what YAML would make of it."""
    if isinstance(annotation, ast.Constant):
        if annotation.value is None:
            return _null(value)
        return convert(value, ast.parse(str(annotation.value), mode="eval").body)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _union(value, _branches(annotation))
    if isinstance(annotation, ast.Subscript):
        return _subscripted(value, _name(annotation.value), _arguments(annotation))
    return SIMPLE.get(_name(annotation), guess)(value)


def _subscripted(value: Any, name: str, arguments: list[ast.expr]) -> Any:
    if name == "Literal":
        return _literal(value, [ast.literal_eval(argument) for argument in arguments])
    if name == "Optional":
        return _union(value, [*arguments, ast.Constant(None)])
    if name == "Union":
        return _union(value, arguments)
    if name in ("list", "List", "Sequence", "tuple", "Tuple"):
        return [convert(item, arguments[0]) for item in _list(value)]
    if name in ("dict", "Dict", "Mapping"):
        return {convert(key, arguments[0]): convert(item, arguments[-1]) for key, item in _dict(value).items()}
    return guess(value)


def _union(value: Any, branches: list[ast.expr]) -> Any:
    # Text comes last: it accepts every scalar, so "int | str" would never give an int otherwise.
    ordered = sorted(branches, key=lambda branch: (_name(branch) == "str", not _is_none(branch)))
    expected = []
    for branch in ordered:
        try:
            return convert(value, branch)
        except Mismatch as error:
            expected.append(str(error))
    raise Mismatch(" or ".join(dict.fromkeys(expected)))


def _branches(annotation: ast.expr) -> list[ast.expr]:
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return [*_branches(annotation.left), *_branches(annotation.right)]
    return [annotation]


def _arguments(annotation: ast.Subscript) -> list[ast.expr]:
    return list(annotation.slice.elts) if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]


def _name(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Attribute):
        return annotation.attr
    return annotation.id if isinstance(annotation, ast.Name) else ""


def _is_none(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Constant) and annotation.value is None


def _plain(value: Any) -> str | None:
    return str(value) if isinstance(value, Scalar) and value.plain else None


def _null(value: Any) -> None:
    text = _plain(value)
    if text is None or text.lower() not in NULLS:
        raise Mismatch("null")


def _bool(value: Any) -> bool:
    text = _plain(value)
    if text is None or text.lower() not in TRUTHS:
        raise Mismatch("true or false")
    return TRUTHS[text.lower()]


def _int(value: Any) -> int:
    text = _plain(value)
    if text is None or not INTEGER.fullmatch(text):
        raise Mismatch("a whole number")
    return int(text)


def _float(value: Any) -> float:
    text = _plain(value)
    if text is None or not FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        raise Mismatch("a finite number")
    return float(text)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch("text")
    return str(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Mismatch("a list such as [1, 2]")
    return value


def _dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise Mismatch("keys and values such as {a: 1}")
    return value


def _literal(value: Any, allowed: list[Any]) -> Any:
    for one in allowed:
        try:
            if convert(value, inferred(one) if one is not None else ast.Constant(None)) == one:
                return one
        except Mismatch:
            continue
    raise Mismatch("one of " + ", ".join(str(one) for one in allowed))


def guess(value: Any) -> Any:
    """Return what YAML 1.2 makes of a value without a type: null, true, 3, 0.5, else text."""
    if isinstance(value, list):
        return [guess(item) for item in value]
    if isinstance(value, dict):
        return {str(key): guess(item) for key, item in value.items()}
    for attempt in (_null, _bool, _int, _float):
        try:
            return attempt(value)
        except Mismatch:
            continue
    return str(value)


SIMPLE = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _str,
    "list": lambda value: [guess(item) for item in _list(value)],
    "dict": lambda value: {str(key): guess(item) for key, item in _dict(value).items()},
}


def kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, Scalar) and not value.plain:
        return f'the text "{value}"'
    return f'"{value}"'
