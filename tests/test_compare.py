"""No ratio between unlike runs; what differs is named; a ratio comes out as arithmetic says, each way round."""

import json
import shutil
from pathlib import Path

import cases
import pytest
from sides_made import FACTORS, SETTINGS, item, side

from rocmlab import (
    alike,
    causes,
    cli,
    compare,
    compare_tables,
    comparison,
    findings,
    machines,
    quantities,
    readers,
    sides,
)
from rocmlab.machines import Machine

ROOT = Path(__file__).resolve().parent.parent


def codes(*every, only=None):
    return [one["code"] for one in compare.judge(list(every)) if only is None or one["code"].startswith(only)]


def told(*every, code):
    (found,) = [one for one in compare.judge(list(every)) if one["code"] == code]
    return findings.say(found)["sentence"]


# ---- alike or not

OTHERS = {
    "metric": "e2e_tok_s",
    "model": "qwen3-1.7b",
    "dtype": "float32",
    "batch": 4,
    "prompt_tokens": 65,
    "new_tokens": 128,
    "stop_rule": "eos",
    "way": "hand-written loop",
    "visit": "first",
    "method_version": 2,
    "evidence_grade": "B",
    "synchronized": False,
    "image_px": 224,
    "length_tokens": 128,
    "layout": "channels_last",
}


@pytest.mark.parametrize("key", alike.ESSENTIAL)
def test_one_unequal_setting_is_enough_for_no_ratio(key):
    one, other = side("A"), side("B", item((40.0,) * 8, **{key: OTHERS[key]}))
    data = comparison.as_data([one, other])
    assert data["ratio"] is None and data["ratio_reason"] and data["differs"] == [key]
    assert "NOT_COMPARABLE" in codes(one, other) and not codes(one, other, only="RATIO")
    assert key in told(one, other, code="NOT_COMPARABLE")
    assert (str(OTHERS[key]) in data["sentence"]) == (key in SETTINGS)  # stated by one side only: its name is enough
    assert "4.00" not in json.dumps(data) and "0.25" not in json.dumps(data)


@pytest.mark.parametrize("key", ["dtype", "prompt_tokens", "visit"])
def test_a_setting_that_is_not_stated_is_not_equal(key):
    unstated = side("A", item(**{key: None})), side("B", item(**{key: None}))
    assert alike.differing(unstated[0].items[0], unstated[1].items[0]) == ([], [key])
    assert codes(*unstated)[0] == "NOT_COMPARABLE" and "neither states" in told(*unstated, code="NOT_COMPARABLE")
    half = side("A", item(**{key: None})), side("B")
    assert comparison.as_data(list(half))["differs"] == [key]


def test_every_essential_setting_of_the_law_is_one():
    law = "metric model dtype prompt_tokens new_tokens stop_rule batch visit method_version evidence_grade"
    assert set(law.split()) <= set(alike.ESSENTIAL) and set(SETTINGS) <= set(alike.ESSENTIAL)


def test_the_differing_fields_stand_first_on_the_console():
    text = comparison.console([side("A"), side("B", item(dtype="float32", new_tokens=8))])
    first = text.index("dtype (float16 / float32), new_tokens (256 / 8)")
    assert first < text.index("No ratio of") < text.index("memory [GiB]")


def test_every_quantity_of_a_run_is_like_that_of_the_same_run(tmp_path, capsys):
    """Notebook 10 writes the length of BERT's texts beside networks of pictures, as null: it does not apply there."""
    run = ROOT / "outputs" / "reference" / "cpu-2-cores"
    found = comparison.as_data(sides.named_apart([sides.load(run), sides.load(run)]))
    assert {one["what"].split(",")[0] for one in found["pairs"]} >= {"resnet50", "bert_base", "vgg16"}
    assert found["unstated"] == found["differs"] == [] and "SAME_CONDITIONS" in [f["code"] for f in found["findings"]]
    assert all(one["ratio"] == 1.0 for one in found["pairs"])


def test_a_table_of_times_has_no_columns_of_a_roof():
    run = sides.load(ROOT / "outputs" / "reference" / "cpu-2-cores")
    every = sides.named_apart([run, run])
    assert "compare_roof_pct" in compare_tables.question_table(every, "decode")
    assert not [one for one in compare_tables.question_table(every, "ttft") if str(one).startswith("compare_roof")]


def test_a_driver_spelled_twice_is_one():
    probe = {"driver": {"nvidia": "580.1"}, "gpus": [{"vendor": "NVIDIA", "driver": "580.1"}]}
    assert quantities.drivers_of(probe) == "NVIDIA 580.1"


# ---- runs whose files are damaged


