"""Experiments (11): predictions against known arithmetic, scores, judges that can turn, arms that do what they say."""

import contextlib
import gc
import itertools
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import steprows
import sweeps
import torch
from spoken import codes

from rocmlab import (
    changes,
    experiment_judges,
    experiment_trial,
    experiments,
    findings,
    predictions,
    random_weights,
    remedies,
    results,
    step_costs,
    step_lanes,
    words,
    worker,
)
from rocmlab.arm import Arm
from rocmlab.isolate import Outcome
from rocmlab.sections import experiments as page

GPU, CPU = "cuda:0", "cpu"


def quantity(ms):
    return {"ms": ms, "low": ms, "high": ms, "n": 6, "grade": "D", "valid": True, "reason": None}


def account(step, host, device, regime, *, on=GPU, graph=None, launch=0.0, python=0.0, floor=0.0):
    """A ledger as ledger.of_run gives it, with what predictions read."""
    quantities = {"T": quantity(step), "H": quantity(host)} | ({"D_graph": quantity(graph)} if graph else {})
    lane = [("launch", launch), ("python_dispatch", python)]
    rows = {
        "host_lane": [{"name": n, "ms": ms} for n, ms in lane],
        "device_lane": [{"name": "memory_floor", "ms": floor}],
    }
    return {
        "subject": {"device": on},
        "quantities": quantities,
        "device_ms": quantity(device),
        "regime": regime,
        **rows,
    }


FACTS = {
    "layers": 28, "weight_bytes": 1_192_099_840, "layer_bytes": 31_461_888, "kv_bytes_a_position": 114_688,
    "context": 64, "dtype": "float16", "device": GPU, "threads": 16,
    "widths": {"2": {"layers": 28, "weight_bytes": 3.44e9}, "4": {"layers": 36, "weight_bytes": 8.04e9}},
    "counts": {
        "eager": {"ops": 2800, "launches": 1620, "products": 197, "calls": 450},
        "depth_half": {"ops": 1414, "launches": 828, "products": 99, "calls": 230},
        "fused_rmsnorm": {"ops": 2009, "launches": 829, "products": 197, "calls": 450},
    },
}  # fmt: skip


def h200(**more):
    """The measured H200 of methods.md section 1: the host binds, and a replayed step takes 4.53 ms."""
    found = account(18.9, 18.3, 4.53, "host_bound", graph=4.53, launch=11.4, python=6.9, floor=0.3)
    return step_costs.Known(step_lanes.lanes(found), FACTS, "host_bound", ceiling_gb_s=4000, **more)


def slow_card():
    """The opposite machine: the same model on a card whose memory and kernels bind."""
    found = account(33.0, 10.0, 32.0, "device_bound", graph=32.0, launch=5.0, python=5.0, floor=4.3)
    return step_costs.Known(step_lanes.lanes(found), FACTS, "device_bound", ceiling_gb_s=280)


def processor():
    """Two cores: 45 of 56 ms in products that read 12 GB/s, under a ceiling of 60."""
    found = account(56.0, 6.4, 50.0, "device_bound", on=CPU, python=6.0)
    facts = FACTS | {"device": CPU, "dtype": "float32", "weight_bytes": 538e6, "threads": 2, "layers": 30}
    product = {"operator": "linear", "phase": "decode", "count": 1, "bytes": 538e6, "samples_ms": [45.0]}
    return step_costs.Known(step_lanes.lanes(found), facts, "device_bound", shapes=[product], ceiling_gb_s=60)


def ratio(name, known, **given):
    change = changes.CATALOGUE[name]
    return predictions.predict(change, {**change.given, **given}, known)["predicted_ratio"]


# ---- predictions: methods.md section 1 is the known answer


def layers_us(each, step_ms, layers=28):
    """A delay of so many us a layer as a share of the step."""
    return each * layers / 1000 / step_ms


@pytest.mark.parametrize(("each_us", "step_ms"), [(100, 18.9), (200, 18.9), (400, 18.9), (800, 26.9), (1200, 38.1)])
def test_a_delay_on_the_device_hides_in_the_slack_and_then_adds_to_the_replay(each_us, step_ms):
    # 28 launches more of 1,620: where the host binds, its spins cost it 1.7%
    slower = 1 + 28 / 1620 * (11.4 + 6.9) / 18.3 if step_ms == 18.9 else 1
    found = ratio("device_delay", h200(), dose=layers_us(each_us, 18.9)) * 18.9
    assert found == pytest.approx(step_ms * slower, abs=0.1)


def test_what_a_host_bound_step_does_not_feel():
    for name in ("float32", "bfloat16", "batch_128", "context_4096", "one_core", "width_x2"):
        assert ratio(name, h200()) == pytest.approx(1.0, abs=1e-9), name


