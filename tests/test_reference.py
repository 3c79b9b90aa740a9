"""Reference runs: the committed ones are small and honest, one is made from a run, and every report has them."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from made import generation, study

from rocmlab import bundle, readers, reference, results, sides, sweep, tables
from rocmlab.sections import compare as section_13
from rocmlab.sections import generation as section_03

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted((ROOT / "outputs" / "reference").glob("*/run.json"))


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
def test_a_committed_reference_is_small_and_can_be_read(path):
    folder = path.parent
    files = [one for one in folder.rglob("*") if one.is_file()]
    assert sum(one.stat().st_size for one in files) <= reference.MOST_BYTES
    side = sides.of_folder(folder, folder.name)
    assert side.items and side.machine.name and readers.answer(folder)["kind"] == "run"
    for one in files:
        text = one.read_text(encoding="utf-8")
        assert results.redact(text) == text, f"{one} holds something private"
        if one.suffix == ".jsonl":
            assert results.parse_lines(text)[1] == 0


@pytest.mark.parametrize("name", ["h200", "cpu-2-cores"])
def test_05_and_13_say_the_same_throughput(name):
    path = reference.folder() / name
    table = sweep.by_batch(results.rows(path, "batches"))
    said = {(line["context_tokens"], line["batch"]): line["decode_tok_s"].median for line in table.to_dict("records")
            if not line["padded"]}  # fmt: skip
    items = [one for one in sides.of_folder(path, name).items if one.question == "batch"]
    assert len(items) == len(said) > 2
    for item in items:
        batch, context = item.what.removeprefix("batch ").removesuffix(" tokens").split(", ")
        assert item.value == pytest.approx(said[int(context), int(batch)], rel=1e-6)


def test_every_folder_there_is_read_by_every_report():
    assert {side.label for side in reference.every()} == {path.parent.name for path in FOLDERS}
    assert {"article-gfx1032", "article-rx6800xt", "article-rtx3080"} <= {path.parent.name for path in FOLDERS}


def test_the_first_article_s_figures():
    side = sides.of_folder(ROOT / "outputs" / "reference" / "article-gfx1032")
    gpu, cpu = side.items
    assert (gpu.value, gpu.arm, gpu.settings["dtype"], gpu.metric) == (30.3, "gpu", "float16", "e2e_tok_s")
    assert (cpu.low, cpu.high, cpu.arm, cpu.settings["dtype"]) == (16.8, 17.2, "cpu", None)
    # 596,049,920 parameters of two bytes, 30.3 times a second, of the 280.3 GB/s that the card's maker states.
    assert gpu.gb_s == pytest.approx(36.1, abs=0.05) and gpu.roof_pct == pytest.approx(12.9, abs=0.05)
    assert cpu.roof_pct is None and side.machine.arch == "gfx1032" and side.factors["torch_version"] is None
    assert side.reported and side.claims


def test_the_second_article_s_figures_and_what_it_claims():
    both = [sides.of_folder(ROOT / "outputs" / "reference" / f"article-{name}") for name in ("rx6800xt", "rtx3080")]
    values = [[one.value for one in side.items] for side in both]
    assert values == [[312, 42, 56], [285, 38, 61]]
    assert all(one.settings["batch"] == 32 and one.settings["dtype"] == "float32" for s in both for one in s.items)
    assert "never published" in both[0].claims[0]["en"] and "从未发布" in both[0].claims[0]["zh"]


def test_what_an_article_does_not_state_is_null_with_a_reason():
    for path in FOLDERS:
        for row in results.rows(path.parent, "reported"):
            for key in [key for key, value in row.items() if value is None and key not in ("low", "high")]:
                assert row.get(f"{key}_reason") or key in ("method_version", "image_px"), f"{path}: {key}"


# ---- beside the table of notebook 03


def made_rows() -> list[dict]:
    """A study of both arms with its settings, and a cold call that no reference keeps."""
    facts = {"method_version": 1, "evidence_grade": "D", "stop_rule": "length"}
    rows = [*study(processes=3), generation("gpu", visit="cold")]
    return [row | facts for row in rows]


def run_with(tmp_path, spec="random:qwen3-0.6b", name="sm_90"):
    run = tmp_path / name
    (run / "records").mkdir(parents=True)
    subject = {"device": "cuda:0", "arch": "gfx1100", "name": "AMD Radeon RX 7900 XTX", "memory_bytes": 24 << 30}
    birth = {"schema": "rocmlab-birth-1", "name": name, "method_version": 1, "subject": subject, "snapshot": {}}
    results.write_json(run / "run.json", birth)
    rows = [row | {"model_spec": spec, "run": name, "notebook": "03", "attempt": "1"} for row in made_rows()]
    (run / "records" / "generation.jsonl").write_text("".join(results.line(row) for row in rows), encoding="utf-8")
    return run


def measures(run) -> pd.DataFrame:
    return next(table.frame for table in section_03.section(run).tables if table.name == "measures")


def test_the_reference_of_the_same_model_stands_in_grey_under_the_measures(tmp_path):
    frame = measures(run_with(tmp_path))
    mine = frame[frame["row_class"] == "reference"]
    article = mine[mine["measure"].map(lambda one: "gfx1032" in one["en"])].iloc[0]
    assert (article["gpu"], article["cpu"]) == (30.3, 17.0)
    assert "reported" in article["measure"]["en"] and "end to end" in article["measure"]["en"]
    assert "CPU dtype not stated, GPU float16" in article["measure"]["en"] and "报告值" in article["measure"]["zh"]
    page = tables.as_html(tables.grid(frame, "en", section_03.LABELS))
    assert page.count('<tr class="reference">') == len(mine) and "row_class" not in page
    assert "(16.8–17.2)" in tables.as_markdown(tables.grid(frame, "zh", section_03.LABELS))


def test_another_model_has_no_such_row(tmp_path):
    frame = measures(run_with(tmp_path, "random:qwen3-4b"))
    assert "row_class" not in frame or not (frame["row_class"] == "reference").any()


# ---- making one


def test_a_small_form_gives_the_same_comparison(tmp_path, capsys):
    run = run_with(tmp_path)
    target = tmp_path / "h200"
    assert reference.main([str(run), str(target)]) == 0 and "quantities" in capsys.readouterr().out
    one, other = sides.of_folder(run), sides.of_folder(target)
    assert one.items == other.items and one.items and one.factors == other.factors
    small = (target / "records" / "generation.jsonl").read_text(encoding="utf-8")
    assert "token_stamps_s" not in small and '"visit": "steady"' in small and '"cold"' not in small
    assert bundle.make(target)[0].exists()


@pytest.mark.parametrize("arguments", [[], ["a"], ["/no/such", "x"]])
def test_what_cannot_be_made_ends_with_a_sentence(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert reference.main(arguments) == 2 and capsys.readouterr().err.strip()


def test_a_target_that_holds_something_is_refused(tmp_path, capsys):
    run = run_with(tmp_path)
    assert reference.main([str(run), str(run)]) == 2 and "not empty" in capsys.readouterr().err


def test_one_that_is_too_large_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "MOST_BYTES", 100)
    assert reference.main([str(run_with(tmp_path)), str(tmp_path / "x")]) == 2
    assert "more than 100" in capsys.readouterr().err


# ---- notebook 13


def chosen(run, *others):
    return sides.record(results.start("13", str(run)), [str(one) for one in others])


def test_without_its_record_13_is_missing_and_with_it_references_stand_there(tmp_path):
    run = run_with(tmp_path)
    assert section_13.section(run).missing
    chosen(run)
    part = section_13.section(run)
    assert [table.name for table in part.tables][:2] == ["differences", "machines"]
    assert "REFERENCES_SHOWN" in [one["code"] for one in part.findings]
    # An unlike reference is no fault of this run: it must not turn its verdict.
    assert all(one["status"] == "ok" for one in part.findings)
    assert {figure.name for figure in part.figures} == {"bars-e2e"} or len(FOLDERS) > 3


def test_another_run_a_bundle_and_a_missing_one(tmp_path):
    run, other = run_with(tmp_path), run_with(tmp_path, name="other")
    zipped, _ = bundle.make(run_with(tmp_path, name="third"))
    lines = chosen(run, other, zipped, other, tmp_path / "absent")
    assert sum("not compared" in line for line in lines) == 1
    assert [line.split(":")[0] for line in lines if "quantities" in line] == ["other", "third", "other #2"]
    shutil.rmtree(other)
    zipped.unlink()  # the page is rebuilt from the records alone
    part = section_13.section(run)
    codes = [one["code"] for one in part.findings]
    assert codes.count("RATIO_UNDECIDED") >= 2 and "NOT_COMPARABLE" not in codes
    table = next(one.frame for one in part.tables if one.name == "compare-decode")
    assert {"sm_90 (GPU)", "other (GPU)", "third (GPU)"} <= set(table["compare_device"])
    for figure in part.figures:
        assert figure.draw() is not None and "sm_90 (GPU)" in figure.alt["en"]
    records = (run / "records" / "compared.jsonl").read_text(encoding="utf-8")
    assert str(tmp_path) not in records and json.loads(records.splitlines()[0])["kind"] == "chosen"


def test_networks_of_notebook_10_are_quantities_too(tmp_path):
    run = run_with(tmp_path)
    facts = {"dtype": "float32", "layout": "contiguous", "batch": 32, "image_px": 224, "method_version": 1}
    facts |= {"evidence_grade": "D", "arm": "float32", "attempt": "1"}
    rows = [
        facts | {"model": "resnet50", "kind": kind, "ms": ms}
        for kind in ("steady", "queued")
        for ms in (200.0, 100.0, 80.0)
    ]
    rows += [
        facts | {"model": "vgg16", "kind": "steady", "ms": 50.0},
        {"model": "vgg16", "kind": "failed", "attempt": "1"},
    ]
    (run / "records" / "vision.jsonl").write_text("".join(results.line(row) for row in rows), encoding="utf-8")
    found = {one.question: one for one in sides.of_folder(run).items if one.question in ("train", "forward")}
    assert found["train"].value == 320.0 and found["train"].settings["way"] == "queued steps"
    assert found["forward"].value == 50.0 and found["forward"].settings["image_px"] == 224
    chosen(run)
    part = section_13.section(run)
    table = next(one.frame for one in part.tables if one.name == "compare-train")
    ratios = table.set_index("compare_device")["compare_ratio"]
    assert ratios["sm_90 (GPU)"] == 1.0
    for article in ("article-rx6800xt (GPU)", "article-rtx3080 (GPU)"):  # reported numbers are never divided
        assert table["compare_device"].eq(article).any() and ratios[[article]].isna().all()


@pytest.mark.parametrize("parts", [(), ("generation.jsonl",), ("generation.jsonl", "snapshot.jsonl")])
def test_in_jupyterlab_there_is_no_certificate(tmp_path, parts):
    """outputs/interactive has the records of what was run there, and no run.json; nothing at all is no error either."""
    run, made = tmp_path / "interactive", run_with(tmp_path)
    (run / "records").mkdir(parents=True)
    probe = {"platform": "Linux-6.8", "devices": [], "attempt": "1"}
    (made / "records" / "snapshot.jsonl").write_text(results.line(probe), encoding="utf-8")
    for name in parts:
        shutil.copy(made / "records" / name, run / "records" / name)
    chosen(run, made)
    part = section_13.section(run)
    code = "RATIO_UNDECIDED" if parts == ("generation.jsonl",) else None
    assert code is None or code in [one["code"] for one in part.findings]
    assert part.findings and not part.missing
