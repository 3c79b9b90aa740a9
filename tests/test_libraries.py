"""What a model needs against what logs name, the table of backends, and the logs of this machine's CPU, taken live."""

import functools
import json
import sys

import pytest

from rocmlab import (
    backend_judges,
    backends,
    bundled,
    findings,
    gemms,
    isolate,
    libraries,
    logbook,
    random_weights,
    results,
    workload,
)
from rocmlab.readers import logs
from rocmlab.sections import backends as section

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 500,
}  # fmt: skip


def row(m, k, calls, n=1, library="rocBLAS", phase="decode float16", **more):
    base = {
        "kind": "gemm",
        "routine": "gemm_ex",
        "m": m,
        "n": n,
        "k": k,
        "batch": 1,
        "calls": calls,
        "library": library,
    }
    return base | {"kernel": "", "stage": "run", "phase": phase, "line": 7, "file": "logs/x.log", "shape": ""} | more


def whole(steps=1, n=1, **more):
    """All products of CONFIG: q and o share a shape, k and v, gate and up."""
    shapes = [(64, 64, 4), (32, 64, 4), (160, 64, 4), (64, 160, 2), (500, 64, 1)]
    return [row(m, k, count * steps, n=n, **more) for m, k, count in shapes]


# ---- what a model needs


def test_qwen3_needs_197_products_a_token():
    needed = gemms.required(random_weights.PRESETS["qwen3-0.6b"])
    assert gemms.total(needed) == 197
    assert {(one.name, one.m, one.k, one.count) for one in needed} >= {
        ("q_proj", 2048, 1024, 28), ("k_proj", 1024, 1024, 28), ("o_proj", 1024, 2048, 28),
        ("lm_head", 151936, 1024, 1),
    }  # fmt: skip


@pytest.mark.parametrize("preset", ["qwen3-0.6b", "qwen3-4b", "smollm2-135m", "tiny"])
def test_the_config_s_count_agrees_with_the_model_s_own_modules(preset):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    values = {k: v for k, v in random_weights.PRESETS[preset].items() if k != "rope_theta"}
    config = transformers.AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    done = workload.describe(model)
    needed = gemms.required(done["config"])
    assert sum(done["linears"].values()) == gemms.total(needed)
    assert done["linears"] == {f"{one.name} {one.m} {one.k}": one.count for one in needed}


def test_an_unknown_layout_is_never_guessed():
    with pytest.raises(ValueError, match="gpt2"):
        gemms.required({"model_type": "gpt2"})
    needed, source = backends.needed({"config": {"model_type": "gpt2"}, "linears": {"c_fc 256 64": 3}})
    assert (needed, source) == ([gemms.Needed("c_fc", 256, 64, 3)], "linear modules")


# ---- reconciling


def reconcile(rows, steps=1, n=1):
    return gemms.reconcile(rows, gemms.required(CONFIG), steps=steps, n=n, head_dim=16)


def test_all_products_in_the_log():
    found = reconcile([*whole(steps=3), row(40, 16, 24), row(16, 40, 24)], steps=3)
    assert (found.required, found.seen, found.attention, found.unexplained) == (15, 15, 48, [])
    assert {one["name"]: one["seen"] for one in found.projections}["k_proj"] == 6
    (said,) = gemms.judge(found, dtype="float16")
    assert said["code"] == "GEMMS_AS_REQUIRED" and said["status"] == "ok"
    assert "rocBLAS 15" in findings.say(said)["sentence"]


def test_missing_and_left_over_products():
    rows = [r for r in whole() if r["m"] != 500] + [row(77, 64, 3), row(64, 160, 5)]
    found = reconcile(rows)
    assert found.seen == 14
    assert {(r["m"], r["calls"]) for r in found.unexplained} == {(77, 3), (64, 5)}
    judged = {f["code"]: f for f in gemms.judge(found)}
    assert judged["GEMMS_NOT_LOGGED"]["words"]["missing"] == "lm_head"
    assert judged["GEMMS_UNEXPLAINED"]["numbers"]["gemms_unexplained"] == 2


def test_a_log_without_products_says_so_and_guesses_nothing():
    (said,) = gemms.judge(reconcile([]), dtype="float16")
    assert (said["code"], said["status"], said["variant"]) == ("GEMMS_NOT_LOGGED", "unknown", "none")
    assert "cpu" not in findings.say(said)["sentence"].lower()