def test_what_a_host_bound_step_feels():
    assert ratio("host_delay", h200(), dose=layers_us(100, 18.9)) == pytest.approx((18.9 + 2.8) / 18.9)
    assert ratio("depth_half", h200()) == pytest.approx(0.5175, abs=0.02)  # 0.66 + 0.65 a layer, measured
    assert ratio("width_tiny", h200()) == pytest.approx(18.3 / 18.9)
    assert ratio("graph", h200()) == pytest.approx(4.53 / 18.9)
    assert ratio("width_x4", h200()) == pytest.approx(36 / 28)  # more layers, and the device still hides
    # 791 launches fewer: their share of launching, and of what Python dispatches
    assert ratio("fused_rmsnorm", h200()) == pytest.approx((11.77 * 829 / 1620 + 7.13 * 2459 / 3250) / 18.9, abs=0.01)


def test_the_opposite_machine_gets_the_opposite_predictions():
    assert ratio("float32", slow_card()) == pytest.approx(2.0)
    assert ratio("device_delay", slow_card(), dose=layers_us(100, 33)) == pytest.approx((33 + 2.8) / 33)
    assert ratio("host_delay", slow_card(), dose=layers_us(100, 33)) == pytest.approx(1.0)  # 23 ms of slack
    assert ratio("host_delay", slow_card(), dose=layers_us(1000, 33)) == pytest.approx((10 + 28) / 33)
    assert ratio("width_x2", slow_card()) == pytest.approx(3.44e9 / 1_192_099_840)
    assert ratio("width_tiny", slow_card()) == pytest.approx(10 / 33)
    assert ratio("graph", slow_card()) == pytest.approx(32 / 33)
    moved = 4.3 * (1 - 14 * 31_461_888 / 1_192_099_840)  # the floor goes with the bytes, the rest with the launches
    assert ratio("depth_half", slow_card()) == pytest.approx((moved + 28.7 * 828 / 1620) / 33)


@pytest.mark.parametrize(("name", "positions"), [("context_1024", 960), ("context_4096", 4032), ("batch_32", 31 * 64)])
def test_more_cache_is_read_twice_and_written_once(name, positions):
    more_ms = 3 * positions * 114_688 / 280e6  # at 280 GB/s
    assert ratio(name, slow_card()) == pytest.approx((33.0 + more_ms) / 33.0)


def test_a_large_batch_binds_by_arithmetic_where_the_card_is_slow_at_it():
    rate = {"dtype": "float16", "m": 1, "n": 1, "k": 1, "flops": 1e9, "samples_ms": [1.0]}  # 1 TFLOP/s
    known = h200(gemm_rate=[rate, rate | {"dtype": "float32", "flops": 1e12}])
    flops_ms = 2 * 1_192_099_840 / 2 * 128 / 1e9
    assert ratio("batch_128", known) > 7
    assert ratio("batch_128", known) * 18.9 == pytest.approx(4.53 + flops_ms - 0.3, rel=0.01)


def test_on_a_cpu_the_lanes_add_up():
    assert ratio("host_delay", processor(), dose=layers_us(100, 56, 30)) == pytest.approx((56 + 3.0) / 56)
    assert ratio("bfloat16", processor()) == pytest.approx((56 - 22.5) / 56)
    assert ratio("threads_1", processor()) == pytest.approx((6 + 100) / 56)
    mended = 56 - 45 + 538e6 / 60 / 1e6  # the products reach the ceiling
    assert ratio("rows_padded", processor()) == pytest.approx(mended / 56)
    assert ratio("batch_2", processor()) == pytest.approx(mended / 56, rel=0.02)


def test_what_is_unexplained_on_a_cpu_is_shared_in_proportion():
    loaded = account(112.0, 6.4, 50.0, "device_bound", on=CPU, python=6.0)  # everything took twice as long
    found = step_lanes.lanes(loaded)
    assert found.host == pytest.approx(12.0) and found.device == pytest.approx(100.0)
    assert step_lanes.lanes(account(56.0, 6.0, None, "undecided", on=CPU)).device == pytest.approx(50.0)


def test_without_a_ledger_there_is_no_prediction_but_a_reason():
    assert step_lanes.lanes(None) is None
    assert step_lanes.lanes(account(18.9, None, None, "undecided")) is None
    assert step_lanes.lanes(account(18.9, None, None, "undecided", on=CPU)) is None
    told = predictions.predict(changes.CATALOGUE["graph"], {}, None)
    assert told["predicted_ratio"] is None and told["predicted_ratio_reason"]["zh"]


def test_every_prediction_says_why_in_both_languages_and_from_which_numbers():
    for known in (h200(), slow_card(), processor()):
        amounts = step_lanes.doses(known.lanes)
        for change in changes.chosen(["all"]):
            told = predictions.predict(change, step_lanes.dosed(change, amounts), known)
            if told["predicted_ratio"] is not None:
                assert told["prediction_why"]["en"] and told["prediction_why"]["zh"]
                assert told["prediction_from"]["step_ms"] == known.lanes.step
                assert told["predicted_ratio"] > 0


