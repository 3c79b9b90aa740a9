"""llama-bench's output in every format, and what another engine beside torch says: each way round."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from cases import answer
from spoken import codes

from rocmlab import (
    bundled,
    findings,
    isolate,
    llama_bench,
    results,
    tables,
    words,
    yardstick,
    yardstick_judges,
)

# The fields of 2026-10; a small model on one core of a made-up machine.
TEST = {
    "build_commit": "abc1234", "build_number": 7000, "cpu_info": "Some CPU", "gpu_info": "", "backends": "CPU",
    "model_filename": "models/small.Q4_1.gguf", "model_type": "llama 256M Q4_1", "model_size": 100_000_000,
    "model_n_params": 134515008, "n_batch": 2048, "n_ubatch": 512, "n_threads": 2, "n_gpu_layers": -1,
    "devices": "auto", "n_prompt": 0, "n_gen": 32, "n_depth": 0, "test_time": "2026-10-01T10:00:00Z",
    "avg_ns": 320000000, "stddev_ns": 1000000, "avg_ts": 100.0, "stddev_ts": 0.5,
    "samples_ns": [319000000, 321000000], "samples_ts": [100.3, 99.7],
}  # fmt: skip
PROMPT = TEST | {"n_prompt": 64, "n_gen": 0, "avg_ts": 400.0, "samples_ts": [398.0, 402.0]}
CARD = {"backends": "Vulkan", "gpu_info": "AMD Radeon RX 6650 XT", "n_gpu_layers": 99, "model_size": 1_000_000_000}
TABLE = """ggml_vulkan: Found 1 Vulkan devices:
ggml_vulkan: 0 = AMD Radeon RX 6650 XT (RADV NAVI23) (radv) | uma: 0 | fp16: 1 | bf16: 0 | warp size: 32
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| qwen3 1.7B Q8_0                |   1.00 GiB |     1.72 B | Vulkan     |  99 |           pp512 |       2105.33 ± 8.31 |
| qwen3 1.7B Q8_0                |   1.00 GiB |     1.72 B | Vulkan     |  99 |           tg128 |        171.20 ± 0.93 |
| qwen3 1.7B Q8_0                |   1.00 GiB |     1.72 B | Vulkan     |  99 |   tg128 @ d4096 |        120.00 ± 0.93 |
| qwen3 1.7B Q8_0                |   1.00 GiB |     1.72 B | Vulkan     |  99 |     pp512+tg128 |        610.00 ± 3.10 |

