"""Rates of matrix products: the case, others of the same kinds with other numbers, and each judge both ways."""

import cases
import pytest

from rocmlab import clock, findings, gemm_judges, gemm_rate, readers, results

TINY = "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_MT8x8x16_SN_TT1_1_WG8_8_1"
TUNED = "Cijk_Ailk_Bljk_HHS_BH_MT128x64x16_SN_TT8_4_WG16_16_1"


def product(dtype="float32", tflops=8.0, size=4096, kernel=TUNED, **changes):
    """One square product that runs at so many TFLOP/s."""
    flops = 2 * size**3
    item = {"dtype": dtype, "m": size, "n": size, "k": size, "median_ms": flops / tflops / 1e9, "kernel": kernel}
    return item | changes


def answer(tmp_path, items, **changes):
    record = {"schema": "rocmlab-gemm-rates-1", "arch": "gfx1100", "device": "some card", "items": items}
    record |= {"peak_tflops": {"float32": 20.0, "float16": 40.0}} | changes
    return cases.answer(tmp_path, record)


def judged(items, peaks=None, **given):
    rated = [gemm_judges.rated(item, peaks or {}) for item in items]
    return [one["code"] for one in gemm_judges.judge(rated, peaks or {}, **given)]


# ---- the reader


def test_the_further_case(shared):
    entry = cases.expected(shared, "D")["ops-16-gemm-rates.json"]
    path = shared / "cases" / "ops-16-gemm-rates.json"
    assert cases.differences(path, entry) == []
    for given, wanted in zip(readers.answer(path)["items"], entry["items"], strict=True):
        assert {key: given[key] for key in ("dtype", "tile", "verdict")} == {
            key: wanted[key] for key in ("dtype", "tile", "verdict")
        }


def test_another_card_with_the_fault_in_the_other_dtype(tmp_path):
    items = [product("float16", 2.0, kernel=TINY.replace("8x8", "16x16")), product("float32", 15.0)]
    found = answer(tmp_path, items)
    assert (found["kind"], found["verdict"]) == ("gemm_rates", "FALLBACK_KERNEL")
    assert "float16" in found["sentence"] and "16x16" in found["sentence"]
    assert found["numbers"]["float16_peak_pct"] == pytest.approx(5.0)
    assert [item["verdict"] for item in found["items"]] == ["FALLBACK_KERNEL", "OK"]


def test_good_rates_are_no_fault_and_samples_serve_as_well_as_a_median(tmp_path):
    good = product("float16", 30.0)
    middle = good.pop("median_ms")
    good["samples_ms"] = [middle * scale for scale in (0.9, 1.0, 1.1)]
    found = answer(tmp_path, [good, product("float32", 15.0)])
    assert (found["verdict"], found["numbers"]["float16_tflops"]) == ("OK", pytest.approx(30.0))


def test_few_rows_are_judged_by_bytes_and_never_by_arithmetic(tmp_path):
    row = {"dtype": "float32", "m": 8192, "n": 1, "k": 2048, "median_ms": 0.2, "kernel": TINY}
    found = answer(tmp_path, [row, row | {"n": 4, "median_ms": 0.1}])
    assert found["verdict"] == "OK"
    assert found["numbers"]["n1_gb_s"] == pytest.approx(4 * (8192 * 2048 + 8192 + 2048) / 0.2e6, rel=1e-6)
    assert found["numbers"]["n4_gb_s"] > 2 * found["numbers"]["n1_gb_s"] * 0.99
    assert "float32_tflops" not in found["numbers"]


def test_without_a_peak_in_the_file_that_of_the_very_card_is_taken_or_none(tmp_path):
    items = [product("float32", 0.7, kernel=TINY)]
    known = {"arch": "gfx1032", "device": "AMD Radeon RX 6650 XT", "peak_tflops": None}
    assert answer(tmp_path, items, **known)["verdict"] == "FALLBACK_KERNEL"
    found = answer(tmp_path, items, arch=None, device=None, peak_tflops="fast")
    assert found["verdict"] == "OK" and found["numbers"]["float32_peak_pct"] is None
    assert found["numbers"]["float32_peak_pct_reason"]


@pytest.mark.parametrize(
    "items",
    [
        None,
        [],
        [1, None],
        [{}],
        [{"dtype": 3, "m": "a", "n": None, "k": -1, "median_ms": 0}],
        [product(median_ms=float("nan"))],
        [product(median_ms=None, samples_ms=["x", None, -1.0])],
    ],
)
def test_damaged_products_are_named_and_never_raise(tmp_path, items):
    found = answer(tmp_path, items)
    assert found["kind"] == "gemm_rates" and found["verdict"] in ("GEMM_RATES_DAMAGED", "NOT_A_NUMBER")
    assert found["status"] == "unknown"


# ---- judges