def damaged(folder: Path, name: str, change) -> Path:
    run = folder / "run"
    shutil.copytree(ROOT / "tests" / "data" / "run", run)
    path = run / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    return run


@pytest.mark.parametrize("value", [5, "x", [1], None, [[]], "\x1b[31m<script>", float("inf")])
@pytest.mark.parametrize("key", ["subject", "snapshot", "claims", "variables", "versions", "name", "notebooks"])
def test_an_odd_birth_certificate_never_gives_a_traceback(tmp_path, capsys, key, value):
    run = damaged(tmp_path, "run.json", lambda text: json.dumps(json.loads(text) | {key: value}))
    for verb in (
        ["compare", str(ROOT / "tests" / "data" / "run"), str(run)],
        ["compare", "--json", str(run), str(run)],
    ):
        assert cli.main(verb) in (0, 2)
        said = "".join(capsys.readouterr())
        assert "Traceback" not in said and "\x1b" not in said


@pytest.mark.parametrize("text", ["[" * 100_000, "", "{", "\x00", "[]", '"x"'])
def test_a_birth_certificate_that_is_none_is_refused(tmp_path, capsys, text):
    run = damaged(tmp_path, "run.json", lambda _: text)
    assert cli.main(["compare", str(run), str(run)]) == 2 and "not a run folder" in capsys.readouterr().err


def test_a_name_without_end_leaves_room_for_the_rest(tmp_path):
    run = damaged(tmp_path, "run.json", lambda text: json.dumps(json.loads(text) | {"name": "x\n" * 500}))
    assert sides.load(run).label == ("x " * 20).strip()


