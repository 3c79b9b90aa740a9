"""The engine: whatever a notebook does, the result and the executed copy tell the truth, and no process is left."""

import json
import os
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

pytest.importorskip("papermill", reason="the packages that run notebooks are not installed")

from houses import notebook

from rocmlab import ending, engine, executed, readers, results

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")


def run_one(folder: Path, source: str, cell_limit_s: float = 60, notebook_limit_s: float = 120, **more):
    """Run before / act / after in one notebook; return (result, executed copy, log)."""
    cells = {"before": 'print("before it")', "act": source, "after": 'print("never reached")'}
    limits = {"cell_limit_s": cell_limit_s, "notebook_limit_s": notebook_limit_s}
    result = engine.execute(notebook(cells), name="03_act", log="03.log", run=folder, parameters={}, **limits, **more)
    text = (folder / "notebooks" / "03_act.ipynb").read_text(encoding="utf-8")
    copy = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    nbformat.validate(nbformat.from_dict(copy))
    return result, copy, (folder / "logs" / "03.log").read_text(encoding="utf-8")


def by_id(copy: dict) -> dict:
    return {cell["id"]: cell for cell in copy["cells"]}


def status(copy: dict, cell: str) -> str:
    return by_id(copy)[cell]["metadata"]["papermill"]["status"]


def printed(copy: dict, cell: str) -> str:
    return "".join(output.get("text", "") for output in by_id(copy)[cell]["outputs"])


def assert_ended_at_act(result, copy, expected: str) -> None:
    """What holds for every bad end: where, what is kept, what never ran, and that the copy says so by itself."""
    assert (result.status, result.cell, result.code_cell) == (expected, "act", 3)
    assert printed(copy, "before") == "before it\n" and status(copy, "before") == "completed"
    assert status(copy, "act") == "failed"
    assert status(copy, "after") == "pending" and by_id(copy)["after"]["execution_count"] is None
    assert "never reached" not in json.dumps([cell.get("outputs") for cell in copy["cells"]])
    first, second = copy["cells"][:2]
    assert expected in first["source"] and "act" in first["source"] and "lang-en" in first["metadata"]["tags"]
    assert "lang-zh" in second["metadata"]["tags"]
    assert copy["metadata"]["rocmlab"]["status"] == expected


