"""What do the rates of matrix products say: as the maker states, a fallback kernel, or a dtype that is emulated? Pure.

`judge(items, peaks)` takes products (dtype, m, n, k, median_ms or samples_ms, kernel) from here or from somebody's
file. A product of one or a few rows is bound by memory: it gets GB/s and is never judged by TFLOP/s.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

from rocmlab import archs, clock
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number

Item = dict[str, Any]

FEW_ROWS = 16  # up to here a product reads its matrix for hardly any arithmetic: bound by memory
FALLBACK_PCT = 10.0  # of the stated peak
LARGE = 512  # shortest side from which a product can fill a card: a smaller one far below the peak proves nothing
TINY_TILE = 32 * 32  # elements of the result one workgroup makes; tuned kernels for large products use 64 x 64 and more
EMULATED, AS_FAST = 0.6, 0.8  # bfloat16 over float16; between the two nothing is claimed
HALF_SLOW = 0.5  # a 16-bit dtype below half of float32
BYTES = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1}
TILE = re.compile(r"_MT(\d+)x(\d+)|_(\d{1,3})x(\d{1,3})(?:_|x|$)")


def tile(kernel: Any) -> str | None:
    """Return the tile that a kernel's name gives ("8x8" of Tensile's MT8x8x16, "128x64" of CUTLASS), else None."""
    found = TILE.search(kernel) if isinstance(kernel, str) else None
    return "x".join(part for part in found.groups() if part) if found else None


def stated_peaks(arch: str | None, name: str | None, memory_bytes: int | None = None) -> dict[str, float]:
    """Return the stated TFLOP/s by dtype of a card that archs.yaml knows exactly; a dtype without a figure is absent.

    Left out where the listed figure is no upper limit: single-issue float32 of a card that can issue two, and vector
    float16 of a card with matrix units whose rate nobody states.
    """
    known = archs.product(arch, name, memory_bytes)
    if not known:
        return {}
    basis = known.get("basis")
    half = known.get("fp16_matrix_tflops") or (known["fp16_tflops"] if basis != "dual_issue_wmma_higher" else None)
    peaks = {"float32": known["fp32_tflops"] if basis != "single_issue" else None, "float16": half}
    return {dtype: peak for dtype, peak in peaks.items() if peak}


def median_ms(item: Item) -> float | None:
    """Return the median time of one product, from its samples or as given; None where there is none above zero."""
    samples = item.get("samples_ms")
    good = clock.kept([one for one in samples if is_number(one)])[0] if isinstance(samples, list) else []
    given = item.get("median_ms")
    if good:
        return statistics.median(good)
    return given if is_number(given) and given > 0 else None


def sizes(item: Item) -> tuple[int, int, int] | None:
    """Return (m, n, k), None where one of them is no positive whole number."""
    found = [item.get(key) for key in "mnk"]
    whole = [int(one) for one in found if is_number(one) and one >= 1]
    return (whole[0], whole[1], whole[2]) if len(whole) == 3 else None


def rated(item: Item, peaks: dict[str, float]) -> Item:
    """Return one product with its rates: tflops and peak_pct, or gb_s where few rows make memory the limit."""
    ms, shape, dtype = median_ms(item), sizes(item), str(item.get("dtype"))
    made: Item = {"dtype": dtype, **{key: item.get(key) for key in "mnk"}, "tile": tile(item.get("kernel"))}
    made |= {"ms": ms, "tflops": None, "peak_pct": None, "gb_s": None, "few_rows": bool(shape and few(shape))}
    if ms is None or shape is None:
        return made | {"verdict": "UNDECIDED"}
    m, n, k = shape
    if made["few_rows"]:
        size = BYTES.get(dtype)
        made["gb_s"] = size * (m * k + k * n + m * n) / ms / 1e6 if size else None
        return made | {"verdict": "OK"}
    made["tflops"], peak = 2 * m * n * k / ms / 1e9, peaks.get(dtype)
    made["peak_pct"] = 100 * made["tflops"] / peak if peak else None
    return made | {"verdict": _verdict(made)}


def few(shape: tuple[int, int, int]) -> bool:
    """Tell whether one side of the result is so short that the product is bound by memory."""
    return min(shape[:2]) <= FEW_ROWS


def _verdict(made: Item) -> str:
    if made["peak_pct"] is None:
        return "UNDECIDED"
    if made["peak_pct"] > 100:
        return "IMPOSSIBLE_RATE"
    if made["peak_pct"] >= FALLBACK_PCT:
        return "OK"
    if min(made[key] for key in "mnk") < LARGE:
        return "UNDECIDED"
    return "FALLBACK_KERNEL" if _tiny(made["tile"]) else "GEMM_FAR_BELOW_PEAK"


def _tiny(name: str | None) -> bool:
    if name is None:
        return False
    one, other = map(int, name.split("x"))
    return one * other <= TINY_TILE


def best(items: list[Item]) -> dict[str, Item]:
    """Return the fastest product of each dtype that may be judged by TFLOP/s: its rate is the ceiling of the dtype."""
    found: dict[str, Item] = {}
    for item in items:
        if item["tflops"] and item["verdict"] != "IMPOSSIBLE_RATE":
            known = found.get(item["dtype"])
            found[item["dtype"]] = max(known, item, key=lambda one: one["tflops"]) if known else item
    return found


def rate_tflops(rows: list[Item], dtype: str) -> float | None:
    """Return the measured ceiling of a dtype in TFLOP/s from rows of the table gemm_rate, None where there is none."""
    found = best([rated(row, {}) for row in rows]).get(dtype)
    return found["tflops"] if found else None


def numbers(items: list[Item]) -> dict[str, Any]:
    """Return `<dtype>_tflops` and `<dtype>_peak_pct` of each dtype's fastest product, `n<rows>_gb_s` of few rows."""
    said: dict[str, Any] = {}
    tops = best(items)
    for dtype in dict.fromkeys(item["dtype"] for item in items if not item["few_rows"]):
        top = tops.get(dtype)
        said[f"{dtype}_tflops"] = top["tflops"] if top else None
        said[f"{dtype}_peak_pct"] = top["peak_pct"] if top else None
        if top is None:
            said[f"{dtype}_tflops_reason"] = "no product of this dtype has a time that can be"
        if said[f"{dtype}_peak_pct"] is None:
            said[f"{dtype}_peak_pct_reason"] = "no stated peak of this dtype is known"
    for item in items:
        if item["few_rows"] and item["gb_s"]:
            key = f"n{min(item['m'], item['n'])}_gb_s"
            said[key] = max(item["gb_s"], said.get(key) or 0)
    return said


