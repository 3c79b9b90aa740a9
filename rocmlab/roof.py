"""What is a rate of bytes compared with: the ceiling measured here, else the stated peak of this very card? Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocmlab import archs, ceiling, gpus
from rocmlab.findings import Finding, finding
from rocmlab.words import both


@dataclass(frozen=True)
class Roof:
    """What a rate is compared with: GB/s, whether it was `measured` here or is the `stated` peak; or why not."""

    gb_s: float | None
    kind: str
    reason: str = ""

    @property
    def name(self) -> dict[str, str]:
        """What it is called, in both languages."""
        return both("roof_measured" if self.kind == "measured" else "roof_stated")


def stated(snapshot: dict[str, Any], subject: dict[str, Any]) -> float | None:
    """Return the peak in GB/s that archs.yaml knows for this very card, None for a card (or CPU) it does not know."""
    probe = gpus.tidy(snapshot)
    mine = [one for one in probe["devices"] if one["index"] == subject.get("index")]
    arch = (gpus.real_arch(probe, mine[0]) if mine else None) or subject.get("arch")
    known = archs.product(arch, subject.get("name"), subject.get("memory_bytes"))
    return known["bandwidth_gbs"] if known else None


def roof(found: list[dict[str, Any]], peak_gb_s: float | None, working_set: float | None = None) -> Roof:
    """Return the measured ceiling where there is one, else the stated peak; neither for what a cache may hold."""
    best = ceiling.bandwidth(found, peak_gb_s)
    if working_set is not None and found and ceiling.in_cache(found, working_set, best):
        return Roof(None, "none", "the model is so small that a cache may hold it: memory bandwidth is no roof for it")
    if best:
        return Roof(best.gb_s, "measured")
    if peak_gb_s:
        return Roof(peak_gb_s, "stated")
    return Roof(None, "none", "no bandwidth was measured, and no peak is stated for this device")


def judge(found: list[dict[str, Any]], peak_gb_s: float | None) -> list[Finding]:
    """Say the ceiling, a spill out of the card's memory, and rates that cannot be."""
    said = []
    for row in ceiling.impossible(found, peak_gb_s)[:1]:
        given = {
            "bandwidth_gb_s": ceiling.rate(row),
            "over_peak_pct": 100 * (ceiling.rate(row) or 0) / (peak_gb_s or 1),
        }
        said.append(finding("IMPOSSIBLE_RATE", numbers=given, variant="copy", way=row["way"], roof=peak_gb_s))
    over = ceiling.spill(found)
    if over:
        given = {
            "spill_from_gib": over["bytes"] / 2**30,
            "spilled_gb_s": over["gb_s"],
            "usual_gb_s": over["usual_gb_s"],
        }
        said.append(finding("MEMORY_SPILLED", numbers=given, way=over["way"]))
    best = ceiling.bandwidth(found, peak_gb_s)
    if best:
        ways = {
            way: ceiling.bandwidth([r for r in found if r.get("way") == way], peak_gb_s) for way in ("copy", "read")
        }
        given = {"ceiling_gb_s": best.gb_s, **{f"{way}_gb_s": one.gb_s if one else None for way, one in ways.items()}}
        given["stated_gb_s"] = peak_gb_s
        variant = "of_stated" if peak_gb_s else None
        pct = 100 * best.gb_s / peak_gb_s if peak_gb_s else None
        said.append(finding("BANDWIDTH_CEILING", numbers=given, variant=variant, way=best.way, pct=pct))
    return said
