"""The measuring loop with a tiny model on the CPU: lengths, stamps, visits, order of measurement."""

import itertools

import pytest

from rocmlab import generate, models, results, speedup
from rocmlab.prompts import PROMPTS

torch = pytest.importorskip("torch")

CPU = {"arm": "cpu", "device": "cpu", "dtype": "float32"}
# A second arm on the same device stands in for the GPU: the order of measurement is what is tested here.
OTHER = {"arm": "gpu", "device": "cpu", "dtype": "float32"}


@pytest.fixture(scope="module")
def tiny():
    return models.load("random:tiny", "cpu", "float32")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    run = results.start("03", str(tmp_path_factory.mktemp("run")))
    plan = {"prompts": list(PROMPTS)[:2], "repeats": 2, "new_tokens": 6, "side_repeats": 2, "side_new_tokens": 3}
    side = [{"arm": "cpu_bfloat16", "device": "cpu", "dtype": "bfloat16"}]
    ended = generate.study(run, "random:tiny", [CPU, OTHER], side, processes=2, limit_s=120, **plan)
    return run, ended, results.rows(run.path, "generation")


def test_a_generation_has_exactly_the_tokens_asked_for_and_a_stamp_for_each(tiny):
    record = generate.generation(tiny, "cpu", [3, 1, 4, 1, 5], 7)
    assert record["new_tokens"] == record["max_new_tokens"] == 7
    assert len(record["token_stamps_s"]) == len(record["token_ids"]) == 7
    stamps = record["token_stamps_s"]
    assert all(early < late for early, late in itertools.pairwise(stamps))
    assert (record["t_first_token_s"], record["t_end_s"]) == (stamps[0], stamps[-1])
    assert record["t_return_s"] >= stamps[-1]
    assert record["prompt_tokens"] == 5


def test_tokens_are_those_of_an_independent_greedy_loop(tiny):
    ids = [3, 1, 4, 1, 5]
    expected = list(ids)
    with torch.inference_mode():
        for _ in range(7):
            expected.append(int(tiny.model(torch.tensor([expected])).logits[0, -1].argmax()))
    assert generate.generation(tiny, "cpu", ids, 7)["token_ids"] == expected[5:]


def test_an_end_token_does_not_end_it(tiny):
    first = generate.generation(tiny, "cpu", [3, 1, 4], 1)["token_ids"][0]
    tiny.model.generation_config.eos_token_id = first
    try:
        assert generate.generation(tiny, "cpu", [3, 1, 4], 5)["new_tokens"] == 5
    finally:
        tiny.model.generation_config.eos_token_id = None


def test_every_process_is_cold_once_visits_all_lengths_and_then_interleaves(study):
    _, ended, rows = study
    assert [one["status"] for one in ended] == ["OK", "OK"]
    for process in (0, 1):
        mine = [row for row in rows if row["process"] == process and row["kind"] == "main"]
        assert [row["visit"] for row in mine[:4]] == ["cold", "first", "cold", "first"]
        steady = mine[4:]
        assert {row["visit"] for row in steady} == {"steady"}
        arms = [row["arm"] for row in steady]
        turned = ["cpu", "gpu", "gpu", "cpu"] if process == 0 else ["gpu", "cpu", "cpu", "gpu"]
        assert arms == turned * 2  # turned round at every block, and from one process to the next
        lengths = max(row["prompt_tokens"] for row in steady) + 6
        first = mine[1]
        assert first["prompt_tokens"] + first["new_tokens"] == lengths


def test_no_prompt_keeps_its_place_in_time(study):
    _, _, rows = study
    first = [next(r for r in rows if r["process"] == p and r["visit"] == "steady")["prompt_id"] for p in (0, 1)]
    assert first == list(PROMPTS)[:2]


def test_side_arms_run_in_the_first_process_only_and_beside_the_main_arms(study):
    _, _, rows = study
    side = [row for row in rows if row["kind"] == "side"]
    assert {row["process"] for row in side} == {0}
    assert [row["arm"] for row in side] == ["cpu", "gpu", "cpu_bfloat16", "cpu_bfloat16", "gpu", "cpu"]
    assert {row["new_tokens"] for row in side} == {3}


def test_each_row_carries_what_makes_it_comparable(study):
    _, _, rows = study
    wanted = {"run", "notebook", "model_hash", "dtype", "prompt_hash", "prompt_tokens", "new_tokens", "stop_rule"}
    wanted |= {"batch", "visit", "process", "clock", "evidence_grade", "method_version", "device"}
    for row in rows:
        assert wanted <= set(row)
        assert row["new_tokens"] == row["max_new_tokens"]


def test_equal_arms_give_equal_tokens_and_no_false_alarm(study):
    _, ended, rows = study
    codes = {found["code"] for found in speedup.judge(rows, [], ended)}
    assert not codes & {"NOT_REPEATABLE", "STOPPED_EARLY", "PROCESS_ENDED", "NOT_LIKE_FOR_LIKE"}


def test_a_process_that_cannot_load_its_model_is_a_row(tmp_path):
    run = results.start("03", str(tmp_path))
    plan = {"prompts": list(PROMPTS)[:1], "repeats": 1, "new_tokens": 2}
    ended = generate.study(run, "random:no-such-shape", [CPU], [], processes=1, limit_s=60, **plan)
    assert ended[0]["status"] == "ERROR"
    assert "not a known shape" in ended[0]["words"]
    assert [f["code"] for f in speedup.judge([], [], ended)] == ["PROCESS_ENDED"]


def test_arms_of_a_gpu_hold_like_for_like_pairs():
    main, side = generate.arms_of({"device": "cuda:1"}, "float16", "float32")
    assert [(arm["device"], arm["dtype"]) for arm in main] == [("cpu", "float32"), ("cuda:1", "float16")]
    assert [(arm["device"], arm["dtype"]) for arm in side] == [("cpu", "bfloat16"), ("cuda:1", "float32")]
    assert generate.arms_of({"device": "cpu"}, "float16", "float32") == ([CPU], [])
