"""The whole report as a stranger runs it: every notebook with tiny.yaml; the bundled model once. No speed asserted."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rocmlab import bundled, findings, rates, results

pytest.importorskip("torch")

HOUSE = Path(__file__).resolve().parent.parent


def report(name, *arguments):
    """Run `rocmlab report` in the checkout, as the Makefile does; return (exit code, what it printed, run folder)."""
    command = [sys.executable, "-m", "rocmlab.cli", "report", "--name", name, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOUSE), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, env=env, cwd=HOUSE, timeout=550, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace"), HOUSE / "outputs" / name


@pytest.fixture(scope="module")
def tiny():
    name = f"e2e-{os.getpid()}"
    code, printed, run = report(name, "--params", "params/tiny.yaml", "--arch", "gfx1032")
    yield code, printed, run
    shutil.rmtree(run, ignore_errors=True)


def committed():
    return [path.name[:2] for path in sorted((HOUSE / "notebooks").glob("[0-9][0-9]_*.ipynb"))]


def test_every_notebook_of_the_house_ran(tiny):
    code, printed, run = tiny
    assert code == 0, printed
    ended = results.birth(run)["notebooks"]
    assert {number: row["status"] for number, row in ended.items()} == dict.fromkeys(committed(), "ok")
    for number in committed():
        assert (run / "pages" / f"{number}.html").stat().st_size > 1000
        assert (run / f"{number}.md").exists()


def test_another_card_was_asked_for_and_everything_says_so(tiny):
    _, printed, run = tiny
    if results.birth(run)["subject"]["device"] != "cpu":
        pytest.skip("this machine has an accelerator")
    assert "gfx1032" in printed
    for page in ("index.html", "index.zh.html"):
        text = (run / page).read_text(encoding="utf-8")
        assert "gfx1032" in text
    code, printed, _ = report(run.name, "--params", "params/tiny.yaml", "--arch", "gfx1032", "--strict")
    assert code == 1
    assert "kept from before" in printed


def test_records_hold_what_was_asked_for(tiny):
    _, _, run = tiny
    rows = results.rows(run, "generation")
    steady = [row for row in rows if row["visit"] == "steady" and row["kind"] == "main"]
    arms = len({row["arm"] for row in steady})
    assert len(steady) == arms * 2 * 3  # two prompts, three repeats, one process
    for row in rows:
        assert len(row["token_stamps_s"]) == row["new_tokens"] == row["max_new_tokens"]
        found = rates.rates(row)
        assert found["decode_tok_s"] > 0
        assert found["e2e_tok_s"] < row["new_tokens"] / row["t_first_token_s"]
    for path in (run / "records").glob("*.jsonl"):
        records, damaged = results.parse_lines(path.read_text(encoding="utf-8"))
        assert records
        assert damaged == 0


def test_findings_are_known_codes_in_both_languages(tiny):
    _, _, run = tiny
    told = json.loads((run / "findings.json").read_text(encoding="utf-8"))
    for section in told["sections"].values():
        for one in section:
            assert one["code"] in findings.messages()
            assert one["en"]["sentence"]
            assert one["zh"]["sentence"]
    assert set(told["answers"]) == {"works", "slow", "faster"}


def test_nobody_is_named_in_the_run_folder(tiny):
    _, _, run = tiny
    names = [str(Path.home()), str(HOUSE)]
    host = socket.gethostname()
    if len(host) > 3 and host != "localhost":
        names.append(host)
    for path in run.rglob("*"):
        if path.is_file() and path.suffix in {".json", ".jsonl", ".html", ".md", ".ipynb", ".log"}:
            text = path.read_text(encoding="utf-8", errors="replace")
            assert [name for name in names if len(name) > 4 and name in text] == [], path


@pytest.mark.skipif(bundled.gguf_file() is None, reason="the bundled model's package is not installed")
def test_the_bundled_model_writes_text_that_is_checked():
    settings = ["model=bundled", "prompts=1", "repeats=1", "processes=1", "new_tokens=6", "text_tokens=8"]
    code, printed, run = report(f"e2e-text-{os.getpid()}", "--only", "03", "--set", *settings)
    try:
        assert code == 0, printed
        text = results.rows(run, "text")[0]
        assert text["subject"]["text"].split()
        assert text["logits_finite"] is True
        assert "TEXT_RIGHT" in (run / "findings.json").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(run, ignore_errors=True)
