"""What a launch costs: the empty kernel is really compiled; a chain that breaks names its step; judged each way."""

import pytest

from rocmlab import compiler_check, empty_kernel, findings, isolate, launch_cost, results


def rows(torch_us=6.5, driver_us=2.5, call_us=0.5, **changes):
    """Both layers' rows: torch's smallest operator and the empty kernel, with what ctypes takes added to the latter."""
    made = [{"what": "torch_smallest", "layer": "torch", "samples_us": [torch_us] * 9, "drained_us": [torch_us] * 9}]
    below = [driver_us + call_us] * 9 if driver_us is not None else []
    made.append({"what": "empty_kernel", "layer": "driver", "samples_us": below, "drained_us": below} | changes)
    made[1]["call_us"] = call_us
    return made


# ---- the empty kernel


@pytest.fixture(scope="module")
def compiled():
    if not compiler_check.libraries():
        pytest.skip("no HIPRTC here (Debian: libamdhip64-5)")
    return isolate.call("test_launch_cost:compile_one", {"arch": "gfx1032"}, limit_s=30, env=_here())


def _here():
    from pathlib import Path

    folder = Path(__file__).resolve().parent
    return {"PYTHONPATH": f"{folder.parent}{__import__('os').pathsep}{folder}"}


def compile_one(arch):
    """Runs in a child: what the compiler made, as plain values."""
    found = empty_kernel.compiled(arch)
    return {"bytes": len(found["image"].raw), "starts": found["image"].raw[:4].hex(), "compiler": found["compiler"]}


def test_the_empty_kernel_compiles_for_a_card_that_is_not_here(compiled):
    assert compiled.status == "OK", compiled.stderr
    assert compiled.result["starts"] == b"\x7fELF".hex() and compiled.result["bytes"] > 500


def test_without_a_card_the_chain_ends_at_a_named_step(compiled):
    given = {"arch": "gfx1032", "index": 0, "blocks": 2, "launches": 5}
    found = isolate.call("rocmlab.empty_kernel:launch", given, limit_s=60).result
    if found["reason"] is None:
        pytest.skip("there is a card here")
    assert found["steps"][-1]["ok"] is False and found["reason"].startswith(found["steps"][-1]["step"])
    assert found["enqueue_us"] == [] and len(found["steps"]) >= 1


def test_no_library_is_a_reason(monkeypatch):
    monkeypatch.setattr(empty_kernel, "drivers", lambda kind: [])
    found = empty_kernel.launch("sm_90", 0, 1, 1)
    assert found["reason"] == "load the driver: no such library was found"


def test_what_ctypes_takes_is_a_time():
    assert 0.01 < empty_kernel._call_us(50) < 1000


def test_a_child_that_dies_names_the_step_in_which_it_did():
    ended = isolate.Outcome(
        "CRASH", "ended by SIGSEGV", -11, 1.0, None, None, "", "step: compile\nstep: load the kernel\n"
    )
    found = launch_cost.answered(ended)
    assert found["reason"] == "load the kernel: ended by SIGSEGV"
    assert [step["ok"] for step in found["steps"]] == [True, False]
    silent = isolate.Outcome("TIMEOUT", "still running", None, 9.0, None, None, "", "")
    assert launch_cost.answered(silent) == {"reason": "still running", "steps": []}


# ---- measured here


def test_on_a_cpu_nothing_is_launched_and_the_row_says_so(tmp_path):
    run = results.start("06", str(tmp_path))
    launch_cost.torch_smallest(run, {}, "cpu")
    assert launch_cost.driver(run, {}, {"device": "cpu"}, limit_s=5) == {}
    dispatch, below = results.rows(tmp_path, "launch_cost")
    assert dispatch["what"] == "torch_smallest_on_cpu" and len(dispatch["samples_us"]) == launch_cost.BLOCKS
    assert 0.1 < min(dispatch["samples_us"]) < 1000
    assert below["samples_us"] == [] and "CPU" in below["reason"]
    assert launch_cost.judge([dispatch, below]) == []


# ---- judged


@pytest.mark.parametrize(("driver_us", "variant"), [(5.0, None), (2.0, "framework")])
def test_whose_cost_a_launch_is(driver_us, variant):
    (found,) = launch_cost.judge(rows(6.5, driver_us))
    assert found["variant"] == variant and found["numbers"]["driver_launch_us"] == pytest.approx(driver_us)
    assert found["numbers"]["driver_pct"] == pytest.approx(100 * driver_us / 6.5)


def test_one_layer_alone_keeps_the_reason_of_the_other():
    (found,) = launch_cost.judge(rows(driver_us=None, reason="compile: no such library was found"))
    assert found["variant"] == "torch_only" and "compile" in findings.say(found)["sentence"]
    (found,) = launch_cost.judge(rows()[1:])
    assert found["variant"] == "driver_only" and "not measured" in findings.say(found)["sentence"]
    assert launch_cost.judge([]) == []


def test_the_time_of_ctypes_is_taken_off_but_never_below_zero():
    assert launch_cost.cost(rows(driver_us=2.5, call_us=0.5))["driver_launch_us"].median == pytest.approx(2.5)
    assert launch_cost.cost(rows(driver_us=-0.2, call_us=0.5))["driver_launch_us"].median == 0.0