def test_doses_follow_the_slack():
    host_bound, device_bound = (step_lanes.doses(one.lanes) for one in (h200(), slow_card()))
    assert host_bound["hidden"] * 18.9 < 18.9 - 4.53 < host_bound["shown"] * 18.9
    assert 0 < device_bound["hidden"] < device_bound["shown"] == pytest.approx(1.0, abs=0.01)  # no slack to speak of
    assert set(step_lanes.doses(None)) == set(host_bound)


def test_a_text_that_repeats_takes_fewer_steps():
    prompt, again = [1, 2, 3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8]
    # one token of its own, another that matches [3, 4], then all the rest copied at once
    assert predictions.lookup_steps(prompt, again, 8) < len(again)
    assert predictions.lookup_steps(prompt, again, 0) == len(again)
    assert predictions.lookup_steps([1, 2, 3], [10, 20, 30, 40], 8) == 4  # nothing of it stood before


# ---- score


def row(name, times, *, baseline=10.0, scatter=0.0, blocks=6, **more):
    """An experiment whose blocks scatter evenly around a ratio."""
    below = [baseline] * blocks
    ratios = [times * (1 + scatter * (2 * i / (blocks - 1) - 1)) for i in range(blocks)]
    above = [baseline * one for one in ratios]
    kind = changes.CATALOGUE[name].kind
    found = {"name": name, "kind": kind, "status": "OK", "device": GPU, "tokens_per_step": 1.0, "ratios": ratios}
    return found | {"baseline_samples_ms": below, "changed_samples_ms": above} | more


def told(name, times, **numbers):
    why = {"en": "it must", "zh": "必然"}
    return {"name": name, "predicted_ratio": times, "prediction_why": why, "prediction_from": numbers}


@pytest.mark.parametrize(
    ("predicted", "seen", "scatter", "hit"),
    [
        (0.55, 0.5, 0.0, True),  # off by 0.05 of an observed change of 0.5: 15% is 0.075
        (0.6, 0.5, 0.0, False),
        (1.0, 1.02, 0.02, True),  # within three times the spread
        (1.0, 1.02, 0.0, False),
        (2.0, 1.0, 0.01, False),
    ],
)
def test_the_rule_of_the_score(predicted, seen, scatter, hit):
    (line,) = experiments.score([row("depth_half", seen, scatter=scatter)], [told("depth_half", predicted)])
    assert line["hit"] is hit
    assert line["error"] == pytest.approx(abs(predicted - seen), abs=1e-6)
    assert line["naive_error"] == pytest.approx(abs(1 - seen), abs=1e-6)


def test_what_was_not_measured_or_not_predicted_is_not_scored():
    rows = [row("depth_half", 0.5), {"name": "float32", "status": "CRASH"}, row("generate", 1.0)]
    said = [told("depth_half", 0.5), told("float32", 1.0), told("generate", None)]
    assert [line["name"] for line in experiments.score(rows, said)] == ["depth_half"]


# ---- judges


def variant(found):
    return found[0]["variant"]


def test_predictions_hold_miss_or_are_too_few():
    names = ["depth_half", "float32", "batch_8", "generate", "width_tiny"]
    rows = [row(name, times, scatter=0.005) for name, times in zip(names, (0.5, 1, 1, 1, 0.6), strict=True)]
    right = [told(name, one["ratios"][2]) for name, one in zip(names, rows, strict=True)]
    (held,) = experiment_judges.judge_predictions(rows, right)
    assert held["code"] == "PREDICTIONS_HOLD"
    assert held["numbers"]["predictions_telling"] == held["numbers"]["predictions_telling_held"] == 2  # 0.5 and 0.6
    wrong = [told(name, 2.0) for name in names]
    found = experiment_judges.judge_predictions(rows, wrong)
    assert codes(found) == ["PREDICTIONS_MISS", *["PREDICTION_MISSED"] * 5]
    assert (
        "half the layers" in findings.say(found[1])["sentence"] and "必然" in findings.say(found[1], "zh")["sentence"]
    )
    assert codes(experiment_judges.judge_predictions(rows[:2], right[:2])) == ["PREDICTIONS_TOO_FEW"]
    idle = [told(name, 1.0) for name in names]  # "no change" everywhere is no better than "no change"
    assert codes(experiment_judges.judge_predictions(rows, idle))[0] == "PREDICTIONS_MISS"


def test_predictions_that_only_hide_in_the_scatter_do_not_hold():
    names = ["depth_half", "float32", "batch_8", "generate"]
    rows = [row(name, 1.02, scatter=0.1) for name in names]  # three spreads allow more than the whole change
    off = [told(name, 0.95) for name in names]
    total = experiments.totals(experiments.score(rows, off))
    assert total["telling"] == 0  # "no change" held as well: none of them could have failed
    assert total["hits"] == 4 and total["error"] > total["naive_error"]
    assert codes(experiment_judges.judge_predictions(rows, off))[0] == "PREDICTIONS_MISS"
    near = [told(name, 1.01) for name in names]
    assert codes(experiment_judges.judge_predictions(rows, near))[0] == "PREDICTIONS_HOLD"


SOUND = {"logits_error": 0.01, "logits_error_baseline": 0.01, "logits_max_abs": 10.0}


