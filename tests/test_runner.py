"""`rocmlab report`: refusals before anything runs, honest endings, resume, and nothing measured lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("papermill", reason="the packages that run notebooks are not installed")

import houses
from houses import card, machine, notebook

import rocmlab
from rocmlab import METHOD_VERSION, birth, cli, device, house, progress, readers, results, runfolder, runner
from rocmlab.cli import UsageError

MEASURE = """
from rocmlab import results
run = results.start("{number}", run_dir)
run.append("{table}", {{"value": 1}})
print("measured")
"""


def measures(number: str, table: str, params: str = "", then: str = "1") -> dict:
    cells = {"measure": MEASURE.format(number=number, table=table), "takeaway": then}
    return notebook(cells, f'run_dir: str = ""\n{params}')


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A house with an empty machine; the page builder is a stand-in."""
    folder = tmp_path / "the house {x} 家"
    folder.mkdir()
    monkeypatch.setattr(results, "home", lambda: folder)
    monkeypatch.setattr(device, "snapshot", machine)
    use_page(monkeypatch, houses.page())
    return folder


def use_page(monkeypatch, stand_in) -> None:
    monkeypatch.setitem(sys.modules, "rocmlab.report", stand_in)
    monkeypatch.setattr(rocmlab, "report", stand_in, raising=False)


def report(*words: str) -> int:
    return runner.report(cli.parser().parse_args(["report", *words]))