build: abc1234 (7000)
"""


def as_csv(tests):
    names = [name for name in TEST if not name.startswith("samples")]
    quoted = ['"' + str(test[name]) + '"' for test in tests for name in names]
    lines = [quoted[i : i + len(names)] for i in range(0, len(quoted), len(names))]
    return ",".join(names) + "\n" + "\n".join(",".join(line) for line in lines) + "\n"


# ---- formats


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([PROMPT, TEST], indent=2),
        "".join(json.dumps(one) + "\n" for one in (PROMPT, TEST)),
        "load_backend: loaded CPU backend from x.so\n" + as_csv([PROMPT, TEST]),
    ],
)
def test_json_lines_and_csv_say_the_same(tmp_path, text):
    found = answer(tmp_path, text)
    assert (found["kind"], found["verdict"]) == ("llama_bench", "LLAMA_BENCH_RATE")
    numbers = found["numbers"]
    assert (numbers["prefill_tok_s"], numbers["decode_tok_s"], numbers["decode_gb_s"]) == (400.0, 100.0, 10.0)
    assert (
        "pp64 400 tok/s, tg32 100 tok/s = 10.0 GB/s" in found["sentence"]
        and "llama 256M Q4_1 on CPU" in found["sentence"]
    )
    assert "no stated bandwidth" in found["sentence"]
    assert answer(tmp_path, text, lang="zh")["sentence"]


def test_markdown_brings_the_card_from_the_lines_above_it(tmp_path):
    found = answer(tmp_path, TABLE)
    assert found["kind"] == "llama_bench" and found["numbers"]["tests"] == 4
    assert found["numbers"]["decode_gb_s"] == pytest.approx(171.2 * 2**30 / 1e9)
    # 280 GB/s is what this card's maker states
    assert found["verdict"] == "LLAMA_BENCH_RATE" and "66% of its 280 GB/s" in found["sentence"]
    assert "AMD Radeon RX 6650 XT" in found["sentence"] and "tg128 @ d4096 120 tok/s" in found["sentence"]


@pytest.mark.parametrize(
    ("rate", "code", "says"),
    [(200.0, "LLAMA_BENCH_RATE", "bound by its memory"), (120.0, "LLAMA_BENCH_RATE", "uses part"),
     (40.0, "LLAMA_BENCH_SLOW", "far below"), (400.0, "LLAMA_BENCH_RATE", "so not all of them are")],
)  # fmt: skip
def test_a_rate_is_judged_against_what_the_card_can_do(tmp_path, rate, code, says):
    found = answer(tmp_path, json.dumps([TEST | CARD | {"avg_ts": rate}]))
    assert found["verdict"] == code and says in found["sentence"]
    assert found["status"] == ("warn" if code == "LLAMA_BENCH_SLOW" else "ok")


def test_a_build_for_a_card_that_did_not_use_it_is_named(tmp_path):
    found = answer(tmp_path, json.dumps([TEST | CARD | {"n_gpu_layers": 0}]))
    assert found["verdict"] == "LLAMA_BENCH_NOT_OFFLOADED" and "-ngl 99" in found["advice"]
    both = answer(tmp_path, json.dumps([TEST | CARD | {"n_gpu_layers": 0}, TEST | CARD]))
    assert "LLAMA_BENCH_NOT_OFFLOADED" not in codes(both["findings"])  # a comparison on purpose


def test_the_older_flags_tell_the_back_end():
    older = {k: v for k, v in TEST.items() if k != "backends"} | {"cuda": False, "vulkan": True, "gpu_info": "A card"}
    (test,), damaged = llama_bench.parse(json.dumps([older]))
    assert (test["backend"], llama_bench.device(test), damaged) == ("Vulkan", "A card", 0)


def test_what_is_cut_or_damaged_is_counted_and_the_rest_is_read(tmp_path):
    whole = json.dumps([PROMPT, TEST], indent=2)
    found = answer(tmp_path, whole[:-200])
    assert found["numbers"]["tests"] == 1 and "DAMAGED_LINES" in codes(found["findings"])
    lines = as_csv([PROMPT, TEST]).splitlines()
    assert answer(tmp_path, "\n".join([*lines, '"half","a line"']))["numbers"]["damaged_tests"] == 1
    odd = answer(tmp_path, json.dumps([TEST | {"avg_ts": None}, TEST]))
    assert (odd["numbers"]["tests"], odd["numbers"]["damaged_tests"]) == (1, 1)
    none = answer(tmp_path, as_csv([]))
    assert none["numbers"]["decode_tok_s"] is None and none["numbers"]["decode_tok_s_reason"]


def test_other_tables_and_records_are_not_taken_for_it(tmp_path):
    assert answer(tmp_path, "| model | t/s |\n|---|---|\n| a | 3 |\n")["kind"] == "unknown"
    assert answer(tmp_path, '{"run": "a", "notebook": "03", "attempt": "1"}\n{"run": "a"}\n')["kind"] == "records"


def test_several_models_stay_apart_and_the_extremes_are_told(tmp_path):
    other = {"model_type": "llama 1B F16", "model_filename": "b.gguf", "avg_ts": 20.0}
    found = answer(tmp_path, json.dumps([TEST, TEST | other]))
    assert (
        found["numbers"]["slowest_decode_tok_s"] == 20.0 and "llama 1B F16 on CPU: tg32 20.0 tok/s" in found["sentence"]
    )
    rows = llama_bench.rows(llama_bench.parse(json.dumps([PROMPT, TEST, TEST | other]))[0])
    assert [(row["quantisation"], row["prefill_tok_s"], row["decode_tok_s"]) for row in rows] == [
        ("Q4_1", [398.0, 402.0], [100.3, 99.7]), ("F16", [], [100.3, 99.7]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "kind"),
    [("llama 7B mostly Q4_0", "Q4_0"), ("qwen2 7B Q4_K - Medium", "Q4_K"), ("llama 256M all F32", "F32"),
     ("x.b179c952.F32.gguf", "F32"), ("gpt-oss 20B MXFP4 MoE", "MXFP4"), ("llama 7B IQ2_XXS - 2.0625 bpw", "IQ2_XXS"),
     ("something", None)],
)  # fmt: skip
def test_the_quantisation_is_found_in_a_name(said, kind):
    assert llama_bench.quantisation(None, said) == kind


def test_back_ends_in_the_line_on_the_system():
    assert llama_bench.backend_of("CPU : SSE3 = 1 | AVX = 1 | OPENMP = 1 | ") == "CPU"
    assert llama_bench.backend_of("CUDA : ARCHS = 900 | USE_GRAPHS = 1 | CPU : SSE3 = 1 | ") == "CUDA"


# ---- judges


def row(engine, rate, gigabytes=0.538, kind="F32", device="CPU", jitter=(1.0, 0.99, 1.01, 1.0, 1.0, 1.0), **changes):
    found = {"engine": engine, "backend": "CPU", "device": device, "model": "m", "quantisation": kind, "threads": 2}
    found |= {"model_bytes": gigabytes * 1e9, "prompt_tokens": 64, "prefill_tok_s": [500.0] * 6}
    return found | {"decode_tok_s": [rate * j for j in jitter], "status": "OK", "reason": None} | changes


def test_the_figures_of_two_cores_say_that_torch_is_what_is_slow():
    rows = [row("llama-bench", 51.8), row("llama-bench", 131.0, 0.0966, "Q4_1"), row("torch", 17.4, kind="float32")]
    found = {one["code"]: one for one in yardstick.judge(rows)}
    assert set(found) == {"YARDSTICK_FASTER", "YARDSTICK_FEWER_BYTES"}
    assert found["YARDSTICK_FASTER"]["numbers"]["times"] == pytest.approx(51.8 / 17.4)
    assert found["YARDSTICK_FASTER"]["numbers"]["torch_gb_s"] == pytest.approx(9.36, abs=0.01)
    assert "3.0 times better than it is" in findings.say(found["YARDSTICK_FASTER"])["advice"]
    assert found["YARDSTICK_FEWER_BYTES"]["numbers"]["times_faster"] == pytest.approx(131 / 51.8)


@pytest.mark.parametrize(
    ("rate", "jitter", "code"),
    [
        (17.6, (1.0, 0.99, 1.01, 1.0, 1.0, 1.0), "YARDSTICK_EQUAL"),
        (9.0, (1.0, 0.99, 1.01, 1.0, 1.0, 1.0), "YARDSTICK_SLOWER"),
        (30.0, (0.3, 2.0, 1.0, 0.5, 1.4, 1.0), "YARDSTICK_UNDECIDED"),
        (60.0, (1.0, 1.0, 1.0), "YARDSTICK_UNDECIDED"),
    ],
)
def test_equal_slower_and_undecided(rate, jitter, code):
    found = yardstick.judge([row("llama-bench", rate, jitter=jitter), row("torch", 17.4, kind="float32")])
    assert codes(found) == [code] and all(findings.say(found[0], lang)["sentence"] for lang in words.LANGUAGES)


def test_on_a_card_more_bytes_at_a_higher_rate_are_proof_and_fewer_bytes_are_none():
    eager = row("torch", 50.0, 0.269, "float16", "A card")
    more = yardstick.judge([row("llama-bench", 200.0, device="A card"), eager])
    assert codes(more) == ["YARDSTICK_FASTER"] and "eager PyTorch cannot" in findings.say(more[0])["advice"]
    assert "although it reads more bytes" in findings.say(more[0])["sentence"]
    fewer = yardstick.judge([row("llama-bench", 200.0, 0.0966, "Q4_1", "A card"), eager])
    assert codes(fewer) == ["YARDSTICK_UNDECIDED"]
    slower = yardstick.judge([row("llama-bench", 40.0, device="A card"), eager])
    assert codes(slower) == ["YARDSTICK_UNDECIDED"]  # it reads twice the bytes


def test_fewer_bytes_that_do_not_help_say_that_bandwidth_does_not_bind():
    rows = [row("llama-bench", 50.0), row("llama-bench", 51.0, 0.0966, "Q4_1"), row("torch", 50.0, kind="float32")]
    (found,) = [one for one in yardstick.judge(rows) if one["code"] == "YARDSTICK_FEWER_BYTES"]
    assert found["variant"] == "no_help"


def test_torch_of_notebook_04_serves_where_it_ran_the_same_model():
    stamps = [0.1 + 0.05 * step for step in range(11)]
    text = {
        "kind": "hand",
        "visit": "steady",
        "model_spec": "bundled",
        "length": 64,
        "device": "cpu",
        "dtype": "float32",
    }
    text |= {
        "weight_bytes": 538e6,
        "new_tokens": 11,
        "t_start_s": 0.0,
        "t_first_token_s": stamps[0],
        "t_end_s": stamps[-1],
    }
    found = yardstick.judge([row("llama-bench", 51.8)], [text] * 6)
    assert codes(found) == ["YARDSTICK_FASTER"] and found[0]["numbers"]["torch_tok_s"] == pytest.approx(20.0)
    other = yardstick.judge([row("llama-bench", 51.8)], [text | {"model_spec": "random:qwen3-0.6b"}] * 6)
    assert codes(other) == ["YARDSTICK_ALONE"]


def test_other_work_beside_the_engines_is_said():
    rows = [row("llama-bench", 51.8), row("torch", 17.4, kind="float32", others_cpu_pct=40.0)]
    assert codes(yardstick.judge(rows)) == ["YARDSTICK_FASTER", "OTHER_WORK"]


def test_what_is_absent_or_failed_is_said_and_stands_in_the_table():
    rows = [yardstick._absent("llama.cpp", "not here; pip install it"), row("torch", 17.4)]
    rows.append(yardstick._absent("llama-bench", "boom") | {"status": "ERROR"})
    found = yardstick.judge(rows)
    assert [(one["code"], one["variant"]) for one in found] == [
        ("YARDSTICK_ABSENT", None),
        ("YARDSTICK_ABSENT", "failed"),
    ]
    made = tables.grid(yardstick.table(rows), "zh", yardstick.LABELS)
    assert "没有数值：not here; pip install it" in made.reasons and len(made.rows) == 3


# ---- for real, where an engine is here


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCMLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_without_an_engine_or_a_model_there_is_one_row_that_says_so(tmp_path, monkeypatch):
    run = results.start("11", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setattr(yardstick.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(bundled, "gguf_file", lambda: Path("model.gguf"))
    (told,) = yardstick.study(run)
    assert told["status"] == "ABSENT" and "pip install llama-cpp-python" in told["reason"]
    monkeypatch.setattr(bundled, "gguf_file", lambda: None)
    assert bundled.ADVICE in yardstick.study(run)[0]["reason"]
    assert len(results.rows(tmp_path, "yardstick")) == 2


PROGRAM = """import json, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
test = {test}
if given["-n"] == "99":
    print("[" + json.dumps(test | {{"n_prompt": 64, "n_gen": 0}}), flush=True)
    time.sleep(60)
