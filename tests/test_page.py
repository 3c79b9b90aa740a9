"""The pages in a real browser: two widths, two schemes, two languages; nothing asked from outside, nothing broken."""

import page_case
import pytest
from browsers import chromium

PAGES = ("index.html", "index.zh.html", "pages/01.html", "pages/03.html", "pages/03.zh.html")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return page_case.built(tmp_path_factory.mktemp("a page with 空格"))


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser, run):
    """Open a page of the run; returns (page, complaints, requests)."""
    contexts = []

    def opened(name: str, width: int, scheme: str, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, **options
        )
        contexts.append(context)
        page, complaints, requests = context.new_page(), [], []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((run / name).as_uri())
        return page, complaints, requests

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_in_the_browser(open_page, name, width, scheme):
    page, complaints, requests = open_page(name, width, scheme)
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in requests) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth])")
    assert all(complete and natural > 0 for complete, natural in sizes)
    assert len(sizes) == {"index": 2, "pages": 1 if "01" in name else 0}[name.split("/")[0].split(".")[0]]


# WCAG's formula, on the colours that the browser really shows, against the nearest background that is not transparent.
FAINT_TEXT = """() => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = parts(c).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if ((parts(c)[3] ?? 1) > 0) return c; } return 'rgb(255, 255, 255)'; };
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push([e.tagName, e.className, e.textContent.trim().slice(0, 30), ratio.toFixed(2)]);
  }
  return faint;
}"""


@pytest.mark.parametrize("name", ["index.html", "pages/01.html", "pages/03.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(open_page, name, scheme):
    page, _, _ = open_page(name, 1100, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(FAINT_TEXT) == []


def test_a_phone_gets_the_narrow_figures(open_page):
    shown = "[...document.images].map(i => i.naturalWidth)"
    page, _, _ = open_page("index.html", 390, "light")
    narrow = page.evaluate(shown)
    page, _, _ = open_page("index.html", 1100, "light")
    assert all(small < 800 < 1400 <= large for small, large in zip(narrow, page.evaluate(shown), strict=True))


def test_the_keyboard_reaches_links_and_folds(open_page):
    page, _, _ = open_page("index.html", 1100, "light")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.locator("#n03 ~ details.how summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#n03 ~ details.how p").is_visible()


def test_the_answers_stand_on_the_first_screen(open_page):
    page, _, _ = open_page("index.html", 1100, "light")
    assert page.locator("#works").bounding_box()["y"] < 600


def test_printing_opens_the_folds(open_page):
    page, _, _ = open_page("index.html", 1100, "light")
    page.emulate_media(media="print")
    assert page.locator("#n03 ~ details.how p").bounding_box()["height"] > 10
    assert not page.locator(".contents").is_visible()


def test_the_languages_lead_to_each_other(open_page):
    page, _, _ = open_page("index.html", 390, "light")
    page.locator(".top a").click()
    assert page.url.endswith("index.zh.html")
    page.locator(".top a").click()
    assert page.url.endswith("index.html") and page.locator("html").get_attribute("lang") == "en"
