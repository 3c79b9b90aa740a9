"""Rates of matrix products by dtype and shape (schema rocmlab-gemm-rates-1), as somebody measured them."""

from __future__ import annotations

from typing import Any

from rocmlab import findings, gemm_judges
from rocmlab.findings import finding
from rocmlab.rates import is_number
from rocmlab.readers import Evidence, Reading
from rocmlab.readers.measurements import finite

SCHEMA = "rocmlab-gemm-rates-1"
SHOWN = ("dtype", "m", "n", "k", "tile", "verdict", "tflops", "peak_pct", "gb_s")


def recognise(evidence: Evidence) -> bool:
    return evidence.schema == SCHEMA


def read(evidence: Evidence) -> Reading:
    """Rate and judge every product; without a stated peak in the file, that of the very card is taken if known."""
    record, broken = finite(evidence.json)
    listed = record.get("items")
    given = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    peaks = _peaks(record)
    items = [gemm_judges.rated(item, peaks) for item in given]
    said = record.get("is_bf16_supported")
    device = "cpu" if record.get("arch") == "cpu" or record.get("device") == "cpu" else "gpu"
    judged = gemm_judges.judge(items, peaks, bf16_supported=said if isinstance(said, bool) else None, device=device)
    numbers: dict[str, Any] = {"products": len(items)} | gemm_judges.numbers(items)
    timeless = sum(item["ms"] is None for item in items)
    if timeless or not items:
        judged.append(finding("GEMM_RATES_DAMAGED", numbers={"products_without_a_time": timeless}, count=len(items)))
    if broken:
        judged.append(finding("NOT_A_NUMBER", count=len(broken), keys=", ".join(broken)))
    for one in judged:
        numbers |= {key: value for key, value in one["numbers"].items() if key not in numbers}
    headline = finding(
        "GEMM_RATES_READ", said=gemm_judges.said_by_dtype(items), few=_few(items), variant=_variant(items)
    )
    shown = [{key: item[key] for key in SHOWN} for item in items]
    return Reading("gemm_rates", SCHEMA, findings.finite(numbers), judged, headline, {"items": shown})


def _peaks(record: dict[str, Any]) -> dict[str, float]:
    given = record.get("peak_tflops")
    peaks = {str(k): float(v) for k, v in given.items() if is_number(v) and v > 0} if isinstance(given, dict) else {}
    arch, name = (value if isinstance(value := record.get(key), str) else None for key in ("arch", "device"))
    return gemm_judges.stated_peaks(arch, name) | peaks


def _few(items: list[gemm_judges.Item]) -> str:
    mine = [item for item in items if item["few_rows"] and item["gb_s"]]
    return ", ".join(f"{item['dtype']} {item['m']}x{item['n']}x{item['k']}: {item['gb_s']:.1f} GB/s" for item in mine)


def _variant(items: list[gemm_judges.Item]) -> str | None:
    return "few_rows" if _few(items) else None
