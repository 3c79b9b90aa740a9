"""What is pasted elsewhere survives there: Markdown without tags, pictures that exist, whole tables; a bug report."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import page_case
import pytest

from rocmlab import bugreport, findings, pages, results, sections

TAG = re.compile(r"<(?!https?:)/?[A-Za-z][^>\n]*>")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]*)\)")


def faults(path: Path) -> list[str]:
    """Return what GitHub, Zhihu or CSDN would drop or break in a Markdown file."""
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found = [f"a tag: {one}" for one in TAG.findall(re.sub(r"`[^`\n]*`", "", prose))]
    for alt, target in PICTURE.findall(prose):
        if re.match(r"(?i)data:|https?:|/|\w:\\", target) or not target.lower().endswith((".png", ".jpg", ".jpeg")):
            found.append(f"a picture that is no file beside it: {target[:60]}")
        elif not (path.parent / target).is_file():
            found.append(f"a picture that is not there: {target}")
        if not alt.strip():
            found.append(f"a picture without words: {target}")
    lines = prose.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("|") and not lines[number - 1].startswith("|"):
            found += [f"a table that begins inside a paragraph: {line}"] if number and lines[number - 1].strip() else []
            block = list(_block(lines[number:]))
            widths = {len(re.findall(r"(?<!\\)\|", one)) for one in block}
            if len(block) < 2 or not re.fullmatch(r"\|( ?:?-+:? ?\|)+", block[1]) or len(widths) > 1:
                found.append(f"a broken table: {line}")
    if prose.count("```") % 2:
        found.append("an open code block")
    return found


def _block(lines):
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = page_case.built(tmp_path_factory.mktemp("posts 帖子"))
    bugreport.write(run, sections.collect(run))
    return run


def test_every_markdown_of_a_run_survives(run):
    files = sorted(run.glob("*.md"))
    assert {"01.md", "03.zh.md", "summary.md", "summary.zh.md", "bug-report.md"} <= {one.name for one in files}
    assert {one.name: faults(one) for one in files if faults(one)} == {}
    assert any(PICTURE.search(one.read_text(encoding="utf-8")) for one in files)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a <br> b", "a tag"),
        ("text <user> text", "a tag"),
        ("![](figures/x.png)", "not there"),
        ("![alt](data:image/png;base64,xx)", "no file beside"),
        ("![alt](figures/x.svg)", "no file beside"),
        ("text\n| a | b |\n| --- | --- |", "inside a paragraph"),
        ("\n| a | b |\n| --- | --- |\n| 1 |", "broken table"),
        ("```text\nopen", "open code"),
    ],
)
def test_the_check_sees_what_it_is_for(tmp_path, text, fault):
    path = tmp_path / "x.md"
    path.write_text(text, encoding="utf-8")
    assert any(fault in one for one in faults(path)), faults(path)


# ---- the bug report


def snapshot(**changes):
    """A Windows machine with an RX 6650 XT under an override, as far as a report needs one."""
    device = {"index": 0, "name": "AMD Radeon RX 6650 XT", "gcnArchName": "gfx1030", "total_memory": 8573157376}
    launch = {"op": "mm", "ok": True, "error": None, "max_abs_err": 1e-6}
    return {
        "schema": "rocmlab-probe-1",
        "platform": "Linux-6.8.0",
        "python": "3.12.7",
        "torch_version": "2.9.1+rocm7.1",
        "torch_version_hip": "7.1.25424",
        "torch_version_cuda": None,
        "cuda_is_available": True,
        "device_count": 1,
        "arch_list": ["gfx1030", "gfx1100"],
        "devices": [device],
        "gpus": [{"name": "AMD Radeon RX 6650 XT", "vendor": "AMD", "pci_id": "1002:73ef", "arch": "gfx1032"}],
        "driver": {"amdgpu": "6.14.14"},
        "env": {"HSA_OVERRIDE_GFX_VERSION": "10.3.0", "MIOPEN_FIND_MODE": "2"},
        "host": {"cpu": "AMD Ryzen 5 3600"},
        "versions": {"rocm-sdk-core": "7.1.0", "transformers": "5.0.0"},
        "launch_probe": {**launch, "per_device": [{"index": 0, **launch}]},
    } | changes


def written(tmp_path, **changes) -> str:
    run = tmp_path / "run"
    run.mkdir()
    birth = {
        "schema": "rocmlab-birth-1",
        "method_version": 1,
        "subject": {"arch": "gfx1030"},
        "snapshot": snapshot(**changes),
    }
    results.write_json(run / "run.json", birth)
    path = bugreport.write(run, sections.collect(run))
    assert path.name == "bug-report.md" and faults(path) == []
    return path.read_text(encoding="utf-8")


def table(text: str) -> dict[str, str]:
    rows = re.findall(r"(?m)^\| (.+?) \| (.+) \|$", text)
    return dict(rows[1:])


def test_the_versions_that_maintainers_ask_for(tmp_path):
    rows = table(written(tmp_path))
    wanted = {
        "OS": "Linux-6.8.0",
        "CPU": "AMD Ryzen 5 3600",
        "GPU": "AMD Radeon RX 6650 XT (7.98 GiB)",
        "gfx target": "gfx1030 (the card itself: gfx1032)",
        "driver": "amdgpu 6.14.14",
        "ROCm/HIP of torch": "7.1.25424",
        "ROCm packages": "rocm-sdk-core 7.1.0",
        "torch": "2.9.1+rocm7.1",
        "transformers": "5.0.0",
        "Python": "3.12.7",
        "overrides": "HSA_OVERRIDE_GFX_VERSION=10.3.0 = gfx1030",
        "other variables": "MIOPEN_FIND_MODE=2",
    }
    assert {key: rows[key] for key in wanted} == wanted and "right value" in rows["launch of a small product"]


def test_what_is_not_known_says_so(tmp_path):
    rows = table(
        written(tmp_path, env=None, driver=None, gpus=[], platform=None, torch_version=None, torch_version_hip=None)
    )
    for key in ("OS", "driver", "torch", "overrides", "other variables", "ROCm/HIP of torch"):
        assert rows[key] == "unknown", key


def test_nothing_private_and_one_line_a_code(tmp_path):
    text = written(tmp_path, env={"MIOPEN_USER_DB_PATH": "/home/zelda/db", "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUv"})
    assert "zelda" not in text and "AbCdEfGh" not in text
    codes = re.findall(r"(?m)^- \*\*(\w+)\*\*", text)
    assert len(codes) == len(set(codes)) and len(codes) <= bugreport.SHOWN


def test_a_run_without_anything_still_gives_a_report(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "data" / "run", run)
    (run / "run.json").write_text(json.dumps({"schema": "rocmlab-birth-1"}), encoding="utf-8")
    (run / "records" / "snapshot.jsonl").unlink()
    assert "### Versions" in bugreport.markdown(run, sections.collect(run))


def test_what_was_seen_stands_before_what_could_not_be_told():
    every = [findings.finding("UNKNOWN_CONTENT", file="x", kinds="y"), findings.finding("RECORDS_ODD"),
             findings.finding("DAMAGED_LINES", numbers={"records": 3, "damaged_lines": 1})]  # fmt: skip
    said = bugreport.found([sections.Section("03", "?", findings=every)])
    ranks = [bugreport.ORDER.index(re.search(r"\((\w+)\): ", line)[1]) for line in said]
    assert len(ranks) == 3 and ranks == sorted(ranks) and len(set(ranks)) > 1


def test_a_chinese_page_has_no_english_line_of_costs():
    cell = nbformat.v4.new_markdown_cell("# 03 How?\n\nTakes 3 min on two cores.", id="title")
    for lang, costs in (("en", True), ("zh", False)):
        made = pages.prepared(nbformat.v4.new_notebook(cells=[cell]), "03", lang, ())
        assert ("Takes" in made.cells[0].source) == costs and made.cells[0].source.startswith("# 03 ")
