"""Every way for a child to end, caused for real where this system can."""

import json
import os
import signal
import time

import psutil
import pytest

from rocmlab import isolate

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def give(value):
    return {"value": value}


def fail():
    raise ValueError("no such shape")


def end(code):
    os._exit(code)


def die(number):
    os.kill(os.getpid(), number)


def hang(marker):
    import subprocess
    import sys

    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(marker, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(str(grandchild.pid))
    time.sleep(600)


def flood():
    for _ in range(20_000):
        print("x" * 100)
    return "done"


def call(name, limit_s=30, **arguments):
    here = os.path.dirname(__file__)  # noqa: PTH120
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    return isolate.call(f"test_isolate:{name}", arguments, limit_s=limit_s, env={"PYTHONPATH": path})


def test_a_result_comes_back():
    outcome = call("give", value="中文 µ")
    assert (outcome.status, outcome.result, outcome.exit_code) == ("OK", {"value": "中文 µ"}, 0)


def test_an_exception_is_named_without_a_traceback_in_its_words():
    outcome = call("fail")
    assert (outcome.status, outcome.words) == ("ERROR", "ValueError: no such shape")
    assert "Traceback" in outcome.stderr


def test_an_exit_code_is_kept():
    outcome = call("end", code=7)
    assert (outcome.status, outcome.exit_code, outcome.result) == ("ERROR", 7, None)


@POSIX
@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGSEGV, "CRASH", "SIGSEGV"), (signal.SIGABRT, "CRASH", "SIGABRT"), (9, "KILLED", "out-of-memory")],
)
def test_a_signal_becomes_words(number, status, word):
    outcome = call("die", number=int(number))
    assert outcome.status == status
    assert word in outcome.words


def test_a_hang_is_ended_with_all_its_descendants(tmp_path):
    marker = tmp_path / "pid"
    began = time.monotonic()
    outcome = call("hang", limit_s=4, marker=str(marker))
    assert outcome.status == "TIMEOUT"
    assert time.monotonic() - began < 15
    grandchild = int(marker.read_text(encoding="utf-8"))
    assert not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE


def test_a_flood_is_bounded_and_does_not_block():
    outcome = call("flood")
    assert outcome.result == "done"
    assert len(outcome.stdout) <= isolate.KEPT_CHARACTERS


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, "OK"),
        (1, "ERROR"),
        (-11, "CRASH"),
        (139, "CRASH"),
        (134, "CRASH"),
        (-9, "KILLED"),
        (137, "KILLED"),
        (3221225477, "CRASH"),
        (-1073741819, "CRASH"),
        (3221225781, "DLL_NOT_FOUND"),
        (-1073740791, "CRASH"),
    ],
)
def test_exit_codes_of_both_systems(code, status):
    assert isolate.meaning(code)[0] == status


def test_exit_codes_of_the_case(shared):
    folder = shared / "cases"
    given = json.loads((folder / "ops-02-exit-codes.json").read_text(encoding="utf-8"))["items"]
    wanted = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["ops-02-exit-codes.json"]["items"]
    seen = [isolate.meaning(item["returncode"])[0] for item in given]
    assert seen == [item["verdict"] for item in wanted]


@pytest.mark.parametrize(
    ("status", "error", "stderr", "recorded"),
    [
        ("OK", None, "CUDA out of memory, tried again with half the batch", "OK"),
        ("ERROR", "RuntimeError: HIP out of memory. Tried to allocate 2 GiB", "", "OUT_OF_MEMORY"),
        ("CRASH", None, "Memory allocation failed: out of memory", "OUT_OF_MEMORY"),
        ("CRASH", None, "segmentation fault", "CRASH"),
    ],
)
def test_a_process_that_got_over_a_lack_of_memory_ended_well(tmp_path, status, error, stderr, recorded):
    from rocmlab import generate, results

    run = results.start("03", str(tmp_path))
    outcome = isolate.Outcome(status, "words", None, 1.0, None, error, "", stderr)
    assert isolate.record(run, "ended", "child", outcome)["status"] == recorded
    assert generate.ended(run, "child", outcome)["status"] == recorded
    assert run.rows("processes")[0]["stderr"] == ("" if status == "OK" else stderr)
