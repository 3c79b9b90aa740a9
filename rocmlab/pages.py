"""Executed notebooks as pages and as Markdown with pictures, in each language, through nbconvert.

The code is folded, figures keep their alt text, progress floods shrink to what a terminal would show in the end, cells
and outputs of the other language are left out, and nothing is loaded from anywhere.
"""

from __future__ import annotations

import base64
import copy
import functools
import re
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import PackageLoader
from nbconvert.exporters import HTMLExporter, MarkdownExporter

from rocmlab import METHOD_VERSION, __version__, outline, results, templates, words
from rocmlab.outline import Facts
from rocmlab.words import LANGUAGES, pick, word

# What is shown of an output, best first. HTML that wants a script or the network is passed over for its plain twin.
PAGE_TYPES = ("image/png", "image/jpeg", "image/svg+xml", "text/html", "text/markdown", "text/plain")
BLOG_TYPES = ("image/png", "image/jpeg", "text/markdown", "text/plain")
NEEDS_MORE = re.compile(
    r"<(script|iframe|object|embed|link)\b|\bsrc\s*=\s*[\"']?(https?:)?//|@import|url\(", re.IGNORECASE
)
BANNER_TAG = "rocmlab-status"  # of the cells in which the runner says how a notebook ended
FOLD_LINES, BLOG_LINES = 30, 40
MOVES = re.compile(r"(\n|\r|\x1b\[\d*A)")  # of a terminal's cursor: next line, start of line, lines up
# Terminal commands that change nothing we keep: other moves, erasing, titles, links, and stray control characters.
CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[B-LN-Za-ln-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][0-9A-B]?|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def build(facts: Facts, main: str) -> None:
    """Write pages/NN.html and NN.md of every executed notebook, in `main` and, beside them, the other language."""
    for notebook, path in facts.notebooks.items():
        try:
            node: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
            error = ""
        except Exception as problem:  # cut or foreign files: nbformat has many ways to refuse them
            node, error = nbformat.v4.new_notebook(), f"{type(problem).__name__}"  # type: ignore[no-untyped-call]
        node = redacted(node)
        for lang in LANGUAGES:
            target = facts.run / "pages" / templates.file_name(notebook, "html", lang, main)
            target.parent.mkdir(exist_ok=True)
            results.write_text(target, page(facts, notebook, node, lang, main, error))
            blog = facts.run / templates.file_name(notebook, "md", lang, main)
            results.write_text(blog, markdown(facts, notebook, node, lang, error))


def redacted(node: Any) -> Any:
    """Return a notebook without user names and home folders; pictures are not text and stay as they are."""
    made, pictures = copy.deepcopy(node), []
    held = [output["data"] for cell in made["cells"] for output in cell.get("outputs", []) if "data" in output]
    for data in held:
        for kind in data.keys() & {"image/png", "image/jpeg"}:
            pictures.append(data[kind])
            data[kind] = f"picture {len(pictures) - 1}"
    made = nbformat.from_dict(results.redact(made))  # type: ignore[no-untyped-call]
    for cell in made.cells:
        for output in cell.get("outputs", []):
            for kind in output.get("data", {}).keys() & {"image/png", "image/jpeg"}:
                output.data[kind] = pictures[int(output.data[kind].split()[1])]
    return made


# ---- preparing


def prepared(node: Any, notebook: str, lang: str, types: tuple[str, ...]) -> Any:
    """Return a copy that holds one language, settled text, and one representation of each output."""
    made, other = copy.deepcopy(node), {f"lang-{one}" for one in LANGUAGES if one != lang}
    made.cells = [cell for cell in made.cells if not _tagged(cell, *other)]
    # The title stands first, then what the runner has to say about how it ended; the others keep their order.
    made.cells.sort(key=lambda cell: 1 if _tagged(cell, BANNER_TAG) else 0 if cell.get("id") == "title" else 2)
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = [out for out in _joined(cell.outputs) if _spoken(out, lang)]
            for index, output in enumerate(cell.outputs):
                _settle_output(output, types)
                _describe(output, notebook, cell.get("id", str(index)), lang)
        elif cell.get("id") == "title":
            question = f"# {notebook} {word(f'question_{notebook}', lang)}" if lang != "en" else r"\g<0>"
            cell.source = re.sub(r"^#\s.*$", question, cell.source, count=1, flags=re.MULTILINE)
    return made


def _tagged(cell: Any, *tags: str) -> bool:
    return not set(tags).isdisjoint(cell.metadata.get("tags", []))


def _spoken(output: Any, lang: str) -> bool:
    return output.get("metadata", {}).get("rocmlab", {}).get("lang", lang) == lang


