"""What is a rate of bytes compared with: the ceiling measured here, else the stated peak of this very card? Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rocmlab import archs, ceiling, gpus, words
from rocmlab.findings import Finding, finding

MOST_PCT = {"measured": 105.0, "stated": 100.0}  # more of a measured ceiling, or of the stated peak, cannot be
SPOILS_PCT = 20.0  # of the processor in other hands: what the CPU's memory then gives is no ceiling


@dataclass(frozen=True)
class Roof:
    """What a rate is compared with: GB/s, `measured` here or the `stated` peak; or none and why (en, zh)."""

    gb_s: float | None
    kind: str
    reason: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> dict[str, str]:
        """What it is called, in both languages."""
        return words.both("roof_measured" if self.kind == "measured" else "roof_stated")


def stated(snapshot: dict[str, Any], subject: dict[str, Any], key: str = "bandwidth_gbs") -> float | None:
    """Return what archs.yaml knows of this very card, by default its peak in GB/s; None for one it does not know."""
    probe = gpus.tidy(snapshot)
    mine = [one for one in probe["devices"] if one["index"] == subject.get("index")]
    arch = (gpus.real_arch(probe, mine[0]) if mine else None) or subject.get("arch")
    known = archs.product(arch, subject.get("name"), subject.get("memory_bytes"))
    return known[key] if known else None


def roof(found: list[dict[str, Any]], peak_gb_s: float | None, working_set: float | None = None) -> Roof:
    """Return the measured ceiling where there is one, else the stated peak; neither for what a cache may hold."""
    spoilt = disturbed(found)
    if spoilt is not None:
        why = words.both("roof_disturbed", pct=f"{spoilt:.0f}")
        return Roof(peak_gb_s, "stated") if peak_gb_s else Roof(None, "none", why)
    best = ceiling.bandwidth(found, peak_gb_s)
    if working_set is not None and found and ceiling.in_cache(found, working_set, best):
        return Roof(None, "none", words.both("roof_small"))
    if best:
        return Roof(best.gb_s, "measured")
    if peak_gb_s:
        return Roof(peak_gb_s, "stated")
    return Roof(None, "none", words.both("roof_unknown"))


def disturbed(found: list[dict[str, Any]]) -> float | None:
    """Return the share of the processor that others used while the CPU's bandwidth was measured, if it spoils that."""
    past = [r for r in found if r.get("device") == "cpu" and r.get("bytes", 0) >= ceiling.PAST_CACHE]
    shares = [r["others_cpu_pct"] for r in past if r.get("others_cpu_pct") is not None]
    return max(shares) if shares and max(shares) > SPOILS_PCT else None


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
        spoilt = disturbed(found)
        variant = "disturbed" if spoilt is not None else "of_stated" if peak_gb_s else None
        pct = 100 * best.gb_s / peak_gb_s if peak_gb_s else None
        said.append(finding("BANDWIDTH_CEILING", numbers=given, variant=variant, way=best.way, pct=pct, others=spoilt))
    return said
