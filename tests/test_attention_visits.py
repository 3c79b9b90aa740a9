"""First visits of a length: charged, by which path, with a switch or without; free; or not to be told."""

import pytest
from attention_made import charged
from spoken import only, said

from rocmlab import attention_judges, attention_visits


def test_the_path_that_charges_first_visits_is_named_with_its_switch_and_what_that_costs():
    found = only(attention_judges.judge(charged(("cudnn", "default"))), "FIRST_VISIT_CHARGED")
    numbers = found["numbers"]
    assert numbers["first_visit_charge_ms"] == pytest.approx(40.0) and found["variant"] is None
    assert numbers["long_decode_switch_ms"] == pytest.approx(28 * 0.05)
    assert numbers["long_decode_switch_pct"] == pytest.approx(25.0)
    assert abs(numbers["charge_with_switch_ms"]) < 0.1
    assert numbers["long_prefill_switch_ms"] is None and numbers["long_prefill_switch_ms_reason"]
    assert "cuDNN path" in said(found) and "enable_cudnn_sdp(False)" in said(found)


@pytest.mark.parametrize(
    ("backends", "code", "variant"),
    [
        ((), "FIRST_VISIT_FREE", None),
        (("cudnn",), "FIRST_VISIT_CHARGED", "not_default"),
        (("flash", "default"), "FIRST_VISIT_CHARGED", "no_switch"),
    ],
)
def test_first_visits_are_free_or_charged_by_another_path(backends, code, variant):
    assert only(attention_visits.judge(charged(backends)), code)["variant"] == variant


def test_visits_that_scatter_leave_it_open():
    rows = charged(())
    for row in rows:
        if row["status"] == "OK":
            row["first_pass_ms"] = [0.3, 9.0, 1.0, 4.0]
    assert only(attention_visits.judge(rows), "FIRST_VISIT_FREE")["variant"] == "undecided"
