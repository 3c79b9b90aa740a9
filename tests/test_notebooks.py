"""The committed notebooks keep the house's form; executed ones are read for what they are."""

import copy
import json
import re
import warnings
from pathlib import Path

import cases
import nbformat
import pytest
from houses import notebook

from rocmlab import hints, house, parameters, readers
from rocmlab.readers.notebooks import fold, updates

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).parent / "data" / "notebooks"
COMMITTED = sorted((ROOT / "notebooks").glob("*.ipynb"))

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
TAGS = {"parameters", "lang-en", "lang-zh"}
WORDS = re.compile(r"[a-z][a-z]+\d*(-[a-z0-9]+)*")
ABSOLUTE = re.compile(r"(?<![\w.:/])/(home|Users|root|tmp|work|mnt|opt)/|[A-Za-z]:\\\\?\w")
LONGEST, MEDIAN = 30, 10  # lines of a code cell


# ---- the form of a committed notebook


def faults(path: Path, text: str) -> list[str]:
    """Return what is wrong with a committed notebook, in words; [] when it keeps the form."""
    book = json.loads(text)
    with warnings.catch_warnings(action="ignore"):  # ids that stand twice are said below
        nbformat.validate(nbformat.from_dict(copy.deepcopy(book)))
    found = [] if text.endswith("\n") and "\r" not in text else ["ends of lines are not LF, or the last one is missing"]
    return found + _names(path, book) + _stripped(book) + _title(path, book) + _declared(book) + _cells(book)


def _names(path: Path, book: dict) -> list[str]:
    ids = [cell.get("id", "") for cell in book["cells"]]
    found = [f"cell id {name!r} is not made of words" for name in ids if not WORDS.fullmatch(name)]
    found += [f"cell id {name} stands twice" for name in set(ids) if ids.count(name) > 1]
    if not re.fullmatch(r"\d\d_[a-z_]+\.ipynb", path.name):
        found.append("the file is not called NN_topic.ipynb")
    if ids[0] != "title" or ids[-1] != "takeaway":
        found.append("the first cell is not title, or the last one is not takeaway")
    return found


def _stripped(book: dict) -> list[str]:
    found = []
    extra = set(book["metadata"]) - {"kernelspec", "language_info"}
    if extra or book["metadata"].get("kernelspec") != KERNEL:
        found.append(f"metadata is not the kernelspec of python3 alone: {sorted(extra)}")
    if book["metadata"].get("language_info", {"name": "python"}) != {"name": "python"}:
        found.append("language_info says more than the language")
    for cell in book["cells"]:
        if cell.get("outputs") or cell.get("execution_count") is not None:
            found.append(f"{cell['id']} has outputs or an execution count")
        if set(cell["metadata"]) - {"tags"} or set(cell["metadata"].get("tags", [])) - TAGS:
            found.append(f"{cell['id']} has metadata or tags beyond {sorted(TAGS)}")
    return found


def _title(path: Path, book: dict) -> list[str]:
    every = [line for cell in book["cells"] if cell["cell_type"] == "markdown" for line in source(cell).splitlines()]
    headings = [line for line in every if line.startswith("# ")]
    first = source(book["cells"][0])
    found = []
    if headings != first.splitlines()[:1] or not re.fullmatch(rf"# {path.name[:2]} .+\?", headings[0]):
        found.append("there is not exactly one H1, in the first cell: number and question")
    if not (house.TITLE_MINUTES.search(first) or "half a minute" in first) or "memory" not in first.lower():
        found.append("the title does not say what it costs: minutes and memory")
    return found


def _declared(book: dict) -> list[str]:
    tagged = [cell for cell in book["cells"] if parameters.TAG in cell["metadata"].get("tags", [])]
    if len(tagged) != 1 or tagged[0]["id"] != "params":
        return ["there is not exactly one cell tagged parameters, called params"]
    found = []
    declared = parameters.declared(book)
    if "run_dir" not in declared or declared["run_dir"].default != "":
        found.append('run_dir: str = "" is not among the parameters')
    for one in declared.values():
        if one.annotation is None or not one.literal:
            found.append(f"{one.name} has no type, or a default that is not a plain value")
        elif not _fits(one):
            found.append(f"the default of {one.name} is not of its type")
    starts = [line for line in source(tagged[0]).splitlines() if re.match(r"\w+\s*:", line)]
    found += [
        f"no comment with the unit: {line}" for line in starts if "#" not in line and not line.endswith(("[", "{"))
    ]
    return found


