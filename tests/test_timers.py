"""What torch.utils.benchmark prints, and bare lists of kernel names."""

import pytest
from cases import answer

from rocmlab import readers
from rocmlab.readers import kernel_names, timers

BLOCK = """x @ y
  Median: {}
  IQR:    {} (1 to 2)
  7 measurements, 100 runs per measurement, 1 thread
"""


def test_units_and_the_factor_between_two_timings_of_one_statement(tmp_path):
    found = answer(tmp_path, BLOCK.format("1.50 ms", "0.01 ms") + "\n" + BLOCK.format("500.00 us", "5.00 us"))
    assert (found["kind"], found["verdict"]) == ("timings", "OK")
    numbers = found["numbers"]
    assert (numbers["timings"], numbers["timing_1_median_ms"], numbers["timing_2_median_ms"]) == (2, 1.5, 0.5)
    assert (numbers["slowest_over_fastest"], numbers["timing_2_iqr_ms"]) == (3.0, pytest.approx(0.005))
    assert "x @ y" in found["sentence"] and "3.00" in found["sentence"]


def test_other_statements_are_not_compared_and_wide_quartiles_are_named(tmp_path):
    found = answer(tmp_path, BLOCK.format("1.50 s", "0.20 s") + BLOCK.format("90.00 ns", "9.00 ns").replace("@", "+"))
    assert "slowest_over_fastest" not in found["numbers"]
    assert (found["verdict"], found["numbers"]["unsteady_timings"]) == ("TIMERS_UNSTEADY", 1)
    assert "x @ y" in found["findings"][0]["sentence"] and "x + y" not in found["findings"][0]["sentence"]
    assert found["numbers"]["timing_2_median_ms"] == pytest.approx(9e-5)


@pytest.mark.parametrize("encoding", ["utf-16", "gbk", "utf-8-sig"])
def test_timings_in_every_encoding_and_line_end(tmp_path, encoding):
    text = BLOCK.format("1.50 ms", "0.01 ms").replace("\n", "\r\n")
    assert answer(tmp_path, text.encode(encoding))["numbers"]["timing_1_median_ms"] == 1.5


def test_what_the_real_timer_prints_is_read(tmp_path):
    benchmark = pytest.importorskip("torch.utils.benchmark")
    one = benchmark.Timer("a = x + 1\na + 2", setup="x = 1").timeit(5)
    many = benchmark.Timer("x * 3", setup="x = 1", label="product", sub_label="small", num_threads=2)
    many = many.blocked_autorange(min_run_time=0.02)
    found = timers.timings(f"{one}\n{many}\n")
    assert [(t.name, t.threads, t.runs) for t in found] == [
        ("a = x + 1; a + 2", 1, 5),
        ("product: small", 2, many.number_per_run),
    ]
    for timing, measured in zip(found, (one, many), strict=True):
        assert timing.median_ms == pytest.approx(measured.median * 1e3, rel=0.01)
    assert found[0].iqr_ms is None


NAMES = """Cijk_Alik_Bljk_HHS_BH_MT64x32x16_MI16x16x16x1_SN	seen on the 6th of May
Cijk_Ailk_Bljk_SB_Bias_HA_S_SAV_UserArgs_MT32x32x8
void at::native::unrolled_elementwise_kernel<3, at::na...
triton_red_fused_add_2
naive_conv_nonpacked_fwd_nchw_float
some_kernel_of_mine
"""


def test_a_list_of_kernel_names_is_counted_by_library(tmp_path):
    found = answer(tmp_path, "# names\n" + NAMES)
    assert (found["kind"], found["verdict"], found["numbers"]["kernel_names"]) == ("tool_output", "OK", 6)
    keys = ("rocblas_tensile", "hipblaslt", "pytorch_native", "triton_inductor", "miopen", "other")
    assert [found["numbers"][f"names_{key}"] for key in keys] == [1] * 6
    assert "how long" in found["sentence"]


@pytest.mark.parametrize(
    "text",
    [
        "thrust\nwinograd\ncudnn is a library that I like\nwe use nccl here and there\n",
        "alpha\nbeta\ngamma\n",
        "Cijk_Alik_Bljk_HHS_BH_MT64x32x16\n",
        "Our notes on Cijk_ kernels\nsay that rocprim:: is used by sort\n",
        NAMES + "one\ntwo\nthree\n",
        "",
    ],
)
def test_words_and_prose_are_no_kernel_names(tmp_path, text):
    assert answer(tmp_path, text)["verdict"] == "UNKNOWN_CONTENT"


def test_the_samples_of_both_kinds(shared):
    samples = shared / "amd-samples"
    found = readers.answer(samples / "rocblas-matmul-bench-gfx1103-fp32.txt")
    assert found["numbers"]["slowest_over_fastest"] == pytest.approx(2.43 / 0.69777)
    names = kernel_names.names((samples / "kernel-names-real.txt").read_text(encoding="utf-8"))
    assert len(names) == 12 + 1 and "hipBLASLt 2" in readers.answer(samples / "kernel-names-real.txt")["sentence"]
