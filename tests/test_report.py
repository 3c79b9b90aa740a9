"""The page from a made-up run folder: what it says, that nothing outside is needed, and that damage never stops it."""

import itertools
import json
import re
from pathlib import Path

import page_case
import pytest
from page_case import soup

from rocmlab import findings, outline, report, results, sections, words

# An address in the text (an install command) asks for nothing; in an attribute or a style sheet it would.
OUTSIDE = re.compile(r"=\s*[\"']?https?:|[\"'(]//|@import|url\(|<script|javascript:|<iframe", re.IGNORECASE)


@pytest.fixture(autouse=True)
def providers(monkeypatch):
    page_case.provide(monkeypatch, n03=page_case.generation)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        page_case.provide(patch, n03=page_case.generation)
        patch.setattr(results.getpass, "getuser", lambda: "zhangwei")
        patch.setattr(results.socket, "gethostname", lambda: "WEI-TOWER")
        run = page_case.copy(tmp_path_factory.mktemp("page"))
        notebook = run / "notebooks" / "01_environment.ipynb"
        text = notebook.read_text(encoding="utf-8").replace("not bold", "not bold, says zhangwei on WEI-TOWER")
        notebook.write_text(text, encoding="utf-8")
        page_case.change_birth(run, subject={**results.birth(run)["subject"], "why": "zhangwei asked for it"})
        assert report.build(run, "en") == run / "index.html"
    return run


def pages(run: Path) -> list[Path]:
    return [*sorted(run.glob("index*.html")), *sorted((run / "pages").glob("*.html"))]


# ---- the whole


def test_every_promised_file_is_there(built):
    names = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    wanted = {"index.html", "index.zh.html", "findings.json", "summary.md", "summary.zh.md"}
    wanted |= {f"pages/{n}{lang}.html" for n in ("01", "03") for lang in ("", ".zh")}
    wanted |= {f"{n}{lang}.md" for n in ("01", "03") for lang in ("", ".zh")}
    wanted |= {f"figures/03-{name}" for name in ("ratio.png", "ratio.svg", "ratio-narrow.png", "samples.png")}
    assert wanted <= names
    assert not [name for name in names if name.endswith(".tmp")]


def test_pages_need_nothing_from_outside(built):
    for path in pages(built):
        assert not OUTSIDE.findall(path.read_text(encoding="utf-8")), path.name
        page = soup(path)
        for tag in page.find_all(["img", "source", "link"]):
            address = tag.get("src") or tag.get("srcset") or tag.get("href")
            assert address.startswith("data:"), path.name


def test_every_link_leads_to_a_file_or_a_place_on_the_page(built):
    for path in pages(built):
        page = soup(path)
        ids = [tag["id"] for tag in page.find_all(id=True)]
        assert len(ids) == len(set(ids)), path.name
        for link in page.find_all("a", href=True):
            target = link["href"]
            if target.startswith("#"):
                assert target[1:] in ids, (path.name, target)
            else:
                assert (path.parent / target).is_file(), (path.name, target)
        for tag in page.find_all(attrs={"aria-labelledby": True}):
            assert tag["aria-labelledby"] in ids


def test_every_picture_has_words(built):
    for path in pages(built):
        for picture in soup(path).find_all("img"):
            assert len(picture.get("alt", "")) > 8, path.name


def test_structure_for_keyboard_and_screen_reader(built):
    for path in pages(built):
        page = soup(path)
        assert page.html["lang"] == ("zh-CN" if ".zh." in path.name else "en")
        assert len(page.find_all("h1")) == 1, path.name
        assert page.title.string.strip()
        levels = [int(tag.name[1]) for tag in page.find_all(re.compile(r"^h[1-6]$"))]
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), (path.name, levels)
        assert page.find("header") and page.find("main") and page.find("footer") and page.find("nav")
        assert page.body.find("a")["class"] == ["skip"]
        for cell in page.select("thead th"):
            assert cell["scope"] == "col"
        for cell in page.select("tbody th"):
            assert cell["scope"] == "row"


def test_small_enough_to_send(built):
    assert (built / "index.html").stat().st_size < 3_000_000


def test_nothing_personal(built):
    for path in built.rglob("*"):
        if path.suffix in {".html", ".md"} or path.name == "findings.json":
            text = path.read_text(encoding="utf-8")
            assert "zhangwei" not in text and "WEI-TOWER" not in text, path.name
    assert "says &lt;user&gt; on &lt;host&gt;" in (built / "pages" / "01.html").read_text(encoding="utf-8")


# ---- what it says