def test_decode_rows_stay_apart_from_prefill_rows():
    rows = whole() + whole(n=37)
    assert reconcile(rows).seen == 15 and reconcile(rows, n=37).seen == 15
    assert reconcile(rows, n=5).seen == 0


def test_products_of_unknown_shape_are_counted_as_unread():
    assert reconcile([*whole(), row(None, None, 4, n=None)]).unread == 4


def test_steps_are_needed():
    with pytest.raises(ValueError, match="at least one step"):
        reconcile([], steps=0)


# ---- the table of notebook 08

DONE = {
    "dtypes": ["float16"],
    "steps": 2,
    "prompt_tokens": 37,
    "config": CONFIG,
    "linears": {},
    "errors": {},
    "model": "x",
}


def runs(**more):
    return [
        {"kind": "clean", "words": "ended normally", "work": DONE, "numbers": {"lines": 3}, "findings": [], **more},
        {"kind": "rocblas", "words": "ended normally", "work": DONE, "numbers": {}, "slow_down": {"float16": 3.5}},
    ]


def test_the_table_names_library_kernel_and_line_or_says_that_nobody_can_tell():
    conv = row(
        None, None, 3, n=None, library="MIOpen", phase="resnet_block float16", kind="convolution", routine="conv"
    )
    solver = conv | {"kind": "solver", "kernel": "ConvBinWinogradRxSf2x3g1"}
    norm = conv | {"kind": "solver", "kernel": "MIOpenBatchNormFwdInferSpatial", "line": 90}
    found = {
        (r["part"], r["operator"].split(" (")[0]): r
        for r in backends.table(runs(), [*whole(steps=2), conv, solver, norm])
    }
    head = found["decode", "lm_head"]
    assert (head["library"], head["kernel"], head["calls_a_step"], head["calls_logged"]) == ("rocBLAS", None, 1, 2)
    assert (head["file"], head["line"]) == ("logs/x.log", 7)
    assert found["decode", "RMSNorm"]["library"] is None
    block = found["resnet_block", "convolution"]
    assert (block["library"], block["kernel"], block["calls_a_step"]) == ("MIOpen", "ConvBinWinogradRxSf2x3g1", 3)
    assert found["resnet_block", "batch_norm"]["kernel"] == "MIOpenBatchNormFwdInferSpatial"
    assert found["batch_norm", "batch_norm"]["library"] is None


def test_products_in_two_logs_are_counted_once():
    outer = [{**r, "library": "cuBLAS"} for r in whole(steps=2)]
    inner = [{**r, "library": "cuBLASLt", "routine": "inner x", "kernel": "algo 67"} for r in whole(steps=2)]
    found = backends.reconciled(DONE, outer + inner, "float16")
    assert found.seen == 15 and found.unexplained == []
    assert {p["kernel"] for p in found.projections} == {"algo 67"}
    amd = whole(steps=2) + [{**r, "library": "hipBLASLt", "routine": "matmul"} for r in whole(steps=2)]
    assert backends.reconciled(DONE, amd, "float16").unexplained != []
    amd += [{**r, "kind": "backend", "routine": "hipblaslt", "kernel": "hipblaslt back end"} for r in whole(steps=2)]
    assert backends.reconciled(DONE, amd, "float16").unexplained == []


def test_attention_of_a_decode_step_is_found_in_cudnn_s_log_and_rotary_angles_are_explained():
    fused = row(None, None, 4, n=None, library="cuDNN", kind="attention", kernel="engine 5 (kernel cfg 1)")
    angles = row(8, 1, 2, library="cuBLAS")
    rows = [*whole(steps=2), fused, angles]
    found = {r["operator"].split(" (")[0]: r for r in backends.table(runs(), rows) if r["part"] == "decode"}
    attention, rotary = found["attention"], found["rotary embedding"]
    assert (attention["library"], attention["kernel"]) == ("cuDNN", "engine 5 (kernel cfg 1)")
    assert (attention["calls_a_step"], rotary["library"], rotary["calls_a_step"]) == (2, "cuBLAS", 1)
    assert backends.reconciled(DONE, rows, "float16").unexplained == []
    none = {r["operator"]: r for r in backends.table(runs(), whole(steps=2)) if r["part"] == "decode"}
    assert none["attention"]["library"] is None and none["rotary embedding"]["library"] is None


