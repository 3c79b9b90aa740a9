"""The committed form of a notebook: what goes, what stays."""

import json

from rocmlab import strip


def executed() -> dict:
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "venv-rocm", "display_name": "mine", "language": "python"},
            "language_info": {"name": "python", "version": "3.12.1"},
            "papermill": {"exception": None},
        },
        "cells": [
            {
                "id": "title",
                "cell_type": "markdown",
                "metadata": {"tags": ["lang-zh"]},
                "source": ["# 问题?\r\n", "行\n"],
            },
            {
                "id": "params",
                "cell_type": "code",
                "metadata": {"tags": ["parameters"], "papermill": {"duration": 1.5}, "execution": {"x": 1}},
                "source": "a: int = 1\nb: int = 2\n",
                "execution_count": 7,
                "outputs": [{"output_type": "stream", "name": "stdout", "text": "3"}],
            },
        ],
    }


def test_outputs_and_foreign_metadata_go_while_ids_tags_and_source_stay():
    title, params = strip.stripped(executed())["cells"]
    assert title == {
        "cell_type": "markdown", "id": "title", "metadata": {"tags": ["lang-zh"]}, "source": ["# 问题?\n", "行"]
    }  # fmt: skip
    assert params == {
        "cell_type": "code",
        "id": "params",
        "metadata": {"tags": ["parameters"]},
        "source": ["a: int = 1\n", "b: int = 2"],
        "execution_count": None,
        "outputs": [],
    }
    assert strip.stripped(executed())["metadata"]["kernelspec"]["name"] == "python3"


def test_check_says_it_and_changes_nothing_then_a_second_strip_finds_nothing(tmp_path, capsys):
    path = tmp_path / "03_some question.ipynb"
    path.write_text(json.dumps(executed()), encoding="utf-8")
    before = path.read_bytes()
    assert strip.main(["--check", str(tmp_path)]) == 1
    assert path.read_bytes() == before and "differs" in capsys.readouterr().out
    assert strip.main([str(path)]) == 0
    assert strip.main(["--check", str(path)]) == 0
    assert "问题" in path.read_text(encoding="utf-8") and b"\r" not in path.read_bytes()


def test_a_file_that_is_no_notebook_gets_a_sentence(tmp_path, capsys):
    path = tmp_path / "broken.ipynb"
    path.write_text('{"cells": [{}]}', encoding="utf-8")
    assert strip.main([str(path)]) == 2
    assert "broken.ipynb is no notebook" in capsys.readouterr().err
    assert strip.main([str(tmp_path / "absent.ipynb")]) == 2