def test_numbers_that_json_does_not_know_become_null(tmp_path, capsys):
    paths = []
    for value in (1e-308, 1e308):
        record = {"schema": "rocmlab-run-1", **SETTINGS, "metric": "decode_tok_s", "value": value}
        paths.append(tmp_path / f"{value}.json")
        paths[-1].write_text(json.dumps(record), encoding="utf-8")
    assert cli.main(["compare", "--json", *map(str, paths)]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert found["ratio"] is None and found["ratio_reason"]


# ---- ratios


def test_a_rate_and_a_time_give_the_same_ratio():
    rate = alike.ratio(item((10.0,) * 8), item((25.0,) * 8))
    time = alike.ratio(item((100.0,) * 8, metric="tpot_ms"), item((40.0,) * 8, metric="tpot_ms"))
    assert rate.median == time.median == 2.5 and (rate.low, rate.high, rate.n) == (2.5, 2.5, 8)


@pytest.mark.parametrize(
    ("one", "other", "code"),
    [
        ((10, 11, 10, 11, 10, 11, 10, 11), (20, 21, 20, 21, 20, 22, 21, 20), "RATIO_FOUND"),
        ((20, 21, 20, 21, 20, 22, 21, 20), (10, 11, 10, 11, 10, 11, 10, 11), "RATIO_FOUND"),
        ((10, 11, 9, 12, 10, 8, 11, 10), (11, 9, 10, 11, 12, 10, 9, 8), "RATIO_UNDECIDED"),
        ((10, 11, 10), (20, 21, 20), "RATIO_TOO_FEW"),
    ],
)
def test_a_ratio_is_found_undecided_or_of_too_few(one, other, code):
    assert codes(side("A", item(one)), side("B", item(other)), only="RATIO") == [code]


def test_prompts_are_blocks_of_one_ratio_and_three_of_each_are_enough():
    rates = {64: (10.0, 10.1, 9.9), 128: (9.8, 10.0, 10.1), 256: (9.9, 9.7, 10.0)}
    mine = [item(rate, what=f"p{n}", prompt_tokens=n) for n, rate in rates.items()]
    theirs = [item([3 * one for one in rate], what=f"p{n}", prompt_tokens=n) for n, rate in rates.items()]
    (found,) = [f for f in compare.judge([side("A", *mine), side("B", *theirs)]) if f["code"].startswith("RATIO")]
    assert found["code"] == "RATIO_FOUND" and found["numbers"]["n"] == 9
    assert found["numbers"]["ratio"] == pytest.approx(3.0) and "3 prompts" in findings.say(found)["sentence"]


def test_values_without_samples_give_a_ratio_without_an_interval():
    span = alike.ratio(item((10.0,)), item((20.0,)))
    assert (span.median, span.n, span.enough) == (2.0, 0, False)
    assert "no interval" in told(side("A", item((10.0,))), side("B", item((20.0,))), code="RATIO_FOUND")
    assert alike.ratio(item((0.0,)), item((20.0,))) is None


def test_shares_of_the_own_roof_turn_a_ratio_round():
    """A card twice as fast that reaches a quarter of its share: both numbers stand in one sentence."""
    one, other = side("A", item(roof_pct=80.0)), side("B", item((20.0,) * 8, roof_pct=20.0))
    (found,) = [f for f in compare.judge([one, other]) if f["code"] == "RATIO_FOUND"]
    assert found["numbers"]["ratio"] == 2.0 and found["numbers"]["roof_ratio"] == 0.25
    assert "20% against 80%" in findings.say(found)["sentence"]
    without = told(side("A"), side("B", item((20.0,) * 8)), code="RATIO_FOUND")
    assert "not known" in without


def test_a_run_far_below_its_roof_is_named_before_the_ratio():
    one, other = side("A", item(roof_pct=13.0)), side("B", item((20.0,) * 8, roof_pct=70.0))
    order = codes(one, other)
    assert order.index("FAR_BELOW_ROOF") < order.index("RATIO_FOUND") and "13%" in told(
        one, other, code="FAR_BELOW_ROOF"
    )
    assert "FAR_BELOW_ROOF" not in codes(side("A", item(roof_pct=31.0)), side("B", item(roof_pct=70.0)))
    assert "FAR_BELOW_ROOF" not in codes(side("A"), side("B"))


def test_a_rate_above_its_roof_is_no_rate():
    one, other = side("A"), side("B", item((900.0,) * 8, roof_pct=340.0))
    order = codes(one, other)
    assert order[0] == "ABOVE_ROOF" and not [code for code in order if code.startswith("RATIO")]
    assert "340%" in told(one, other, code="ABOVE_ROOF")
    assert "RATIO_FOUND" in codes(one, side("B", item((20.0,) * 8, roof_pct=104.0)))  # within what a ceiling allows


def test_two_clocks_without_synchronisation_give_no_ratio():
    every = [side("A", item(synchronized=False)), side("B", item((30.0,) * 8, synchronized=False))]
    data = comparison.as_data(every)
    assert (data["differs"], data["ratio"], data["verdict"]) == (["synchronized"], None, "NOT_COMPARABLE")
    fine = [side("A", item(synchronized=True)), side("B", item((30.0,) * 8, synchronized=True))]
    assert comparison.as_data(fine)["ratio"] == 3.0


def test_a_value_of_zero_gives_no_ratio_and_says_why():
    data = comparison.as_data([side("A", item((0.0,))), side("B")])
    assert data["ratio"] is None and data["ratio_reason"] == "a value is not above zero"


def test_sides_without_a_common_question_say_so():
    assert codes(side("A"), side("B", item(question="train"), item(question="forward")))[0] == "NOTHING_IN_COMMON"


def test_any_number_of_machines_against_the_first():
    every = [side(f"M{n}", item((10.0 * (n + 1),) * 8), arch=f"gfx110{n}") for n in range(4)]
    data = comparison.as_data(every)
    assert [round(pair["ratio"], 6) for pair in data["pairs"]] == [2.0, 3.0, 4.0] and data["ratio"] is None
    assert len(data["machines"]) == 4


def test_processors_are_compared_too_and_the_devices_under_study():
    gpu, cpu = item((30.0,) * 8), item((17.0,) * 8, arm="cpu", dtype="float32")
    own = side("A", gpu, cpu)
    other = side("B", item((17.0,) * 8, arm="cpu", dtype="float32"), arm="cpu", arch="cpu", name="Ryzen")
    names = [(a.arm, b.arm) for a, b in alike.pairs(own, other)]
    assert names == [("gpu", "cpu"), ("cpu", "cpu")]
    assert [p["ratio"] for p in comparison.as_data([own, other])["pairs"]] == [None, 1.0]


# ---- causes


def test_not_windows_alone():
    one = side("A", os="Windows 11", torch_version="2.9.1", hip_version="7.11")
    said = told(one, side("B", torch_version="2.8.0", hip_version="6.4"), code="CONFOUNDED")
    assert "not Windows alone" in said and "torch and ROCm differ too" in said


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({}, "SAME_CONDITIONS", "Nothing"),
        ({"os": "Windows-11"}, "ONE_DIFFERENCE", "Windows"),
        ({"os": "Linux-5.15"}, "SAME_CONDITIONS", "Nothing"),
        ({"python_version": "3.12.9"}, "SAME_CONDITIONS", "Nothing"),
        ({"torch_version": "2.8"}, "ONE_DIFFERENCE", "torch"),
        ({"driver": None}, "FACTORS_UNKNOWN", "driver"),
        ({"driver": "x", "variables": "HSA_ENABLE_SDMA=0"}, "CONFOUNDED", "variables"),
    ],
)
def test_one_cause_several_or_none(change, code, word):
    one, other = side("A"), side("B", **change)
    assert [f["code"] for f in causes.confounded(one, other)] == [code]
    assert word in told(one, other, code=code)