def _joined(outputs: list[Any]) -> list[Any]:
    """Join neighbouring pieces of the same stream: a progress bar may be spread over hundreds of them."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def settle(text: str) -> str:
    """Return what a terminal would show in the end: redrawn lines in their last state, also under nested bars."""
    lines, row, fresh = [""], 0, True
    for piece in MOVES.split(CONTROL.sub("", text)):
        if piece == "\n":
            row, fresh = row + 1, True
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\r":
            fresh = True
        elif MOVES.fullmatch(piece):
            row = max(0, row - int(piece[2:-1] or 1))
        elif piece:
            lines[row], fresh = (piece if fresh else lines[row] + piece), False
    return re.sub(r"\n{4,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


def _settle_output(output: Any, types: tuple[str, ...]) -> None:
    if output.output_type == "stream":
        output.text = settle(output.text)
        return
    if output.output_type == "error":
        output.traceback = [settle(line) for line in output.traceback]
        return
    data = output.get("data", {})
    page = data.get("text/html", "")
    if NEEDS_MORE.search(page):
        data.pop("text/html")
    best = next((kind for kind in types if kind in data), None)
    output.data = nbformat.from_dict({best: data[best]} if best else {})  # type: ignore[no-untyped-call]
    if best == "text/plain":
        output.data["text/plain"] = settle(data["text/plain"])


def _describe(output: Any, notebook: str, cell: str, lang: str) -> None:
    """Give a picture its alt text in this language, and remember a table's caption."""
    ours = output.get("metadata", {}).get("rocmlab", {})
    if output.get("data") and ours.get("caption"):
        output.metadata["said"] = pick(ours["caption"], lang)
    for kind in ("image/png", "image/jpeg", "image/svg+xml"):
        if kind in output.get("data", {}):
            own = output.metadata.setdefault(kind, nbformat.NotebookNode())
            said = ours.get("alt") or own.get("alt") or word("default_alt", lang, notebook=notebook, cell=cell)
            own["alt"] = pick(said, lang)


# ---- writing


@functools.cache
def _exporter(blog: bool) -> Any:
    loader = PackageLoader("rocmlab", ".")
    if blog:
        return MarkdownExporter(template_name="markdown", template_file="notebook.md.j2", extra_loaders=[loader])  # type: ignore[no-untyped-call]
    made = HTMLExporter(template_name="basic", template_file="notebook.html.j2", extra_loaders=[loader])  # type: ignore[no-untyped-call]
    made.exclude_anchor_links = True
    made.register_filter("inline", templates.inline)
    return made


def page(facts: Facts, notebook: str, node: Any, lang: str, main: str, error: str = "") -> str:
    """Return one notebook as a page of its own."""
    made = prepared(node, notebook, lang, PAGE_TYPES)
    ran = any(cell.get("execution_count") for cell in made.cells)
    titled = any(cell.cell_type == "markdown" and re.search(r"^# ", cell.source, re.MULTILINE) for cell in made.cells)
    told = {
        **_told(facts, notebook, made, lang, error),
        "title": "" if titled else f"{notebook} {word(f'question_{notebook}', lang)}",
        "ran": ran,
        "css": templates.css(),
        "lang": lang,
        "fold_lines": FOLD_LINES,
        **_links(facts, notebook, lang, main),
    }
    text, _ = _exporter(False).from_notebook_node(made, resources={"rocmlab": told})
    return text


def markdown(facts: Facts, notebook: str, node: Any, lang: str, error: str = "") -> str:
    """Return one notebook as Markdown for a blog: prose, tables, figures as files in figures/, no code."""
    made = prepared(node, notebook, lang, BLOG_TYPES)
    for cell in made.cells:
        pictures = (out for out in cell.get("outputs", []) if {"image/png", "image/jpeg"} & set(out.get("data", {})))
        for index, output in enumerate(pictures):
            _to_file(facts.run, output, f"{notebook}-{cell.get('id', 'cell')}-{index}")
    told = {**_told(facts, notebook, made, lang, error), "blog_lines": BLOG_LINES}
    text, _ = _exporter(True).from_notebook_node(made, resources={"rocmlab": told})
    return re.sub(r"\n{3,}", "\n\n", COLOUR.sub("", text)).strip() + "\n"


def _to_file(run: Path, output: Any, stem: str) -> None:
    """Write a picture beside the Markdown and put a link with its alt text in its place."""
    kind = next(iter(output.data))
    target = run / "figures" / f"{stem}.{kind.removeprefix('image/')}"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(base64.b64decode(output.data[kind]))
    alt = output.metadata[kind]["alt"].replace("\n", " ").replace("[", "(").replace("]", ")")
    output.data = nbformat.from_dict({"text/markdown": f"![{alt}](figures/{target.name})"})  # type: ignore[no-untyped-call]


def _told(facts: Facts, notebook: str, node: Any, lang: str, error: str) -> dict[str, Any]:
    """Return what page and Markdown say around the notebook."""
    notice = word("unreadable_notebook", lang, error=error) if error else outline.why_not(facts, notebook, lang)
    if any(_tagged(cell, BANNER_TAG) for cell in node.cells):
        notice = ""  # the runner's own first cell says it, with the last lines of the log
    elif notice and not error:
        notice = word("stopped", lang, reason=notice + ("" if lang == "zh" else " "))
    took = facts.status(notebook).get("seconds")
    return {
        "w": functools.partial(word, lang=lang),
        "notebook": notebook,
        "banner": BANNER_TAG,
        "notice": notice,
        "took": word("took", lang, duration=words.seconds(took, lang)) if took is not None else "",
        "card": outline.card(facts, lang),
        "provenance": outline.provenance(facts, lang),
        "version": __version__,
        "method": facts.birth.get("method_version", METHOD_VERSION),
    }


def _links(facts: Facts, notebook: str, lang: str, main: str) -> dict[str, Any]:
    """Return the ways from this page: the report, the other language, the neighbours."""
    every, other = sorted(facts.notebooks), next(one for one in LANGUAGES if one != lang)
    here = every.index(notebook)
    beside = {
        "previous": every[here - 1] if here else "",
        "following": every[here + 1] if here + 1 < len(every) else "",
    }
    return {
        "index": f"../{templates.file_name('index', 'html', lang, main)}",
        "ipynb": f"../notebooks/{facts.notebooks[notebook].name}",
        "other": other,
        "other_file": templates.file_name(notebook, "html", other, main),
        "beside": [(key, n, templates.file_name(n, "html", lang, main)) for key, n in beside.items() if n],
    }
