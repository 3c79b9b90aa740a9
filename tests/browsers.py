"""A real browser for the tests that look at a page; where it is missing they are skipped, in CI they fail."""

import contextlib
import os
import shutil

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


def lacking(reason: str):
    """Skip with the reason; where everything must be there, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def chromium(*flags: str):
    """Start the browser and close it at the end."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking("playwright is not installed")
    if CHROMIUM is None:
        lacking("no chromium on this machine")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        yield started
        started.close()
