"""Everything in a run's records that can speak for or against a cause of a slow step. Reads, never measures.

`clues.of_run(run)` gathers; a test makes a `Clues` by hand. What is not there is None or [], and a judge that needs it
says which notebook would have measured it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocmlab import clock, ledger, operator_study, results, roof, timing
from rocmlab.rates import is_number
from rocmlab.roof import Roof
from rocmlab.sections import snapshot

Row = dict[str, Any]
TABLES = (
    "generation", "text", "processes", "lengths", "lengths_ended", "stamps", "batches", "ceiling", "ceiling_cpu",
    "clock", "profiler", "library_runs", "shapes", "gemm_rate", "launch_cost", "attention", "experiments",
    "predictions", "step", "step_ended", "yardstick", "one_row", "vision", "sensors",
)  # fmt: skip


@dataclass(frozen=True)
class Span:
    """A time in ms with its interval; both ends are the value where no interval is known."""

    ms: float
    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.ms + other.ms, self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Clues:
    """The records of one run: the ledger's `account`, the newest `rows` of each table, the stated `peak_gb_s` and
    `boost_mhz` of the card."""

    device: str = ""
    dtype: str = ""
    account: Row | None = None
    rows: dict[str, list[Row]] = field(default_factory=dict)
    operators: list[Row] = field(default_factory=list)
    snapshot: Row = field(default_factory=dict)
    peak_gb_s: float | None = None
    boost_mhz: float | None = None

    def table(self, name: str) -> list[Row]:
        return self.rows.get(name) or []

    @property
    def texts(self) -> int:
        """Texts of the step that was taken apart: other notebooks time one."""
        return int(((self.account or {}).get("subject") or {}).get("batch") or 1)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def system(self) -> str:
        """Windows, Linux or Darwin as the snapshot says it; "" where nothing does."""
        return str(self.snapshot.get("platform") or "").split("-")[0]

    @property
    def windows_driver(self) -> bool:
        """Tell whether a driver of Windows does the work: on Windows itself, and in WSL beneath Linux."""
        return self.system == "Windows" or bool((self.snapshot.get("linux") or {}).get("wsl"))

    # ---- the ledger's words

    @property
    def regime(self) -> str:
        """What binds, as the ledger says."""
        return str((self.account or {}).get("regime") or "undecided")

    def quantity(self, name: str) -> Span | None:
        """Return one quantity of the ledger, None where it was not measured or is not valid."""
        found = ((self.account or {}).get("quantities") or {}).get(name)
        return None if not isinstance(found, dict) or found.get("valid") is False else span(found)

    def grade(self, lane: str, name: str) -> str | None:
        found = self._part(lane, name)
        return found.get("grade") if found else None

    def part(self, lane: str, name: str) -> Span | None:
        """Return one row of a lane ("host", "device"), or the "residual"; None where the ledger has none."""
        found = self._part(lane, name)
        return span(found) if found else None

    def _part(self, lane: str, name: str) -> Row | None:
        account = self.account or {}
        rows = [account.get("residual") or {}] if lane == "residual" else account.get(f"{lane}_lane") or []
        return next((row for row in rows if row.get("name") == name), None)

    @property
    def step(self) -> Span | None:
        """T, the wall time of one steady decode step."""
        return self.quantity("T")

    @property
    def device_ms(self) -> Span | None:
        found = (self.account or {}).get("device_ms")
        return span(found) if isinstance(found, dict) else None

    def binds(self, lane: str) -> bool | None:
        """Tell whether a lane sets the time of the step; None where the ledger cannot tell, or both do in part.

        On a CPU there is one lane, where it is decided at all: what Python and the operators take adds up.
        """
        if self.on_cpu:
            return True if self.regime != "undecided" else None
        binding = (self.account or {}).get("binding")
        return None if self.regime not in ("host_bound", "device_bound") or not binding else binding == lane

    # ---- what several judges ask

    @property
    def roof(self) -> Roof:
        """What the subject's bytes a second are compared with: the measured ceiling, else the stated peak."""
        return roof.roof(self.table("ceiling"), self.peak_gb_s, self.weight_bytes)

    @property
    def weight_bytes(self) -> float | None:
        """Bytes of weights that one token reads, as 04, 05 or 03 recorded them for the subject."""
        for name in ("lengths", "batches", "generation"):
            for row in self.table(name):
                if row.get("device") in (self.device, None) and is_number(row.get("weight_bytes")):
                    return float(row["weight_bytes"])
        return None

    def of_profiler(self, what: str) -> Row | None:
        return next((row for row in reversed(self.table("profiler")) if row.get("what") == what), None)

    @property
    def launches(self) -> float | None:
        """Kernels launched for one token, as the ledger counted them, else as the trace of 07 did."""
        counted = ((self.account or {}).get("launches") or {}).get("count")
        seen = (self.of_profiler("evidence") or {}).get("launches_a_token")
        return next((float(one) for one in (counted, seen) if is_number(one)), None)


def span(found: Row) -> Span | None:
    """Return {ms, low, high} as a Span; None without a number."""
    if not is_number(found.get("ms")):
        return None
    ends = [found[key] if is_number(found.get(key)) else found["ms"] for key in ("low", "high")]
    return Span(float(found["ms"]), float(ends[0]), float(ends[1]))


def of_samples(samples: Any) -> Span | None:
    """Return the median of positive samples in ms with its interval, None without any."""
    good, _, _ = clock.kept([one for one in samples or [] if is_number(one)])
    found = timing.median_interval(good)
    return Span(found.median, found.low, found.high) if found else None


def median(samples: Any) -> float | None:
    good = [float(one) for one in samples or [] if is_number(one)]
    return statistics.median(good) if good else None


def of_run(run: Path) -> Clues:
    """Gather the clues of a run folder. Never raises for records that are absent."""
    rows = {name: results.rows(run, name) for name in TABLES}
    account = ledger.of_run(run)
    subject = results.birth(run).get("subject") or {}
    return Clues(
        device=_device(account, rows, subject),
        dtype=_dtype(account, rows),
        account=account,
        rows=rows,
        operators=operator_study.merged(operator_study.attempts(run))[0],
        snapshot=snapshot(run),
        peak_gb_s=roof.stated(snapshot(run), subject),
        boost_mhz=roof.stated(snapshot(run), subject, "boost_mhz"),
    )


def _device(account: Row | None, rows: dict[str, list[Row]], subject: Row) -> str:
    """Return the device under study: the ledger's, else the records', else that of run.json."""
    told = [((account or {}).get("subject") or {}).get("device")]
    told += [row.get("device") for name in ("step", "lengths", "batches", "profiler") for row in rows[name][:1]]
    arms = {row.get("arm"): row.get("device") for row in rows["generation"]}
    return str(next((one for one in [*told, arms.get("gpu"), arms.get("cpu"), subject.get("device")] if one), ""))


def _dtype(account: Row | None, rows: dict[str, list[Row]]) -> str:
    told = [((account or {}).get("subject") or {}).get("dtype")]
    told += [row.get("dtype") for name in ("step", "lengths", "batches", "profiler") for row in rows[name][:1]]
    arms = {row.get("arm"): row.get("dtype") for row in rows["generation"]}
    return str(next((one for one in [*told, arms.get("gpu"), arms.get("cpu")] if one), ""))