def _fits(one: parameters.Parameter) -> bool:
    """Tell whether a default would be accepted from a params file."""
    try:
        return hints.convert(_as_yaml(one.default), one.annotation) == one.default
    except hints.Mismatch:
        return False


def _as_yaml(value):
    if isinstance(value, dict):
        return {_as_yaml(key): _as_yaml(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_yaml(item) for item in value]
    return hints.Scalar("null" if value is None else str(value))


def _cells(book: dict) -> list[str]:
    found, lengths = [], []
    languages = [[tag for tag in cell["metadata"].get("tags", []) if tag.startswith("lang-")] for cell in book["cells"]]
    spoken = [tags[0] for tags in languages if tags]
    if spoken != ["lang-en", "lang-zh"] * (len(spoken) // 2):
        found.append("prose does not stand in pairs, lang-en then lang-zh")
    for cell in book["cells"]:
        text = source(cell)
        if ABSOLUTE.search(text):
            found.append(f"{cell['id']} holds an absolute path")
        if cell["cell_type"] == "code":
            lengths.append(len(text.splitlines()))
            if re.search(r"^\s*[%!]", text, re.MULTILINE):
                found.append(f"{cell['id']} uses a magic or the shell")
    if max(lengths) > LONGEST or sorted(lengths)[len(lengths) // 2] > MEDIAN:
        found.append(f"code cells are too long: {max(lengths)} lines, median {sorted(lengths)[len(lengths) // 2]}")
    return found


def source(cell: dict) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_notebook_keeps_the_form(path):
    assert faults(path, path.read_bytes().decode("utf-8")) == []


def good() -> dict:
    book = notebook(
        {"measure": "x = 1", "takeaway": "x"},
        'run_dir: str = ""  # folder\nsizes: list[int] = [1, 2]  # tokens\nlimit: int | None = None  # s',
        title="# 03 How fast?\n\nWhy. Takes 3 / 2 min and 2 GiB of memory.",
    )
    return {**book, "metadata": {"kernelspec": KERNEL, "language_info": {"name": "python"}}}


def faults_of(book: dict, name: str = "03_speed.ipynb") -> list[str]:
    return faults(Path(name), json.dumps(book) + "\n")


def test_a_good_notebook_has_no_faults():
    assert faults_of(good()) == []


def edit_cell(index: int, **fields):
    return lambda book: book["cells"][index].update(fields)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (edit_cell(0, source="# 03 How fast\n\n3 min, memory"), "exactly one H1"),
        (edit_cell(0, source="# 04 How fast?\n\n3 min, memory"), "exactly one H1"),
        (edit_cell(0, source="# 03 How fast?\n\nSome memory."), "minutes and memory"),
        (edit_cell(0, id="a1b2c3d4"), "not made of words"),
        (edit_cell(2, id="params"), "stands twice"),
        (edit_cell(3, id="end"), "not takeaway"),
        (edit_cell(2, execution_count=1), "execution count"),
        (edit_cell(2, metadata={"tags": ["hide"]}), "beyond"),
        (edit_cell(2, metadata={"papermill": {}}), "beyond"),
        (edit_cell(1, metadata={}), "tagged parameters"),
        (edit_cell(1, source='run_dir: str = ""  # x\nn = 1  # x'), "n has no type"),
        (edit_cell(1, source='run_dir: str = ""  # x\nn: int = 0.5  # x'), "default of n"),
        (edit_cell(1, source='run_dir: str = ""  # x\nn: int = 5'), "no comment with the unit: n: int"),
        (edit_cell(1, source="n: int = 5  # x"), "run_dir"),
        (edit_cell(2, source="\n".join(["x = 1"] * 31)), "too long"),
        (edit_cell(2, source="open('/home/me/x')"), "absolute path"),
        (edit_cell(2, source="path = r'C:\\\\data'"), "absolute path"),
        (edit_cell(2, source="%timeit x"), "magic"),
        (edit_cell(0, metadata={"tags": ["lang-en"]}), "pairs"),
        (lambda book: book["metadata"].update(papermill={}), "kernelspec of python3 alone"),
        (lambda book: book["metadata"].update(language_info={"name": "python", "version": "3.12"}), "language_info"),
    ],
)
def test_every_fault_of_form_is_seen(edit, said):
    book = good()
    edit(book)
    assert any(said in fault for fault in faults_of(book)), faults_of(book)


# ---- what was printed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ntext\n", "plain\ntext\n"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("\r 1/2\r 2/2\ndone", " 2/2\ndone"),
        ("a long line\rshort\n", "shortg line\n"),
        ("a long line\r\x1b[Kshort\n", "short\n"),
        ("abc\b\bX\n", "aXc\n"),
        ("\b\bx\n", "x\n"),
        ("one\ntwo\n\x1b[2A\rONE\n", "ONE\ntwo\n"),
        ("50%\r", "50%"),
        ("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m\n"),
        ("\x1b[31m1/2\x1b[0m\r\x1b[31m2/2\x1b[0m\n", "2/2\n"),
        ("进度 1\r进度 2\n", "进度 2\n"),
        ("  indented\n\n  stays\r  Stays\n", "  indented\n\n  Stays\n"),
        ("", ""),
    ],
)
def test_printed_text_is_folded_as_a_terminal_would(text, shown):
    assert fold(text) == shown


