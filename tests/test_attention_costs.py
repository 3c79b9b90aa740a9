"""What a missing fused path costs a step: much, little, at most so much, or nobody can say."""

import pytest
from attention_made import study
from spoken import codes, only, said

from rocmlab import attention_judges, attention_tables


@pytest.mark.parametrize(
    ("math_ms", "step", "code"),
    [(1.0, 20.0, "FUSED_SAVES"), (0.205, 20.0, "FUSED_WORTH_LITTLE"), (1.0, None, "ATTENTION_GAP")],
)
def test_a_fused_path_is_worth_much_or_little_or_nobody_can_say(math_ms, step, code):
    whole = {64: step, 1024: step} if step else None
    found = only(attention_judges.judge(study(math_ms), step_ms=whole, prefill_ms=whole), code)
    assert found["numbers"]["long_gap_ms"] == pytest.approx(28 * (math_ms - 0.2))
    assert "11 operators a call" in said(found) or code == "ATTENTION_GAP"


def test_a_gap_inside_the_scatter_is_undecided():
    rows = study()
    for row in rows:
        if row["status"] == "OK":
            row["samples_ms"] = [0.1, 1.5, 0.4, 1.2, 0.2, 0.9]
    assert "FUSED_UNDECIDED" in codes(attention_judges.judge(rows, step_ms={64: 20.0, 1024: 20.0}))


def test_without_a_fused_path_the_best_conceivable_one_sets_the_bound():
    rows = study(flash_ms=None, default="math")
    line = attention_tables.costs(rows, "decode", {1024: 40.0}, ceiling_gb_s=1.0)[1]
    moved = 2 * 128 * (2 * 8 * 1024 + 2 * 16)  # bytes of K, V, a query and a result of each head in float16
    assert line["at_most"] and line["gap_ms"] == pytest.approx(28 * (1.0 - moved / 1e6))
    assert line["share_pct"] == pytest.approx(100 * line["gap_ms"] / 40.0)  # math is in the step already
    found = attention_judges.judge(rows, step_ms={64: 40.0, 1024: 40.0}, prefill_ms={64: 40.0, 1024: 40.0})
    assert "at most" in said(only(found, "FUSED_SAVES"))
    little = attention_judges.judge(rows, step_ms={64: 4000.0, 1024: 4000.0}, prefill_ms={64: 4000.0, 1024: 4000.0})
    assert "not what makes this slow" in said(only(little, "FUSED_WORTH_LITTLE"))
