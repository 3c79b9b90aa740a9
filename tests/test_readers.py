"""All readers: whatever a file holds, there is an answer, it is JSON, and one file never stops the others."""

import gzip
import json
import random
import shutil
import time
from pathlib import Path

import probes
import pytest
import test_attention
import test_kernels
import test_measurements
import test_tools
import test_yardstick
import tracemaker as make
from damage import with_odd_bytes, with_odd_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocmlab import cli, findings, readers, words
from rocmlab.readers import key_averages, rocprof, traces

DATA = Path(__file__).resolve().parent / "data"
FUZZ_S = 25  # for all examples together
# Damage of these kinds is met by the readers themselves; the net below them has nothing to catch.
SURE = {
    "trace",
    "key_averages",
    "torch-profiler-table",
    "rocprofv3-kernel-trace-csv",
    "rocprof-kernel-stats-csv",
    "rocprofv3-summary-text",
}

SPEEDUP = {
    "schema": "rocmlab-speedup-1",
    "cpu": {"dtype": "float32", "threads": 8, "decode_tok_s": 11.5, "new_tokens": 64, "attn": "sdpa"},
    "gpu": {"dtype": "float16", "decode_tok_s": 46.0, "new_tokens": 64, "attn": "sdpa"},
}
TIMINGS = {
    "schema": "rocmlab-timings-2",
    "unit": "ms",
    "op": "mm 512x512x512 float32",
    "flop": 2 * 512**3,
    "peak_tflops": 11.0,
    "no_sync": [0.02, 0.03, 0.02],
    "with_sync": [1.1, 1.2, 1.15],
}
GREEDY = {
    "schema": "rocmlab-greedy-check-1",
    "dtype": "float16",
    "do_sample": False,
    "prompt_id": "short",
    "cpu_float32": {"token_ids": [5, 6, 7], "logits_finite": True, "tok_s": 9.0},
    "gpu_sdpa": {"token_ids": [5, 6, 0], "logits_finite": False, "first_nonfinite_step": 2, "tok_s": 31.0},
}
RUN = {"schema": "rocmlab-run-1", "device": {"name": "RX 7700", "gcnArchName": "gfx1101"}, "value": 512.5}
CARD = {"card0": {"Temperature (Sensor edge) (C)": "45.0", "GPU use (%)": "12", "GFX Version": "gfx1031"}}
AVERAGES = {"schema": key_averages.SCHEMA, "torch_2_9": [test_kernels.NEW], "torch_2_1": [test_kernels.OLD]}
ROWS = [{"run": "cpu", "notebook": "03", "attempt": "1", "value": 1.5}, {"run": "cpu", "notebook": "03", "value": 2}]
RECORDS = {
    "generation": test_measurements.GENERATION,
    "speedup": SPEEDUP,
    "timings": TIMINGS,
    "greedy": GREEDY,
    "attention": test_attention.PROBE,
    "llama": [test_yardstick.PROMPT, test_yardstick.TEST],
    "single": RUN | {"metric": "prefill_tok_s", "prompt_tokens": 64},
    "names": {"schema": "rocmlab-arch-names-1", "items": ["gfx1030", "gfx1102", "gfx906:xnack-"]},
    "snapshot": probes.rocm(probes.WINDOWS, probes.device()),
    "absent": probes.absent(),
    "averages": AVERAGES,
    "smi": CARD,
    "trace": json.loads(make.written(make.two_tokens())),
}
TEXTS = {
    "rocminfo": test_tools.AGENTS,
    "hipinfo": test_tools.HIPINFO,
    "table": test_kernels.TABLE,
    "kernels": '"Kernel_Name","Start_Timestamp","End_Timestamp"\n"void k<1>(int, float)",10,30\n"b",40,70\n',
    "stats": '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"Cijk_A",3,6000,2000,75.0\n"b",1,2000,1,2\n',
    "domains": "ROCPROFV3 SUMMARY:\n\n| NAME | DOMAIN | CALLS | NS |\n|---|---|\n| k | KERNEL_DISPATCH | 3 | 6000 |\n",
    "blas": "./rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 64 -n 3 -k 128 --alpha 1 --a_type f16_r\n",
    "verbose": "onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx2,undef,src:f32 wei:f32,,,4x8:8x2,0.5\n",
    "convolution": "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 16 -H 40 -W 24 -k 8\n",
    "crash": "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7f0000. Reason: Page not present.\n",
    "llama_csv": test_yardstick.as_csv([test_yardstick.PROMPT, test_yardstick.TEST]),
    "llama_table": test_yardstick.TABLE,
    "chat": "small-model : 31.4 tok/sec, 210 tokens, 0.82s to first token\n",
    "import": "  import torch\nImportError: libamdhip64.so.6: cannot open shared object file\n",
    "benchmark": "mm\n  Median: 2.4 ms\n  IQR: 0.3 ms (2 to 3)\n  2 measurements, 9 runs per measurement, 1 thread\n",
    "names": "Cijk_Ailk_Bljk_HHS_BH_MT32x32x16_SN_K1\nvoid at::native::k<4>(int)\ntriton_poi_fused_mul_0\n",
    "lines": "".join(f"{json.dumps(row)}\n" for row in ROWS),
}
FILES = sorted(path for path in DATA.rglob("*") if path.suffix in (".ipynb", ".json", ".jsonl", ".gz"))
EVERY = {
    **{path.relative_to(DATA).as_posix(): path.read_bytes() for path in FILES},
    **{f"{name}.json": json.dumps(record).encode() for name, record in RECORDS.items()},
    **{f"{name}.txt": text.encode() for name, text in TEXTS.items()},
}