def test_updates_are_counted_and_ends_of_lines_are_not():
    assert updates("a\r\nb\r\n") == (0, 0)
    assert updates("\r1/3\r2/3\r3/3\nnext\nx\ry\r\n") == (5, 2)
    assert updates("only\r") == (0, 0)


# ---- executed notebooks, as papermill alone leaves them


def answer(name: str) -> dict:
    return readers.answer(DATA / f"{name}.ipynb")


def test_a_dead_kernel_is_seen_although_papermill_says_completed():
    found = answer("bare-crashed")
    assert (found["kind"], found["verdict"], found["status"]) == ("notebook", "CRASHED", "broken")
    assert found["numbers"]["code_cell"] == 3 and found["numbers"]["cells_without_execution_count"] == 1
    assert "cell launch" in found["sentence"] and found["output_lines"] == ["warm", "launching"]


def test_a_dead_kernel_whose_last_cell_was_never_counted():
    book = json.loads((DATA / "bare-crashed.ipynb").read_text(encoding="utf-8"))
    book["cells"][3]["execution_count"] = None
    assert read_text(book)["numbers"]["code_cell"] == 3


def read_text(book: dict, tmp: str = "x.ipynb") -> dict:
    evidence = readers.Evidence(Path(tmp))
    evidence.__dict__["head"] = evidence.__dict__["data"] = json.dumps(book).encode()
    reading = readers.notebooks.read(evidence)
    return {"numbers": reading.numbers, "codes": [one["code"] for one in reading.findings]}


def test_an_interrupted_notebook_does_not_claim_to_know_by_whom():
    found = answer("bare-timed-out")
    assert found["verdict"] == "TIMED_OUT" and found["numbers"]["code_cell"] == 3
    assert "does not say" in found["sentence"]


def test_an_exception_is_quoted():
    found = answer("bare-raised")
    assert found["verdict"] == "FAILED" and "ValueError: size 7" in found["sentence"]
    assert found["numbers"] == found["numbers"] | {
        "code_cell": 3,
        "cells_failed": 1,
        "cells_without_execution_count": 1,
    }


def test_values_on_top_of_an_untagged_notebook():
    found = answer("injected-on-top")
    assert found["verdict"] == "PARAMETERS_TAG_MISSING" and found["output_lines"] == ["64"]


def test_progress_is_folded_and_counted_over_several_outputs():
    found = answer("progress")
    assert (found["verdict"], [one["code"] for one in found["findings"]]) == ("OK", ["PROGRESS_FOLDED"])
    folded = {"progress_updates": 36, "lines_kept": 2, "updates_dropped": 34, "cells_failed": 0}
    assert found["numbers"] == found["numbers"] | folded
    assert found["output_lines"] == ["step 30 of 30.....", "done", "windows line", "4/4"]