def test_a_remedy_is_found_helps_not_or_is_undecided():
    good, dull = row("lean_graph", 0.1, scatter=0.01, **SOUND), row("fused_rmsnorm", 0.99, scatter=0.01, **SOUND)
    found = experiment_judges.judge_remedies([good, dull])
    assert codes(found) == ["REMEDY_FOUND"] and found[0]["numbers"]["remedy_gain_ratio"] == pytest.approx(10, rel=0.02)
    assert codes(experiment_judges.judge_remedies([dull])) == ["NO_REMEDY_HELPS"]
    few = row("lean_graph", 0.1, blocks=3, **SOUND)
    assert codes(experiment_judges.judge_remedies([few])) == ["REMEDIES_UNDECIDED"]
    absent = {"name": "graph", "kind": "remedy", "status": "SKIPPED", "exists": False}
    assert codes(experiment_judges.judge_remedies([absent])) == ["REMEDIES_NOT_MEASURED"]
    assert experiment_judges.judge_remedies([]) == []


def test_every_remedy_says_how_to_have_it():
    from rocmlab import words

    for name in (name for name, one in changes.CATALOGUE.items() if one.kind == changes.REMEDY):
        assert all(words.both(f"remedy_how_{name}").values())


def test_a_fast_wrong_answer_is_no_remedy():
    wrong = row("lean_graph", 0.1, **(SOUND | {"logits_error": 5.0}))
    broken = row("graph", 0.2, **(SOUND | {"logits_error": None}))
    right = row("lean", 0.5, **SOUND)
    found = experiment_judges.judge_remedies([wrong, broken, right])
    assert codes(found) == ["REMEDY_FOUND", "REMEDY_WRONG", "REMEDY_WRONG"]
    assert found[0]["words"]["what"]["en"] == changes.CATALOGUE["lean"].label["en"]
    assert codes(experiment_judges.judge_remedies([wrong])) == ["REMEDY_WRONG"]


def test_remedies_are_ranked_by_gain_then_failures_then_what_cannot_exist():
    rows = [
        {"name": "tunableop", "kind": "remedy", "status": "SKIPPED"},
        {"name": "graph", "kind": "remedy", "status": "CRASH"}, row("lean", 0.5), row("lean_graph", 0.1),
        row("generate", 0.01),
    ]  # fmt: skip
    assert [one["name"] for one in remedies.rank(rows)] == ["lean_graph", "lean", "graph", "tunableop"]


def test_a_fast_wrong_answer_stands_below_the_right_ones_and_is_called_wrong(tmp_path):
    wrong = row("graph", 0.05, **(SOUND | {"logits_error": 5.0}))
    crash = {"name": "lean_graph", "kind": "remedy", "status": "CRASH", "reason": "access violation"}
    dull = row("static_cache", 1.0, **SOUND)
    rows = [wrong, crash, dull, row("lean", 0.5, **SOUND)]
    ranked = remedies.rank(rows)
    assert [one["name"] for one in ranked] == ["lean", "static_cache", "graph", "lean_graph"]
    assert [remedies.helps(one) for one in ranked] == [True, False, False, False]
    lines = page.ranking(ranked).to_dict("records")
    assert [one["status"] for one in lines] == ["OK", "OK", words.both("experiments_wrong"), "CRASH"]
    assert "lean.py" in lines[0]["how"]["zh"] and [one["how"] for one in lines[1:]] == [None] * 3
    results.start("11", str(tmp_path)).append("experiments", rows)
    assert "graph replay" not in page.section(tmp_path).figures[0].alt["en"]


@pytest.mark.parametrize(
    ("times", "code"), [(1.05, "MODEL_TOO_SMALL"), (1.3, "MODEL_SIZE_UNDECIDED"), (2.8, "MODEL_NOT_TOO_SMALL")]
)
def test_is_the_model_too_small(times, code):
    assert codes(experiment_judges.judge_size({"width_x2": row("width_x2", times)})) == [code]
    assert experiment_judges.judge_size({}) == []


@pytest.mark.parametrize(
    ("host", "device", "binds"),
    [(1.5, 1.0, "host"), (1.0, 1.5, "device"), (1.5, 1.5, "both"), (1.2, 1.2, None), (1.5, None, "host_only")],
)
def test_what_binds_by_injected_delays(host, device, binds):
    dose = {"given": {"dose": 0.5}}
    rows = {"host_delay": row("host_delay", host, **dose)}
    if device:
        rows["device_delay_hidden"] = row("device_delay_hidden", device, **dose)
    assert variant(experiment_judges.judge_delays(rows)) == binds


@pytest.mark.parametrize(
    ("usual", "without", "said"), [(3.0, 1.1, "cudnn"), (3.0, 2.9, "other"), (1.05, 1.0, "same"), (3.0, None, None)]
)
def test_who_charges_for_first_visits(usual, without, said):
    rows = {"first_visit": row("first_visit", usual)}
    if without:
        rows["first_visit_no_cudnn"] = row("first_visit_no_cudnn", without)
    assert variant(experiment_judges.judge_visits(rows)) == said