def test_title_and_answers_equal_findings_json(built):
    data = json.loads((built / "findings.json").read_text(encoding="utf-8"))
    assert (data["verdict"], data["status"]) == ("UNKNOWN_CONTENT", "unknown")
    for lang, file in (("en", "index.html"), ("zh", "index.zh.html")):
        page = soup(built / file)
        assert page.select_one("h1 .card").text == data["title"][lang]["card"] == "AMD Radeon RX 6700 XT (gfx1031)"
        assert page.select_one("h1 .verdict").text == data["title"][lang]["verdict"]
        assert page.select_one("h1 .verdict")["data-code"] == data["verdict"]
        for question in ("works", "slow"):
            said = page.select_one(f"#{question} .sentence").text
            assert data["answers"][question][lang]["sentence"] in said
    assert "largest difference 3.80e-06" in data["answers"]["works"]["en"]["sentence"]
    assert data["answers"]["faster"]["code"] is None
    assert data["answers"]["faster"]["en"]["sentence"].startswith("Not measured: notebook 11 was not run")


def test_provenance_says_on_what_and_when(built):
    line = soup(built / "index.html").select_one(".provenance").text
    for part in ("12.0 GiB", "Windows 10 (10.0.19045)", "torch 2.8.0a0+gitc0ffee1", "HIP 6.4.43480", "made-up model"):
        assert part in line
    assert line.rstrip().endswith("2026-11-28")


def test_each_language_has_only_its_own_words(built):
    for file, own, foreign in (
        ("01.html", "The card computes.", "显卡可以计算。"),
        ("01.zh.html", "显卡可以计算。", "The card computes."),
    ):
        text = (built / "pages" / file).read_text(encoding="utf-8")
        assert own in text and foreign not in text
    for file, own, foreign in (
        ("index.html", "Decode rate of each prompt.", "每个提示词的 decode 速度。"),
        ("index.zh.html", "每个提示词的 decode 速度。", "Decode rate of each prompt."),
    ):
        assert own in (built / file).read_text(encoding="utf-8")
        assert foreign not in (built / file).read_text(encoding="utf-8")


def test_the_other_language_can_be_the_main_one(tmp_path):
    run = page_case.copy(tmp_path)
    report.build(run, "zh")
    assert soup(run / "index.html").html["lang"] == "zh-CN"
    assert soup(run / "index.en.html").html["lang"] == "en"
    assert soup(run / "index.html").select_one(".top a")["href"] == "index.en.html"
    assert soup(run / "index.en.html").select_one("#n03").parent.select_one(".evidence a")["href"] == "pages/03.en.html"


def test_a_crashed_notebook_is_said_and_what_it_measured_stays(built):
    page = soup(built / "index.html")
    part = page.select_one("#n03").parent
    assert "crashed in cell text" in part.select_one(".notice").text
    assert "0xC0000005" in part.select_one(".notice").text
    assert part.select_one("table.data") is not None and part.find("img") is not None
    assert "03" in page.select_one(".notices").text
    reasons = {row.th.text.split()[0]: row.td.text for row in page.select("table.missing tbody tr")}
    assert "crashed" in reasons["03"]
    assert set(reasons) == {f"{n:02d}" for n in range(2, 14)}


def test_a_figure_that_cannot_be_drawn_is_said(built):
    assert "The figure broken could not be drawn (ValueError: no such column)" in soup(built / "index.html").text


def test_numbers_in_the_table(built):
    rows = {r.th.text: r for r in soup(built / "index.html").select("#n03 ~ .scroll tbody tr")}
    cells = [cell.text for cell in rows["short factual"].find_all("td")]
    assert cells == ["14.1 13.9–14.4", "24.9 24.1–25.3", "1.77"]
    lost = rows["long form"].find_all("td")[1]
    assert (lost.text, lost["title"]) == ("–", "no value: the kernel died <here>")
    assert lost["aria-label"] == lost["title"]
    assert "num" in lost["class"]


def test_damaged_records_are_counted(built):
    notice = soup(built / "index.html").select_one(".notices").text
    assert "Damaged lines left out of generation.jsonl: 1" in notice