def test_a_notebook_that_was_never_or_partly_run_is_no_fault():
    book = notebook({"a": "1", "b": "2"})
    assert read_text(book) == {
        "numbers": {"code_cells": 3, "cells_without_execution_count": 3, "cells_failed": 0},
        "codes": [],
    }
    book["cells"][1]["execution_count"] = 1
    assert read_text(book)["codes"] == []


@pytest.mark.parametrize(
    "book",
    [
        {"nbformat": 4, "cells": []},
        {"nbformat": 3, "worksheets": []},
        {"nbformat": 4, "cells": [1, None, {}, {"cell_type": "code"}], "metadata": []},
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": 1, "metadata": 1, "outputs": 1}], "metadata": None},
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": ["x"], "metadata": {"tags": "a"}, "outputs": [1]}]},
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": "x", "outputs": [{"output_type": "stream"}]}]},
        {"nbformat": 4, "cells": [{"cell_type": "code", "source": "x", "outputs": [{"output_type": "error"}]}]},
        {"nbformat": 4, "cells": [], "metadata": {"rocmlab": {"status": "crashed"}}},
        {"nbformat": 4, "cells": [], "metadata": {"rocmlab": {"status": "timed_out", "cell": 3, "limit_s": "x"}}},
    ],
)
def test_odd_notebooks_do_not_raise(book, tmp_path):
    path = tmp_path / "odd.ipynb"
    path.write_text(json.dumps(book), encoding="utf-8")
    assert readers.answer(path)["kind"] in ("notebook", "unknown")


# ---- records and runs


def read_file(tmp_path, name: str, text: str) -> dict:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return readers.answer(path)


def test_a_table_that_was_cut_keeps_its_whole_lines(tmp_path):
    lines = '{"op": "mm", "ms": 1.5}\n\n{"op": "add", "ms": NaN}\nnonsense\n{"op": "cut", "m'
    found = read_file(tmp_path, "ops.jsonl", lines)
    assert (found["kind"], found["verdict"]) == ("records", "NOT_A_NUMBER")
    assert found["numbers"] == {"records": 2, "damaged_lines": 2, "not_a_number": 1}
    assert [one["code"] for one in found["findings"]] == ["NOT_A_NUMBER", "DAMAGED_LINES"]


def test_tables_are_told_from_logs_and_traces(tmp_path):
    row = {"run": "cpu", "notebook": "03", "attempt": "1", "value": 1}
    one = read_file(tmp_path, "one.jsonl", json.dumps(row) + "\n")
    assert (one["kind"], one["verdict"], one["numbers"]["attempts"]) == ("records", "OK", 1)
    assert read_file(tmp_path, "log.txt", 'starting\n{"a": 1}\nmore\nand more\n')["kind"] != "records"
    assert read_file(tmp_path, "cut.json", '[\n{"ph": "X", "dur": 1},\n{"ph": "X", "du')["kind"] != "records"
    assert read_file(tmp_path, "empty.jsonl", "")["kind"] == "unknown"


def test_a_single_run_gives_its_metric_with_its_settings(tmp_path):
    run = {
        "schema": "rocmlab-run-1",
        "device": {"name": "RX 7700", "gcnArchName": "gfx1101:sramecc-"},
        "metric": "prefill_tok_s",
        "value": 512.5,
        "prompt_tokens": 64,
        "new_tokens": 32,
    }
    found = read_file(tmp_path, "run.json", json.dumps(run))
    assert (found["kind"], found["verdict"], found["schema"]) == ("run", "OK", "rocmlab-run-1")
    assert found["numbers"] == {"prefill_tok_s": 512.5, "prompt_tokens": 64, "new_tokens": 32}
    assert "gfx1101" in found["sentence"] and "sramecc" not in found["sentence"]
    found = read_file(tmp_path, "run.json", json.dumps({**run, "value": float("nan")}))
    assert found["numbers"]["prefill_tok_s"] is None and found["numbers"]["prefill_tok_s_reason"]