def test_what_torch_chose_is_said_where_no_log_mentions_the_operator():
    done = {**DONE, "choices": {"batch_norm float16": "Native", "resnet_block float16": None}}
    found = backends.table([{"kind": "clean", "work": done}], [])
    assert {r["part"]: r["chosen"] for r in found if r["operator"] == "batch_norm"} == {
        "resnet_block": None, "batch_norm": "native",
    }  # fmt: skip
    shown = backends.grouped(found)
    said = [r["evidence"]["en"] for r in shown if "batch_norm" in r["operators"]["en"]]
    assert said == ["no log mentions it", "no log mentions it; torch's own choice: native"]
    judged = next(f for f in backend_judges.judge([{"kind": "clean", "work": done}], []) if f["code"] == "NOT_LOGGED")
    assert "batch_norm (torch: native)" in findings.say(judged)["sentence"]


@pytest.mark.parametrize(("made", "said"), [(2, True), (1, False), (0, False)])
def test_plans_made_in_every_decode_step_are_a_fault_and_fewer_are_none(made, said):
    rows = [row(None, None, made, n=None, library="cuDNN", kind="plan_made", stage="search", time_ms=50.0)] * bool(made)
    rows = [{**one, "shape": "attention"} for one in rows]
    found = {f["code"]: f for f in backend_judges.judge(runs(), [*whole(steps=2), *rows])}
    assert ("PLANS_IN_EVERY_STEP" in found) == said
    if said:
        assert found["PLANS_IN_EVERY_STEP"]["numbers"] == {"plans_made": 2, "plans_ms_a_step": 25.0}


def test_the_findings_can_come_out_each_way():
    full = [f["code"] for f in backend_judges.judge(runs(), whole(steps=2))]
    assert full[0] == "GEMMS_AS_REQUIRED" and "LOGGING_SLOWS" in full
    assert backend_judges.judge(runs(), [])[0]["code"] == "GEMMS_NOT_LOGGED"
    crashed = [{"kind": "clean", "words": "ended by SIGSEGV", "work": None}]
    (found,) = backend_judges.judge(crashed, [])
    assert found["code"] == "LOGS_NOT_TAKEN" and "SIGSEGV" in findings.say(found)["sentence"]
    failing = backend_judges.judge(
        runs(work={**DONE, "errors": {"batch_norm float16": "RuntimeError: x"}}), whole(steps=2)
    )
    assert failing[0]["code"] == "LOGGED_PART_FAILED"


@pytest.mark.parametrize(("rate", "variant"), [(3.5, None), (1.02, "not_measurable"), (0.5, "disturbed")])
def test_the_slow_down_can_come_out_each_way(rate, variant):
    made = runs()
    made[1]["slow_down"] = {"float16": rate}
    found = next(f for f in backend_judges.judge(made, whole(steps=2)) if f["code"] == "LOGGING_SLOWS")
    assert found["variant"] == variant
    assert found["numbers"]["log_slow_down"] == (None if variant == "disturbed" else rate)
    assert findings.say(found, "zh")["sentence"]


def test_launches_of_a_step_are_grade_c_evidence():
    hip = [row(None, None, 24, n=None, library="HIP runtime", kind="launch"), row(None, None, 2, n=None, kind="sync")]
    hip[1]["library"] = "HIP runtime"
    assert logbook.per_step(hip, DONE) == {
        "float16": {"launches_a_step": 12.0, "copies_a_step": 0.0, "synchronisations_a_step": 1.0}
    }
    assert logbook.per_step(whole(), DONE) == {}


def test_the_section_draws_and_tells_what_it_has(tmp_path):
    run = results.start("08", str(tmp_path))
    assert section.section(run.path).missing
    run.append("library_runs", runs())
    run.append("library_calls", whole(steps=2))
    made = section.section(run.path)
    assert [t.name for t in made.tables] == ["operators", "products", "logs"]
    assert "rocBLAS: 15" in made.figures[0].alt["en"]
    assert made.figures[0].draw().axes


# ---- the logs of this machine's CPU, taken live


@functools.cache
def listened(kind, model, dtypes, folder):
    run = results.start("08", folder)
    work = {"model": model, "device": "cpu", "dtypes": list(dtypes), "steps": 2}
    return logbook.listen(run, kind, logbook.KINDS["cpu"][kind], work, limit_s=240)


