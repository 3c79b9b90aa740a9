"""Records survive crashes, hold valid JSON only, and name nobody."""

import getpass
import json
import socket
from pathlib import Path

import pytest

from rocmlab import results


@pytest.fixture
def run(tmp_path):
    return results.start("03", str(tmp_path / "run"))


def test_rows_come_back_in_order_with_their_stamp(run):
    run.append("speed", [{"value": 1}, {"value": 2}])
    run.append("speed", {"value": 3})
    rows = results.rows(run.path, "speed")
    assert [row["value"] for row in rows] == [1, 2, 3]
    assert {row["notebook"] for row in rows} == {"03"}
    assert all(row["method_version"] and row["at"] for row in rows)


def test_only_the_newest_attempt_counts_and_the_older_stays_in_the_file(run, tmp_path):
    run.append("speed", {"value": 1})
    again = results.start("03", str(run.path))
    again.append("speed", {"value": 2})
    assert [row["value"] for row in results.rows(run.path, "speed")] == [2]
    assert len((run.path / "records" / "speed.jsonl").read_text(encoding="utf-8").splitlines()) == 2


def test_a_cut_last_line_costs_itself_only_also_after_the_next_append(run):
    run.append("speed", [{"value": 1}, {"value": 2}])
    path = run.path / "records" / "speed.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [row["value"] for row in results.rows(run.path, "speed")] == [1]
    run.append("speed", {"value": 3})
    assert [row["value"] for row in results.rows(run.path, "speed")] == [1, 3]
    assert results.parse_lines(path.read_text(encoding="utf-8"))[1] == 1


def test_not_a_number_is_written_as_null_with_a_reason(run):
    run.append("speed", {"rate": float("nan"), "error": float("inf"), "many": [1.0, float("-inf")]})
    text = (run.path / "records" / "speed.jsonl").read_text(encoding="utf-8")
    row = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} was written"))
    assert row["rate"] is None
    assert "nan" in row["rate_reason"]
    assert row["error"] is None
    assert "inf" in row["error_reason"]
    assert row["many"] == [1.0, None]


def test_lines_that_are_no_objects_are_counted():
    records, damaged = results.parse_lines('{"a": 1}\n[1]\n\nnot json\n{"b": 2}\n{"c": ')
    assert (records, damaged) == ([{"a": 1}, {"b": 2}], 3)


def test_nothing_measured_is_an_empty_list(run):
    assert results.rows(run.path, "never") == []
    assert results.birth(run.path) == {}


def test_json_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    results.write_json(path, {"state": "old"})

    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        results.write_json(path, {"state": "new"})
    assert results.read_json(path) == {"state": "old"}


def test_a_file_that_is_held_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    real, tries = Path.replace, []

    def held(self, target):
        tries.append(target)
        if len(tries) < 3:
            raise PermissionError(13, "held by a virus scanner")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", held)
    results.write_text(tmp_path / "a.txt", "text")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "text"
    assert len(tries) == 3


@pytest.fixture
def somebody(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "mayalin")
    monkeypatch.setattr(socket, "gethostname", lambda: "maya-desktop.lan")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/mayalin"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/mayalin/models/a.bin", "~/models/a.bin"),
        ("log in as mayalin, please", "log in as <user>, please"),
        ("on maya-desktop.lan and maya-desktop", "on <host> and <host>"),
        (r"C:\Users\Somebody\AppData\x.dll", r"C:\Users\<user>\AppData\x.dll"),
        (r"c:\\users\\somebody\\x", r"c:\\users\\<user>\\x"),
        ("/home/other/rocm and /Users/third/x", "/home/<user>/rocm and /Users/<user>/x"),
        ("mayalinda is another word", "mayalinda is another word"),
        ("gfx1032, 30.2 tok/s", "gfx1032, 30.2 tok/s"),
    ],
)
def test_nobody_is_named(somebody, text, shown):
    assert results.redact({"a": [text]}) == {"a": [shown]}


def test_an_ordinary_account_name_does_not_damage_the_text(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    monkeypatch.setattr(Path, "home", lambda: Path("/root"))
    assert results.redact("the square root; /root/x; /rootless/y") == "the square root; ~/x; /rootless/y"


def test_a_machine_without_an_account_entry_still_writes(monkeypatch, run):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr(getpass, "getuser", nobody)
    run.append("speed", {"value": 1})
    assert results.rows(run.path, "speed")[0]["value"] == 1


def test_a_child_process_appends_to_the_same_run(tmp_path):
    run = results.start("03", str(tmp_path))
    given = run.where()
    child = results.Run(Path(given["run_dir"]), given["notebook"], given["attempt"])
    child.append("table", {"value": 1})
    assert [row["value"] for row in run.rows("table")] == [1]
