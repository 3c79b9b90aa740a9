"""What all figures share: colours, footer, widths, and files that every machine draws the same way."""

import re

import page_case
from page_case import texts

from rocmlab import figures


def test_roles_have_fixed_colours():
    given = figures.roles(["CPU, float32", "GPU, float16", "GPU, float32", "other"])
    assert given["CPU, float32"].colour == "#0072B2" and given["GPU, float16"].colour == "#D55E00"
    assert len({role.colour for role in given.values()}) == 4
    for role in (*figures.ROLES.values(), *figures.OTHERS):
        assert contrast(role.text) >= 4.5


def contrast(colour: str) -> float:
    """WCAG contrast against white."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def test_the_footer_carries_what_a_picture_needs():
    text = figures.footer_text(
        card="Card (gfx1031)", model="m", dtype="float16", batch=1, n=6, date="2026-11-28T01:02:03", notice="CPU run"
    )
    assert text == "CPU run · Card (gfx1031) · m · float16 · batch 1 · n = 6 · 2026-11-28"
    assert page_case.FOOTER in [said.replace("\u00a0", " ") for said in texts(page_case.bars())]


def test_files_are_the_same_on_every_drawing(tmp_path):
    once = [path.read_bytes() for path in figures.save(page_case.bars(), tmp_path / "a", "bars")]
    again = [path.read_bytes() for path in figures.save(page_case.bars(), tmp_path / "b", "bars")]
    assert once == again
    svg = (tmp_path / "a" / "bars.svg").read_text(encoding="utf-8")
    assert "<text" not in svg and "short factual" not in re.sub(r"<!--.*?-->", "", svg)  # letters are outlines
    assert figures.save(page_case.bars(), tmp_path, "only", ("png",)) == [tmp_path / "only.png"]


def test_narrow_figures_fit_a_phone_with_nothing_cut_off():
    with figures.narrow():
        drawn = [page_case.bars(), page_case.dots()]
    for figure in drawn:
        figure.canvas.draw()
        assert figure.get_figwidth() == figures.NARROW_IN
        box = figure.get_tightbbox()
        assert box.x0 > -0.02 and box.x1 < figures.NARROW_IN + 0.02
    assert page_case.bars().get_figwidth() == figures.WIDE_IN


def test_drawing_leaves_the_user_s_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    page_case.bars()
    assert dict(matplotlib.rcParams) == before
