"""Notebook 07: measuring on this machine's CPU, the section from records, and the notebook as a whole."""

import gzip
import json
import os
import stat
import sys
from pathlib import Path

import pytest
import tracemaker as make

from rocmlab import figures, findings, lanes, results, rocprofv3, tables, trace_judge, tracing, words
from rocmlab.prompts import PROMPTS, prompt_ids
from rocmlab.readers import traces
from rocmlab.sections import profiler

torch = pytest.importorskip("torch")
NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "07_profiler.ipynb"


def made_up(tmp_path, events, arms, device="cuda:0", **header):
    """A run folder as notebook 07 would leave it: step times by arm, and a trace of these events."""
    run = results.start("07", str(tmp_path))
    common = {"model_spec": "random:made-up", "dtype": "float16", "device": device, "steps": 2, **header}
    for arm, times in arms.items():
        run.append("profiler", common | {"what": "steps", "arm": arm, "itl_ms": times})
    if events is not None:
        path = tmp_path / "trace.json"
        path.write_bytes(make.written(events))
        run.append("profiler", common | {"what": "trace", **tracing.summary(traces.load(path))})
    return run


def codes(made):
    return [found["code"] for found in made.findings]


# --- the section, from records


def test_clean_and_profiled_steps_stand_side_by_side(tmp_path):
    arms = {"clean": [10.0] * 6, "events": [9.0] * 6, "profiled": [15.0, 15.0]}
    made = profiler.section(made_up(tmp_path, make.two_tokens(), arms).path)
    frame = next(table.frame for table in made.tables if table.name == "tpot")
    assert frame["tpot_ms"].tolist() == [10.0, 9.0, 15.0]
    assert frame["times_clean_ratio"].tolist() == [1.0, 0.9, 1.5]
    cost = next(found for found in made.findings if found["code"] == "PROFILER_COST")
    assert cost["numbers"] == {"clean_tpot_ms": 10.0, "profiled_tpot_ms": 15.0, "ratio": 1.5}


def test_device_time_is_related_to_the_clean_step(tmp_path):
    # 24 us of kernels and copies a token, of a clean step of 0.1 ms.
    arms = {"clean": [0.1] * 6, "profiled": [0.12, 0.12]}
    made = profiler.section(made_up(tmp_path, make.two_tokens(), arms).path)
    found = next(found for found in made.findings if found["code"] == "HOST_BOUND_CLEAN")
    assert found["numbers"] == {"device_busy_ms": 0.024, "clean_tpot_ms": 0.1, "busy_clean_pct": 24.0}
    for cause in ("DISPATCH", "LAUNCH"):  # ranked in profiled time, in which the host takes about twice as long
        for lang, said in (("en", "Under the profiler most of the waiting"), ("zh", "开 profiler 时，等待的大部分")):
            assert said in findings.say(found | {"variant": cause}, lang)["sentence"]
    assert made.answers["slow"] == found


def test_a_trace_that_waits_because_of_the_profiler_does_not_say_that_the_clean_step_waits(tmp_path):
    # The same trace, but a clean step of 0.03 ms: the device works for 80% of it, so only the profiled step waits.
    arms = {"clean": [0.03] * 6, "profiled": [0.12, 0.12]}
    made = profiler.section(made_up(tmp_path, make.two_tokens(), arms).path)
    assert "HOST_BOUND_CLEAN" not in codes(made)
    found = next(found for found in made.findings if found["code"] == "BUSY_AT_CLEAN_SPEED")
    assert found["numbers"]["busy_clean_pct"] == 80.0


def test_the_verdict_of_the_trace_answers_why_it_is_slow(tmp_path):
    made = profiler.section(made_up(tmp_path, make.two_tokens(), {"clean": [0.1] * 6, "profiled": [0.12]}).path)
    assert made.answers["slow"]["code"] == "HOST_BOUND_CLEAN"
    assert {table.name for table in made.tables} >= {"tpot", "steps", "idle", "libraries", "kernels", "waits"}
    idle = next(table.frame for table in made.tables if table.name == "idle")
    assert idle["share_pct"].sum() == pytest.approx(100)
    for table in made.tables:
        for lang in words.LANGUAGES:
            assert tables.as_text(tables.grid(table.frame, lang, table.labels))