def said_by_dtype(items: list[Item]) -> str:
    """Return "float32 0.71 TFLOP/s (6.6%), ..." of the fastest product of each dtype, "-" where there is none."""
    tops = best(items)
    said = [
        f"{dtype} {top['tflops']:.3g} TFLOP/s" + (f" ({top['peak_pct']:.1f}%)" if top["peak_pct"] is not None else "")
        for dtype, top in tops.items()
    ]
    return ", ".join(said) or "-"


def judge(items: list[Item], peaks: dict[str, float], *, bf16_supported: bool | None = None, device: str = "gpu") -> (
    list[Finding]
):  # fmt: skip
    """Judge rated products (see `rated`): impossible, fallback or merely slow kernels; bfloat16 and 16 bit as such."""
    found = [*_impossible(items, peaks), *_slow(items)]
    return found + _bfloat16(items, bf16_supported, device) + _half_on_cpu(items, device)


def _impossible(items: list[Item], peaks: dict[str, float]) -> list[Finding]:
    said = []
    for dtype in dict.fromkeys(item["dtype"] for item in items if item["verdict"] == "IMPOSSIBLE_RATE"):
        mine = [one for one in items if one["dtype"] == dtype and one["verdict"] == "IMPOSSIBLE_RATE"]
        worst = max(mine, key=lambda one: one["tflops"])
        given = {"tflops": worst["tflops"], "over_peak": worst["peak_pct"] / 100}
        said.append(finding("IMPOSSIBLE_RATE", numbers=given, variant="with_sync", ms=worst["ms"], peak=peaks[dtype]))
    return said


def _slow(items: list[Item]) -> list[Finding]:
    """Name the products on a tiny tile under a tenth of the peak, and the dtypes that stay there whatever the tile."""
    said = []
    fallback = [item for item in items if item["verdict"] == "FALLBACK_KERNEL"]
    far = [top for top in best(items).values() if top["verdict"] == "GEMM_FAR_BELOW_PEAK"]
    for code, mine in (("FALLBACK_KERNEL", list(best(fallback).values())), ("GEMM_FAR_BELOW_PEAK", far)):
        if mine:
            which = ", ".join(
                f"{one['dtype']} {one['tflops']:.3g} TFLOP/s = {one['peak_pct']:.2g}%"
                + (f" ({one['tile']})" if one["tile"] else "")
                for one in mine
            )
            given = {f"{one['dtype']}_peak_pct": one["peak_pct"] for one in mine}
            variant = "rate" if code == "FALLBACK_KERNEL" else None
            said.append(finding(code, numbers=given, variant=variant, which=which))
    return said


def _bfloat16(items: list[Item], supported: bool | None, device: str) -> list[Finding]:
    """bfloat16 far below float16 is emulated, whatever is_bf16_supported() says; on a CPU float16 is the odd one."""
    ratio = over(items, "bfloat16", "float16")
    if ratio is None or device == "cpu" or EMULATED <= ratio < AS_FAST:
        return []
    given = {"bfloat16_over_float16": ratio}
    if ratio >= AS_FAST:
        return [finding("BFLOAT16_AS_FAST", numbers=given, ratio=ratio, limit=EMULATED)]
    variant = {True: "said_supported", False: "said_unsupported", None: None}[supported]
    return [finding("BFLOAT16_SLOW", numbers=given, variant=variant, ratio=ratio)]


def _half_on_cpu(items: list[Item], device: str) -> list[Finding]:
    """Say which 16-bit dtypes a CPU multiplies more slowly than float32."""
    if device != "cpu":
        return []
    said = []
    for dtype in ("float16", "bfloat16"):
        ratio = over(items, dtype, "float32")
        if ratio is not None and (ratio < HALF_SLOW or ratio >= 1):
            given = {f"{dtype}_over_float32": ratio}
            code = "CPU_HALF_SLOW" if ratio < HALF_SLOW else "CPU_HALF_FAST"
            said.append(finding(code, numbers=given, dtype=dtype, ratio=ratio, times=1 / ratio))
    return said


def over(items: list[Item], one: str, other: str) -> float | None:
    """Return the ratio of two dtypes' rates (of `rated` products) at the largest size that both have, else None."""
    sizes_of = {
        dtype: {(i["m"], i["n"], i["k"]): i["tflops"] for i in items if i["dtype"] == dtype and i["tflops"]}
        for dtype in (one, other)
    }
    shared = sizes_of[one].keys() & sizes_of[other].keys()
    if not shared:
        return None
    size = max(shared, key=lambda mnk: mnk[0] * mnk[1] * mnk[2])
    return sizes_of[one][size] / sizes_of[other][size]
