"""Traces as files: forms, units, packing, repair; and what `rocmlab read` answers for them."""

import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import tracemaker as make

from rocmlab import cli, readers
from rocmlab.readers import repair, traces


def names(trace):
    return [trace.names[number] for number in trace.name]


def us(ticks):
    return np.asarray(ticks) / traces.TICKS


# --- forms


def test_complete_events_become_columns_by_start():
    trace = traces.load(make.written(make.two_tokens()))
    assert (trace.form, len(trace)) == ("kineto", 22)
    assert names(trace)[:3] == ["decode_token#0", "aten::mm", "hipExtModuleLaunchKernel"]
    assert us(trace.start[:3]).tolist() == [0.0, 8.0, 15.0]
    assert us(trace.end[:3]).tolist() == [120.0, 30.0, 21.0]
    assert trace.direction[trace.of(traces.CALL)].tolist() == ["", "", "DtoH"] * 2


def test_metadata_flows_instants_and_the_trace_span_are_no_events():
    events = [
        {"ph": "M", "name": "process_name", "ts": 1.0, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": make.BASE_US + 9e6},
        {"ph": "s", "cat": "ac2g", "id": 4, "name": "ac2g", "pid": 70, "tid": 7, "ts": make.BASE_US},
        make.event("Trace", "PyTorch Profiler (0)", -500, 700, pid="Spans", tid="PyTorch Profiler"),
        make.op("aten::mm", 0, 10),
    ]
    trace = traces.load(make.written(events))
    assert names(trace) == ["aten::mm"]
    assert trace.start.tolist() == [0]


def test_a_bare_list_without_categories_is_told_apart_by_name():
    listed = [
        {"name": name, "ph": "X", "ts": 5.0 + i, "dur": 0.5, "tid": 1, "pid": "CPU functions", "args": {}}
        for i, name in enumerate(
            [
                "prefill",
                "lab/run.py(12): main",
                "<built-in function len>",
                "nn.Module: Linear_0",
                "aten::mm",
                "model.pyc(3): f",
            ]
        )
    ]
    trace = traces.load(json.dumps(listed).encode())
    assert trace.form == "eventlist"
    kinds = [traces.MARK, traces.PYTHON, traces.PYTHON, traces.PYTHON, traces.OP, traces.PYTHON]
    assert trace.cat.tolist() == kinds


def test_old_whole_and_new_fractional_microseconds_are_both_microseconds():
    old = [{"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": 0, "ts": 1669329643132100, "dur": 55, "args": {}}]
    new = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 6423232.1, "dur": 55.25, "args": {}}]
    assert us(traces.load(make.written(old)).end).tolist() == [55.0]
    assert us(traces.load(make.written(new, displayTimeUnit="ns")).end).tolist() == [55.25]
    assert traces.load(make.written(old)).cat.tolist() == [traces.KERNEL]


def test_keys_of_roctracer_rocprofiler_sdk_and_cupti_are_read_alike():
    for args, header in (
        ({"device": 2, "stream": 3}, {"roctracer_version": 4.1, "hip_runtime_version": 60443483}),
        ({"device": 2, "hsa_queue": 3, "graph id": 1, "graph node id": 7}, {"rocprofiler-sdk_version": "1.1.0"}),
        ({"device": 2, "stream": 3, "context": 1, "est. achieved occupancy %": 0}, {"cupti_version": 130001}),
        ({"device": "2", "stream": "3", "bytes": None, "size": 4}, {}),
    ):
        event = {**make.kernel(0, 5), "args": {"correlation": 9, **args}}
        trace = traces.load(make.written([event, make.call("hipLaunchKernel", -8, -4, 9)], **header))
        assert (trace.device[1], trace.correlation.tolist()) == (2, [9, 9])
        assert trace.stream[1] >= 0


def test_device_events_are_chosen_by_category_never_by_stream():
    inductor = make.op("triton_poi_fused_mul_0", 0, 40, args={"stream": 7, "device": 0, "grid": "grid(512,)"})
    trace = traces.load(make.written([inductor, make.kernel(10, 20, 1, name="triton_poi_fused_mul_0")]))
    assert len(trace.of(*traces.DEVICE)) == 1


def test_direction_comes_from_the_host_call_then_from_the_device_event():
    events = [
        make.call("hipMemcpyWithStream", 0, 9, 1, kind="1"), make.copy(4, 6, 1, said="DtoD"),
        make.call("cudaMemcpyAsync", 20, 22, 2), make.copy(24, 25, 2, said="HtoD"),
    ]  # fmt: skip
    assert traces.load(make.written(events)).direction.tolist() == ["HtoD", "DtoD", "", "HtoD"]


# --- packing


