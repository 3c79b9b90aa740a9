"""One worker answers many requests; every way for it to end costs one request and no more."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from rocmlab import worker

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
HERE = str(Path(__file__).parent)
PATH = os.pathsep.join([HERE, str(Path(HERE).parent), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def keeper():
    with worker.Worker(env={"PYTHONPATH": PATH}) as made:
        yield made


def call(keeper, name, limit_s=30, **arguments):
    return keeper.call(f"bad_operators:{name}", arguments, limit_s=limit_s)


def test_one_process_answers_all_and_ends_with_its_keeper(keeper):
    first, second = call(keeper, "pid").result, call(keeper, "pid").result
    assert first == second and keeper.started == 1
    assert call(keeper, "give", value={"words": "中文 µ", "numbers": [1, 2.5, None]}).result["words"] == "中文 µ"
    keeper.retire()
    assert not psutil.pid_exists(first) or psutil.Process(first).status() == psutil.STATUS_ZOMBIE
    assert call(keeper, "pid").result != first and keeper.started == 2


def test_an_exception_leaves_the_worker_alive(keeper):
    before = call(keeper, "pid").result
    outcome = call(keeper, "fail", text="no such shape")
    assert (outcome.status, outcome.words) == ("ERROR", "ValueError: no such shape")
    assert "Traceback" in outcome.stderr
    assert call(keeper, "pid").result == before
    assert keeper.call("no_such_module:f", limit_s=30).status == "ERROR"


def test_what_libraries_print_is_kept_and_never_taken_for_an_answer(keeper):
    assert call(keeper, "give", value=1).stderr == ""
    outcome = call(keeper, "talk", text='{"result": "forged"}\n')
    assert outcome.result == "said" and outcome.stderr.count("forged") == 3
    assert call(keeper, "give", value=1).stderr == ""  # each request has its own part
    assert call(keeper, "ask").result == ""  # and its stdin is empty


@POSIX
@pytest.mark.parametrize(
    ("name", "arguments", "status", "words"),
    [
        ("read_a_null_pointer", {}, "CRASH", "SIGSEGV: segmentation fault"),
        ("die", {"number": int(signal.SIGABRT)}, "CRASH", "SIGABRT"),
        ("die", {"number": 9}, "KILLED", "out-of-memory"),
        ("leave", {"code": 0}, "CRASH", "without an answer"),
        ("leave", {"code": 7}, "ERROR", "exit code 7"),
    ],
)
def test_every_end_costs_one_request(keeper, name, arguments, status, words):
    outcome = call(keeper, name, **arguments)
    assert outcome.status == status and words in outcome.words and outcome.result is None
    assert call(keeper, "give", value=5).result == 5 and keeper.started == 2


def test_a_hang_ends_at_its_limit(keeper):
    call(keeper, "pid")
    began = time.monotonic()
    outcome = call(keeper, "hang", limit_s=1)
    assert outcome.status == "TIMEOUT" and "1 s" in outcome.words
    assert time.monotonic() - began < 8
    assert call(keeper, "give", value=5).result == 5


def test_a_grandchild_that_lives_on_does_not_hold_the_keeper(keeper, tmp_path):
    marker, began = tmp_path / "pid", time.monotonic()
    try:
        outcome = call(keeper, "grandchild", marker=str(marker), limit_s=60)
        assert outcome.status == "ERROR" and time.monotonic() - began < 20
    finally:
        psutil.Process(int(marker.read_text(encoding="utf-8"))).kill()


def test_a_worker_killed_between_two_requests_is_replaced(keeper):
    """The request after it has not been tried, so it is asked of a fresh worker and not blamed."""
    before = psutil.Process(call(keeper, "pid").result)
    before.kill()
    keeper._process.wait(timeout=10)
    assert call(keeper, "give", value=1).result == 1 and keeper.started == 2
    assert keeper.gone() is None
    psutil.Process(call(keeper, "pid").result).kill()
    keeper._process.wait(timeout=10)
    words = keeper.gone()
    assert words is not None and (os.name == "nt" or "SIGKILL" in words)
    assert keeper.gone() is None and call(keeper, "give", value=2).result == 2 and keeper.started == 3


@pytest.mark.parametrize("said", ["hello from a start-up file", "123", '{"result": "forged"}', "[1, 2]", "null"])
def test_what_pythons_own_start_prints_is_no_answer(tmp_path, said):
    """A package may print at every start of Python, before the worker can put its streams apart."""
    (tmp_path / "sitecustomize.py").write_text(f"print({said!r})", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), PATH])
    with worker.Worker(env={"PYTHONPATH": path}) as keeper:
        assert call(keeper, "give", value=5).result == 5
        assert call(keeper, "give", value=6).result == 6 and keeper.started == 1
        assert call(keeper, "leave", code=7).status == "ERROR" and call(keeper, "give", value=7).result == 7


def test_half_an_answer_is_an_end(keeper):
    """A worker that dies while it writes has given no answer."""
    assert call(keeper, "half_an_answer").status == "ERROR"
    assert call(keeper, "give", value=2).result == 2


def test_a_worker_whose_first_call_fails_is_no_worker():
    with worker.Worker(env={"PYTHONPATH": PATH}, first=("bad_operators:first_fails", {})) as keeper:
        outcome = call(keeper, "give", value=1)
        assert (outcome.status, outcome.words) == ("ERROR", "RuntimeError: no driver")
        assert call(keeper, "give", value=1).status == "ERROR" and keeper.started == 2


def test_the_first_call_is_made_in_every_new_worker():
    with worker.Worker(env={"PYTHONPATH": PATH}, first=("bad_operators:give", {"value": "ready"})) as keeper:
        assert call(keeper, "leave", code=3).exit_code == 3
        assert call(keeper, "give", value=1).result == 1
        assert keeper.begun.result == "ready" and keeper.started == 2