def test_a_gpu_without_device_events_is_unknown_and_its_columns_are_empty(tmp_path):
    events = [event for event in make.two_tokens() if event["cat"] in ("cpu_op", "user_annotation")]
    made = profiler.section(made_up(tmp_path, events, {"clean": [5.0] * 6, "profiled": [6.0, 6.0]}).path)
    assert codes(made)[0] == "NO_DEVICE_DATA"
    assert "BUSY_AT_CLEAN_SPEED" not in codes(made) and made.answers == {}
    steps = next(table.frame for table in made.tables if table.name == "steps")
    assert steps["busy_pct"].isna().all() and steps["operators"].tolist() == [4, 4]
    assert "idle" not in {table.name for table in made.tables}


def test_a_cpu_subject_says_what_does_not_apply(tmp_path):
    events = [event for event in make.two_tokens() if event["cat"] in ("cpu_op", "user_annotation")]
    made = profiler.section(made_up(tmp_path, events, {"clean": [5.0] * 6, "profiled": [6.0]}, device="cpu").path)
    assert codes(made) == ["CPU_STEP", "PROFILER_COST"]
    assert "do not apply" in findings.say(made.findings[0])["sentence"]


def test_a_process_that_died_is_said_and_costs_nothing_else(tmp_path):
    run = made_up(tmp_path, None, {"clean": [5.0] * 6})
    run.append("profiler", {"what": "process", "status": "CRASH", "words": "ended by SIGSEGV", "seconds": 3.0})
    made = profiler.section(run.path)
    assert codes(made) == ["PROCESS_ENDED"]
    assert [table.name for table in made.tables] == ["tpot"]
    empty = profiler.section(results.start("07", str(tmp_path / "empty")).path)
    assert empty.missing["en"] and not empty.findings


def test_figures_are_drawn_wide_and_narrow_with_words_for_both_languages(tmp_path):
    made = profiler.section(made_up(tmp_path, make.two_tokens(), {"clean": [0.1] * 6, "profiled": [0.12]}).path)
    assert [figure.name for figure in made.figures] == ["step", "idle"]
    for figure in made.figures:
        assert figure.alt["en"] and figure.alt["zh"]
        figures.save(figure.draw(), tmp_path, figure.name)
        with figures.narrow():
            figures.save(figure.draw(), tmp_path, f"{figure.name}-narrow")
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_lanes_hold_the_step_of_median_length_and_add_up():
    found = lanes.lanes(traces.load(make.written(make.two_tokens())))
    assert (found["name"], found["wall_us"]) == ("decode_token#1", 120.0)
    assert found["launches"] == [[15.0, 21.0, "launch"], [40.0, 44.0, "launch"]]
    assert found["device"] == [[33.0, 47.0, "kernel"], [58.0, 66.0, "kernel"], [84.0, 86.0, "copy"]]
    assert len(found["host"]) == lanes.PARTS
    whole = [sum(column) * 120 / lanes.PARTS for column in zip(*found["host"], strict=True)]
    # By hand: operators 16 + 14 + 6, launch calls 6 + 4, the waiting call 24, the rest 50 of 120 us.
    assert whole == pytest.approx([36.0, 10.0, 24.0, 50.0], abs=0.1)
    assert found["part"] == [55.6, 60.4]


def test_evidence_for_the_ledger_is_a_median_over_tokens():
    step = {"kind": "token", "linked_busy_us": 3000.0, "kernels": 12, "launch_calls": 13, "sync_calls": 1}
    metrics = {"steps": [{**step, "linked_busy_us": us} for us in (3000.0, 5000.0, 4000.0)]}
    metrics["steps"].append({**step, "kind": "prefill", "linked_busy_us": 90000.0, "kernels": 900})
    assert trace_judge.evidence(metrics) == {
        "device_busy_ms_a_token": 4.0, "kernels_a_token": 12, "launches_a_token": 13, "sync_calls_a_token": 1,
    }  # fmt: skip
    assert trace_judge.evidence({"steps": []})["device_busy_ms_a_token"] is None


# --- measuring, for real, on the CPU


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    run = results.start("07", str(tmp_path_factory.mktemp("run with 空格")))
    seen = tracing.probe(run, "cpu")
    ended = tracing.study(run, "random:tiny", "cpu", "float32", limit_s=120, prompt="short_factual", steps=3, repeats=2)
    return run, seen, ended