def test_the_slow_product_of_one_row_is_named_on_a_cpu_only():
    slow, fine = ({"batch_2": row("batch_2", times, device=CPU)} for times in (0.6, 1.4))
    assert codes(experiment_judges.judge_one_row(slow)) == ["ONE_ROW_PRODUCT_SLOW"]
    assert codes(experiment_judges.judge_one_row(fine)) == ["ONE_ROW_PRODUCT_FINE"]
    assert experiment_judges.judge_one_row({"batch_2": row("batch_2", 0.6)}) == []
    other = fine | {"weights_transposed": row("weights_transposed", 0.8, device=CPU)}
    assert codes(experiment_judges.judge_one_row(other)) == ["ONE_ROW_PRODUCT_SLOW"]  # one way that is faster will do


def test_crashes_and_limits_are_named():
    rows = [{"name": "graph", "status": "CRASH"}, {"name": "lean", "status": "OK"}]
    found = experiment_judges.judge_ends(rows)
    assert codes(found) == ["EXPERIMENTS_ENDED"] and "graph" in findings.say(found[0])["sentence"]
    assert experiment_judges.judge_ends(rows[1:]) == []


# ---- the catalogue


def test_names_are_known_and_have_labels_and_reasons():
    for change in changes.chosen(["all"]):
        assert change.label["en"] and change.label["zh"]
    with pytest.raises(ValueError, match="nonsense is not known"):
        changes.chosen(["graph", "nonsense"])
    facts = {"device": CPU, "dtype": "float32"}
    absent = {one.name: changes.absent(one, facts) for one in changes.chosen(["all"])}
    assert absent["graph"] == "needs_accelerator" and absent["float32"] == "needs_other_dtype"
    assert absent["prompt_lookup"] == "needs_real_text" and absent["depth_half"] is None
    assert all(words.both(key) for key in absent.values() if key)
    rocm = {"device": GPU, "dtype": "float16", "hip": "7.2", "triton": False, "known_layers": True}
    assert changes.absent(changes.CATALOGUE["tunableop"], rocm) is None
    assert changes.absent(changes.CATALOGUE["compiled"], rocm) == "needs_triton"


# ---- arms, on two small models of both families