def refused(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        report(*words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def born(home: Path, name: str = "cpu") -> dict:
    return json.loads((home / "outputs" / name / "run.json").read_text(encoding="utf-8"))


# ---- refused before anything runs


def test_parameters_are_refused_before_anything_runs(home, monkeypatch, tmp_path):
    monkeypatch.setattr(device, "snapshot", lambda: pytest.fail("the machine was looked at"))
    houses.build(
        home,
        n01_one=notebook({"a": "1"}, "tokens: int = 1\nnames: list[str] = []"),
        n02_two=notebook({"a": "1"}, "batch: int = 1"),
    )
    bad = tmp_path / "bad.yaml"
    bad.write_text("tokens: [1", encoding="utf-8")
    assert "did you mean tokens?" in refused("--set", "token=3")
    assert "tokens must be a whole number" in refused("--set", "batch=2", "--set", "tokens=x")
    assert "bad.yaml: not valid YAML in line" in refused("--params", str(bad))
    assert "there is no parameters file" in refused("--params", "nowhere.yaml")
    assert "cell_limit_s must be above 0" in refused("--set", "cell_limit_s=0")
    assert "there is no notebook 07; there are 01, 02" in refused("--only", "01,07")
    assert "there is no notebook 09" in refused("--from", "9")
    assert not (home / "outputs").exists()


def test_a_notebook_without_its_tag_is_refused_when_values_are_given(home):
    houses.build(home, n01_lost=notebook({"a": "ARCH = 'gfx1030'"}, None))
    said = refused("--set", "cell_limit_s=60")
    assert said.startswith("PARAMETERS_TAG_MISSING: 01_lost.ipynb") and "tag" in said
    assert not (home / "outputs").exists()


def test_damaged_and_missing_notebooks_are_sentences(home):
    assert "there are no notebooks" in refused()
    houses.build(home, n01_fine=notebook({"a": "1"}), n02_cut='{"cells": [', n03_list="[1]", n04_odd='{"cells": [1]}')
    assert "02_cut.ipynb is not a notebook (not JSON" in refused("--only", "02")
    assert "03_list.ipynb is JSON but not a notebook" in refused("--only", "03")
    assert "04_odd.ipynb is JSON but not a notebook" in refused("--only", "4")
    assert [book.number for book in house.select(house.discover(home / "notebooks"), "1", None)] == ["01"]


@pytest.mark.parametrize("name", ["a/b", "..", "con", "NUL.txt", "interactive", "reference", "x.", "a:b", " a", "-"])
def test_names_that_are_no_folder_anywhere(home, name):
    houses.build(home, n01_one=notebook({"a": "1"}))
    assert "a plain folder name" in refused(f"--name={name}")


def test_another_method_version_is_refused_and_fresh_moves_it_aside(home):
    houses.build(home, n01_one=notebook({"a": "1"}))
    old = home / "outputs" / "cpu"
    (old / "records").mkdir(parents=True)
    (old / "records" / "x.jsonl").write_text('{"value": 1}\n', encoding="utf-8")
    results.write_json(old / "run.json", {"schema": "rocmlab-birth-1", "method_version": METHOD_VERSION + 1})
    said = refused()
    assert f"version {METHOD_VERSION + 1}" in said and "--fresh" in said and "--name" in said
    (old / "run.json").write_text('{"cut', encoding="utf-8")
    assert "is damaged" in refused()
    assert report("--fresh") == 0
    (aside,) = home.glob("outputs/cpu-before-*")
    assert (aside / "records" / "x.jsonl").exists() and not (old / "records" / "x.jsonl").exists()
    assert born(home)["notebooks"]["01"]["status"] == "ok"


def test_a_folder_that_another_report_holds(home):
    houses.build(home, n01_one=notebook({"a": "1"}))
    folder = home / "outputs" / "cpu"
    folder.mkdir(parents=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        lock = f"{other.pid} {psutil.Process(other.pid).create_time()}"
        (folder / ".lock").write_text(lock, encoding="utf-8")
        assert f"process {other.pid}" in refused() and f"process {other.pid}" in refused("--fresh")
    finally:
        other.kill()
        other.wait()
    with runfolder.locked(folder, fresh=False):
        assert (folder / ".lock").exists(), "the lock of a process that is gone is taken over"
    assert not (folder / ".lock").exists()


def test_a_run_folder_that_cannot_be_made(home):
    houses.build(home, n01_one=notebook({"a": "1"}))
    (home / "outputs").write_text("a file in the way", encoding="utf-8")
    assert "cannot write in" in refused()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to become somebody without rights")
def test_a_run_folder_without_the_right_to_write(tmp_path):
    code = (
        "import os\nfrom pathlib import Path\n"
        "from rocmlab import runfolder\nfrom rocmlab.cli import UsageError\n"
        "os.setuid(65534)\n"
        "try:\n"
        f"    with runfolder.locked(Path({str(tmp_path / 'run')!r}), False): print('written')\n"
        "except UsageError as error: print(error)\n"
    )
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", env=environment(houses.ROOT)
    )
    assert "cannot write in" in done.stdout, done


# ---- on what


def test_arch_rules():
    one = machine(card(0, "gfx1100", "RX 7900 XTX"), card(1, "gfx1032", "RX 6650 XT"))
    assert runner.choose(one, "gfx1032")[0]["index"] == 1
    assert runner.choose(one, "cpu") == (
        runner.choose(machine(), "cpu")[0] | {"why": "no accelerator here is cpu"},
        None,
    )
    with pytest.raises(UsageError, match=r"gfx1201 was asked for, but .* gfx1100 \(RX 7900 XTX\), gfx1032"):
        runner.choose(one, "gfx1201")
    for asked, said in (("1032", "did you mean gfx1032"), ("radeon", "such as gfx1032"), ("sm_90x", "not the name")):
        with pytest.raises(UsageError, match=said):
            runner.choose(one, asked)
    subject, notice = runner.choose(machine(), "gfx1032")
    assert subject["arch"] == "cpu" and notice["code"] == "ARCH_ABSENT" and notice["variant"] is None
    broken = machine(card(0, "gfx1032", "RX 6650 XT", ok=False))
    assert runner.choose(broken, "gfx1032")[1]["variant"] == "no_launch"
    assert runner.choose(machine(), "auto")[1] is None


@pytest.mark.parametrize(
    ("words", "subject", "name"),
    [
        ([], "cpu", "cpu"),
        ([], "gfx1032", "gfx1032"),
        (["--arch", "gfx1032"], "gfx1032", "gfx1032"),
        (["--arch", "gfx1032"], "cpu", "cpu-for-gfx1032"),
        (["--arch", "cpu"], "cpu", "cpu"),
        (["--params", "params/tiny.yaml"], "cpu", "cpu-tiny"),
        (["--params", "a.yaml", "my file.yml", "--arch", "sm_90"], "cpu", "cpu-for-sm_90-a-my-file"),
        (["--name", "mine", "--params", "a.yaml"], "cpu", "mine"),
        (["--name", "我的显卡"], "cpu", "我的显卡"),
    ],
)
def test_folder_names(words, subject, name):
    arguments = cli.parser().parse_args(["report", *words])
    kind = "cpu" if subject == "cpu" else "cuda:0"
    assert runfolder.folder_name(arguments, {"arch": subject, "device": kind}) == name


def test_an_asked_arch_that_is_absent_is_a_cpu_run_that_says_so(home, capsys):
    (home / "params").mkdir()
    (home / "params" / "cpu.yaml").write_text("tokens: 64\n", encoding="utf-8")
    (home / "params" / "gfx1032.yaml").write_text("tokens: 512\n", encoding="utf-8")
    cell = "print(arch, tokens)"
    houses.build(home, n01_one=notebook({"a": cell}, 'arch: str = "auto"\ntokens: int = 256'))
    assert report("--arch", "gfx1032", "--strict") == 1
    said = capsys.readouterr().out
    assert "gfx1032 was asked for" in said and said.isascii() is False, "the folder's name is shown as it is"
    facts = born(home, "cpu-for-gfx1032")
    assert facts["findings"][0]["code"] == "ARCH_ABSENT" and facts["asked"] == "gfx1032"
    assert facts["subject"]["arch"] == "cpu" and facts["parameters"]["01"] == {"arch": "cpu", "tokens": 64}
    copy = (home / "outputs" / "cpu-for-gfx1032" / "notebooks" / "01_one.ipynb").read_text(encoding="utf-8")
    assert "cpu 64\\n" in copy
    assert report("--arch", "gfx1032") == 0, "without --strict it is no failure, and what is there is kept"


# ---- running, and running again


def test_one_that_dies_does_not_stop_the_others_and_resume_runs_it_again(home, capsys, monkeypatch):
    houses.build(
        home,
        n01_good=measures("01", "good"),
        n03_dies=measures("03", "half", then="import os\nos._exit(7)"),
        n05_raises=measures("05", "some", "tokens: int = 1", then="raise ValueError('bad')"),
        n12_verdict=measures("12", "verdict"),
    )
    run = home / "outputs" / "cpu"
    assert report() == 1
    said = capsys.readouterr().out
    facts = born(home)
    assert {n: row["status"] for n, row in facts["notebooks"].items()} == {
        "01": "ok", "03": "crashed", "05": "failed", "12": "ok"
    }  # fmt: skip
    assert (facts["notebooks"]["03"]["cell"], facts["notebooks"]["03"]["exit"]) == ("takeaway", 7)
    assert facts["schema"] == "rocmlab-birth-1" and facts["started"] <= facts["ended"] and facts["resumed"] is None
    assert len(results.rows(run, "half")) == 1, "what was measured before the crash is kept"
    assert re.search(r"^03_dies +crashed +\d+\.\d s +cell takeaway: exit code 7$", said, re.MULTILINE)
    assert "4 notebook(s) to run, about 24 s" in said and f"Page: {run / 'index.html'}" in said

    # A second run repeats what ended badly and what only reads; a changed value repeats its notebook alone.
    houses.build(home, n03_dies=measures("03", "half"))
    assert report("--set", "tokens=2") == 1
    said = capsys.readouterr().out
    assert re.search(r"^01_good +ok .*kept from before", said, re.MULTILINE) and "3 notebook(s) to run" in said
    assert born(home)["notebooks"]["03"]["status"] == "ok"
    assert [len(attempts(run, table)) for table in ("good", "half", "some", "verdict")] == [1, 2, 2, 2]

    answer = readers.answer(run)
    assert (answer["kind"], answer["verdict"]) == ("run", "FAILED")
    assert answer["numbers"]["notebooks_ok"] == 3 and "Notebook 05 failed" in answer["sentence"]
    assert readers.answer(run / "run.json")["numbers"] == answer["numbers"]

    # Everything is kept: the certificate stays as it is.
    before = (run / "run.json").read_bytes()
    assert report("--only", "01,03") == 0 and (run / "run.json").read_bytes() == before

    # The page fails: said, exit 1, records kept.
    use_page(monkeypatch, houses.page(fails="no template"))
    assert report("--only", "01") == 1
    assert "could not be built (ValueError: no template)" in capsys.readouterr().out
    assert results.rows(run, "good")


def attempts(run: Path, table: str) -> set[str]:
    text = (run / "records" / f"{table}.jsonl").read_text(encoding="utf-8")
    return {json.loads(line)["attempt"] for line in text.splitlines()}


def test_the_key_depends_on_what_a_number_depends_on():
    base = {"values": {"a": 1}, "subject": {"arch": "cpu", "name": "x"}, "snapshot": machine(), "model": "m"}
    key = birth.key(**base)
    assert key == birth.key(**{**base, "values": {"a": 1, "run_dir": "elsewhere"}})
    assert key == birth.key(**{**base, "snapshot": {**machine(), "host": {"memory_bytes": 1}}})
    others = [
        {"values": {"a": 2}},
        {"subject": {"arch": "gfx1032", "name": "x"}},
        {"subject": {"arch": "cpu", "name": "y"}},
        {"snapshot": {**machine(), "torch_version": "2.9.1"}},
        {"snapshot": {**machine(), "torch_version_hip": "7.1"}},
        {"snapshot": {**machine(), "driver": "26.1"}},
        {"snapshot": {**machine(), "env": {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}}},
        {"model": "other"},
    ]
    assert len({key, *(birth.key(**{**base, **other}) for other in others)}) == len(others) + 1


def test_strict_reads_the_findings_of_the_page(home, monkeypatch):
    houses.build(home, n01_one=notebook({"a": "1"}))
    for status, expected in (("ok", 0), ("unknown", 0), ("warn", 1), ("broken", 1)):
        found = {"verdict": "X", "status": "ok", "sections": {"01": [{"code": "X", "status": status}]}}

        def build(run, lang, found=found):
            results.write_json(run / "findings.json", found)
            return run / "index.html"

        use_page(monkeypatch, type("page", (), {"build": staticmethod(build)}))
        assert report("--strict") == expected
    assert report() == 0


@pytest.mark.parametrize(
    ("title", "on_cpu", "seconds"),
    [
        ("Takes 3 / 2 min and 2 GiB.", True, 180),
        ("Takes 3 / 2 min and 2 GiB.", False, 120),
        ("Takes 3 min on two cores, 6 min on a gaming card.", True, 180),
        ("Takes 3 min on two cores, 6 min on a gaming card.", False, 360),
        ("About 0.5 minutes", False, 30),
        ("under half a minute", True, 30),
        ("no figure", True, 60),
    ],
)
def test_the_estimate_comes_from_the_title_or_from_last_time(title, on_cpu, seconds):
    book = house.Book("03", "03_x", notebook({}, title=f"# 03 What?\n\n{title}"), {}, True)
    subject = {"device": "cpu" if on_cpu else "cuda:0"}
    assert house.estimate(book, subject, {}) == seconds
    assert house.estimate(book, subject, {"status": "ok", "seconds": 7.5}) == 7.5
    assert house.estimate(book, subject, {"status": "failed", "seconds": 7.5}) == seconds


def test_the_moving_line_is_rewritten_on_a_terminal_and_plain_in_a_pipe(capsys):
    class Screen:
        encoding, text, live = "cp1252", "", True

        def isatty(self):
            return self.live

        def write(self, text):
            self.text += text.encode(self.encoding).decode(self.encoding)

        def flush(self):
            pass

    screen = Screen()
    line = progress.Progress("[1/2] 03_x", 185, screen)
    line("measure", 1)
    line("measure", 1.1)  # too soon to say again
    line("table", 62)
    line.done("03_x ok 中")
    first, second, last = screen.text.split("\r")[1:]
    assert first == "[1/2] 03_x  measure  1 s of about 3 min 05 s" and second.startswith(
        "[1/2] 03_x  table  1 min 02 s"
    )
    assert last.rstrip() == "03_x ok \\u4e2d" and last.endswith("\n") and len(last) > len(second)
    screen.text, screen.live = "", False
    plain = progress.Progress("a", 4000, screen)
    plain(None, 0)
    plain("measure", 1)
    plain("measure", 9)
    assert screen.text.splitlines() == ["a  starting  0 s of about 1 h 06 min", "a  measure  1 s of about 1 h 06 min"]


# ---- interrupted, and a full disk


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(home), **more}


def started(home: Path, *words: str, **more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "rocmlab.cli", "report", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=home, env=environment(home, **more), **pipes)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal does")
def test_ctrl_c_keeps_everything_and_leaves_no_process(tmp_path):
    home = houses.with_package(tmp_path)
    houses.build(
        home,
        n01_good=measures("01", "good"),
        n02_long=measures("02", "half", then="import time\nopen('hanging', 'w').close()\ntime.sleep(600)"),
        n03_later=measures("03", "never"),
    )
    run = home / "outputs" / "cpu"
    process = started(home)
    wait_for(run / "hanging")
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert kernels
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 130 and b"Traceback" not in out + error, (out, error)
    assert "stopped by Ctrl-C" in error.decode() and "goes on from there" in out.decode()
    rows = born(home)["notebooks"]
    assert [rows[n]["status"] for n in ("01", "02", "03")] == ["ok", "failed", "skipped"]
    assert rows["02"]["message"] == "stopped by Ctrl-C" and rows["02"]["cell"] == "takeaway"
    assert len(results.rows(run, "half")) == 1 and not results.rows(run, "never")
    assert "stopped by Ctrl-C" in (run / "notebooks" / "02_long.ipynb").read_text(encoding="utf-8")
    assert not any(kernel.is_running() for kernel in kernels) and not (run / ".lock").exists()


def wait_for(path: Path, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.05)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_disk_that_is_full_in_the_middle(home, capsys):
    houses.build(
        home,
        n01_good=measures("01", "good"),
        n02_fills=measures(
            "02", "half", then="with open('big', 'wb') as file:\n    while True: file.write(bytes(65536))"
        ),
        n03_later=measures("03", "never"),
    )
    (home / "outputs").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(home / "outputs")], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert report() == 1
        said = capsys.readouterr().out
        assert "nearly full" in said and "The disk is full, so the report stopped" in said and "Traceback" not in said
        run = home / "outputs" / "cpu"
        assert len(results.rows(run, "good")) == 1 and len(results.rows(run, "half")) == 1
        facts = born(home)
        assert facts["notebooks"]["01"]["status"] == "ok" and facts["notebooks"]["02"]["status"] != "ok"
        (run / "big").unlink()
        houses.build(home, n02_fills=measures("02", "half"))
        assert report() == 0 and len(attempts(run, "good")) == 1, "it goes on from where it stopped"
    finally:
        subprocess.run(["umount", str(home / "outputs")], check=True)