def test_a_run_folder_says_what_its_page_found(tmp_path):
    run = tmp_path / "gfx1032"
    (run / "records").mkdir(parents=True)
    (run / "records" / "text.jsonl").write_text('{"a": 1}\n{"b": 2}\n{"c', encoding="utf-8")
    rows = {
        "01": {"status": "ok", "seconds": 3.5},
        "03": {"status": "timed_out", "seconds": 60.25, "cell": "measure", "code_cell": 3, "limit_s": 60},
    }
    birth = {
        "schema": "rocmlab-birth-1",
        "method_version": 1,
        "started": "2026-12-01T05:00:00+00:00",
        "subject": {"name": "RX 6650 XT", "arch": "gfx1032"},
        "notebooks": rows,
        "findings": [{"code": "NO_SUCH_CODE"}, "not a finding"],
    }
    (run / "run.json").write_text(json.dumps(birth), encoding="utf-8")
    said = {"sentence": "The card is slow.", "advice": ""}
    stored = {
        "sections": {"03": [{"code": "NOISY", "status": "warn", "numbers": {}, "en": said, "zh": said}, {"code": 1}]}
    }
    (run / "findings.json").write_text(json.dumps(stored), encoding="utf-8")
    found = readers.answer(run)
    assert (found["kind"], found["verdict"]) == ("run", "TIMED_OUT")
    assert [one["code"] for one in found["findings"]] == ["TIMED_OUT", "DAMAGED_LINES", "NOISY"]
    assert (
        "gfx1032" in found["sentence"]
        and "limit of 60 s" in found["sentence"]
        and "The card is slow." in found["sentence"]
    )
    counts = {"notebooks": 2, "notebooks_ok": 1, "notebooks_timed_out": 1, "seconds": 63.75, "records": 2}
    assert found["numbers"] == found["numbers"] | counts
    (run / "run.json").write_text("{cut", encoding="utf-8")
    assert readers.answer(run)["verdict"] == "RUN_DAMAGED"


def test_of_a_run_the_answers_are_said_first_and_the_rest_is_counted(tmp_path):
    def one(code, text):
        said = {"sentence": text, "advice": ""}
        return {"code": code, "status": "warn", "numbers": {}, "en": said, "zh": said}

    stored = {
        "answers": {"slow": one("VERDICT_HOST_BOUND", "The host is slow."), "faster": {"code": None, "en": {}}},
        "sections": {
            "12": [one("VERDICT_HOST_BOUND", "The host is slow."), *(one("NOISY", f"N{i}.") for i in range(11))]
        },
    }
    (tmp_path / "run.json").write_text(
        json.dumps({"schema": "rocmlab-birth-1", "subject": {"name": "X"}}), encoding="utf-8"
    )
    (tmp_path / "findings.json").write_text(json.dumps(stored), encoding="utf-8")
    found = readers.answer(tmp_path)
    assert found["sentence"].index("The host is slow.") < found["sentence"].index("N0.")
    assert found["sentence"].count("The host is slow.") == 1
    assert "N7." in found["sentence"] and "N8." not in found["sentence"] and "3 further findings" in found["sentence"]
    assert len(found["findings"]) == 12


@pytest.mark.parametrize("odd", [{"notebooks": [1]}, {"notebooks": {"03": 1}}, {"findings": 1, "subject": "x"}, {}])
def test_odd_certificates_do_not_raise(odd, tmp_path):
    rows = {"notebooks": {"01": {"status": "failed", "seconds": "long"}}}
    for birth in ({"schema": "rocmlab-birth-1", **odd}, {"schema": "rocmlab-birth-1", **rows, **odd}):
        assert read_file(tmp_path, "run.json", json.dumps(birth))["kind"] == "run"
    assert read_file(tmp_path, "one.json", json.dumps({"schema": "rocmlab-run-1", "device": 1}))["kind"] == "run"


def test_further_cases(shared):
    entries = {**cases.expected(shared, "A"), **cases.expected(shared, "I")}
    mine = {name: entry for name, entry in entries.items() if entry["kind"] in ("notebook", "records", "run")}
    assert len(mine) >= 4
    for name, entry in mine.items():
        path = shared / "cases" / name
        assert cases.differences(path, entry) == [], name
        if "output_lines" in entry:
            assert readers.answer(path)["output_lines"] == entry["output_lines"]
