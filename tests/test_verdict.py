"""Section 12 from whole run folders: answers, main figure, tables, and what happens where half of it is missing."""

import dataclasses
import json
import re

import machines as m
import page_case
import pytest
from page_case import soup

from rocmlab import (
    clues,
    figures,
    findings,
    hypotheses,
    outline,
    report,
    runner,
    sections,
    suspects,
    verdict_judges,
    words,
)
from rocmlab.sections import experiments, verdict

FOLDERS = {
    "h200": (m.h200, m.steps_of_h200, "sm_90", "NVIDIA H200"),
    "gfx1032": (m.gfx1032, m.steps_of_gfx1032, "gfx1032", "AMD Radeon RX 6650 XT"),
    "cpu": (m.slow_cpu, m.steps_of_cpu, "cpu", "Test CPU"),
}


def folder(path, name, **rows):
    machine, steps, arch, card = FOLDERS[name]
    found = machine()
    found = dataclasses.replace(found, rows=found.rows | rows)
    return m.write(path / name, found, steps(), name=name, arch=arch, card=card)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    run = folder(tmp_path_factory.mktemp("verdict"), "h200")
    report.build(run)
    return run


# ---- the page


def test_the_verdict_answers_slow_and_faster_and_leaves_works_to_the_others(built):
    facts = outline.read(built)
    given = outline.answers(facts)
    assert given["slow"]["code"] == "VERDICT_HOST_BOUND" and given["faster"]["code"] == "BEST_REMEDY"
    assert given["works"]["code"] == "PASS"
    page = soup(built / "index.html")
    assert "18.6 ms" in page.select_one("#slow").parent.text and "529 tok/s" in page.select_one("#faster").parent.text