SMALL = {
    "model_type": "qwen3", "vocab_size": 320, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(params=["tiny", "small-qwen3"])
def subject(request, monkeypatch):
    from rocmlab import arms, models

    monkeypatch.setitem(random_weights.PRESETS, "small-qwen3", SMALL)
    monkeypatch.setattr(random_weights, "PRESETS", dict(random_weights.PRESETS))
    return arms.Subject(models.load(f"random:{request.param}", CPU, "float32"), CPU, "float32", context=20)


WAYS = [
    ("patched", {"fused": True}), ("patched", {"merged": True}), ("patched", {"padded": True}),
    ("patched", {"transposed": True}), ("static", {}), ("static", {"fused": True, "merged": True}), ("lean", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given"), WAYS, ids=lambda one: str(one))
def test_a_remedy_computes_the_same_logits_and_leaves_no_trace(subject, name, given):
    import torch

    from rocmlab import arms

    with torch.inference_mode():
        tokens = [3, 17, 255, 9, 30]
        usual = arms.eager(subject)
        wanted = usual.force(tokens)
        arm = arms.make(subject, name, given)
        with arm.around():
            seen = arm.force(tokens)
            arm.run(4)
            arm.rewind(4)
            again = arm.force(tokens)
        assert torch.allclose(seen, wanted, atol=1e-5) and torch.equal(seen, again)
        assert wanted.std() > 0.01  # logits that are all alike would agree with anything
        assert torch.equal(arms.eager(subject).force(tokens), wanted)


@pytest.mark.parametrize("name", ["static", "lean"])
def test_a_step_for_a_graph_feeds_itself_and_starts_again(subject, name, monkeypatch):
    import torch

    from rocmlab import arms, decode, fixed_arms

    def by_hand(step, rewind):  # stands for capture and replay: a warm step, back to the start, then the same step
        step()
        rewind()
        return step

    monkeypatch.setattr(fixed_arms, "_captured", by_hand)
    with torch.inference_mode():
        usual = arms.eager(subject)
        arm = arms.make(subject, name, {"graph": True})
        text = decode.write(subject.model, CPU, arms.prompts(subject), 12)["token_ids"][0]
        cells = {name: cell.cell_contents for name, cell in zip(*_closure(arm.run), strict=True)}
        for _ in range(2):
            arm.run(11)
            assert cells["written"][0, :11].tolist() == text[1:]  # the first token is prefill's
            arm.rewind(11)
        assert torch.allclose(arm.force([5, 6]), usual.force([5, 6]), atol=1e-5)


def _closure(function):
    return function.__code__.co_freevars, function.__closure__


def test_depth_is_cut_and_comes_back(subject):
    import torch

    from rocmlab import arms

    whole = list(subject.model.model.layers)
    with torch.inference_mode():
        arm = arms.make(subject, "depth", {"share": 0.5})
        with arm.around():
            assert len(subject.model.model.layers) == max(1, len(whole) // 2)
            arm.run(2)
            arm.rewind(2)
    assert list(subject.model.model.layers) == whole


def test_a_twin_is_as_wide_as_said(subject):
    from rocmlab import patches

    config = subject.model.config
    twin = patches.wide(config, 2)
    assert twin["hidden_size"] == 2 * config.hidden_size and twin["num_hidden_layers"] == config.num_hidden_layers
    assert patches.wider(subject.loaded, 2).startswith("random:")


# ---- a trial, and a study


@pytest.fixture
def begun():
    experiment_trial.begin("random:tiny", CPU, "float32")
    yield
    experiment_trial._now.clear()


def test_what_06_timed_another_way_predicts_it_better_than_the_bytes_do():
    def way(name, ms, threads=2):
        return {"way": name, "threads": threads, "all_threads": 2, "samples_ms": [ms]}

    timed = [way("as_it_is", 10.0), way("as_it_is", 10.0, 1), way("two_rows", 20.0), way("float16", 3.0)]
    usual = processor()
    known = replace(usual, one_row=[*timed, way("transposed", 5.0)])
    step, products = usual.lanes.step, 45.0 * usual.lanes.scale
    for name, times in (
        ("threads_1", 1),
        ("batch_2", 2),
        ("rows_padded", 2),
        ("float16", 0.3),
        ("weights_transposed", 0.5),
    ):
        assert ratio(name, known) == pytest.approx((step + products * (times - 1)) / step), name
    assert ratio("bfloat16", known) == ratio("bfloat16", usual)  # not timed: by its bytes
    assert ratio("threads_1", usual) > 1.8 and ratio("weights_transposed", usual) == 1
    assert ratio("float32", replace(h200(), one_row=timed)) == ratio("float32", h200())  # a GPU has no such rows


def test_the_head_and_a_layer_each_speak_for_their_part_of_the_products():
    def timed(name, other_ms):
        mark = {"name": name, "threads": 2, "all_threads": 2}
        return [
            mark | {"way": "as_it_is", "samples_ms": [10.0]},
            mark | {"way": "transposed", "samples_ms": [other_ms]},
        ]

    def linear(name, count, ms):
        return {"operator": "linear", "phase": "decode", "name": name, "count": count, "samples_ms": [ms]}

    shapes = [linear("lm_head", 1, 10.0), linear("down_proj", 20, 1.0), linear("q_proj", 20, 0.5)]
    known = replace(processor(), shapes=shapes, one_row=timed("lm_head", 5.0), one_row_layer=timed("down_proj", 8.0))
    assert step_costs.one_row_times(known, "transposed") == pytest.approx((10 * 0.5 + 30 * 0.8) / 40)
    assert step_costs.one_row_times(replace(known, one_row_layer=[]), "transposed") == pytest.approx(0.5)
    assert step_costs.one_row_times(known, "bfloat16") is None
    assert step_costs.one_row_times(replace(known, lanes=h200().lanes), "transposed") is None


def test_a_delay_on_the_host_is_seen_whole_on_a_cpu(begun):
    found = experiment_trial.trial("host_delay", {"dose": 20.0}, remedy=False)  # twenty times the step
    assert len(found["baseline_samples_ms"]) == len(found["changed_samples_ms"]) == experiment_trial.BLOCKS
    pairs = list(zip(found["injected_ms"], found["changed_samples_ms"], strict=True))
    assert len(pairs) == experiment_trial.BLOCKS and all(seen >= given for given, seen in pairs)  # never ends early
    assert experiments.observed(found | {"status": "OK"}).median > 2  # 21 on a machine at rest


def test_facts_count_what_a_change_takes_away(begun):
    facts = experiment_trial.facts(changes.counted(changes.chosen(["merged_linears", "lean", "attention_math"])))
    counts = facts["counts"]
    assert counts["eager"]["products"] - counts["merged_linears"]["products"] == 2 * 3  # two layers: q k v, gate up
    assert counts["lean"]["launches"] < counts["eager"]["launches"] < counts["attention_math"]["launches"]
    fixed = 2 * counts["depth_half"]["products"] - counts["eager"]["products"]
    assert fixed == 1  # the head, and nothing else, is no layer's
    assert facts["layers"] == 2 and facts["widths"][2]["weight_bytes"] > 3 * facts["weight_bytes"]


def test_what_a_trial_leaves_behind_that_did_not_fit_is_gone_before_the_next(begun, monkeypatch):
    class Model:
        """In a ring with itself, as modules and their hooks are: counting references alone does not free it."""

        def __init__(self):
            self.own = self

    left = []

    def too_large(subject, name, given):
        left.append(weakref.ref(Model()))
        raise torch.OutOfMemoryError("HIP out of memory")

    monkeypatch.setattr(experiment_trial.arms, "make", too_large)
    gc.disable()
    try:
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                experiment_trial.trial("eager", {}, remedy=False)
        assert left[0]() is None and left[1]() is not None
    finally:
        gc.enable()


def test_logits_of_a_remedy_are_compared_with_float32(begun):
    found = experiment_trial.trial("dtype", {"dtype": "bfloat16"}, remedy=True)
    assert found["logits_error_baseline"] == 0 and 0 < found["logits_error"] < 0.1 * found["logits_max_abs"]


def test_a_float32_model_that_does_not_fit_costs_the_comparison_and_not_the_times(begun, monkeypatch):
    def too_large(subject, tokens):
        raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 15.0 GiB")

    monkeypatch.setattr(experiment_trial, "_reference", too_large)
    found = experiment_trial.trial("dtype", {"dtype": "bfloat16"}, remedy=True)
    assert len(found["changed_samples_ms"]) == experiment_trial.BLOCKS and "15.0 GiB" in found["logits_reason"]
    made = {"name": "bfloat16", "kind": "remedy", "status": "OK", **found}
    assert remedies.sound(made) is None
    assert "15.0 GiB" in page.ranking(remedies.rank([made])).loc[0, "logits_error_reason"]

    def broken(subject, tokens):
        raise RuntimeError("HIP error: an illegal memory access")

    monkeypatch.setattr(experiment_trial, "_reference", broken)
    with pytest.raises(RuntimeError, match="illegal"):  # this stays in the driver, and ends the worker
        experiment_trial.trial("dtype", {"dtype": "bfloat16"}, remedy=True)


def test_a_step_of_many_texts_foretells_nothing_of_one(tmp_path):
    run = results.start("11", str(tmp_path))
    assert experiments.gather(run)["texts"] == 1
    run.append("step", [row | {"batch": 256, "context": 1024} for row in steprows.h200()])
    found = experiments.gather(run)
    assert (found["ledger"], found["texts"]) == (None, 256)
    said = experiments.foretell(changes.CATALOGUE["depth_half"], {"share": 0.5}, {"device": GPU}, None, found["texts"])
    assert "256" in said["predicted_ratio_reason"]["en"] and said["predicted_ratio"] is None


class Scripted:
    """Stands for a worker: hands back what is written down, and notes what had been recorded at each call."""

    def __init__(self, run, outcomes):
        self.run, self.outcomes, self.started, self.before = run, outcomes, 1, []
        self.begun = outcome("OK", None)
        self.calls = []

    def call(self, target, arguments, *, limit_s):
        self.before.append([one["name"] for one in self.run.rows("predictions")])
        self.calls.append(arguments)
        if target.endswith(":facts"):
            return outcome("OK", FACTS | {"known_layers": True, "triton": False, "hip": None})
        return self.outcomes.get(arguments["arm"], outcome("OK", trial()))

    def retire(self):
        self.started += 1


def outcome(status, result, error=None):
    return Outcome(status, "words", None, 1.0, result, error, "", "")


def trial():
    return {"baseline_samples_ms": [10.0] * 6, "changed_samples_ms": [5.0] * 6, "facts": {"compile_s": 3.0}}


def test_every_prediction_is_written_first_and_a_crash_costs_one_row(tmp_path, monkeypatch):
    run = results.start("11", str(tmp_path))
    scripted = Scripted(
        run, {"dtype": outcome("CRASH", None), "attention": outcome("ERROR", None, "no viable backend")}
    )
    monkeypatch.setattr(worker, "Worker", lambda **_: contextlib.nullcontext(scripted))
    names = ["depth_half", "float32", "attention_flash", "graph", "compiled"]
    ledger = account(18.9, 18.3, 4.53, "host_bound", graph=4.53, launch=11.4, python=6.9, floor=0.3)
    rows = experiments.study(
        run, "m", {"device": GPU, "dtype": "float16"}, names, limit_s=60, evidence={"ledger": ledger}
    )
    assert scripted.before[0] == [] and all(set(names) == set(one) for one in scripted.before[1:])
    status = {one["name"]: one["status"] for one in rows}
    assert status == dict(zip(names, ("OK", "CRASH", "ERROR", "OK", "SKIPPED"), strict=True))
    assert rows[-1]["reason"]["en"] == words.both("needs_triton")["en"] and rows[-1]["exists"] is False
    graph = next(one for one in rows if one["name"] == "graph")
    assert graph["ratios"] == [0.5] * 6 and graph["compile_s"] == 3.0
    assert graph["predicted_ratio"] == pytest.approx(4.53 / 18.9)
    assert scripted.started == 1  # an ordinary error does not cost a new process


def test_without_time_every_experiment_is_a_row_that_says_so(tmp_path, monkeypatch):
    run = results.start("11", str(tmp_path))
    scripted = Scripted(run, {})
    monkeypatch.setattr(worker, "Worker", lambda **_: contextlib.nullcontext(scripted))
    arm = {"device": GPU, "dtype": "float16"}
    rows = experiments.study(run, "m", arm, ["depth_half", "float32"], limit_s=0.5, evidence={})
    assert [one["status"] for one in rows] == ["SKIPPED"] * 2 and len(run.rows("predictions")) == 2
    assert {one["reason"]["en"] for one in rows} == {words.both("experiment_no_time")["en"]}


def test_the_order_of_the_arms_turns_round_at_every_block(monkeypatch):
    seen = []
    monkeypatch.setattr(experiment_trial, "_block", lambda subject, arm, count: seen.append(arm) or 10.0)
    usual, changed = Arm(lambda count: None), Arm(lambda count: None)
    found = experiment_trial._in_turns(None, usual, changed, None)
    there = [usual, changed, changed, usual]
    assert seen[-2 * experiment_trial.BLOCKS :] == (there * experiment_trial.BLOCKS)[: 2 * experiment_trial.BLOCKS]
    assert found["steps"] == {"baseline": 10, "changed": 10}  # 100 ms a block
    assert "injected_ms" not in found


def test_a_dose_follows_the_usual_step_of_a_machine_that_changes_its_pace(monkeypatch):
    """A host that changes between 20 and 40 ms a step: a dose fixed beforehand would be 1.8 or 3.6 steps, by luck."""
    pace, given = itertools.cycle([20.0, 20.0, 20.0, 40.0, 40.0]), []
    usual = Arm(lambda count: next(pace))
    changed = Arm(lambda count: 1.0 + given[-1], dose=lambda step_ms: given.append(0.5 * step_ms) or given[-1])
    monkeypatch.setattr(experiment_trial.timing, "synchronise", lambda device: None)
    found = experiment_trial._in_turns(SimpleNamespace(device="cpu"), usual, changed, None)
    assert set(found["baseline_samples_ms"]) == {20.0, 40.0} and len(found["injected_ms"]) == experiment_trial.BLOCKS
    assert found["changed_samples_ms"] == [1.0 + one for one in found["injected_ms"]]
    before = [found["baseline_samples_ms"][n - n % 2] for n in range(experiment_trial.BLOCKS)]  # the order turns round
    assert found["injected_ms"] == [0.5 * one for one in before]


def test_an_error_that_stays_in_the_driver_ends_the_worker(tmp_path):
    scripted = Scripted(results.start("11", str(tmp_path)), {"eager": outcome("ERROR", None, "HIP error: lost")})
    found = experiments.one(scripted, changes.CATALOGUE["batch_8"], {"rows": 8}, 5)
    assert found["status"] == "ERROR" and scripted.started == 2


def test_a_model_that_cannot_be_loaded_is_said_in_every_row(tmp_path):
    run = results.start("11", str(tmp_path))
    arm = {"device": CPU, "dtype": "float32"}
    rows = experiments.study(run, "random:nothing", arm, ["depth_half", "lean"], limit_s=60, evidence={})
    assert {one["status"] for one in rows} <= {"ERROR", "SKIPPED"} and len(rows) == 2
    assert "random:nothing" in str(rows[0]["reason"])


# ---- the section


def test_the_section_shows_tables_figures_and_answers(tmp_path):
    run = results.start("11", str(tmp_path))
    rows = [
        row("depth_half", 0.5, model_spec="random:x", dtype="float16"),
        row("lean_graph", 0.1, scatter=0.01, **SOUND),
    ]
    rows.append({"name": "tunableop", "kind": "remedy", "status": "SKIPPED", "reason": words.both("needs_rocm")})
    run.append("predictions", [told("depth_half", 0.52), told("lean_graph", 0.12), told("tunableop", None)])
    run.append("experiments", rows)
    made = page.section(tmp_path)
    assert [one.name for one in made.tables] == ["experiments_foretold", "experiments_scored", "experiments_remedies"]
    assert [one.name for one in made.figures] == ["experiments_predicted", "experiments_gains"]
    for figure in made.figures:
        assert figure.draw() is not None and figure.alt["en"] and figure.alt["zh"]
    assert made.answers["faster"]["code"] == "REMEDY_FOUND"
    assert "0.520 / 0.500" in made.figures[0].alt["en"]


def test_the_section_without_measurements_says_so(tmp_path):
    assert page.section(tmp_path).missing
    run = results.start("11", str(tmp_path))
    run.append("predictions", [told("depth_half", 0.52)])
    made = page.section(tmp_path)
    assert set(made.absent) == {"experiments_predicted", "experiments_gains"} and made.figures == []


def test_a_prediction_takes_both_visits_of_one_length():
    """52 - 22, 110 - 30 and 95 - 60 ms: the length in the middle, and no first visit over another length's second."""
    rows = [
        sweeps.text(length, ms, visit=visit, block=None)
        for length, pair in ((100, (52.0, 22.0)), (500, (110.0, 30.0)), (2000, (95.0, 60.0)))
        for visit, ms in zip(("first", "second"), pair, strict=True)
    ]
    assert experiments.first_visit(rows) == pytest.approx((95.0, 60.0))
    assert experiments.first_visit([]) is None