def test_summary_can_be_pasted(built):
    text = (built / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("## AMD Radeon RX 6700 XT (gfx1031): ")
    assert "| short factual | 14.1 (13.9–14.4) | 24.9 (24.1–25.3) | 1.77 |" in text
    assert "**What would make it faster?** Not measured: " in text
    assert "notebook 03 crashed in cell `text`" in text
    assert "<" not in text.replace("<here>", "")


def test_discarded_suspects_only_when_there_are_any(tmp_path, monkeypatch):
    run = page_case.copy(tmp_path)
    report.build(run)
    assert soup(run / "index.html").select_one("#discarded") is None
    refuted = findings.finding("UNKNOWN_SCHEMA", file="bandwidth", schema="13% of the roof", known="none")

    def with_suspect(path):
        made = page_case.generation(path)
        made.discarded = [refuted]
        return made

    page_case.provide(monkeypatch, n03=with_suspect)
    report.build(run)
    block = soup(run / "index.html").select_one("#discarded").parent
    assert "13% of the roof" in block.select_one("li").text


def test_a_section_says_its_answer_first_and_folds_what_is_more(tmp_path, monkeypatch):
    noisy = findings.finding("UNKNOWN_SCHEMA", file="noise", schema="s", known="k")
    answer = findings.finding("LAUNCH_RIGHT", card="Card", arch="gfx1031", op="mm", numbers={"max_abs_err": 1e-6})

    def section(path):
        made = page_case.generation(path)
        made.findings = [noisy, answer]
        return made

    page_case.provide(monkeypatch, n03=section)
    run = page_case.copy(tmp_path)
    report.build(run)
    part = soup(run / "index.html").select_one("#n03").parent
    first, second = part.select(".takeaway")
    assert "Card (gfx1031) computes" in first.strong.text and "noise" in second.text and second.strong is None
    assert [figure["id"] for figure in part.find_all("figure", recursive=False)] == ["fig-03-ratio"]
    fold = part.select_one("details.more")
    assert fold.summary.text == words.word("more", "en", number=2)
    assert [figure["id"] for figure in fold.find_all("figure")] == ["fig-03-samples"]


# ---- notices


def notices(run: Path) -> str:
    report.build(run)
    found = soup(run / "index.html").select_one(".notices")
    return found.text if found else ""


def test_another_card_was_asked_for(tmp_path):
    run = page_case.copy(tmp_path)
    cpu = {"device": "cpu", "arch": "cpu", "name": "AMD Ryzen 5 3600", "index": None, "why": "no accelerator here"}
    absent = findings.finding("ARCH_ABSENT", asked="gfx1032", cpu="AMD Ryzen 5 3600")
    snapshot = {**sections.snapshot(run), "system_gpus": []}
    (run / "records" / "snapshot.jsonl").unlink()
    page_case.change_birth(run, subject=cpu, asked="gfx1032", findings=[absent], snapshot=snapshot)
    for lang, said in (("en", "gfx1032 was asked for"), ("zh", "要求的是 gfx1032")):
        report.build(run, lang)
        page = soup(run / "index.html")
        assert said in page.select_one(".notices").text
        assert page.select_one("h1 .card").text == "AMD Ryzen 5 3600 (CPU)"
        assert page.select_one("h1 .verdict").text == words.word("verdict_cpu", lang)
        assert said in (run / "summary.md").read_text(encoding="utf-8")
    data = json.loads((run / "findings.json").read_text(encoding="utf-8"))
    assert data["notices"][0]["code"] == "ARCH_ABSENT"


def test_an_override_and_a_busy_machine(tmp_path):
    run = page_case.copy(tmp_path)
    page_case.change_birth(
        run, variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, load={"load_1min": 17.26, "cores": 12}
    )
    said = notices(run)
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in said
    assert "load 17.3 on 12 cores" in said


def test_a_quiet_run_has_no_notice(tmp_path):
    run = page_case.copy(tmp_path)
    row = {"status": "ok", "seconds": 3.0}
    page_case.change_birth(run, notebooks={"01": row, "03": row})
    lines = (run / "records" / "generation.jsonl").read_text(encoding="utf-8").splitlines()
    (run / "records" / "generation.jsonl").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    assert notices(run) == ""


# ---- damage


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path, monkeypatch):
    page_case.provide(monkeypatch, n03=lambda run: results.rows(run, "generation")[0])
    run = tmp_path / "empty"
    run.mkdir()
    report.build(run)
    page = soup(run / "index.html")
    assert "no readable run.json" in page.select_one(".notices").text
    assert page.select_one("h1 .verdict").text == words.word("verdict_none", "en")
    assert all("not measured" in tag.text for tag in page.select(".answer .tag"))
    assert len(page.select("table.missing tbody tr")) == 13


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"notebooks": ["01"], "subject": 3, "git": "x", "load": "high"}'])
def test_a_damaged_run_json(tmp_path, text):
    run = page_case.copy(tmp_path)
    (run / "run.json").write_text(text, encoding="utf-8")
    report.build(run)
    assert "AMD Radeon RX 6700 XT" in soup(run / "index.html").select_one("h1").text


def test_records_nobody_understands(tmp_path, monkeypatch):
    def confused(run):
        raise KeyError("decode_tok_s")

    page_case.provide(monkeypatch, n03=confused)
    run = page_case.copy(tmp_path)
    page_case.change_birth(run, notebooks={"03": {"status": "ok", "seconds": 1.0}})
    report.build(run)
    assert (
        "could not be understood (KeyError: 'decode_tok_s')" in soup(run / "index.html").select_one("#n03").parent.text
    )