def test_the_probe_says_what_was_recorded(measured):
    _, seen, _ = measured
    assert (seen["status"], seen["device_events"], seen["linked"]) == ("OK", 0, False)
    assert seen["operators"] > 0 and "CPU" in seen["activities"]


def test_every_arm_has_its_own_raw_samples(measured):
    run, _, ended = measured
    assert ended["status"] == "OK"
    rows = [row for row in results.rows(run.path, "profiler") if row["what"] == "steps"]
    assert [row["arm"] for row in rows] == ["clean", "clean", "profiled"]
    assert all(len(row["itl_ms"]) == 3 and row["prefill_ms"] > 0 for row in rows)
    assert all(row["dtype"] == "float32" and row["batch"] == 1 for row in rows)


def test_the_trace_is_kept_annotated_and_without_names(measured):
    run, _, _ = measured
    row = profiler.newest(results.rows(run.path, "profiler"), "trace")
    steps = [(step["kind"], step["name"]) for step in row["metrics"]["steps"]]
    assert steps == [("prefill", "prefill"), *(("token", f"decode_step#{i}") for i in range(3))]
    assert row["metrics"]["verdict"] == "NO_DEVICE_DATA"
    text = gzip.decompress((run.path / row["file"]).read_bytes()).decode()
    assert str(Path.home()) not in text and '"host_name": ""' in text and "rocmlab-" not in text
    assert traces.load(run.path / row["file"]).counts["repaired"] == 0
    assert profiler.newest(results.rows(run.path, "profiler"), "evidence")["evidence_grade"] == "A"
    assert codes(profiler.section(run.path)) == ["CPU_STEP", "PROFILER_COST"]


def test_decoding_by_hand_writes_the_same_tokens_as_generate():
    from rocmlab import generate, models

    loaded = models.load("random:tiny", "cpu", "float32")
    ids = prompt_ids(loaded, PROMPTS["short_factual"])
    expected = generate.generation(loaded, "cpu", ids, 5)["token_ids"]
    written = []

    class Watch:
        def __init__(self, model):
            self.model, self.forward = model, model.forward

        def __call__(self, **given):
            out = self.model(**given)
            written.append(int(out.logits[0, -1].argmax()))
            return out

    tracing.decode(models.Loaded(Watch(loaded.model), None, "", "", "", False), "cpu", ids, 4)
    assert written == expected


FAKE = """#!{python}
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-d") + 1])
assert "--kernel-trace" in sys.argv and "--" in sys.argv
folder.mkdir(parents=True)
(folder / "9_kernel_stats.csv").write_text('"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs",'
    '"StdDev"\\n"Cijk_Ailk_Bljk_HHS_BH_MT32x32x16_SN",6,6000,1000,100.0,900,1100,1.0\\n')
"""


@pytest.mark.skipif(os.name == "nt", reason="rocprofv3 does not exist on Windows, nor do scripts with a #! line")
def test_rocprofv3_is_run_where_it_is_installed(tmp_path, monkeypatch):
    run = results.start("07", str(tmp_path / "run"))
    plan = {"prompt": "short_factual", "steps": 2, "limit_s": 60}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rocprofv3.measure(run, "random:tiny", "cuda:0", "float16", **plan)["status"] == "NOT_AVAILABLE"
    tool = tmp_path / "rocprofv3"
    tool.write_text(FAKE.format(python=sys.executable), encoding="utf-8")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    row = rocprofv3.measure(run, "random:tiny", "cuda:0", "float16", **plan)
    assert (row["status"], row["numbers"]["kernels"], row["libraries"]) == ("OK", 6, {"rocBLAS/Tensile": 6.0})


@pytest.mark.skipif(os.name == "nt", reason="rocprofv3 does not exist on Windows, nor do scripts with a #! line")
@pytest.mark.parametrize("table", ["", '"Name","Calls"', "\\0\\0"])
def test_a_table_of_rocprofv3_that_holds_nothing_costs_nothing_else(tmp_path, monkeypatch, table):
    run = results.start("07", str(tmp_path / "run"))
    script = FAKE[: FAKE.index("(folder /")].format(python=sys.executable)
    tool = tmp_path / "rocprofv3"
    tool.write_text(f"{script}(folder / '9_kernel_stats.csv').write_text('{table}')\n", encoding="utf-8")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = {"prompt": "short_factual", "steps": 2, "limit_s": 60}
    row = rocprofv3.measure(run, "random:tiny", "cuda:0", "float16", **plan)
    assert row["status"] == "UNREADABLE" and "9_kernel_stats.csv" in row["words"]
    assert results.rows(run.path, "profiler")[-1]["status"] == "UNREADABLE"