def test_slow_without_a_tiny_tile_is_not_called_a_fallback():
    peaks = {"float32": 20.0}
    assert judged([product("float32", 1.0)], peaks) == ["GEMM_FAR_BELOW_PEAK"]
    assert judged([product("float32", 1.0, kernel=None)], peaks) == ["GEMM_FAR_BELOW_PEAK"]
    assert judged([product("float32", 1.0, kernel=TINY)], peaks) == ["FALLBACK_KERNEL"]
    assert judged([product("float32", 2.1, kernel=TINY)], peaks) == []


def test_a_small_product_far_below_the_peak_proves_nothing():
    assert judged([product("float32", 0.5, size=128, kernel=TINY)], {"float32": 20.0}) == []


def test_a_rate_above_the_stated_peak_is_impossible_and_becomes_no_ceiling():
    rows = [product("float32", 45.0), product("float32", 15.0, size=2048)]
    assert judged(rows, {"float32": 20.0}) == ["IMPOSSIBLE_RATE"]
    assert gemm_judges.best([gemm_judges.rated(row, {"float32": 20.0}) for row in rows])["float32"][
        "tflops"
    ] == pytest.approx(15.0)


@pytest.mark.parametrize(("bfloat16", "code"), [(4.0, ["BFLOAT16_SLOW"]), (14.0, []), (19.0, ["BFLOAT16_AS_FAST"])])
def test_emulated_bfloat16_shows_or_does_not_or_stays_open(bfloat16, code):
    assert judged([product("float16", 20.0), product("bfloat16", bfloat16)]) == code


def test_emulation_quotes_what_torch_claims():
    items = [gemm_judges.rated(one, {}) for one in (product("float16", 20.0), product("bfloat16", 4.0))]
    for supported, words in ((True, "says True"), (False, "says False"), (None, "emulated")):
        (found,) = gemm_judges.judge(items, {}, bf16_supported=supported)
        assert words in findings.say(found)["sentence"]
    assert "True" not in findings.say(gemm_judges.judge(items, {})[0])["sentence"]


def test_dtypes_are_compared_at_the_largest_size_that_both_have():
    items = [product("float16", 20.0), product("float16", 5.0, size=1024), product("bfloat16", 4.9, size=1024)]
    assert judged(items) == ["BFLOAT16_AS_FAST"]
    assert judged([product("float16", 20.0), product("bfloat16", 1.0, size=1024)]) == []


@pytest.mark.parametrize(("half", "code"), [(0.1, ["CPU_HALF_SLOW"]), (0.9, []), (2.0, ["CPU_HALF_FAST"])])
def test_16_bit_on_a_cpu(half, code):
    assert judged([product("float32", 1.0), product("float16", half)], device="cpu") == code


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        (TINY, "8x8"),
        (TUNED, "128x64"),
        ("ampere_sgemm_128x64_tn", "128x64"),
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8", "256x128"),
        ("gemv2T_kernel", None),
        (None, None),
        (17, None),
    ],
)
def test_tiles_by_name(kernel, tile):
    assert gemm_judges.tile(kernel) == tile


def test_peaks_that_are_no_upper_limit_are_left_out():
    peaks = gemm_judges.stated_peaks("gfx1032", "AMD Radeon RX 6650 XT")
    assert peaks["float32"] == pytest.approx(10.79) and peaks["float16"] == pytest.approx(21.59)
    assert gemm_judges.stated_peaks("gfx1032", "an unknown card") == {}
    assert "float16" not in gemm_judges.stated_peaks("gfx1201", "AMD Radeon RX 9070 XT")


# ---- measured here


def test_products_are_measured_and_none_is_faster_than_a_processor_can_be(tmp_path, monkeypatch):
    monkeypatch.setattr(gemm_rate, "SIZES", {"cpu": (256,)})
    run = results.start("06", str(tmp_path))
    gemm_rate.measure(run, {"device": "cpu"}, "cpu", clock.choose({"tick_ns": 50, "wait_ms": 0.0}))
    rows = results.rows(tmp_path, "gemm_rate")
    assert [row["dtype"] for row in rows] == list(gemm_rate.DTYPES)
    mine = next(row for row in rows if row["dtype"] == "float32")
    assert len(mine["samples_ms"]) >= 3 and mine["flops"] == 2 * 256**3
    assert 0 < gemm_judges.rate_tflops(rows, "float32") < 20  # a product that never happened would be far above


def test_a_dtype_that_the_device_refuses_is_a_row(tmp_path, monkeypatch):
    import torch

    def refuse(*_, **__):
        raise RuntimeError("no kernel for this dtype")

    monkeypatch.setattr(torch, "mm", refuse)
    run = results.start("06", str(tmp_path))
    gemm_rate.measure(run, {"device": "cpu"}, "cpu", clock.choose({"tick_ns": 50, "wait_ms": 0.0}))
    rows = results.rows(tmp_path, "gemm_rate")
    assert [row["error"] for row in rows] == ["no kernel for this dtype"] * 3 and not rows[0]["samples_ms"]