def test_mkl_names_every_float32_product_of_a_decode_step(tmp_path_factory):
    torch = pytest.importorskip("torch")
    if not torch.backends.mkl.is_available():
        pytest.skip("this torch was built without MKL")
    one = listened("mkl", "random:tiny", ("float32",), str(tmp_path_factory.mktemp("mkl")))
    assert (one.status, one.log.damaged, one.result["errors"]) == ("OK", 0, {})
    rows = [{"file": one.file, **r} for r in libraries.rows(one.log)]
    found = backends.reconciled(one.result, rows, "float32")
    assert (found.seen, found.required, found.unexplained) == (15, 15, [])
    assert found.attention > 0


def test_onednn_names_every_bfloat16_product_of_the_bundled_model(tmp_path_factory):
    torch = pytest.importorskip("torch")
    if not bundled.gguf_file():
        pytest.skip("the bundled model is not installed")
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("torch does not hand bfloat16 products to oneDNN on this processor")
    one = listened("onednn", "bundled", ("bfloat16",), str(tmp_path_factory.mktemp("onednn")))
    assert (one.status, one.log.damaged, one.result["errors"]) == ("OK", 0, {})
    rows = [{"file": one.file, **r} for r in libraries.rows(one.log)]
    needed = gemms.required(one.result["config"])
    assert gemms.total(needed) == sum(one.result["linears"].values()) == 211
    for phase in ("decode", "prefill"):
        found = backends.reconciled(one.result, rows, "bfloat16", phase)
        assert (found.seen, found.required, found.unexplained) == (211, 211, [])
    convolution = next(
        r for r in backends.table([{"kind": "onednn", "work": one.result}], rows) if r["operator"] == "convolution"
    )
    assert (convolution["library"], convolution["calls_a_step"]) == ("oneDNN", 3)


def test_a_log_that_grows_without_end_is_cut_and_read(tmp_path):
    script = (
        "import threading, rocmlab.workload as b\n"
        "threading.Thread(target=b.watch, args=(200_000,), daemon=True).start()\n"
        "while True: print('MKL_VERBOSE SGEMM(T,N,128,1,64,0x7f,0x55,64) 8.5us CNR:OFF')\n"
    )
    code, seconds, *_ = isolate.run(
        [sys.executable, "-c", script], limit_s=60, env=isolate.child_environment(), folder=tmp_path
    )
    assert code == workload.FULL_EXIT and seconds < 60
    logbook.keep(tmp_path, tmp_path / "logs" / "kept.log")
    log = logs.parse(tmp_path / "logs" / "kept.log")
    assert libraries.numbers(log)["mkl_calls"] > 1000


def test_a_kept_log_names_nobody(tmp_path, monkeypatch):
    (tmp_path / "stdout").write_text("MIOpen Error: /home/somebody/x.cpp:1: y\nz\n" * 3, encoding="utf-8")
    (tmp_path / "stderr").write_text("C:\\Users\\anybody\\a\n", encoding="utf-8")
    logbook.keep(tmp_path, tmp_path / "kept.log")
    text = (tmp_path / "kept.log").read_text(encoding="utf-8")
    assert "somebody" not in text and "anybody" not in text
    assert [line[:6] for line in text.splitlines()[:6]] == ["MIOpen", "z"] * 3


def test_records_of_a_child_are_valid_json(tmp_path):
    run = results.start("08", str(tmp_path))
    log = logs.parse_text("MKL_VERBOSE SGEMM(T,N,128,1,64,0x7f,0x55,64) 8.5us CNR:OFF")
    one = logbook.Listened(
        "mkl", "OK", "ended normally", 1.0, {**DONE, "step_ms": {"float16": 4.0}}, log, "logs/x.log", 9
    )
    clean = logbook.Listened("clean", "OK", "ended normally", 1.0, {**DONE, "step_ms": {"float16": 2.0}}, log, "", 0)
    logbook.record(run, one, {"MKL_VERBOSE": "1"}, clean)
    (kept,) = run.rows("library_runs")
    assert kept["slow_down"] == {"float16": 2.0}
    json.dumps(kept, allow_nan=False)
    assert [r["m"] for r in run.rows("library_calls")] == [128]