def test_packed_plain_and_marked_files_give_the_same(tmp_path):
    data = make.written(make.two_tokens())
    forms = {
        "a.json": data, "b.json.gz": gzip.compress(data), "c.json": b"\xef\xbb\xbf" + data,
        "d.json": data.decode().encode("utf-16"), "e.gz": gzip.compress(data[:900]) + gzip.compress(data[900:]),
    }  # fmt: skip
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        answer = readers.answer(tmp_path / name)
        assert (answer["kind"], answer["numbers"]["busy_us"]) == ("trace", 48.0), name
        assert "REPAIRED" not in [found["code"] for found in answer["findings"]]


def test_a_cut_packed_file_gives_the_events_before_the_cut(tmp_path):
    events = [make.kernel(10 * i, 10 * i + 4, i + 1, name=f"kernel_number_{i * i}") for i in range(3000)]
    packed = gzip.compress(make.written(events))
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    answer = readers.answer(tmp_path / "cut.json.gz")
    assert (answer["verdict"], answer["status"]) == ("INCOMPLETE", "unknown")
    assert "TRUNCATED" in [found["code"] for found in answer["findings"]]
    assert 500 < answer["numbers"]["events"] < 2900
    assert answer["numbers"]["kernel_us"] == 4.0 * answer["numbers"]["kernels"]


def test_a_damaged_packed_file_says_so(tmp_path):
    packed = bytearray(gzip.compress(make.written(make.two_tokens() * 40)))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "damaged.json.gz").write_bytes(packed)
    answer = readers.answer(tmp_path / "damaged.json.gz")
    assert answer["kind"] == "trace"
    assert answer["findings"]


# --- repair


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"torch\cuda\__init__.py(9): f", r"torch\cuda\__init__.py(9): f"),
        (r"lab\new_run.py(4): <module>", r"lab\new_run.py(4): <module>"),  # \n is a valid escape, but not meant as one
        (r"C:\tools\bin\run.py(4): f", r"C:\tools\bin\run.py(4): f"),
        (r"C:\\tools\\run.py(4): f", r"C:\tools\run.py(4): f"),  # written properly
        (r"D:\data\users\ux.py(1): g", r"D:\data\users\ux.py(1): g"),
    ],
)
def test_single_backslashes_of_windows_paths_are_kept(written, meant):
    text = make.written([make.event("python_function", "NAME", 0, 10), make.kernel(2, 4, 1)]).decode()
    trace = traces.load(text.replace("NAME", written).encode())
    assert names(trace)[0] == meant
    assert (len(trace), trace.counts["dropped"]) == (2, 0)


@pytest.mark.parametrize("noise", [b"\x01\x02", b"\xff\xfe", b"\x00", b"\t", b"\xc3"])
def test_control_bytes_and_bytes_that_are_not_utf_8(noise):
    data = make.written([make.event("python_function", "a.py(1): NAME", 0, 10), make.kernel(2, 4, 1)])
    trace = traces.load(data.replace(b"NAME", noise))
    assert (len(trace), trace.counts["repaired"], trace.counts["dropped"]) == (2, 1, 0)


def test_not_a_number_costs_one_event_and_no_other():
    data = make.written([make.kernel(0, 7, 1), make.kernel(10, 14, 2)])
    trace = traces.load(data.replace(b'"dur": 7.0', b'"dur": NaN').replace(b'"dur": 7', b'"dur": NaN'))
    assert (len(trace), trace.counts["dropped"]) == (1, 1)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.77, 0.95, 0.999])
def test_a_cut_file_gives_every_complete_event(share):
    events = make.two_tokens()
    data = make.written(events)
    cut = data[: int(len(data) * share)]
    trace = traces.load(cut)
    assert trace.truncated
    whole = cut.decode().count('"ph": "X"')
    assert len(trace) in (whole, whole - 1)


def test_a_list_that_is_closed_twice_or_never():
    data = make.written(make.two_tokens())
    assert len(traces.load(data + b"]}")) == 22
    never = traces.load(data.removesuffix(b"]}"))
    assert (len(never), never.truncated) == (22, True)


def test_a_missing_comma_costs_nothing():
    data = make.written([make.kernel(0, 7, 1), make.kernel(10, 14, 2), make.kernel(20, 25, 3)])
    at = data.index(b"}}, {") + 2
    trace = traces.load(data[:at] + b" " + data[at + 1 :])
    assert len(trace) >= 2
    assert trace.counts["repaired"] + trace.counts["dropped"] >= 1


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("dur", "12.5", 1), ("ts", "17", 1), ("tid", 3.5, 1), ("args", [1], 1), ("args", None, 1), ("cat", None, 1),
        ("dur", None, 0), ("ts", None, 0), ("dur", [], 0), ("name", {}, 0), ("dur", 1e300, 0),
    ],
)  # fmt: skip
def test_fields_of_another_type_cost_at_most_their_event(field, value, kept):
    good = [{**make.kernel(i * 10, i * 10 + 4, i), "ts": 10.0 + i} for i in range(1, 6)]
    trace = traces.load(make.written([*good, {**make.kernel(0, 2, 9), "ts": 12.0, field: value}]))
    assert len(trace) == 5 + kept
    assert trace.counts["dropped"] == 1 - kept