def test_the_main_figure_stands_under_the_answers_and_only_there(built):
    for file in ("index.html", "index.zh.html"):
        page = soup(built / file)
        lead = page.select_one("section.lead")
        assert lead.find_previous("section")["class"] == ["answers"]
        assert lead.select_one("figure")["id"] == "fig-12-waterfall"
        assert len(page.select("#fig-12-waterfall")) == 1
        assert re.search(r"1[.。]", lead.select_one("figcaption b").text)
        numbers = [int(re.search(r"\d+", one.text)[0]) for one in page.select("figcaption b")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert lead.select_one("a[href='#n12']") and page.select_one("#n12")
        assert "18.9 ms" in lead.img["alt"]


def test_the_page_shows_every_suspect_once_and_the_discarded_ones_with_numbers(built):
    page = soup(built / "index.html")
    rows = [row.th.text for row in page.select("#cap-12-hypotheses + .scroll tbody tr")]
    assert len(rows) == len(set(rows)) == len(suspects.order())
    assert rows[0] == "launching kernels"
    discarded = page.select_one("#discarded").parent.text
    assert "only 2% of a step of 18.9 ms" in discarded and "7.00 GiB" in discarded
    assert page.select("td.long")


def test_a_page_without_a_ledger_has_no_main_figure_and_says_why(tmp_path):
    run = folder(tmp_path, "h200")
    (run / "records" / "step.jsonl").unlink()
    report.build(run)
    page = soup(run / "index.html")
    assert page.select_one("section.lead") is None
    facts = outline.read(run)
    part = facts.made["12"]
    assert "slow" not in part.answers and part.findings[0]["code"] == "VERDICT_OPEN"
    assert outline.answers(facts)["slow"]["code"] == "FIXED_COST_PER_STEP"  # what 05 can say stays
    assert "notebook 11 did not run" in part.absent["waterfall"]["en"]


def test_a_notebook_that_was_left_out_did_not_run_in_vain(tmp_path):
    """12 has something to say of whatever records there are, without having run."""
    run = folder(tmp_path, "h200")
    for record in (run / "records").iterdir():
        if record.stem not in ("operators", "snapshot"):
            record.unlink()
    for one in (run / "notebooks").glob("1*.ipynb"):
        one.unlink()
    birth = json.loads((run / "run.json").read_text(encoding="utf-8"))
    for number in ("11", "12"):
        birth["notebooks"].pop(number, None)
    (run / "run.json").write_text(json.dumps(birth), encoding="utf-8")
    facts = outline.read(run)
    assert outline.reason(facts, "slow", "en") == words.word("reason_not_run", "en", notebook="12")


@pytest.mark.parametrize("name", FOLDERS)
def test_every_machine_gets_a_section_in_both_languages(tmp_path, name):
    part = verdict.section(folder(tmp_path, name))
    for lang in words.LANGUAGES:
        for one in [*part.findings, *part.discarded, *part.answers.values()]:
            said = findings.say(one, lang)
            assert said["sentence"] and findings.UNKNOWN[lang] not in said["sentence"], said
    for figure in part.figures:
        figure.draw()
        with figures.narrow():
            assert figure.draw().get_size_inches()[0] == figures.NARROW_IN
    assert part.lead == "waterfall" and not part.missing


def test_a_cpu_run_pretends_no_gpu(tmp_path):
    part = verdict.section(folder(tmp_path, "cpu"))
    assert part.answers["slow"]["code"] == "VERDICT_CPU"
    assert [table.name for table in part.tables] == ["hypotheses", "reversals", "ledger_device"]
    assert [figure.name for figure in part.figures] == ["waterfall"]
    text = " ".join(findings.say(one)["sentence"] for one in part.findings)
    assert "no GPU at work" in text and "Does the model run on the CPU? Yes" in text and "launch" not in text


def test_wrong_numbers_win_the_first_answer(tmp_path):
    wrong = [m.operator("q_proj", "linear", 0.02, 4.2e6, value={"outside": 3, "over_tolerance": 40.0})]
    run = folder(tmp_path, "h200", shapes=wrong)
    given = outline.answers(outline.read(run))
    assert given["works"]["code"] == "VERDICT_WRONG_NUMBERS" and "q_proj" in findings.say(given["works"])["sentence"]


def test_a_step_timed_beside_other_programs_gives_no_answer_and_says_so(tmp_path):
    loud = [row | {"others_cpu_pct": 60.0} for row in m.lengths(18.9)]
    run = folder(tmp_path, "h200", lengths=loud, batches=[], generation=[])
    part = verdict.section(run)
    assert "slow" not in part.answers and part.findings[0]["code"] == "VERDICT_OPEN"
    assert "60% of the processor" in findings.say(part.findings[0])["sentence"]


# ---- where the ledger decides nothing


def open_machine(machine=m.h200, **rows):
    """A machine whose ledger does not decide, since its device time is an upper bound above half of the twin's step."""
    found, upper = machine(), {"regime": "undecided", "binding": None, "device_upper": True}
    why = {"name": "operators", "passed": None, "said": {"en": "an upper bound only", "zh": "只是上限"}}
    account = {**found.account, **upper, "checks": [why]}
    return dataclasses.replace(found, account=account, rows=found.rows | rows)


def delay(name, dose, shown):
    return m.experiment(name, 1 + dose * shown, given={"dose": dose})


@pytest.mark.parametrize(
    ("host", "device", "lane", "said"),
    [
        (0.98, 0.02, "host", "Most likely the host: 98%"),
        (0.1, 0.97, "device", "Most likely the GPU's own work: 97%"),
        (0.98, None, "host", "Most likely the host: 98%"),
        (0.5, None, None, "is not decided: an upper bound only"),
        (0.98, 0.97, None, "is not decided"),
        (None, None, None, "is not decided"),
    ],
)
def test_delays_say_what_most_likely_binds_where_the_ledger_does_not(host, device, lane, said):
    doses = (("host_delay", 0.5, host), ("device_delay_hidden", 0.3, device))
    rows = [delay(name, dose, shown) for name, dose, shown in doses if shown is not None]
    found = verdict_judges.still_open(open_machine(experiments=rows), [])
    assert found["variant"] == lane and said in findings.say(found)["sentence"]
    for lang, why in (("en", "an upper bound only"), ("zh", "只是上限")):
        assert why in findings.say(found, lang)["sentence"]


@pytest.mark.parametrize("shown", [0.98, 0.3])
def test_what_most_likely_binds_answers_the_question_and_doubt_alone_does_not(tmp_path, shown):
    rows = [delay("host_delay", 0.5, shown), delay("device_delay_hidden", 0.3, 0.02)]
    blind = [row for row in m.steps_of_h200() if row["quantity"] in ("T", "H", "H_cpu", "E1")]
    machine = dataclasses.replace(m.h200(), rows=m.h200().rows | {"experiments": rows, "shapes": [], "profiler": []})
    run = m.write(tmp_path / "blind", machine, blind, name="blind", arch="gfx1032", card="AMD Radeon RX 6600")
    part = verdict.section(run)
    assert part.findings[0]["code"] == "VERDICT_OPEN" and ("slow" in part.answers) is (shown > 0.9)
    if shown > 0.9:
        assert "Most likely the host" in findings.say(outline.answers(outline.read(run))["slow"])["sentence"]


def test_an_upper_bound_is_said_under_the_picture_and_in_the_answer(tmp_path):
    assert "upper bound" in verdict.footer(tmp_path, open_machine()) and "upper" not in verdict.footer(
        tmp_path, m.h200()
    )
    machine = m.h200()
    machine.account["device_upper"] = True
    for lang, parts in (("en", ("works at most 4.53 ms", "(at most 24%)")), ("zh", ("至多 4.53 ms", "（至多 24%）"))):
        sentence = findings.say(verdict_judges.answer_slow(machine, []), lang)["sentence"]
        assert all(part in sentence for part in parts)


def test_delays_of_one_text_say_nothing_about_a_step_of_many():
    made = open_machine(experiments=[delay("host_delay", 0.5, 0.98)])
    made.account["subject"] = {**made.account["subject"], "batch": 256}
    assert verdict_judges.still_open(made, [])["variant"] is None


@pytest.mark.parametrize(("status", "said"), [("OUT_OF_MEMORY", "HIP out of memory"), ("OK", "there is no ledger")])
def test_a_step_that_could_not_be_taken_apart_says_how_it_ended(tmp_path, status, said):
    run = folder(tmp_path, "h200", step_ended=[{"status": status, "words": "RuntimeError: HIP out of memory"}])
    (run / "records" / "step.jsonl").unlink()
    part, eleven = verdict.section(run), experiments.section(run)
    assert said in findings.say(part.findings[0])["sentence"]
    told = [one for one in eleven.findings if one["code"] == "STEP_NOT_TAKEN_APART"]
    assert bool(told) is (status != "OK") and ("ledger_checks" in eleven.absent) is (status != "OK")
    if told:
        assert "step_batch" in findings.say(told[0])["advice"] and said in part.absent["waterfall"]["zh"]


def test_a_step_of_many_texts_is_not_mixed_with_what_was_timed_for_one(tmp_path):
    many = [row | {"batch": 256, "context": 1024} for row in m.steps_of_h200()]
    run = folder(tmp_path, "h200")
    one = {verdict_.suspect: verdict_ for verdict_ in hypotheses.judge(clues.of_run(run))}
    machine, _, arch, card = FOLDERS["h200"]
    run = m.write(tmp_path / "many", machine(), many, name="many", arch=arch, card=card)
    found = {verdict_.suspect: verdict_ for verdict_ in hypotheses.judge(clues.of_run(run))}
    for name in ("slow_products", "small_operators", "attention"):
        assert one[name].verdict == suspects.REFUTED and found[name].verdict == suspects.UNDECIDED
        assert "256" in found[name].evidence["en"] and "256" in found[name].evidence["zh"]
    assert found["artefact"].verdict == suspects.REFUTED  # 03 and 04 agree; a step of 256 texts is none of theirs
    slow = verdict.section(run).answers
    assert "a step of 256 texts together" in findings.say(slow["slow"])["sentence"]
    assert "of one text; the step that was taken apart has 256" in findings.say(slow["faster"])["sentence"]
    usual = verdict.section(folder(tmp_path, "h200")).answers
    assert "a token takes" in findings.say(usual["slow"])["sentence"]
    assert "of one text" not in findings.say(usual["faster"])["sentence"]


def test_an_empty_run_has_no_verdict(tmp_path):
    (tmp_path / "records").mkdir()
    assert "left records" in verdict.section(tmp_path).missing["en"]


def test_a_run_of_01_alone_is_all_open_and_never_a_crash(tmp_path):
    run = page_case.copy(tmp_path)
    for path in (run / "records").glob("*.jsonl"):
        if path.stem != "snapshot":
            path.unlink()
    made = next(one for one in sections.collect(run) if one.notebook == "12")
    assert made.missing and "could not be" not in made.missing["en"]


def test_the_runner_redraws_the_verdict_every_time():
    assert "12" in runner.ALWAYS and "13" in runner.ALWAYS