def test_a_part_that_is_not_there_says_why_in_both_languages(tmp_path):
    events = [event for event in make.two_tokens() if event["cat"] in ("cpu_op", "user_annotation")]
    on_cpu = profiler.section(made_up(tmp_path / "cpu", events, {"clean": [5.0] * 6, "profiled": [6.0]}, "cpu").path)
    blind = profiler.section(made_up(tmp_path / "gpu", events, {"clean": [5.0] * 6, "profiled": [6.0]}).path)
    for name in ("idle", "libraries", "kernels", "waits"):
        assert "ran on the CPU" in on_cpu.absent[name]["en"] and "CPU" in on_cpu.absent[name]["zh"]
        assert blind.absent[name] == words.both("reason_no_device_events")
    no_trace = profiler.section(made_up(tmp_path / "none", None, {"clean": [5.0] * 6}).path)
    assert no_trace.absent["step"] == words.both("reason_no_trace")


# --- the notebook


def test_the_title_says_question_and_cost_and_the_prose_stands_in_both_languages():
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]}
    assert len(cells["title"].splitlines()) == 3 and cells["title"].splitlines()[2].startswith("Takes ")
    assert "rarely busy" in cells["why-en"] and "大部分时间闲着" in cells["why-zh"]


def test_the_notebook_runs_from_beginning_to_end_on_a_cpu(tmp_path, monkeypatch):
    papermill = pytest.importorskip("papermill")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parent.parent))
    run = results.start("07", str(tmp_path / "run"))
    birth = {"snapshot": {"schema": "rocmlab-probe-1", "torch": {}, "devices": []}}
    (run.path / "run.json").write_text(json.dumps(birth), encoding="utf-8")
    given = {"run_dir": str(run.path), "model": "random:tiny", "profiled_steps": 2, "repeats": 2, "limit_s": 120}
    out = tmp_path / "executed.ipynb"
    papermill.execute_notebook(str(NOTEBOOK), str(out), given, kernel_name="python3", progress_bar=False)
    text = out.read_text(encoding="utf-8")
    assert "do not apply" in text and "image/png" in text
    assert (run.path / "traces" / tracing.TRACE).is_file()


def test_the_notebook_is_committed_clean_and_asks_its_question():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = notebook["cells"]
    assert "".join(cells[0]["source"]).splitlines()[0] == f"# 07 {words.word('question_07', 'en')}"
    assert cells[-1]["id"] == "takeaway"
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in cells)
    assert sum("parameters" in c["metadata"].get("tags", []) for c in cells) == 1
    assert max(len(c["source"]) for c in cells if c["cell_type"] == "code") <= 12


def test_own_times_are_those_of_the_profilers_own_table(tmp_path):
    values = torch.randn(4, 8, 32)
    layer = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.SiLU(), torch.nn.Linear(64, 32))
    with tracing.profile("cpu") as prof, torch.inference_mode():
        for _ in range(3):
            layer(values).softmax(-1)[
                0, 0, 0
            ].item()  # no operator that calls one of its own name: torch counts those once
    own = {row["name"]: row for row in tracing.operators(traces.load(tracing.keep(prof, tmp_path / "t.json.gz")))}
    theirs = {row.key: row for row in prof.key_averages() if row.key in own}
    assert len(own) == len(theirs) == tracing.TOP
    for name, row in theirs.items():
        assert own[name]["n"] == row.count
        assert own[name]["self_cpu_us"] == pytest.approx(row.self_cpu_time_total, abs=0.5 + 0.01 * row.count)


def test_a_trace_loses_secrets_in_values_of_private_keys_and_in_names():
    text = (
        '{"token": 5, "api_key": "geheim123", "file": "%s/x.py", "n": "\\"q\\"", "gpu": "GPU-12345678-1234-1234-1234"}'
    )
    clean = tracing._redacted(text % Path.home().as_posix())
    assert "geheim123" not in clean and str(Path.home()) not in clean and "12345678" not in clean
    assert json.loads(clean)["n"] == '"q"' and json.loads(clean)["token"] == 5