def kernels_of(folder: Path) -> list[psutil.Process]:
    """Every process whose working directory is the run folder: kernels and what they started."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == folder and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_an_exception(tmp_path):
    result, copy, _ = run_one(tmp_path, 'raise RuntimeError("miopen says 7\\nand more")')
    assert_ended_at_act(result, copy, "failed")
    assert result.message == "RuntimeError: miopen says 7"
    assert by_id(copy)["act"]["execution_count"] == 3
    assert not any("papermill-error" in str(cell) for cell in copy["cells"])


def test_leaving_early_is_a_failure(tmp_path):
    result, copy, _ = run_one(tmp_path, "import sys\nsys.exit(0)")
    assert_ended_at_act(result, copy, "failed")
    assert result.message == "SystemExit: 0"


def test_an_allocation_that_fails(tmp_path):
    source = (
        "class OutOfMemoryError(RuntimeError): pass\n"
        "raise OutOfMemoryError('HIP out of memory. Tried to allocate 2.00 GiB')"
    )
    result, copy, _ = run_one(tmp_path, source)
    assert_ended_at_act(result, copy, "out_of_memory")


def test_a_kernel_that_leaves(tmp_path):
    result, copy, log = run_one(tmp_path, "import os\nos.write(2, b'last words in C\\n')\nos._exit(3)")
    assert_ended_at_act(result, copy, "crashed")
    assert (result.exit, result.signal, result.message) == (3, None, "exit code 3")
    assert by_id(copy)["act"]["execution_count"] is None
    assert "last words in C" in log and "last words in C" in copy["cells"][0]["source"]
    answer = readers.answer(tmp_path / "notebooks" / "03_act.ipynb")
    assert (answer["kind"], answer["verdict"], answer["numbers"]["code_cell"]) == ("notebook", "CRASHED", 3)
    assert answer["numbers"]["cells_without_execution_count"] == 2 and answer["output_lines"] == ["before it"]


@POSIX
def test_a_segmentation_fault_shows_where(tmp_path):
    result, copy, log = run_one(tmp_path, "import ctypes\nctypes.string_at(0)")
    assert_ended_at_act(result, copy, "crashed")
    assert (result.exit, result.signal) == (-11, "SIGSEGV")
    assert "Segmentation fault" in log
    banner = copy["cells"][0]["source"]
    assert "in string_at" in banner and "ipykernel/" not in banner, "the cell's own frames, not those of Jupyter"


@POSIX
def test_a_kill_leaves_no_orphan(tmp_path):
    source = "import os, subprocess\nsubprocess.Popen(['sleep', '300'])\nos.kill(os.getpid(), 9)"
    result, copy, _ = run_one(tmp_path, source)
    assert_ended_at_act(result, copy, "crashed")
    assert (result.exit, result.signal) == (-9, "SIGKILL") and "memory" in result.message
    assert kernels_of(tmp_path) == []


@POSIX
def test_a_kill_by_the_out_of_memory_killer_is_told_apart(tmp_path, monkeypatch):
    counts = iter([7, 8])
    monkeypatch.setattr(ending, "oom_kills", lambda: next(counts))
    result, copy, _ = run_one(tmp_path, "import os\nos.kill(os.getpid(), 9)")
    assert_ended_at_act(result, copy, "out_of_memory")


def test_a_hang_in_python(tmp_path):
    began = time.monotonic()
    result, copy, log = run_one(tmp_path, "import time\ntime.sleep(600)", cell_limit_s=2)
    assert time.monotonic() - began < 20
    assert_ended_at_act(result, copy, "timed_out")
    assert result.limit_s == 2 and "2 s" in copy["cells"][0]["source"] and "2 s" in copy["cells"][1]["source"]
    assert kernels_of(tmp_path) == []
    if os.name == "posix":
        assert "Current thread" in log and "in <module>" in copy["cells"][0]["source"]


@POSIX
def test_a_hang_in_c_with_signals_blocked(tmp_path):
    source = (
        "import ctypes, signal, subprocess\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "ctypes.PyDLL(None).sleep(600)  # holds the interpreter lock"
    )
    result, copy, _ = run_one(tmp_path, source, notebook_limit_s=4)
    assert_ended_at_act(result, copy, "timed_out")
    assert result.limit_s == 4 and "notebook" in result.message
    assert kernels_of(tmp_path) == []


@POSIX
def test_a_kernel_that_cannot_be_killed_does_not_hold_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.isolate, "end_tree", lambda process: None)
    monkeypatch.setattr(engine.os, "killpg", lambda *_: None)
    monkeypatch.setattr(engine, "GIVE_UP_S", 1)
    result, copy, _ = run_one(tmp_path, "import time\ntime.sleep(600)", cell_limit_s=1)
    monkeypatch.undo()
    left = kernels_of(tmp_path)
    assert left, "this test made it live on"
    for process in left:
        process.kill()
    assert_ended_at_act(result, copy, "timed_out")


def test_floods_bad_numbers_and_private_names(tmp_path, monkeypatch):
    home = str(Path.home())
    source = f"""