def test_negative_durations_and_times_far_away_are_left_out_and_counted():
    events = [make.kernel(0, 5, 1), make.kernel(10, 15, 2), make.kernel(20, 19, 3), make.kernel(4e12, 4e12 + 5, 4)]
    trace = traces.load(make.written(events))
    assert (len(trace), trace.counts["negative"], trace.counts["dropped"]) == (2, 1, 1)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[", b"{}", b"[]", b'{"traceEvents": null}', b'{"traceEvents": {}}', b"[[[["]
)
def test_nothing_at_all_is_no_fault_of_ours(content):
    assert len(traces.load(content)) == 0


def test_unescaped_only_touches_paths():
    assert repair.unescaped("lab\train.py(7): f") == "lab\\train.py(7): f"
    assert repair.unescaped("two\nlines of text") == "two\nlines of text"


# --- answers


def answer(tmp_path, content, name="step.json", **more):
    (tmp_path / name).write_bytes(content)
    return readers.answer(tmp_path / name, **more)


def test_an_answer_holds_verdict_cause_window_and_steps(tmp_path):
    found = answer(tmp_path, make.written(make.two_tokens()))
    assert (found["kind"], found["verdict"], found["cause"], found["status"]) == (
        "trace",
        "HOST_BOUND",
        "DISPATCH",
        "warn",
    )
    assert found["metrics"]["window"]["label"] == "decode_token#0 .. decode_token#1"
    assert len(found["metrics"]["steps"]) == 2
    assert "host" in found["sentence"] and "20.0 %" in found["sentence"]
    json.dumps(found, allow_nan=False)


def test_a_trace_is_recognised_by_its_content_and_others_are_not(tmp_path):
    long_header = {"deviceProperties": [{"id": i, "name": "AMD Instinct MI250X" * 9} for i in range(900)]}
    assert answer(tmp_path, make.written(make.two_tokens(), **long_header), "notes.txt")["kind"] == "trace"
    for content in (
        b'{"cells": [{"source": ["print(\\"traceEvents\\":1)"]}], "nbformat": 4}', b'{"schema": "rocmlab-probe-1"}',
        b"[1, 2, 3]",
        b'[{"name": "a", "cat": "b"}]', b"plain text about \"traceEvents\": [", b"\x1f\x8b broken",
    ):  # fmt: skip
        (tmp_path / "other").write_bytes(content)
        assert not traces.recognise(readers.Evidence(tmp_path / "other"))


def test_the_window_option_reaches_the_trace(tmp_path, capsys):
    path = tmp_path / "step.json"
    path.write_bytes(make.written(make.two_tokens()))
    assert cli.main(["read", str(path), "--json", "--window", "annotation:decode_token#1"]) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["window_us"] == 120.0
    assert cli.main(["read", str(path), "--window", "annotation:nothing"]) == 2
    assert "decode_token#0" in capsys.readouterr().err


def test_console_output_of_a_trace_is_ascii(tmp_path, capsys):
    path = tmp_path / "step.json"
    path.write_bytes(make.written(make.two_tokens()))
    assert cli.main(["read", str(path)]) == 0
    assert capsys.readouterr().out.isascii()


def agrees(expected, got, tolerance):
    if expected is None or isinstance(expected, int):
        return got == expected
    digits = len(str(expected).partition(".")[2])
    return got is not None and abs(got - expected) <= (tolerance or 0.5 * 10**-digits + 1e-9)


def test_every_case_of_traces_is_answered_as_expected(shared):
    expected = json.loads((shared / "cases" / "expected.json").read_text(encoding="utf-8"))
    mine = {name: case for name, case in expected.items() if case["owner"] == "E" and case["how"] in ("read", "use")}
    assert len(mine) >= 11
    for name, case in mine.items():
        got = readers.answer(shared / "cases" / name)
        assert (got["kind"], got["verdict"], got["status"]) == (case["kind"], case["verdict"], case["status"]), name
        told = [f["code"] for f in got["findings"] if f["status"] != "ok" or f["code"] in case["findings"]]
        assert told == case["findings"], name
        for key, value in case["numbers"].items():
            assert agrees(value, got["numbers"][key], case.get("tolerance", {}).get(key)), (name, key)
            assert value is not None or got["numbers"][f"{key}_reason"], (name, key)
        said = f"{got['sentence']} {got['advice']}".lower()
        for wanted in case["must_say"]:
            assert any(word in said for word in ([wanted] if isinstance(wanted, str) else wanted)), (name, wanted)
        assert not any(word in said for word in case["must_not_say"]), name
        assert got.get("items") == case.get("items") or all(
            {key: item[key] for key in wanted} == wanted
            for item, wanted in zip(got["items"], case["items"], strict=True)
        ), name


def test_event_names_of_the_cases(shared):
    expected = json.loads((shared / "cases" / "expected.json").read_text(encoding="utf-8"))
    for name, case in expected.items():
        if "event_names" in case:
            # That list is itself written with a single backslash; its README says that the backslash is kept.
            wanted = [wanted.replace("\n", "\\n") for wanted in case["event_names"]]
            assert names(traces.load(shared / "cases" / name)) == wanted


def test_all_recorded_traces_are_answered_with_the_default_window(shared):
    for path in sorted((shared / "traces").glob("*.json.gz")):
        got = readers.answer(path, "zh")
        assert got["kind"] == "trace" and got["sentence"], path.name
        json.dumps(got, allow_nan=False)


# --- traces that lie beside the tests: one made, two recorded by torch 2.13 on a CPU, with and without Kineto's form

DATA = Path(__file__).resolve().parent / "data" / "traces"


def test_the_made_decode_loop_by_arithmetic():
    got = readers.answer(DATA / "decode_made.json.gz")
    numbers = got["numbers"]
    # A token: 120 operators of 40 us and 60 us more; 60 kernels of 9 us, 60 of 4 us, and a copy of 2 us.
    assert (numbers["window_us"], numbers["token_wall_us"]) == (9720.0, 4860.0)
    assert (numbers["kernels"], numbers["kernels_per_token"], numbers["launches_per_token"]) == (240, 120, 121)
    assert numbers["busy_us"] == 2 * (60 * 9 + 60 * 4 + 2)
    assert numbers["kernel_us"] == numbers["busy_us"] - 4 and numbers["gemm_mean_us"] == 9.0
    assert (numbers["launch_latency_us"], numbers["launch_api_us"], numbers["launch_period_us"]) == (13.0, 5.0, 40.0)
    why = got["metrics"]["idle_why_us"]
    # 8 us after each launch call; before each copy 12 us after its call began.
    assert why["launch_latency"] == 240 * 8 + 2 * 12
    assert why["host:launch_api"] == 240 * 5 and why["host:other_api"] == 240 * 1
    assert (got["verdict"], got["cause"]) == ("HOST_BOUND", "DISPATCH")
    assert got["metrics"]["libraries"]["rocBLAS/Tensile"] == {"n": 120, "us": 1080.0, "pct": 69.054}


def test_one_recording_in_both_forms_of_torch_agrees():
    whole, listed = (readers.answer(DATA / f"{name}.json.gz") for name in ("cpu_tiny", "cpu_tiny_eventlist"))
    for got in (whole, listed):
        assert (got["kind"], got["verdict"]) == ("trace", "NO_DEVICE_DATA")
        assert [step["name"] for step in got["metrics"]["steps"]] == [
            "prefill",
            *(f"decode_step#{i}" for i in range(3)),
        ]
    for one, other in zip(whole["metrics"]["steps"], listed["metrics"]["steps"], strict=True):
        assert one["wall_us"] == pytest.approx(other["wall_us"], abs=0.01)
    # torch leaves an operator out of its list that only calls one of the same name: numbers differ, names do not.
    first, second = (traces.load(DATA / f"{name}.json.gz") for name in ("cpu_tiny", "cpu_tiny_eventlist"))
    assert {first.called(row) for row in first.of(traces.OP)} == {second.called(row) for row in second.of(traces.OP)}


def test_a_repeated_trace_says_the_same_and_time_grows_with_size(tmp_path):
    """The benchmark's own check, small: four times the file, four times the kernels, the same shares."""
    spec = importlib.util.spec_from_file_location(
        "trace_size", Path(__file__).resolve().parent.parent / "bench/trace_size.py"
    )
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    numbers = []
    for megabytes in (1.5, 6):
        bench.write(tmp_path / "trace.json", DATA / "decode_made.json.gz", megabytes)
        got = readers.answer(tmp_path / "trace.json", window="linked")
        assert got["metrics"]["launches"]["without_device_event"] == 0
        numbers.append(got["numbers"])
    small, large = numbers
    assert large["kernels"] / small["kernels"] == pytest.approx(large["window_us"] / small["window_us"], rel=0.02)
    assert large["busy_pct"] == pytest.approx(small["busy_pct"], rel=0.02)
    assert large["unlinked_pct"] == 0.0