# ---- consoles and paths


@pytest.mark.parametrize("encoding", ["gbk", "cp1252"])
def test_any_console_and_any_path(tmp_path, encoding):
    home = houses.with_package(tmp_path / "我的 {house}")
    good = notebook({"a": "print('µ ✓ 中文')\nraise ValueError('µ ✓ 中文')"})
    houses.build(home, n01_says=good)
    process = started(home, PYTHONIOENCODING=encoding)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 1 and b"Traceback" not in out + error, (out, error)
    text = out.decode(encoding)
    assert re.search(r"^01_says +failed", text, re.MULTILINE) and "\\u2713" in text
    assert ("我的 {house}" if encoding == "gbk" else "\\u6211") in text


def test_a_usage_error_of_the_module_run_by_name(tmp_path):
    home = houses.build(houses.with_package(tmp_path), n01_a=notebook({"a": "1"}))
    process = started(home, "--set", "x=1", PYTHONIOENCODING="gbk")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and error.startswith(b"rocmlab: --set: no notebook has a parameter"), error


def test_further_case_without_a_tag(shared, home):
    expected = json.loads((shared / "cases" / "expected.json").read_text(encoding="utf-8"))
    expected = expected.get("cases", expected)["nb-03-no-parameters-tag.ipynb"]
    text = (shared / "cases" / "nb-03-no-parameters-tag.ipynb").read_text(encoding="utf-8")
    houses.build(home, n01_case=text)
    given = [f"{key}={value}" for key, value in expected["parameters"].items()]
    said = refused("--set", *given)
    assert said.startswith(expected["verdict"]) and all(word in said.lower() for word in expected["must_say"])
    assert not (home / "outputs").exists()


def test_a_notebook_whose_measuring_process_died_is_no_success(tmp_path):
    """The kernel was well all the time; the child that measured was not, and the next run must try again."""
    run = results.start("03", str(tmp_path))
    run.append("processes", {"what": "generation 0", "status": "OK", "words": "ended normally"})
    row = {"status": "ok", "message": None, "seconds": 1.0}
    assert runner._children(tmp_path, "03", row) == row
    run.append("processes", {"what": "generation 1", "status": "CRASH", "words": "ended by SIGSEGV"})
    ended = runner._children(tmp_path, "03", row)
    assert ended["status"] == "crashed"
    assert "1 of 2" in ended["message"]
    assert "SIGSEGV" in ended["message"]
    assert runner._children(tmp_path, "04", row) == row


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"new_tokens": 1}, "new_tokens is 1"),
        ({"prompts": -3}, "prompts is -3"),
        ({"model": "random:bogus"}, "not a known shape"),
        ({"model": "/nope"}, "neither a folder"),
    ],
)
def test_values_that_cannot_work_are_refused_before_anything_runs(values, said):
    with pytest.raises(UsageError, match=said):
        runner._refuse([values])
    runner._refuse([{"new_tokens": 2, "prompts": 1, "model": "random:tiny"}])
