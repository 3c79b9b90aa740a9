"""What the person at the keyboard types and sees: sentences, exit codes, and consoles of any encoding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocmlab import cli


def run(*arguments, cwd=None, **environment):
    command = [sys.executable, "-m", "rocmlab.cli", *map(str, arguments)]
    env = {**os.environ, **environment}
    env["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), env.get("PYTHONPATH", "")])
    return subprocess.run(command, capture_output=True, env=env, cwd=cwd, timeout=120, check=False)


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "测量 µ {1}.json"
    path.write_text(
        '{"schema": "rocmlab-generation-1", "prompt_tokens": 5, "new_tokens": 3, "max_new_tokens": 9, '
        '"t_start_s": 0, "t_first_token_s": 0.5, "t_end_s": 1.5}',
        encoding="utf-8",
    )
    return path


def test_read_says_verdict_numbers_and_advice(record, capsys):
    assert cli.main(["read", str(record)]) == 0
    shown = capsys.readouterr().out
    assert "STOPPED_EARLY" in shown
    assert "3 of 9" in shown
    assert "->" in shown


def test_json_is_one_ascii_object_a_line(record, capsys):
    assert cli.main(["read", "--json", str(record), str(record)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    found = json.loads(lines[0])
    keys = ["file", "schema", "kind", "verdict", "status", "sentence", "numbers", "advice", "findings"]
    assert list(found)[: len(keys)] == keys
    assert lines[0].isascii()


def test_a_file_that_cannot_be_opened_does_not_stop_the_others(record, tmp_path, capsys):
    assert cli.main(["read", str(tmp_path / "absent.json"), str(record)]) == 2
    shown = capsys.readouterr()
    assert "absent.json" in shown.err
    assert "STOPPED_EARLY" in shown.out


def test_unknown_content_is_exit_2_and_says_what_can_be_read(tmp_path, capsys):
    path = tmp_path / "poem.txt"
    path.write_text("Roses are red", encoding="utf-8")
    assert cli.main(["read", str(path)]) == 2
    assert "What can be read" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii", "utf-8"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_console_makes_it_fail(record, encoding, lang):
    done = run("read", record, "--lang", lang, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert "STOPPED_EARLY" in done.stdout.decode(encoding, errors="replace")


def test_console_characters_of_the_case_print_everywhere(shared):
    text = (shared / "cases" / "nb-08-console-characters.txt").read_text(encoding="utf-8")
    wanted = json.loads((shared / "cases" / "expected.json").read_text(encoding="utf-8"))
    for item in wanted["nb-08-console-characters.txt"]["items"]:
        missing = sorted({f"U+{ord(c):04X}" for c in text if not _can(c, item["encoding"])})
        assert missing == item["cannot_encode"]
        code = "import sys; from rocmlab import cli; cli.calm(); print(sys.argv[1])"
        env = {**os.environ, "PYTHONIOENCODING": item["encoding"], "PYTHONPATH": str(Path.cwd())}
        done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, env=env, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def _can(character, encoding):
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def test_usage_errors_are_exit_2():
    with pytest.raises(SystemExit) as stop:
        cli.main(["reprot"])
    assert stop.value.code == 2


def test_a_sentence_of_ours_becomes_exit_2_without_a_traceback(monkeypatch, capsys):
    def refuse(_):
        raise cli.UsageError("there is no such thing; try another.")

    monkeypatch.setitem(cli.VERBS, "report", refuse)
    assert cli.main(["report"]) == 2
    assert capsys.readouterr().err == "rocmlab: there is no such thing; try another.\n"


def test_ctrl_c_is_a_sentence(monkeypatch, capsys):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.VERBS, "read", stop)
    assert cli.main(["read", "x"]) == 130
    assert "kept" in capsys.readouterr().err
