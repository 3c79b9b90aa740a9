"""JupyterLab as a person uses it: notebook 04 opened in a browser, a cell edited, Run All, and again."""

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from browsers import chromium, lacking

from rocmlab import results

ROOT = Path(__file__).resolve().parent.parent
START_S, RUN_S = 60, 150  # other tests run beside this one
TINY = """run_dir: str = ""
arch: str = "cpu"
model: str = "random:tiny"
hub_model: str = "none/none"
subject_dtype: str = "float32"
cpu_dtype: str = "float32"
decode_lengths: list[int] = [16, 32, 48]
decode_tokens: int = 4
steady_visits: int = {visits}
stamp_steps: int = 2
more_processes: int = 0
limit_s: int = 120"""
# What the browser asks for in vain without anything being wrong: parts of an address, each with its reason. None is
# known: an own configuration folder and no network leave nothing to complain about.
HARMLESS: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A copy of package and notebooks, so that a run in JupyterLab leaves nothing in this checkout."""
    home = tmp_path_factory.mktemp("a lab 实验")
    for name in ("rocmlab", "notebooks"):
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    return home


@pytest.fixture(scope="module")
def address(home):
    """The address of a JupyterLab of our own, on a free port, with a token."""
    if importlib.util.find_spec("jupyterlab") is None:
        lacking("jupyterlab is not installed")
    token, log = secrets.token_hex(16), home / "lab.log"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'notebooks'}"]
    env = {**os.environ, "PYTHONPATH": str(home), "HF_HUB_OFFLINE": "1"}
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        env[f"JUPYTER_{name}"] = str(home / ".jupyter" / name.lower())
    with log.open("wb") as file:
        server = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, cwd=home
        )
    try:
        yield _answering(server, log), token
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _answering(server, log: Path) -> str:
    """Wait until the server answers and return its address."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        said = log.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        if found:
            try:
                urllib.request.urlopen(f"{found.group()}api", timeout=5).close()
                return found.group()
            except urllib.error.URLError:
                pass
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


@pytest.fixture
def page(address):
    """A browser page, what its console complained about, and what it asked for in vain."""
    with chromium("--disable-gpu") as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        complaints: list[str] = []
        missing: list[str] = []
        page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page, complaints, missing


def edit(page, visits: int) -> None:
    """Write other values into the parameters cell, as a person does: click, select all, type."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").first
    cell.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(TINY.format(visits=visits))


def run_all(page) -> None:
    """Choose Run, Run All Cells in the menu."""
    page.get_by_role("menuitem", name="Run", exact=True).first.click()
    page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).first.click()


def finished(page, prompt: str) -> int:
    """Wait until the last cell has run, again after `prompt`, and return its number."""
    deadline = time.monotonic() + RUN_S
    last = page.locator(".jp-Notebook .jp-CodeCell").last
    while time.monotonic() < deadline:
        said = last.locator(".jp-InputPrompt").inner_text()
        if re.fullmatch(r"\[\d+\]:", said) and said != prompt:
            return int(said[1:-2])
        assert page.locator(".jp-RenderedText[data-mime-type*=stderr] >> text=Traceback").count() == 0
        time.sleep(0.3)
    raise AssertionError(f"the last cell still shows {said} after {RUN_S} s")


def shown(page) -> tuple[int, str]:
    """Return (figures that are drawn, what the last cell says)."""
    last = page.locator(".jp-Notebook .jp-CodeCell").last
    last.scroll_into_view_if_needed()
    last.locator(".jp-RenderedMarkdown").first.wait_for(timeout=10_000)
    drawn = (
        "[...document.querySelectorAll('.jp-OutputArea-output img')].filter(i => i.complete && i.naturalWidth > 700)"
    )
    return page.evaluate(f"{drawn}.length"), last.locator(".jp-OutputArea").inner_text()


def steady(home: Path) -> list[int]:
    """Return how many steady texts of the shortest prompt the newest attempt of notebook 04 has."""
    rows = results.rows(home / "outputs" / "interactive", "lengths")
    return [sum(r.get("visit") == "steady" and r.get("kind") == "hand" and r["length"] == 16 for r in rows)]


@pytest.mark.timeout(480)
def test_notebook_04_in_jupyterlab(address, page, home):
    (url, token), (page, complaints, missing) = address, page
    page.goto(f"{url}lab/tree/04_prefill_decode.ipynb?token={token}")
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.wait_for(timeout=40_000)
    edit(page, visits=2)
    run_all(page)
    first = finished(page, "")
    figures, said = shown(page)
    assert figures >= 3 and re.search(r"\d", said) and re.search("[\u4e00-\u9fff]", said)
    assert steady(home) == [2]
    page.locator(".jp-Notebook .jp-CodeCell").first.scroll_into_view_if_needed()
    edit(page, visits=3)
    run_all(page)
    assert finished(page, f"[{first}]:") > first
    figures, said = shown(page)
    assert figures >= 3 and re.search(r"\d", said) and steady(home) == [3]
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert [url for url in missing if not any(part in url for part in HARMLESS)] == []
    told = [one for one in complaints if "Failed to load resource" not in one]  # which, is in `missing`
    assert told == []
