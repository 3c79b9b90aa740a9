"""The answer to "why is it slow" on machines whose fault is known: its regime, its parts, and what is unexplained."""

import machines as m
from machines import changed, mixed, without_ledger

from rocmlab import findings, hypotheses, verdict_judges, words


def test_the_answer_to_slow_follows_the_regime():
    def answer(clues):
        found = verdict_judges.answer_slow(clues, hypotheses.judge(clues))
        return found and found["code"]

    assert answer(m.h200()) == "VERDICT_HOST_BOUND"
    assert answer(m.gfx1032()) == "VERDICT_AT_ROOF"
    assert answer(m.fallback()) == "VERDICT_DEVICE_BOUND"
    assert answer(mixed(m.h200())) == "VERDICT_MIXED"
    assert answer(m.slow_cpu()) == "VERDICT_CPU"
    assert answer(m.cpu_at_roof()) == "VERDICT_AT_ROOF"
    assert answer(changed(m.h200(), account={"regime": "undecided", "binding": None})) is None
    assert answer(without_ledger(m.h200())) is None


def test_a_floor_that_is_not_known_is_not_said_as_a_dash():
    known = m.device_bound(20.0, 4.6)
    unknown = {**known, "device_lane": [row for row in known["device_lane"] if row["name"] != "memory_floor"]}
    for account, there in ((known, True), (unknown, False)):
        for lang, part in (("en", "bytes alone would take 4.60 ms"), ("zh", "仅搬运数据只需 4.60 ms")):
            sentence = findings.say(verdict_judges.answer_slow(m.clues(account, {}), []), lang)["sentence"]
            assert (part in sentence) is there and words.NONE not in sentence


def test_the_answer_names_its_parts_with_their_ms():
    found = verdict_judges.answer_slow(m.h200(), hypotheses.judge(m.h200()))
    said = findings.say(found)["sentence"]
    assert "launching kernels 11.3 ms, Python and operator dispatch 6.90 ms" in said and "4.53 ms" in said
    assert "启动 kernel 11.3 ms" in findings.say(found, "zh")["sentence"]
    products = findings.say(verdict_judges.answer_slow(m.fallback(), hypotheses.judge(m.fallback())))["sentence"]
    assert "slow matrix products 26.0 ms" in products and "launching" not in products


def test_much_that_is_unexplained_is_said_with_the_parts():
    left = changed(m.h200(), account={"residual": m.part("residual", 4.0)})
    said = findings.say(verdict_judges.answer_slow(left, hypotheses.judge(left)))["sentence"]
    assert "unexplained 4.00 ms" in said
    assert (
        "unexplained" not in findings.say(verdict_judges.answer_slow(m.h200(), hypotheses.judge(m.h200())))["sentence"]
    )