def test_another_card_is_named_before_another_system():
    said = told(side("A"), side("B", arch="gfx1100", os="Windows 11"), code="CONFOUNDED")
    assert "not the device alone" in said and "the system" in said


# ---- machines


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (("gfx1035", 2 << 30), ("gfx1036", 2 << 30), True),
        (("gfx1032", 8 << 30), ("gfx1032", 4 << 30), True),
        (("gfx1032", 8573157376), ("gfx1032", 8 << 30), False),
        (("gfx1032", None), ("gfx1032", 8 << 30), None),
        ((None, 8 << 30), ("gfx1032", 8 << 30), None),
        ((None, 8 << 30), ("gfx1032", 16 << 30), True),
        (("gfx1032", None), ("gfx1031", None), True),
    ],
)
def test_devices_are_told_apart_by_target_and_memory(one, other, apart):
    assert machines.differ(Machine("a", "X", *one), Machine("b", "X", *other)) is apart
    assert machines.differ(Machine("a", "X", *one), Machine("b", "another name", *other)) is apart


def test_a_pci_id_parts_and_never_joins():
    card = ("RX", "gfx1032", 8 << 30)
    assert machines.differ(Machine("a", *card, "1002:73ff"), Machine("b", *card, "1002:73ef")) is True
    assert machines.differ(Machine("a", *card, "1002:73ff"), Machine("b", *card)) is False


def written(tmp_path, devices):
    path = tmp_path / "machines.json"
    rows = [{"machine": f"m{n}", "device": device} for n, device in enumerate(devices)]
    path.write_text(json.dumps({"schema": "rocmlab-machines-1", "machines": rows}), encoding="utf-8")
    return readers.answer(path)


def test_one_name_for_one_gpu_is_no_fault(tmp_path):
    card = {"name": "RX 6650 XT", "gcnArchName": "gfx1032:xnack-", "total_memory": 8573157376}
    found = written(tmp_path, [card, {**card, "gcnArchName": "gfx1032"}, {**card, "name": "AMD RX 6650 XT"}])
    assert (found["verdict"], found["numbers"]) == ("OK", {"machines": 3, "names": 2, "gpus": 1})


def test_one_name_for_two_gpus_by_memory_alone(tmp_path):
    card = {"name": "RX 5500 XT", "gcnArchName": "gfx1012", "total_memory": 4 << 30}
    found = written(tmp_path, [card, {**card, "total_memory": 8 << 30}])
    assert found["verdict"] == "SAME_NAME_DIFFERENT_GPU" and "4 GiB" in found["sentence"]
    assert found["numbers"]["gpus"] == 2


def test_what_cannot_be_told_apart_is_unknown(tmp_path):
    found = written(tmp_path, [{"name": "Graphics"}, {"name": "Graphics", "gcnArchName": "gfx1036"}])
    assert (found["verdict"], found["numbers"]["gpus"]) == ("MACHINES_UNKNOWN", None)
    assert found["numbers"]["gpus_reason"]


@pytest.mark.parametrize("odd", [None, [], [1], [{}], [{"device": 1}], [{"device": {"total_memory": "x", "name": 3}}]])
def test_odd_lists_of_machines_do_not_raise(tmp_path, odd):
    path = tmp_path / "machines.json"
    path.write_text(json.dumps({"schema": "rocmlab-machines-1", "machines": odd}), encoding="utf-8")
    assert readers.answer(path)["kind"] == "machines"


# ---- records, the command line, and the further cases


def run_record(tmp_path, name, **changes):
    record = {
        "schema": "rocmlab-run-1",
        "machine": name,
        "os": "Linux 6.8",
        "device": {"name": "RX", "gcnArchName": "gfx1101", "total_memory": 16 << 30},
        "torch_version": "2.9",
        "hip_version": "7.0",
        "model": "Qwen3-0.6B",
        "dtype": "float16",
        "batch": 1,
        "prompt_tokens": 128,
        "new_tokens": 256,
        "stop_rule": "eos",
        "metric": "decode_tok_s",
        "value": 30.0,
        "warmup_runs": 2,
    }
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(record | changes), encoding="utf-8")
    return str(path)


def test_like_records_give_a_ratio_and_what_else_differs(tmp_path, capsys):
    files = [run_record(tmp_path, "A"), run_record(tmp_path, "B", value=75.0, os="Windows 11", torch_version="2.8")]
    assert cli.main(["compare", "--json", *files]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["ratio"], data["differs"], data["differs_also"]) == (2.5, [], ["torch_version"])
    assert "not Windows alone" in data["sentence"] and "torch differ" in data["sentence"]


