"""Where children keep compiled modules: only where Python may write none and torch has none."""

import importlib.util
import os
import subprocess
import sys

import pytest

from rocmlab import bytecode, isolate


@pytest.fixture(autouse=True)
def forgetful(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCMLAB_CACHE", str(tmp_path / "cache"))
    bytecode.variables.cache_clear()
    yield
    bytecode.variables.cache_clear()


def without_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(importlib.util, "cache_from_source", lambda path: str(tmp_path / "none.pyc"))


def test_nothing_is_set_where_python_may_write_or_torch_is_compiled(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert bytecode.variables() == {}
    bytecode.variables.cache_clear()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(importlib.util, "cache_from_source", lambda path: __file__)
    assert bytecode.variables() == {} and not (tmp_path / "cache").exists()


def test_children_share_a_folder_of_the_cache_where_python_may_write_none(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    without_compiled(monkeypatch, tmp_path)
    folder = tmp_path / "cache" / "bytecode"
    assert bytecode.variables() == {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}
    own = tmp_path / "one_noun.py"
    own.write_text("x = 1\n", encoding="utf-8")
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **isolate.child_environment(), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import one_noun"], env=env, check=True)
    assert [path.name.split(".")[0] for path in folder.rglob("one_noun.*")] == ["one_noun"]


def test_a_folder_that_cannot_be_made_costs_nothing_but_time(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    without_compiled(monkeypatch, tmp_path)
    (tmp_path / "cache").write_text("a file stands there", encoding="utf-8")
    assert bytecode.variables() == {}
