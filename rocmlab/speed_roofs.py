"""Why is the GPU so many times faster than the CPU, and no more? A roofline with two sides, all of it measured. Pure.

ratio = (GPU bandwidth x efficiency / GPU bytes) / (CPU bandwidth x efficiency / CPU bytes). Each side has a roof, its
bandwidth over the bytes of a token, and an efficiency, the share of that roof which it reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocmlab import ceiling, speed, timing
from rocmlab.batch_judges import BOUND_PCT, FAR_PCT

Row = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """One side: tok/s as measured (median, interval), bytes of a token, bandwidth in GB/s with its ends, dtype."""

    name: str
    dtype: str
    tok_s: float
    tok_s_low: float
    tok_s_high: float
    bytes_a_token: float
    gb_s: float
    gb_s_low: float
    gb_s_high: float

    @property
    def roof_tok_s(self) -> float:
        return 1e9 * self.gb_s / self.bytes_a_token

    @property
    def efficiency_pct(self) -> float:
        """The share of its roof that the side reaches."""
        return 100 * self.tok_s / self.roof_tok_s

    @property
    def ends_pct(self) -> tuple[float, float]:
        """The least and the most that the efficiency may be, from the intervals of rate and bandwidth."""
        each = [100 * rate * self.bytes_a_token / 1e9 for rate in (self.tok_s_low, self.tok_s_high)]
        return each[0] / self.gb_s_high, each[1] / self.gb_s_low


@dataclass(frozen=True)
class Roofs:
    """Both sides and what follows: the ratio as measured, that of the roofs, and those within reach."""

    gpu: Side
    cpu: Side
    ratio: float

    @property
    def of_roofs(self) -> float:
        """The ratio if both sides reached their roofs: what the two memories alone allow."""
        return self.gpu.roof_tok_s / self.cpu.roof_tok_s

    @property
    def within_reach(self) -> float:
        """The ratio if the GPU reached its roof beside the CPU as it is: the best that mending the GPU can give."""
        return self.gpu.roof_tok_s / self.cpu.tok_s

    @property
    def why(self) -> str:
        """Name the side that keeps the ratio small.

        slow_gpu: the GPU stays far below its roof while the CPU is not; both: a GPU far below and a CPU near its roof;
        bandwidths: each near its own; flattered: the CPU stays far below its roof; both_far: neither is near; or
        undecided.
        """
        gpu, cpu = (state(side) for side in (self.gpu, self.cpu))
        return {
            ("far", "near"): "both", ("near", "near"): "bandwidths", ("near", "far"): "flattered",
            ("far", "far"): "both_far", ("far", "between"): "slow_gpu", ("between", "near"): "good_cpu",
        }.get((gpu, cpu), "undecided")  # fmt: skip


def state(side: Side) -> str:
    """Return near, far or between: where the whole interval of the efficiency lies."""
    low, high = side.ends_pct
    return "near" if low >= BOUND_PCT else "far" if high <= FAR_PCT else "between"


def side(rows: list[Row], arm: str, found: list[Row], peak_gb_s: float | None = None) -> Side | None:
    """Return one side from the generations of 03 and a measured ceiling; None where either is absent."""
    frame = speed.table(rows)
    chosen = speed.steady(frame).query("arm == @arm")
    rates = timing.median_interval([float(one) for one in chosen["decode_tok_s"].dropna()])
    best = ceiling.bandwidth(found, peak_gb_s)
    if rates is None or best is None or not len(chosen["gb_s"].dropna()):
        return None
    moved = float((1e9 * chosen["gb_s"] / chosen["decode_tok_s"]).median())
    ends = (best.interval.low, best.interval.high)
    return Side(arm, str(chosen["dtype"].iloc[0]), rates.median, rates.low, rates.high, moved, best.gb_s, *ends)


def of_rows(
    generation: list[Row], gpu_ceiling: list[Row], cpu_ceiling: list[Row], peak_gb_s: float | None = None
) -> Roofs | None:
    """Return the two-sided roofline; None without both arms of 03 and both measured ceilings."""
    gpu, cpu = side(generation, "gpu", gpu_ceiling, peak_gb_s), side(generation, "cpu", cpu_ceiling)
    if gpu is None or cpu is None:
        return None
    ratio = timing.ratio_interval(*speed.paired(speed.table(generation), "gpu", "cpu"))
    return Roofs(gpu, cpu, ratio.median if ratio else gpu.tok_s / cpu.tok_s)