def test_a_cold_record_is_unlike_a_warm_one(tmp_path):
    every = [sides.load(Path(run_record(tmp_path, "A"))), sides.load(Path(run_record(tmp_path, "B", warmup_runs=0)))]
    assert comparison.as_data(every)["differs"] == ["visit"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"schema": "rocmlab-run-1"}', '{"schema": "rocmlab-run-9"}', "text"]
)
def test_what_is_no_run_is_refused_with_a_sentence(tmp_path, capsys, content):
    path = tmp_path / "odd.json"
    path.write_text(content, encoding="utf-8")
    assert cli.main(["compare", str(path), run_record(tmp_path, "A")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rocmlab: cannot compare") and "Traceback" not in error
    assert cli.main(["compare", run_record(tmp_path, "A")]) == 2
    assert cli.main(["compare", str(tmp_path / "absent"), str(path)]) == 2


def test_a_folder_with_odd_records_is_refused_not_raised(tmp_path):
    run = tmp_path / "run"
    (run / "records").mkdir(parents=True)
    (run / "run.json").write_text('{"schema": "rocmlab-birth-1", "subject": {"device": "cpu"}}', encoding="utf-8")
    assert sides.load(run).items == []
    (run / "records" / "batches.jsonl").write_text(
        '{"kind": "item", "visit": "steady", "decode_step_ms": 1}\n', encoding="utf-8"
    )
    with pytest.raises(ValueError, match="cannot be understood"):
        sides.load(run)


def test_a_side_survives_the_way_into_records_and_back():
    one = side("A", item(roof_pct=50.0), item(arm="cpu", dtype="float32"))
    assert sides.of_rows(json.loads(json.dumps(sides.to_rows(one)))) == [one]
    assert sides.of_rows([{"kind": "chosen"}, {"side": 1}]) == []


def test_labels_are_told_apart():
    assert [one.label for one in sides.named_apart([side("A"), side("A"), side("B")])] == ["A", "A #2", "B"]


def test_a_table_marks_references_and_says_why_there_is_no_ratio():
    every = [side("A"), side("B", item(dtype="float32"))]
    frame = compare_tables.question_table(every, "decode", {"B"})
    assert list(frame["row_class"]) == ["", "reference"] and frame["compare_ratio"].isna().tolist() == [False, True]
    assert "dtype (float16 / float32)" in frame["compare_ratio_reason"].iloc[1]["en"]
    lengths = [side("A"), side("B", item(prompt_tokens=1), item(prompt_tokens=2, what="other"))]
    reasons = compare_tables.question_table(lengths, "decode")["compare_ratio_reason"].dropna()
    assert len({one["en"] for one in reasons}) == 1  # one line below the table, not one for every length


def test_a_figure_groups_equal_settings_only():
    every = [side("A"), side("B"), side("C", item(dtype="float32"))]
    bars = compare_tables.bars(every, "decode")
    assert [list(group["device"]) for _, group in bars.groupby("place")] == [["A (GPU)", "B (GPU)"], ["C (GPU)"]]


def test_further_cases(shared, capsys):
    entries = cases.expected(shared, "I")
    assert {"rep-01a-run.json", "rep-01b-run.json", "rep-02-same-name-machines.json"} <= set(entries)
    for name, entry in entries.items():
        path = shared / "cases" / name
        assert cases.differences(path, entry) == [], name
        if "items" in entry:
            given = readers.answer(path)["items"]
            assert [{key: one[key] for key in wanted} for one, wanted in zip(given, entry["items"], strict=True)] == (
                entry["items"]
            )
        if "compare" in entry:
            wanted = entry["compare"]
            assert cli.main(["compare", "--json", str(path), str(shared / "cases" / wanted["with"])]) == 0
            said = capsys.readouterr().out
            data = json.loads(said)
            keys = ("verdict", "status", "ratio", "subject")
            assert {key: data[key] for key in keys} == {key: wanted[key] for key in keys}
            assert sorted(data["differs"]) == sorted(wanted["differs"])
            assert sorted(data["differs_also"]) == sorted(wanted["differs_also"])
            assert all(word in data["sentence"] for word in wanted["must_say"])
            assert not [word for word in wanted["must_not_say"] if word in said]


def test_known_factors_cover_those_of_a_run():
    assert set(FACTORS) <= set(causes.FACTORS) and set(causes.FACTORS) - set(FACTORS) == {
        "model_revision",
        "attention_backend",
    }