import sys
from IPython.display import display
for number in range(60000): print("line", number)
for step in range(2000): print(f"\\r{{step}}/2000", end="", file=sys.stderr)
display({{"application/json": {{"speed": float("nan")}}}}, raw=True)
print({home!r} + "/secret.txt")
"""
    result, copy, _ = run_one(tmp_path, source)
    assert result.status == "ok" and copy["cells"][0]["id"] == "title"
    whole = json.dumps(copy)
    assert len(whole) < 1_000_000
    text = printed(copy, "act")
    total = sum(len(f"line {number}\n") for number in range(60000))
    assert text.startswith("line 0\nline 1\n") and "characters left out" in text and total > len(text)
    assert f"{home}/secret.txt" not in whole and "~/secret.txt" in whole
    assert status(copy, "after") == "completed"


def test_parameters_arrive_and_the_path_of_the_run_does_not(tmp_path):
    folder = tmp_path / "a {b} 中文"
    cells = {"show": "from rocmlab import results\nrun = results.start('05', run_dir)\nprint(run.path.name, text)"}
    book = notebook(cells, 'run_dir: str = ""\ntext: str | None = None  # = sign')
    given = {"run_dir": ".", "text": "07 = 七"}
    result = engine.execute(
        book, name="05_x", log="05.log", run=folder, parameters=given, cell_limit_s=60, notebook_limit_s=60
    )
    assert result.status == "ok", result
    text = (folder / "notebooks" / "05_x.ipynb").read_text(encoding="utf-8")
    assert printed(json.loads(text), "show") == "a {b} 中文 07 = 七\n"
    assert str(tmp_path) not in text
    assert list((folder / "notebooks").iterdir()) == [folder / "notebooks" / "05_x.ipynb"]


def test_the_kernel_is_this_interpreter(tmp_path, monkeypatch):
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    wrong = {"argv": ["/nowhere/python", "-f", "{connection_file}"], "display_name": "wrong", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(wrong), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    run = tmp_path / "run"
    result, copy, _ = run_one(run, "import sys\nprint(sys.executable)")
    assert result.status == "ok" and printed(copy, "act").strip() == str(results.redact(sys.executable))


def test_a_kernel_that_cannot_start_is_a_result(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.sys, "executable", str(tmp_path / "no-python"))
    result = engine.execute(
        notebook({"a": "1"}), name="01_a", log="01.log", run=tmp_path, parameters={}, cell_limit_s=9, notebook_limit_s=9
    )
    assert (result.status, result.cell) == ("failed", None) and "could not be started" in result.message
    copy = json.loads((tmp_path / "notebooks" / "01_a.ipynb").read_text(encoding="utf-8"))
    assert status(copy, "a") == "pending" and result.status in copy["cells"][0]["source"]


def test_a_shortened_text_counts_what_is_gone():
    text = "".join(f"line {number}\n" for number in range(100_000))
    once = executed.shortened(text)
    again = executed.shortened(once + "x" * executed.KEPT_PRINT)
    for short, full in ((once, len(text)), (again, len(text) + executed.KEPT_PRINT)):
        dropped = int(executed.LEFT_OUT.search(short).group(1))
        assert dropped == full - executed.KEPT_PRINT // 2
    bar = "".join(f"\r{step}%" for step in range(100_000)) + "\n"
    assert executed.shortened(bar) == "99999%\n", "progress is folded, not cut"


def test_pictures_are_not_redacted(monkeypatch):
    monkeypatch.setattr(results, "_patterns", lambda: [(__import__("re").compile("ann"), "<user>")])
    output = {"data": {"image/png": "aGFuann+", "text/plain": "by ann"}}
    assert executed.private(output) == {"data": {"image/png": "aGFuann+", "text/plain": "by <user>"}}


@pytest.mark.parametrize(
    ("name", "kept", "not_run"), [("nb-01-kernel-dies", "partial.json", "c04"), ("nb-05-error-in-middle", None, "c04")]
)
def test_further_cases(shared, tmp_path, name, kept, not_run):
    case(shared, tmp_path, name, {}, kept, not_run)


def test_further_case_that_hangs(shared, tmp_path):
    case(shared, tmp_path, "nb-02-hangs", {}, None, "c04")
    assert kernels_of(tmp_path) == []


def case(shared: Path, run: Path, name: str, parameters: dict, kept: str | None, not_run: str) -> None:
    expected = json.loads((shared / "cases" / "expected.json").read_text(encoding="utf-8"))
    expected = expected.get("cases", expected)[f"{name}.ipynb"]
    book = json.loads((shared / "cases" / f"{name}.ipynb").read_text(encoding="utf-8"))
    limit = expected.get("limit_s", 60)
    result = engine.execute(
        book, name=name, log="x.log", run=run, parameters=parameters, cell_limit_s=limit, notebook_limit_s=60
    )
    assert (result.status, result.cell) == (expected["notebook_status"], expected["cell"])
    path = run / "notebooks" / f"{name}.ipynb"
    copy = json.loads(path.read_text(encoding="utf-8"))
    assert status(copy, expected["cell"]) == "failed" and status(copy, not_run) == "pending"
    for text in expected["kept"]:
        assert text in "".join(printed(copy, cell) for cell in ("c01", "c02")) or (run / text).exists()
    answer = readers.answer(path)
    assert (answer["verdict"], answer["status"]) == (expected["verdict"], expected["status"])
    assert {key: answer["numbers"][key] for key in expected["numbers"]} == expected["numbers"]
    spoken = f"{answer['sentence']} {answer['advice']}".lower()
    assert all(word in spoken for word in expected["must_say"])
