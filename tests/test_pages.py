"""What a terminal would show in the end, and what notebooks display, seen through a real IPython."""

import base64

import nbformat
import page_case
import pytest

from rocmlab import display, figures, findings, outline, pages, report, sections, words

BAR = "".join(f"\r{i:3d}%|{'█' * (i // 10):<10}| {i}/100 [00:0{i // 20}<00:05]" for i in range(101))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\nlines\n", "plain\nlines"),
        ("same\nsame\nsame", "same\nsame\nsame"),
        ("windows\r\nlines\r\n", "windows\nlines"),
        (BAR + "\ndone\n", "100%|██████████| 100/100 [00:05<00:05]\ndone"),
        ("outer 0\n" + BAR + "\x1b[A\router 1\n\r100 of 100\n", "outer 1\n100 of 100"),
        ("a\x1b[2K\rb\x1b[?25h", "b"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b[32mgreen\x1b[0m", "\x1b[32mgreen\x1b[0m"),
        ("gone     \r         \rleft", "left"),
        ("top\n\n\n\n\n\n\nend", "top\n\nend"),
        ("\x1b[99Aup\x00 and out", "up and out"),
    ],
)
def test_settled_text(text, shown):
    assert pages.settle(text) == shown


def test_the_flood_of_the_further_cases(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "MODULES", {})
    run = tmp_path / "run"
    (run / "notebooks").mkdir(parents=True)
    source = shared / "cases" / "nb-04-progress-flood.ipynb"
    (run / "notebooks" / "04_flood.ipynb").write_bytes(source.read_bytes())
    report.build(run)
    for name in ("pages/04.html", "04.md"):
        text = (run / name).read_text(encoding="utf-8")
        assert "400/400" in text and "decode 30.2 tok/s" in text and "/400 " in text
        assert text.count("/400 ") == 1


@pytest.fixture
def shown():
    """Run something in IPython and return what it displayed."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()

    def run(call, *arguments):
        with capture_output() as caught:
            call(*arguments)
        return caught.outputs

    yield run
    InteractiveShell.clear_instance()


def test_a_takeaway_speaks_each_language_once(shown):
    bad = findings.finding("UNKNOWN_SCHEMA", file="x.json", schema="y-1", known="z-1")
    good = findings.finding("LAUNCH_RIGHT", card="Card", arch="gfx1031", op="mm", numbers={"max_abs_err": 1e-6})
    out = shown(display.takeaway, [good, bad])
    assert [one.metadata["rocmlab"]["lang"] for one in out] == ["en", "zh"]
    english = out[0].data["text/markdown"]
    assert english.index("y-1") < english.index("Card")  # worst first
    assert out[0].data["text/plain"].startswith("[unknown] x.json")
    assert "能用" in out[1].data["text/markdown"]


def test_a_takeaway_without_findings_says_so(shown):
    out = shown(display.takeaway, [])
    assert out[0].data["text/markdown"] == words.word("nothing_to_say", "en")


def test_a_table_in_a_notebook_reaches_both_pages(shown, tmp_path):
    caption = {"en": "Speed & size", "zh": "速度与大小"}
    labels = {"prompt": {"en": "question", "zh": "提示词"}}
    out = shown(display.show_table, page_case.FRAME, caption, labels)
    assert [one.metadata["rocmlab"]["lang"] for one in out] == ["en", "zh"]
    assert "short factual    14.1 (13.9–14.4)  24.9" in out[0].data["text/plain"]
    cell = nbformat.v4.new_code_cell("show", id="table", outputs=[as_output(one) for one in out])
    node = nbformat.v4.new_notebook(cells=[cell])
    facts = outline.read(tmp_path)
    facts.notebooks["03"] = tmp_path / "notebooks" / "03_x.ipynb"
    page = pages.page(facts, "03", node, "zh", "en")
    assert "<caption>速度与大小</caption>" in page and "提示词</th>" in page
    assert "Speed" not in page and "question" not in page and page.count("<table") == 1
    assert "<caption>Speed &amp; size</caption>" in pages.page(facts, "03", node, "en", "en")
    blog = pages.markdown(facts, "03", node, "en")
    assert "Speed & size\n\n| question |" in blog and "提示词" not in blog


@pytest.mark.parametrize(
    ("absent", "missing", "said"),
    [
        ({}, None, ["idle: nothing of this kind was measured in this run.", "idle：本次运行没有测到这一项。"]),
        (
            {"idle": {"en": "it was hot", "zh": "太热"}},
            "the records are gone.",
            [
                "idle: nothing of this kind was measured in this run, because it was hot.",
                "idle：本次运行没有测到这一项，因为太热。",
            ],
        ),
        (
            {"waits": {"en": "it was hot", "zh": "太热"}},
            {"en": "no records.", "zh": "没有记录。"},
            [
                "idle: nothing of this kind was measured in this run, because no records.",
                "idle：本次运行没有测到这一项，因为没有记录。",
            ],
        ),
    ],
)
def test_a_part_that_is_not_there_says_why_in_each_language(shown, absent, missing, said):
    part = sections.Section("07", {"en": "?", "zh": "？"}, absent=absent, missing=missing)
    out = shown(display.show_part, part, "idle")
    assert [one.data["text/markdown"] for one in out] == said
    assert [one.metadata["rocmlab"]["lang"] for one in out] == ["en", "zh"]


def test_a_figure_keeps_its_words_in_both_languages(shown, tmp_path):
    figure, _ = figures.canvas()
    out = shown(display.show_figure, figure, {"en": "An empty axis", "zh": "空的坐标轴"})[0]
    assert base64.b64decode(out.data["image/png"]).startswith(b"\x89PNG")
    assert out.metadata["image/png"]["alt"] == "An empty axis"
    cell = nbformat.v4.new_code_cell("show", id="fig-x", outputs=[as_output(out)])
    facts = outline.read(tmp_path)
    facts.notebooks["03"] = tmp_path / "notebooks" / "03_x.ipynb"
    assert 'alt="空的坐标轴"' in pages.page(facts, "03", nbformat.v4.new_notebook(cells=[cell]), "zh", "en")


def as_output(shown_output):
    return nbformat.v4.new_output("display_data", dict(shown_output.data), metadata=dict(shown_output.metadata))


def test_a_picture_without_words_gets_some(tmp_path):
    picture = nbformat.v4.new_output("display_data", {"image/png": base64.b64encode(b"\x89PNG").decode()})
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", id="fig-y", outputs=[picture])])
    made = pages.prepared(node, "05", "en", pages.PAGE_TYPES)
    assert "notebook 05, cell fig-y" in made.cells[0].outputs[0].metadata["image/png"]["alt"]
    assert picture.metadata == {}  # the original is left alone


def test_redaction_spares_pictures(monkeypatch):
    monkeypatch.setattr(report.results.getpass, "getuser", lambda: "wei")
    data = "AAAA/wei/+BBB"
    picture = nbformat.v4.new_output("display_data", {"image/png": data, "text/plain": "by wei"})
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print('wei')", id="x", outputs=[picture])])
    cell = pages.redacted(node).cells[0]
    assert cell.outputs[0].data == {"image/png": data, "text/plain": "by <user>"}
    assert cell.source == "print('<user>')"


@pytest.mark.parametrize(
    "html",
    [
        "<script>x()</script>",
        '<img src="https://example.org/a.png">',
        "<img src='//example.org/a.png'>",
        '<iframe src="a.html"></iframe>',
        "<style>@import 'x'</style>",
        "<p style='background: URL(x)'>",
        '<link rel="stylesheet" href="x">',
    ],
)
def test_html_that_wants_the_network_is_passed_over(html):
    output = nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": "plain"})
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", id="x", outputs=[output])])
    made = pages.prepared(node, "05", "en", pages.PAGE_TYPES)
    assert made.cells[0].outputs[0].data == {"text/plain": "plain"}
