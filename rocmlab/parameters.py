"""Which values does each notebook run with, and where did each come from?

The cell tagged `parameters` declares names, types and defaults; it is read with `ast`, because papermill's own parser
misses unions, Literal and defaults that contain "=". Files and `--set` only override, and strictly: a key that no
notebook declares, or a value of the wrong type, stops everything before a notebook starts.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rocmlab import hints
from rocmlab.cli import UsageError

TAG = "parameters"
INJECTED_TAG = "injected-parameters"


@dataclass(frozen=True)
class Parameter:
    """One declared name; `annotation` None means: as the default is. `default` is the source text if not a literal."""

    name: str
    annotation: ast.expr | None
    default: Any
    literal: bool = True


@dataclass
class Layer:
    """Overrides from one place: a file or the command line; `origin` names it in messages."""

    origin: str
    values: dict[str, Any] = field(default_factory=dict)


# ---- what a notebook declares


def cell_of(notebook: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first code cell tagged `parameters`, None when the notebook has none."""
    for cell in notebook.get("cells", []):
        if cell.get("cell_type") == "code" and TAG in cell.get("metadata", {}).get("tags", []):
            return cell
    return None


def source_of(cell: dict[str, Any]) -> str:
    """Return a cell's source, which a notebook stores as one string or as a list of lines."""
    return "".join(cell.get("source") or "")


def declared(notebook: dict[str, Any], file: str = "notebook") -> dict[str, Parameter]:
    """Return the parameters of a notebook by name; {} without a tagged cell. Raises UsageError for a syntax error."""
    cell = cell_of(notebook)
    if cell is None:
        return {}
    try:
        tree = ast.parse(source_of(cell))
    except SyntaxError as error:
        raise UsageError(
            f"{file}: its parameters cell is not valid Python (line {error.lineno}: {error.msg})"
        ) from None
    return {one.name: one for statement in tree.body for one in _parameters(statement)}


def _parameters(statement: ast.stmt) -> list[Parameter]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        names, annotation = [statement.target.id], statement.annotation
    elif isinstance(statement, ast.Assign):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        annotation = None
    else:
        return []
    value = statement.value
    assert value is not None
    try:
        default, literal = ast.literal_eval(value), True
    except (ValueError, TypeError):
        default, literal = ast.unparse(value), False
    return [Parameter(name, annotation, default, literal) for name in names]


# ---- what is asked for


def from_file(path: Path) -> Layer:
    """Read one YAML file of overrides. Raises UsageError, one sentence, for anything that cannot be used."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no parameters file {path}{_similar_file(path) or '.'}") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a parameters file.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from None
    except OSError as error:
        raise UsageError(f"cannot open the parameters file {path}: {error.strerror or error}.") from None
    return Layer(path.name, _mapping(text, path.name))


def from_settings(settings: list[str]) -> Layer:
    """Read `--set key=value` pairs; a value is written as in YAML: 64, [1, 2], {a: 1}, or plain text."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip().isidentifier():
            raise UsageError(f"--set {setting}: expected KEY=VALUE, such as --set new_tokens=64.")
        values[key.strip()] = _setting(key.strip(), text)
    return Layer("--set", values)


def _setting(key: str, text: str) -> Any:
    if text.strip()[:1] not in ("[", "{", '"', "'"):
        return hints.Scalar(text.strip())
    return _parsed(text, f"--set {key}")


def _mapping(text: str, origin: str) -> dict[str, Any]:
    parsed = _parsed(text, origin)
    if parsed is None or parsed == "":
        return {}
    if not isinstance(parsed, dict):
        raise UsageError(f"{origin}: expected lines of the form `key: value`, found {hints.kind(parsed)}.")
    return parsed


def _parsed(text: str, origin: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise UsageError(f"{origin}: not valid YAML{where}: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{origin}: not valid YAML: {str(error).splitlines()[0]}.") from None


class _Loader(yaml.SafeLoader):
    """YAML without guessed types: scalars stay as written, so `arch: 1032` can be the text its annotation asks for."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is no text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=True)


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> hints.Scalar:
    value = hints.Scalar(node.value)
    value.plain = node.style is None
    return value


_Loader.add_constructor("tag:yaml.org,2002:str", _scalar)


def _similar_file(path: Path) -> str:
    try:
        names = [one.name for one in path.parent.iterdir() if one.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    return _suggestion(path.name, names)


def _suggestion(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


# ---- both together


def refuse_unknown(layers: list[Layer], house: dict[str, dict[str, Parameter]]) -> None:
    """Raise UsageError for a key that no notebook of the house declares."""
    known = sorted({name for names in house.values() for name in names})
    for layer in layers:
        for key in layer.values:
            if key not in known:
                hint = _suggestion(key, known) or f". Declared are: {', '.join(known) or 'none'}."
                raise UsageError(f"{layer.origin}: no notebook has a parameter called {key}{hint}")


def merge(parameters: dict[str, Parameter], layers: list[Layer]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (all values, overridden values) of one notebook: defaults, then each layer in order.

    Dictionaries are merged key by key, everything else is replaced. Raises UsageError for a value of another type.
    """
    overridden: dict[str, Any] = {}
    for layer in layers:
        for key in (key for key in layer.values if key in parameters):
            value = _typed(parameters[key], layer.values[key], layer.origin)
            base = overridden.get(key, parameters[key].default)
            overridden[key] = _deep(base, value)
    values = {name: one.default for name, one in parameters.items()} | overridden
    return values, {name: overridden[name] for name in parameters if name in overridden}


def _deep(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: _deep(base.get(key), value) for key, value in over.items()}}


def _typed(parameter: Parameter, value: Any, origin: str) -> Any:
    try:
        if parameter.annotation is not None:
            return hints.convert(value, parameter.annotation)
        return hints.convert(value, hints.inferred(parameter.default)) if parameter.literal else hints.guess(value)
    except hints.Mismatch as error:
        raise UsageError(f"{origin}: {parameter.name} must be {error}, not {hints.kind(value)}.") from None