def answers(path, lang="en"):
    """Return the answer for a file after the checks that hold for every file."""
    answer = readers.answer(path, lang)
    json.dumps(answer, allow_nan=False)
    assert answer["status"] in findings.ORDER and answer["sentence"] and answer["file"] == path.name
    assert all(one["status"] in findings.ORDER and one["sentence"] for one in answer["findings"])
    return answer


# ---- damaged files


@st.composite
def damaged(draw):
    """A name and its content with small faults, sometimes in another encoding or packed."""
    name = draw(st.sampled_from(sorted(EVERY)))
    rng = random.Random(draw(st.integers(0, 2**32)))
    data = EVERY[name]
    if name.endswith(".gz") and rng.random() < 0.8:
        data = gzip.decompress(data)
    data = with_odd_values(rng, data) if rng.random() < 0.5 else with_odd_bytes(rng, data)
    if rng.random() < 0.1:
        data = data.decode("utf-8", errors="replace").encode("utf-16")
    return name, data


BEGAN = []


@settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(damaged(), st.sampled_from(words.LANGUAGES))
def test_small_faults_of_any_file_give_an_answer(tmp_path_factory, given_file, lang):
    BEGAN[:] = BEGAN or [time.monotonic()]
    if time.monotonic() - BEGAN[0] > FUZZ_S:  # a busy machine: what was tried until now has to do
        return
    name, data = given_file
    path = tmp_path_factory.getbasetemp() / Path(name).name
    path.write_bytes(data)
    answers(path, lang)
    evidence = readers.Evidence(path)
    for reader in (traces, key_averages, rocprof):
        if reader.recognise(evidence):  # without the net
            assert reader.read(evidence).kind in SURE
            break


@pytest.mark.parametrize("name", sorted(EVERY))
def test_whole_files_are_read(tmp_path, name):
    path = tmp_path / Path(name).name
    path.write_bytes(EVERY[name])
    assert answers(path)["kind"] != "unknown"
    assert answers(path, "zh")["kind"] != "unknown"


def test_a_run_folder_with_damaged_files_gives_an_answer(tmp_path):
    rng = random.Random(6)
    for number in range(12):
        run = shutil.copytree(DATA / "run", tmp_path / str(number))
        for path in [path for path in run.rglob("*") if path.is_file()]:
            path.write_bytes(rng.choice([with_odd_values, with_odd_bytes])(rng, path.read_bytes()))
        assert answers(run)["status"] in findings.ORDER


# ---- the net


@pytest.mark.parametrize("lang", words.LANGUAGES)
@pytest.mark.parametrize("name", readers.MODULES)
def test_a_reader_that_fails_says_what_the_file_looks_like(tmp_path, monkeypatch, name, lang):
    def fail(evidence):
        raise KeyError("libraries")

    for one in readers.MODULES:
        monkeypatch.setattr(f"rocmlab.readers.{one}.recognise", lambda evidence, one=one: one == name)
    monkeypatch.setattr(f"rocmlab.readers.{name}.read", fail)
    (tmp_path / "odd.bin").write_bytes(b"anything")
    got = answers(tmp_path / "odd.bin", lang)
    assert (got["kind"], got["verdict"], got["status"]) == ("unknown", "READER_FAILED", "unknown")
    assert words.word(f"looks_{name}", lang) in got["sentence"] and "KeyError: 'libraries'" in got["sentence"]


def test_a_sentence_that_lacks_its_numbers_is_a_failure_too(tmp_path):
    (tmp_path / "odd.json").write_text(json.dumps(SPEEDUP), encoding="utf-8")
    found = findings.finding("KEY_AVERAGES_READ")
    reading = readers.Reading("key_averages", headline=found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "read", lambda path, window: reading)
        got = answers(tmp_path / "odd.json")
    assert (got["verdict"], got["kind"]) == ("READER_FAILED", "unknown")


def test_numbers_that_are_not_finite_are_null_with_a_reason(tmp_path):
    reading = readers.Reading("timings", numbers={"a_ms": float("nan"), "b_ms": 2.0}, extra={"items": [float("inf")]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "read", lambda path, window: reading)
        got = readers.answer(tmp_path / "any.json")
    assert got["numbers"] == {"a_ms": None, "a_ms_reason": "not a finite number", "b_ms": 2.0}
    assert got["items"] == [None]


def test_one_file_never_stops_the_others(tmp_path, monkeypatch, capsys):
    def fail(evidence):
        raise ValueError("Exceeds the limit (4300 digits) for integer string conversion")

    monkeypatch.setattr("rocmlab.readers.rocprof.read", fail)
    (tmp_path / "bad.csv").write_text(TEXTS["stats"], encoding="utf-8")
    (tmp_path / "step.json").write_bytes(make.written(make.two_tokens()))
    (tmp_path / "other.json").write_bytes(make.written([make.kernel(0, 4, 1)]))
    names = [str(tmp_path / name) for name in ("bad.csv", "missing.json", "other.json", "step.json")]
    assert cli.main(["read", "--json", "--window", "annotation:decode_token#1", *names]) == 2
    told = capsys.readouterr()
    assert [json.loads(line)["verdict"] for line in told.out.splitlines()] == ["READER_FAILED", "MIXED"]
    assert "cannot open" in told.err and "no annotation is called" in told.err and "Traceback" not in told.err


def test_a_file_that_cannot_be_opened_is_the_callers_affair(tmp_path):
    with pytest.raises(OSError):
        readers.read(tmp_path / "not-there.json")
