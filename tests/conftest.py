"""Shared fixtures: the folder of extra cases, where a checkout has one beside it."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parent.parent.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of further cases and samples beside the checkout; tests that only check more skip without it."""
    folder = Path(os.environ.get("ROCMLAB_SHARED", BESIDE))
    if not (folder / "cases").is_dir():
        pytest.skip("no folder of further cases beside this checkout")
    return folder
