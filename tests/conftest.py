"""Shared fixtures: the folder of extra cases, where a checkout has one beside it. And: CI accepts no skipped test."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parent.parent.parent / "shared"
NO_CASES = "no folder of further cases beside this checkout"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of further cases and samples beside the checkout; tests that only check more skip without it."""
    folder = Path(os.environ.get("ROCMLAB_SHARED", BESIDE))
    if not (folder / "cases").is_dir():
        pytest.skip(NO_CASES)
    return folder


def _forbidden_skips(config: pytest.Config) -> list[str]:
    """Return the skips that CI does not accept; its machine has all that a test may need, except those cases."""
    if os.environ.get("CI") != "true":
        return []
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skips = reporter.stats.get("skipped", []) if reporter else []
    return [f"{one.nodeid}: {one.longrepr[2]}" for one in skips if NO_CASES not in str(one.longrepr)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _forbidden_skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in _forbidden_skips(config):
        terminalreporter.write_line(f"FAILED in CI, where no test may be skipped: {line}", red=True)