@pytest.mark.parametrize("content", [b"", b'{"cells": [', b"\xff\xfe\x00", b"[]", b'{"nbformat": 4}'])
def test_a_damaged_notebook_costs_only_its_page(tmp_path, content):
    run = page_case.copy(tmp_path)
    (run / "notebooks" / "03_generation.ipynb").write_bytes(content)
    report.build(run)
    assert "could not be read" in soup(run / "pages" / "03.html").select_one(".notice").text
    assert "The card computes." in soup(run / "pages" / "01.html").text


@pytest.mark.parametrize("status", [*outline.DIED, "skipped"])
def test_every_way_to_end_has_its_words(tmp_path, status):
    run = page_case.copy(tmp_path)
    row = {"status": status, "seconds": None, "cell": None, "code_cell": 4, "message": "Because of this.\nmore"}
    page_case.change_birth(run, notebooks={"03": row})
    for lang in words.LANGUAGES:
        said = outline.why_not(outline.read(run), "03", lang)
        assert "Because of this." in said and "more" not in said and "{" not in said


def test_a_missing_folder_is_an_error_with_words(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such run folder"):
        report.build(tmp_path / "nowhere")


def test_a_card_that_does_not_compute(tmp_path):
    run = page_case.copy(tmp_path)
    probe = {**sections.snapshot(run), "torch_version": "2.8.0+cpu", "torch_version_hip": None, "devices": []}
    probe |= {"device_count": 0, "cuda_is_available": False, "launch_probe": None}
    row = {"run": "gfx1031", "notebook": "01", "attempt": "99", **probe}
    (run / "records" / "snapshot.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    report.build(run)
    data = json.loads((run / "findings.json").read_text(encoding="utf-8"))
    assert (data["verdict"], data["status"]) == ("WRONG_BUILD_CPU", "broken")
    assert soup(run / "index.html").select_one("h1 .verdict").text == words.word("verdict_dead", "en")


# ---- notebook pages


def test_code_is_folded_and_there(built):
    page = soup(built / "pages" / "01.html")
    block = page.select_one("#measure details")
    assert "device.snapshot()" in block.text and not block.has_attr("open")


def test_a_progress_flood_shrinks_to_its_end(built):
    text = soup(built / "pages" / "01.html").select_one("#measure").text
    assert "3/3" in text and "1/3" not in text and "0/3" not in text


def test_colours_of_a_terminal_become_classes(built):
    page = soup(built / "pages" / "01.html")
    assert page.select_one("#setup .ansi-red-fg").text == "red words"
    assert "<b>not bold" in page.select_one("#setup .stdout pre").text
    assert "\x1b" not in page.text


def test_a_long_output_is_folded(built):
    fold = soup(built / "pages" / "03.html").select_one("#setup .out details")
    assert "64 lines" in fold.summary.text and "loaded tensor 063" in fold.text


def test_errors_and_the_banner_are_visible(built):
    page = soup(built / "pages" / "03.html")
    assert "AssertionError: texts differ at token 41" in page.select_one("#check .error > p").text
    assert "This notebook crashed" in page.select_one("#status-en").text
    assert page.select_one("#status-zh") is None
    assert page.select_one("#text .never") is not None and page.select_one("#setup .never") is None


def test_html_that_wants_a_script_is_shown_as_text(built):
    output = soup(built / "pages" / "03.html").select_one("#measure .out")
    assert output.text.strip() == "8 rows"


def test_pages_lead_on(built):
    assert soup(built / "pages" / "01.html").select_one(".pager a")["href"] == "03.html"
    assert soup(built / "pages" / "03.zh.html").select_one(".pager a")["href"] == "01.zh.html"


def test_the_question_is_in_the_reader_s_language(built):
    assert soup(built / "pages" / "03.zh.html").h1.text.strip() == f"03 {words.word('question_03', 'zh')}"


def test_markdown_for_a_blog(built):
    text = (built / "01.md").read_text(encoding="utf-8")
    assert "![Orange area that rises to the right](figures/01-fig-card-0.png)" in text
    assert (built / "figures" / "01-fig-card-0.png").read_bytes().startswith(b"\x89PNG")
    assert "| RX 6700 XT | 12.0 |" in text and "The card.\n" in text and "显卡" not in text
    assert "**The card computes.**" in text
    assert "<div" not in text and "\x1b" not in text
    assert "向右升高的橙色区域" in (built / "01.zh.md").read_text(encoding="utf-8")