size = 4 if "F32" in given["-m"] else 1
print(json.dumps([test | {{"model_type": "m F32" if size == 4 else "m Q4_1", "model_size": size * 10**8}}]))
"""


def program(tmp_path):
    """A stand-in for llama-bench: it takes the same options and prints JSON as the real one does."""
    script = tmp_path / "bench.py"
    script.write_text(PROGRAM.format(test=repr(TEST)), encoding="utf-8")
    return script


def test_the_program_is_run_on_both_files_and_a_test_it_does_not_reach_is_a_row(tmp_path, monkeypatch, cache):
    script, real = program(tmp_path), isolate.run
    monkeypatch.setattr(shutil, "which", lambda name: "llama-bench")
    monkeypatch.setattr(isolate, "run", lambda command, **rest: real(_by_python(command, script), **rest))
    monkeypatch.setattr(yardstick, "with_torch", None)
    called = isolate.Outcome("OK", "", 0, 1.0, row("torch", 10.0, 0.4, "float32"), None, "", "")
    monkeypatch.setattr(isolate, "call", lambda target, *_, **__: called)
    source = tmp_path / "m.Q4_1.gguf"
    source.write_bytes(b"GGUF")
    monkeypatch.setattr(bundled, "gguf_file", lambda: source)
    rows = yardstick.study(results.start("11", str(tmp_path)), repeats=2)
    assert [(one["engine"], one["quantisation"], one["status"]) for one in rows] == [
        ("llama-bench", "F32", "OK"), ("torch", "float32", "OK"), ("llama-bench", "Q4_1", "OK"),
    ]  # fmt: skip
    cut = yardstick._bench("llama-bench", source, {"prompt": 64, "tokens": 99, "repeats": 2}, 3.0)
    assert cut[0]["status"] == "TIMEOUT" and cut[0]["prefill_tok_s"] == [100.3, 99.7] and "3 s" in cut[0]["reason"]


def _by_python(command, script):
    return [sys.executable, str(script), *command[1:]] if command[0] == "llama-bench" else command


@pytest.mark.skipif(bundled.gguf_file() is None, reason="the bundled model is not installed")
def test_the_float32_file_holds_the_same_weights_and_says_so(cache):
    from gguf import GGUFReader, dequantize

    source = bundled.gguf_file()
    plain = yardstick._float32(source, yardstick.time.monotonic() + 300)
    assert isinstance(plain, Path) and llama_bench.quantisation(None, plain.name) == "F32"
    before, after = GGUFReader(source), GGUFReader(plain)
    assert {t.name: t.tensor_type.name for t in after.tensors} == {t.name: "F32" for t in before.tensors}
    assert after.fields["tokenizer.ggml.tokens"].contents() == before.fields["tokenizer.ggml.tokens"].contents()
    one = before.tensors[5]
    same = next(t for t in after.tensors if t.name == one.name)
    assert (dequantize(one.data, one.tensor_type) == same.data).all()
    assert yardstick._float32(source, 0.0) == plain  # made once


if shutil.which("llama-bench") or yardstick.importlib.util.find_spec("llama_cpp"):  # an engine is never required

    def test_the_real_engine_gives_rates_and_torch_stands_beside_it(tmp_path, cache):
        rows = yardstick.study(results.start("11", str(tmp_path)), limit_s=240, prompt=8, tokens=2, repeats=1)
        assert {one["engine"] for one in rows} >= {"torch"} and {one["status"] for one in rows} == {"OK"}
        assert all(one["decode_tok_s"][0] > 0 and one["model_bytes"] for one in rows)
        assert {one["quantisation"] for one in rows if one["engine"] != "torch"} == {"F32", "Q4_1"}
        assert yardstick_judges.judge(rows)
