"""The networks of notebook 10: what they are, whether a planted fault is seen, and what their records say."""

import statistics

import pandas as pd
import pytest
import torch
from spoken import said_codes

from rocmlab import (
    findings,
    network_steps,
    networks,
    reference,
    results,
    sensors,
    vision,
    vision_judges,
    vision_tables,
    worker,
)
from rocmlab.network_steps import Plan, answers, check, split
from rocmlab.sections import vision_bert

PLAN = Plan(batch=4, image=64, length=16, size="tiny", rounds=6, check_batch=2, check_image=64, sustained_s=0.0)
GIVEN = {name: getattr(PLAN, name) for name in PLAN.__dataclass_fields__}


# ---- what the networks are


def test_sizes_and_work_are_those_of_the_papers():
    counted = {name: networks.work(name, "full", 2, 224, 128) for name in networks.WORK}
    parameters = {name: one["parameters"] for name, one in counted.items()}
    assert parameters == {"resnet50": 25_557_032, "bert_base": 109_482_240, "vgg16": 138_357_544}
    # Multiplications and additions of VGG16, layer by layer, for one image.
    side, width, macs = 224, 3, 0
    for one in networks.VGG16:
        macs, width, side = (macs + side * side * width * one * 9, one, side) if one else (macs, width, side // 2)
    macs += 512 * 49 * 4096 + 4096 * 4096 + 4096 * 1000
    assert counted["vgg16"]["flops"] == 2 * 2 * macs
    # BERT-base: 12 layers of 4 + 8 products of width 768, and two of attention; the pooler for the first token.
    layer = 128 * 768 * 768 * 12 + 2 * 128 * 128 * 768
    assert counted["bert_base"]["flops"] == 2 * 2 * (12 * layer + 768 * 768)
    # Training takes about three times the forward pass, which is 4.1 GMAC for an image.
    assert 2 * 2 * 3 * 4.0e9 < counted["resnet50"]["flops"] < 2 * 2 * 3 * 4.2e9
    assert counted["vgg16"]["bytes"] > 4 * 138_357_544


def test_weights_and_inputs_are_the_same_every_time():
    first, second = (networks.build("vgg16", "tiny").state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(networks.inputs("resnet50", 2, 8, 1), networks.inputs("resnet50", 2, 8, 1))
    assert networks.inputs("bert_base", 3, 8, 7).shape == (3, 7)


def test_float32_is_kept_free_of_tf32(monkeypatch):
    # PyTorch's own test code, which other tests here import, freezes these switches for the rest of the process.
    monkeypatch.setitem(torch.backends.ContextProp.__set__.__globals__, "flags_frozen", lambda: False)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        assert network_steps.exact() is False
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (False, False)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_training_learns_its_batch():
    step = network_steps.stepper("resnet50", networks.build("resnet50", "tiny"), 4, "cpu", split("float32"), PLAN)
    losses = [float(step()) for _ in range(6)]
    assert losses[-1] < losses[0]


# ---- right or wrong


@pytest.fixture(scope="module")
def right():
    made = {}
    for model in networks.WORK:
        network = networks.build(model, "tiny")
        made[model] = (network, answers(model, network, "cpu", split("float64"), PLAN))
    return made


@pytest.mark.parametrize("model", networks.WORK)
@pytest.mark.parametrize("arm", ["float32", "bfloat16", "float32 channels_last"])
def test_right_arms_agree_with_float64(right, model, arm):
    if model == "bert_base":
        arm = arm.split(" ")[0]  # it has no images to lay out otherwise
    network, wanted = right[model]
    found = check(answers(model, network, "cpu", split(arm), PLAN), wanted)
    assert vision_judges.faults({"model": model, "check": found, **split(arm)}) == []


def wrong_network(network, layer_type):
    """A copy whose last layer of a kind computes 10% too much, as a wrong kernel would."""
    import copy

    broken = copy.deepcopy(network)
    layer = [one for one in broken.modules() if isinstance(one, layer_type)][-1]
    layer.register_forward_hook(lambda _layer, _given, made: made * 1.1)
    return broken


@pytest.mark.parametrize(("model", "kind"), [("vgg16", torch.nn.Linear), ("bert_base", torch.nn.LayerNorm)])
@pytest.mark.parametrize("arm", ["float32", "bfloat16"])
def test_a_wrong_forward_pass_is_seen(right, model, kind, arm):
    network, wanted = right[model]
    found = check(answers(model, wrong_network(network, kind), "cpu", split(arm), PLAN), wanted)
    assert vision_judges.faults({"model": model, "check": found, **split(arm)})


@pytest.mark.parametrize("arm", ["float32", "bfloat16"])
def test_a_wrong_backward_pass_is_seen_although_the_loss_is_right(right, arm):
    import copy

    network, wanted = right["resnet50"]
    broken = copy.deepcopy(network)
    layer = [one for one in broken.modules() if isinstance(one, torch.nn.Conv2d)][3]
    layer.register_full_backward_hook(lambda _layer, inner, _outer: (torch.zeros_like(inner[0]),))
    found = check(answers("resnet50", broken, "cpu", split(arm), PLAN), wanted)
    (said,) = vision_judges.faults({"model": "resnet50", "check": found, **split(arm)})
    assert said.startswith("gradient")


def test_a_result_that_is_not_finite_is_seen(right):
    _network, wanted = right["vgg16"]
    got = {"output": [torch.full_like(wanted["output"][0], float("nan"))]}
    found = check(got, wanted)
    assert vision_judges.faults({"model": "vgg16", "check": found, **split("float32")}) == ["not finite"]


# ---- measured for real, small


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    run = results.start("10", str(tmp_path_factory.mktemp("run")))
    arms = ["float32", "nonsense", "bfloat16", "float32 channels_last"]
    plan = GIVEN | {"sustained_s": 1.2}
    with worker.Worker() as keeper:
        ended = vision.study(run, keeper, "cpu", ["resnet50", "bert_base"], arms, plan, cost_pairs=1, limit_s=120)
    return run, ended


def test_an_arm_that_fails_costs_itself_only(measured):
    run, ended = measured
    assert "ERROR" in {one["status"] for one in ended} and ended[-1]["status"] == "OK"
    rows = run.rows("vision")
    failed = [(row["model"], row["arm"]) for row in rows if row["kind"] == "failed"]
    assert failed == [("resnet50", "nonsense"), ("bert_base", "nonsense")]
    steady = {(row["model"], row["arm"]): 0 for row in rows if row["kind"] == "steady"}
    assert set(steady) >= {("resnet50", "bfloat16"), ("resnet50", "float32 channels_last"), ("bert_base", "bfloat16")}
    assert ("bert_base", "float32 channels_last") not in steady


def test_rows_hold_what_is_promised(measured):
    run, _ = measured
    rows = run.rows("vision")
    first = next(row for row in rows if row["kind"] == "first" and row["arm"] == "bfloat16")
    assert first["first_ms"] > 0 and first["flops"] > 0 and first["tf32"] is False
    assert first["peak_bytes"] is None and first["peak_bytes_reason"]
    assert {"loss_error", "gradient_error"} <= set(first["check"])
    blocks = [row["arm"] for row in rows if row["kind"] == "steady" and row["model"] == "resnet50"][-6:]
    assert blocks[:3] == blocks[:2:-1], "the order turns round at every block"
    (stretch,) = [row for row in rows if row["kind"] == "sustained"]
    assert stretch["sampler"] and stretch["calls_ms"]
    assert {row["phase"] for row in run.rows("sensors")} == {"cost", "sustained"}
    assert {row["sampling"] for row in run.rows("sensor_cost") if "sampling" in row} == {True, False}


def test_its_section_has_everything_in_both_languages(measured):
    run, _ = measured
    part = vision_bert.section(run.path)
    assert {"NETWORK_FAILED", "LOSSES_RIGHT", "CLAIMS_NOT_COMPARED"} <= {one["code"] for one in part.findings}
    for one in part.findings:
        assert all(findings.say(one, lang)["sentence"] for lang in findings.LANGUAGES)
    assert [one.name for one in part.tables] == ["vision_claims", "vision_arms", "vision_sensors"]
    for figure in part.figures:
        assert figure.draw().get_axes() and all(figure.alt.values())
    line = part.tables[1].frame.iloc[1]
    assert line["network_arm"] == "nonsense" and pd.isna(line["step_ms"]) and "nonsense" in line["step_ms_reason"]


def test_nothing_measured_is_said(tmp_path):
    assert vision_bert.section(results.start("10", str(tmp_path)).path).missing


# ---- memory runs out


def test_a_batch_that_does_not_fit_is_halved_and_recorded(monkeypatch):
    tried = []

    def small_card(model, network, batch, device, arm, plan):
        tried.append(batch)
        if batch > 8:
            raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")
        return lambda: torch.zeros(())

    monkeypatch.setattr(vision, "stepper", small_card)
    monkeypatch.setattr(vision, "answers", lambda *_: {"output": [torch.ones(1)]})
    plan = Plan(**(GIVEN | {"batch": 32}))
    head = {"device": "cpu", "model": "vgg16", "work": "inference", **split("float32")}
    row, step = vision.first_runs(head, "vgg16", None, plan, {"output": [torch.ones(1)]})
    assert step is not None and tried == [32, 16, 8]
    assert (row["batch"], row["asked_batch"]) == (8, 32) and [one["batch"] for one in row["stepped_down"]] == [32, 16]
    assert row["stepped_down"][0]["memory"]["asked_gib"] == 2.0
    assert said_codes(vision_judges.judge_batches([row])) == ["BATCH_STEPPED_DOWN"]
    monkeypatch.setattr(vision, "stepper", lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA out of memory")))
    row, step = vision.first_runs(head, "vgg16", None, plan, {})
    assert step is None and row["kind"] == "failed" and "batch 1" in row["error"]


def test_an_arm_that_no_longer_fits_beside_the_others_costs_itself_and_gives_its_memory_back(tmp_path):
    import weakref

    class Step:
        def __init__(self, fits):
            self.fits, self.calls = fits, 0

        def __call__(self):
            self.calls += 1
            if self.calls > self.fits:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")

    run, steps = results.start("10", str(tmp_path)), {"float32": Step(1), "float16": Step(99), "bfloat16": Step(99)}
    head = {"device": "cpu", "model": "vgg16", "load": {}}
    made = {arm: (head | split(arm) | {"batch": 4}, step) for arm, step in steps.items()}
    lost = weakref.ref(steps.pop("float32"))
    vision._steady(run, made, Plan(**(GIVEN | {"rounds": 4})))
    rows = run.rows("vision")
    counts = {arm: sum(row["kind"] == "steady" and row.get("arm") == arm for row in rows) for arm in
              ("float32", "float16", "bfloat16")}  # fmt: skip
    assert counts == {"float32": 1, "float16": 4, "bfloat16": 4} and list(made) == ["float16", "bfloat16"]
    (failed,) = [row for row in rows if row["kind"] == "failed"]
    assert failed["arm"] == "float32" and "beside the other arms" in failed["error"]
    assert failed["memory"]["asked_gib"] == 1.0 and lost() is None, "something still holds the arm that was given up"
    with pytest.raises(RuntimeError, match="shapes"):
        fails = lambda: (_ for _ in ()).throw(RuntimeError("shapes differ"))  # noqa: E731
        vision._steady(run, {"float32": (head | split("float32"), fails)}, PLAN)


@pytest.mark.parametrize("model", networks.CONVOLUTIONS)
def test_channels_last_is_applied_to_weights_and_images(model):
    """Strides of a 3 x 3 convolution's input and weights, as PyTorch sees them inside a step."""
    seen: dict[str, list[bool]] = {}
    last = torch.channels_last
    for arm in ("float32", "float32 channels_last", "bfloat16 channels_last"):
        network = networks.build(model, "tiny")
        kept = seen.setdefault(arm, [])

        def look(layer, given, kept=kept):
            kept.append(given[0].is_contiguous(memory_format=last) and not given[0].is_contiguous())
            kept.append(layer.weight.is_contiguous(memory_format=last) and not layer.weight.is_contiguous())

        wide = [one for one in network.modules() if isinstance(one, torch.nn.Conv2d) and one.kernel_size == (3, 3)]
        first = next(one for one in network.modules() if isinstance(one, torch.nn.Conv2d))
        first.register_forward_pre_hook(look)  # what the images are; further in, the weights alone would decide
        if wide[-1] is not first:
            wide[-1].register_forward_pre_hook(look)
        network_steps.stepper(model, network, 2, "cpu", split(arm), PLAN)()
    assert seen["float32"] == [False] * 4
    assert seen["float32 channels_last"] == seen["bfloat16 channels_last"] == [True] * 4


def test_a_scaled_loss_moves_the_weights_as_an_unscaled_one_does(monkeypatch):
    """GradScaler is off on the CPU; switched on, it must bring its gradients back before the optimiser takes them."""
    asked = []
    real = torch.amp.GradScaler

    def scaler(kind, **options):
        asked.append((kind, options["enabled"], options["init_scale"]))
        return real("cpu", **(options | {"enabled": True}))

    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    network = networks.build("resnet50", "tiny")
    plain = network_steps.stepper("resnet50", network, 4, "cpu", split("float32"), PLAN)
    losses = [float(plain()) for _ in range(3)]
    assert asked == [("cpu", False, network_steps.FIRST_SCALE)]
    monkeypatch.setattr(network_steps, "FIRST_SCALE", 1.0)
    once = network_steps.stepper("resnet50", network, 4, "cpu", split("float32"), PLAN)
    assert [float(once()) for _ in range(3)] == pytest.approx(losses, rel=1e-4), "the scale must not move the weights"


# ---- what the records say: tables whose right answer is known


def records(model: str = "resnet50", device: str = "cuda:0", **ms: list[float] | float) -> list[dict]:
    """A first row and ten steady rows for each arm; an arm's name has _ for the blank before channels_last."""
    rows = []
    for key, one in ms.items():
        arm = key.replace("_", " ", 1)
        head = {"model": model, "device": device, "batch": 32, "image_px": 224, "size": "full", **split(arm)}
        facts = {"asked_batch": 32, "first_ms": 5000.0, "flops": 8e11, "bytes": 2e10, "peak_bytes": 2**31}
        bad = {"finite": True, "loss_error": 1e-6, "gradient_error": 1e-5}
        rows.append(head | facts | {"kind": "first", "check": bad})
        series = one if isinstance(one, list) else [one * (1 + 0.001 * (place % 3)) for place in range(10)]
        rows += [head | {"kind": "steady", "block": place, "ms": value} for place, value in enumerate(series)]
    return rows


def test_16_bit_helps_or_not_or_cannot_be_told():
    assert said_codes(vision_judges.judge_dtype(records(float32=100.0, float16=40.0), "float16")) == ["DTYPE_HELPS"]
    assert said_codes(vision_judges.judge_dtype(records(float32=100.0, float16=100.0), "float16")) == ["DTYPE_NO_GAIN"]
    assert said_codes(vision_judges.judge_dtype(records(float32=100.0, float16=300.0), "float16")) == ["DTYPE_NO_GAIN"]
    noisy = records(float32=[100.0, 60.0] * 5, float16=[60.0, 100.0] * 5)
    assert said_codes(vision_judges.judge_dtype(noisy, "float16")) == ["DTYPE_UNDECIDED"]
    few = records(float32=[100.0, 100.0, 101.0], float16=[90.0, 91.0, 90.0])
    assert said_codes(vision_judges.judge_dtype(few, "float16")) == ["DTYPE_UNDECIDED"]
    both = records(float32=100.0, float16=40.0) + records("vgg16", float32=50.0, float16=50.0)
    assert said_codes(vision_judges.judge_dtype(both, "float16")) == ["DTYPE_HELPS", "DTYPE_NO_GAIN"]
    assert vision_judges.judge_dtype(records(float32=100.0), "float16") == []


def test_arms_of_different_batches_are_not_compared():
    rows = records(float32=100.0, float16=40.0)
    for row in rows:
        if row["arm"] == "float32":
            row["batch"] = 16
    assert vision_judges.judge_dtype(rows, "float16") == []


def test_channels_last_both_ways():
    assert said_codes(vision_judges.judge_layout(records(float16=50.0, float16_channels_last=30.0))) == [
        "CHANNELS_LAST_HELPS"
    ]
    assert said_codes(vision_judges.judge_layout(records(float16=50.0, float16_channels_last=70.0))) == [
        "CHANNELS_LAST_NO_GAIN"
    ]


def test_first_runs_slow_or_not():
    rows = records(float32=100.0)
    (slow,) = vision_judges.judge_first(rows)
    assert slow["code"] == "FIRST_RUN_SLOW" and slow["numbers"]["first_runs_total_s"] == 5.0
    rows[0]["first_ms"] = 120.0
    assert said_codes(vision_judges.judge_first(rows)) == ["FIRST_RUN_SAME"]


def test_wrong_losses_are_broken_and_right_ones_a_note():
    rows = records(float32=100.0, float16=50.0)
    assert said_codes(vision_judges.judge_values(rows)) == ["LOSSES_RIGHT"]
    rows[0]["check"]["gradient_error"] = 0.9
    (wrong,) = vision_judges.judge_values(rows)
    assert (wrong["code"], wrong["status"], wrong["numbers"]["wrong"]) == ("LOSS_WRONG", "broken", 1)
    assert "float32: gradient 0.9 > 0.05" in findings.say(wrong)["sentence"]
    assert vision_judges.judge_values([]) == []


def test_allowed_errors_part_dtypes():
    narrow, wide, exact = (vision_judges.allowed("resnet50", d) for d in ("float16", "bfloat16", "float32"))
    assert exact < 1e-4 < narrow < wide < 0.5


def test_claims_are_compared_only_where_the_work_is_the_same():
    rows = records(float32=32 / 624 * 1000) + records("bert_base", float32=21.0) + records("vgg16", float32=28.0)
    table = vision_tables.beside_claims(rows).set_index(pd.Index(["resnet50", "bert_base", "vgg16"]))
    assert table.loc["resnet50", "amd_ratio"] == pytest.approx(2.0, rel=0.01)
    assert table.loc["vgg16", "nvidia_ratio"] == pytest.approx(61 / 28, rel=0.01)
    assert (
        pd.isna(table.loc["bert_base", "amd_ratio"]) and "sequences" in table.loc["bert_base", "amd_ratio_reason"]["en"]
    )
    assert said_codes(vision_judges.judge_claims(rows)) == ["BESIDE_CLAIMS"]
    for change in ({"device": "cpu"}, {"batch": 16}, {"image_px": 64}, {"size": "tiny"}):
        other = [row | change for row in rows]
        assert said_codes(vision_judges.judge_claims(other)) == ["CLAIMS_NOT_COMPARED"], change
    assert said_codes(vision_judges.judge_claims(records(float16=5.0))) == ["CLAIMS_NOT_COMPARED"]
    assert vision_judges.judge_claims([]) == []


def test_queued_steps_give_the_rate_and_single_ones_the_step():
    rows = records(float32=100.0)
    rows += [row | {"kind": "queued", "ms": row["ms"] / 2} for row in rows if row["kind"] == "steady"]
    assert vision_tables.rate(rows, "resnet50", "float32").median == pytest.approx(640, rel=0.01)
    frame = vision_tables.by_arm(rows, {"float32": 32e12}, 2000.0)
    line = frame.iloc[0]
    assert line["step_ms"].median == pytest.approx(100, rel=0.01)
    assert line["arithmetic_pct"] == pytest.approx(100 * 8e11 / 0.05 / 32e12, rel=0.01)
    assert line["memory_pct"] == pytest.approx(100 * 2e10 / 0.05 / 2e12, rel=0.01)
    assert line["peak_gib"] == 2.0
    (said,) = vision_judges.judge_roofs(rows, {"float32": 32e12}, 2000.0)
    assert said["numbers"]["resnet50_arithmetic_pct"] == pytest.approx(50, rel=0.01) and said_codes([said])
    assert vision_judges.judge_roofs(rows, {}, None) == []
    for tflops, variant in ((15.5, None), (15.0, "over")):  # the rate is 16: up to 5% over a ceiling is scatter
        (said,) = vision_judges.judge_roofs(rows, {"float32": tflops * 1e12}, 2000.0)
        assert said["variant"] == variant and ("Winograd" in findings.say(said)["sentence"]) == (variant == "over")


def test_roofs_that_were_not_measured_are_null_with_a_reason():
    line = vision_tables.by_arm(records(float32=100.0), {}, None).iloc[0]
    assert line["arithmetic_pct"] is None and "06" in line["arithmetic_pct_reason"]["en"]


def test_the_best_product_of_each_dtype():
    rows = [{"dtype": "float16", "samples_ms": [1.0, 1.0, 2.0], "flops": 1e12, "device": "cuda:0"},
            {"dtype": "float16", "samples_ms": [1.0], "m": 1000, "n": 1000, "k": 1000, "device": "cuda:0"},
            {"dtype": "float32", "samples_ms": [], "flops": 1e12, "reason": "out of memory"},
            {"dtype": "float32", "samples_ms": [1.0], "flops": 9e12, "device": "cpu"}]  # fmt: skip
    assert vision_tables.gemm_rates(rows, "cuda:0") == {"float16": 1e15}


def test_after_a_crash_only_the_last_worker_s_rows_stand_beside_each_other():
    before = [row | {"trial": 1} for row in records(float32=500.0, float16=500.0)][:-3]
    rows = before + [row | {"trial": 2} for row in records(float32=100.0, bfloat16=40.0)]
    assert len(vision_tables.steps_ms(rows, "resnet50", "float32")) == 10
    (found,) = vision_judges.judge_dtype(rows, "bfloat16")
    assert found["numbers"]["resnet50_gain"] == pytest.approx(2.5, rel=0.01)


def test_the_curve_shows_three_sensors_as_shares_of_their_highest():
    rows = [
        {
            "t_s": 100.0 + place / 2,
            **sensors.row("x", {"sclk_mhz": mhz, "power_w": watt, "temp_c": 50, "use_percent": 9}),
        }
        for place, (mhz, watt) in enumerate([(500, 40), (2500, 160), (2000, None)])
    ]
    points = vision_bert.curve(rows)
    clock = points[points["line"] == "clock"]
    assert list(clock["time_s"]) == [0, 0.5, 1.0] and list(clock["of_highest_pct"]) == [20, 100, 80]
    assert list(points["line"].unique()) == ["clock", "power", "temperature"] and len(points) == 8
    assert "clock 2,500 MHz" in vision_bert.alt_curve(points)["en"]
    assert vision_bert.draw_curve(points, "card").get_axes() and vision_bert.curve(rows[:1]).empty
    table = vision_bert.sensor_table(rows).set_index("readings")
    assert (
        table.loc[2, "highest"] == 160
        and "not given by x" in table[table["sensor_source"] == "x"]["highest_reason"].iloc[-1]
    )


def test_the_bars_hold_the_claims_beside_the_fastest_16_bit_arm():
    rows = records(float32=100.0, float16=50.0, bfloat16=40.0)
    frame = vision_tables.bars(rows, "GPU").set_index(["network", "who"])["items_a_second"]
    assert frame["ResNet-50 training", "GPU, fastest 16 bit"] == pytest.approx(800, rel=0.01)
    assert frame["ResNet-50 training", "claim, RX 6800 XT"] == 312
    assert frame["VGG16 forward", "claim, RTX 3080"] == pytest.approx(32000 / 61)
    assert pd.isna(frame["VGG16 forward", "GPU float32"])
    assert vision_bert.draw_bars(frame.reset_index(), "card").get_axes()


def test_medians_are_of_the_samples():
    rows = records(float32=[90.0, 100.0, 110.0, 95.0, 105.0, 100.0])
    assert statistics.median(vision_tables.steps_ms(rows, "resnet50", "float32")) == 100.0
    assert vision_tables.steps_ms(rows, "resnet50", "float32", "best") == vision_tables.steps_ms(
        rows, "resnet50", "float32"
    )


# ---- the claims, and the reference runs that repeat them


@pytest.mark.parametrize("card", vision_tables.CARDS)
def test_the_reference_run_of_a_card_holds_exactly_the_claims(card):
    folder = reference.folder() / f"article-{card.replace(' ', '').lower()}"
    assert card in results.birth(folder)["subject"]["name"]
    lines = {row["model_spec"]: row for row in results.rows(folder, "reported")}
    assert lines.keys() == vision_tables.CLAIMS.keys()
    for model, claim in vision_tables.CLAIMS.items():
        row = lines[model]
        metric = {"items_s": "train_images_s", "ms": "forward_ms"}[claim["unit"]]
        assert (row["metric"], row["value"]) == (metric, claim[card])
        assert (row["batch"], row["dtype"]) == (vision_tables.CLAIMED_BATCH, vision_tables.CLAIMED_DTYPE)
        image = None if model == "bert_base" else vision_tables.CLAIMED_IMAGE
        assert row.get("image_px") == image and row["evidence_grade"] == "reported"


def test_the_claims_need_no_reference_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "home", lambda: tmp_path)  # as where the package was installed without a checkout
    assert reference.every() == []
    frame = vision_tables.beside_claims([])
    assert list(frame["claimed_amd"]) == [312.0, 42.0, 56.0] and frame["here"].isna().all()
