"""What bounds decode, as far as a sweep over batches can tell? Judges of notebook 05 and of sweep records, pure.

`judge(record)` takes a sweep (rocmlab-batch-sweep-1) and gives BANDWIDTH_BOUND, FIXED_COST_PER_STEP or UNDECIDED. It
never names host or launches as the cause: a sweep cannot see them.
"""

from __future__ import annotations

from typing import Any

from rocmlab import first_visits, sensor_judges, sweep, timing
from rocmlab.batches import NO_TIME
from rocmlab.curves import bytes_a_token, flat_to
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number
from rocmlab.words import both

BOUND_PCT = 60.0  # of the roof at batch 1: bandwidth-bound
FAR_PCT = 30.0  # at most this, with a flat step: a fixed cost
FLAT = 1.5  # times the step of batch 1
LEAST_BATCH = 4  # a step that is flat up to 2 says nothing
RISES = 1.25  # times the step of batch 1: from here on more rows cost time
PADDING_PCT = 5.0  # longer by less than this, at the low end of the interval, is no cost that was shown
UNSURE = 0.5  # an interval of the ratio as wide as this holds free and dear alike
FREE = 1.1  # a second request that slows the first by less than a tenth costs nothing that anybody notices


def numbers_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the flat numbers of a sweep: rate, GB/s and share of the roof at batch 1, growth, largest batch."""
    steps, failed = measured(record)
    largest = max(steps, default=None)
    one, last = steps.get(1), steps.get(largest) if largest else None
    moved = _moved(record)
    roof = record.get("peak_gb_s") if is_number(record.get("peak_gb_s")) else None
    launches = record.get("kernel_launches_per_step")
    found: dict[str, Any] = {"decode_tok_s": 1000 / one if one else None, "decode_step_ms": one}
    found["gb_s"] = moved / one / 1e6 if moved and one else None
    found["roof_pct"] = 100 * found["gb_s"] / roof if found["gb_s"] and roof else None
    found["roof_tok_s"] = 1e9 * roof / moved if roof and moved else None
    if is_number(launches) and launches > 0:
        found["us_per_launch"] = 1000 * one / launches if one else None
    found["step_growth"] = last / one if one and last else None
    found["largest_batch"] = largest
    found["step_rises_from_batch"] = rises_from(steps)
    if largest:
        found[f"batch_{largest}_tok_s"] = 1000 * largest / steps[largest]
    for batch, why in failed.items():
        found |= {f"batch_{batch}_tok_s": None, f"batch_{batch}_tok_s_reason": why}
    for key in [key for key, value in found.items() if value is None and f"{key}_reason" not in found]:
        found[f"{key}_reason"] = REASONS.get(key, "the sweep lacks batch 1, or the bytes or roof that this needs")
    return found


REASONS = {"step_rises_from_batch": "the step never rises by a quarter over that of batch 1"}


def measured(record: dict[str, Any]) -> tuple[dict[int, float], dict[int, str]]:
    """Return ({batch: step in ms}, {batch: why it has none})."""
    steps, failed = {}, {}
    for item in record.get("items") or []:
        if not isinstance(item, dict) or not is_number(item.get("batch")):
            continue
        step = item.get("decode_step_ms")
        if is_number(step) and step > 0:
            steps[int(item["batch"])] = float(step)
        else:
            failed[int(item["batch"])] = str(item.get("error") or "no time was recorded")
    return dict(sorted(steps.items())), dict(sorted(failed.items()))


def _moved(record: dict[str, Any]) -> float | None:
    """Bytes of a step at batch 1: weights, and where the record tells it, the cache halfway through the text."""
    context = (record.get("prompt_tokens") or 0) + (record.get("new_tokens_each") or 0) / 2
    return bytes_a_token(record, context)


def rises_from(steps: dict[int, float]) -> int | None:
    """Return the smallest batch from which on every step takes over a quarter longer than at batch 1; None: never."""
    if 1 not in steps:
        return None
    found = None
    for batch in sorted(steps, reverse=True):
        if steps[batch] <= RISES * steps[1]:
            break
        found = batch
    return found


def judge(record: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return (numbers, findings): the verdict, a rate that cannot be, and the batches that did not fit."""
    numbers = numbers_of(record)
    _, failed = measured(record)
    found = [_verdict(record, numbers)]
    share = numbers["roof_pct"]
    if share is not None and share > (105 if record.get("roof") == "measured" else 100):
        found = [_too_fast(record, numbers)]
    return numbers, found + _limit(record, failed)


def _too_fast(record: dict[str, Any], numbers: dict[str, Any]) -> Finding:
    given = {key: numbers[key] for key in ("decode_step_ms", "gb_s", "roof_pct")}
    return finding("IMPOSSIBLE_RATE", numbers=given, variant="bandwidth", **_roof(record))


def _roof(record: dict[str, Any]) -> dict[str, Any]:
    kind = "roof_measured" if record.get("roof") == "measured" else "roof_stated"
    return {"roof": record.get("peak_gb_s"), "kind": both(kind)}


def _verdict(record: dict[str, Any], numbers: dict[str, Any]) -> Finding:
    share, growth, largest = numbers["roof_pct"], numbers["step_growth"], numbers["largest_batch"]
    code, variant = _decide(share, growth, largest)
    if variant is None and code != _decide(_share_at(record, share, "high"), growth, largest)[0]:
        code, variant = "UNDECIDED", "scatter"
    if variant is None and code != _decide(_share_at(record, share, "low"), growth, largest)[0]:
        code, variant = "UNDECIDED", "scatter"
    steps, _ = measured(record)
    keys = ("decode_tok_s", "gb_s", "roof_pct", "roof_tok_s", "step_growth", "largest_batch")
    to = flat_to(steps, FLAT) if 1 in steps else 1
    said = {"flat_to": to, "grows": both("batch_grows_at_once" if to == 1 else "batch_grows_later", flat_to=to)}
    return finding(code, numbers={key: numbers[key] for key in keys}, variant=variant, **said, **_roof(record))


def _share_at(record: dict[str, Any], share: float | None, end: str) -> float | None:
    """Return the share of the roof at one end of the interval of batch 1's step, where the record has one."""
    one = next((i for i in record.get("items") or [] if isinstance(i, dict) and i.get("batch") == 1), {})
    step, bound = one.get("decode_step_ms"), one.get(f"decode_step_{end}_ms")
    return share * step / bound if share is not None and is_number(step) and is_number(bound) and bound else share


def _decide(share: float | None, growth: float | None, largest: int | None) -> tuple[str, str | None]:
    """Return (code, variant): near the roof at batch 1, far below it with a flat step, or neither."""
    if share is not None and share >= BOUND_PCT:
        return "BANDWIDTH_BOUND", None
    if growth is None or largest is None:
        return "UNDECIDED", "no_batch_1"
    if share is None:
        return "UNDECIDED", "no_roof"
    if largest < LEAST_BATCH:
        return "UNDECIDED", "short"
    if growth > FLAT:
        return "UNDECIDED", "rises"
    return ("FIXED_COST_PER_STEP", None) if share <= FAR_PCT else ("UNDECIDED", "between")


def _limit(record: dict[str, Any], failed: dict[int, str]) -> list[Finding]:
    """Name the batches that have no time and why; of those without room the first is explained: asked, free, held."""
    short = [batch for batch, why in failed.items() if "memory" in why.lower() or "did not fit" in why]
    late = [batch for batch, why in failed.items() if why.startswith(NO_TIME)]
    other = [batch for batch, why in failed.items() if batch not in (*short, *late) and not why.startswith("not tried")]
    found = []
    if other:
        found.append(finding("BATCH_FAILED", batch=other[0], words=failed[other[0]].splitlines()[0][:160]))
    if late:
        found.append(finding("BATCH_NO_TIME", batches=", ".join(map(str, late))))
    if not short:
        return found
    items_ = [i for i in record["items"] if isinstance(i, dict) and i.get("batch") == short[0]]
    memory = (items_[0].get("memory") if items_ else None) or {}
    parts = {key: memory.get(key) for key in ("asked_gib", "free_gib", "allocated_gib", "reserved_unused_gib")}
    asked, free, unused = (parts[key] for key in ("asked_gib", "free_gib", "reserved_unused_gib"))
    variant = None
    if asked is not None and free is not None:
        variant = "host" if unused is None else "short" if free + unused < asked else "fragmented"
    given = {key: value for key, value in parts.items() if variant and value is not None}
    listed = ", ".join(str(batch) for batch in short)
    return [*found, finding("BATCH_LIMIT", numbers=given, variant=variant, batch=short[0], batches=listed)]


def second_request(record: dict[str, Any]) -> Finding | None:
    """Say in a user's words what a second request at the same time would cost; None without batch 1 and another."""
    steps, _ = measured(record)
    more = [batch for batch in steps if batch > 1]
    if 1 not in steps or not more:
        return None
    batch = more[0]
    ratio = steps[batch] / steps[1]
    one = next(i for i in record["items"] if isinstance(i, dict) and i.get("batch") == batch)
    low, high = one.get("times_low"), one.get("times_high")
    unsure = is_number(low) and is_number(high) and high - low > UNSURE
    variant = "unsure" if unsure else "free" if ratio <= FREE else "cheap" if ratio < (1 + batch) / 2 else "dear"
    free_to = flat_to(steps, RISES)
    given = {"batch": batch, "slower_pct": 100 * (ratio - 1), "throughput_ratio": batch / ratio}
    return finding("SECOND_REQUEST", numbers=given, variant=variant, up_to=free_to, slower=max(0.0, 100 * (ratio - 1)))


def judge_padding(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say what padding costs: the padded batch against the same batch of equal lengths, each over one text alone.

    The two were not measured in turns: their quotient has the interval from either one's ends, wider than 95%.
    """
    for item in sweep.items(rows):
        plain, padded = (sweep.ratio(rows, item | {"padded": kind}) for kind in (False, True))
        if not item["padded"] or not plain or not padded:
            continue
        real = sweep.of(sweep.passes(rows), item)["real_prompt_tokens"].iloc[0]
        given = {"padded_over_batch_1": padded.median, "equal_over_batch_1": plain.median}
        given["padded_share_pct"] = 100 * (1 - real / (item["batch"] * item["context"]))
        quotients = (padded.median / plain.median, padded.low / plain.high, padded.high / plain.low)
        extra, low, high = (100 * (one - 1) for one in quotients)
        given |= {"padding_extra_low_pct": low, "padding_extra_high_pct": high}
        variant = None if low > PADDING_PCT else "same"
        said = {"batch": item["batch"], "extra": extra, "low": low, "high": high}
        return [finding("PADDING", numbers=given, variant=variant, **said)]
    return []


def judge_scatter(rows: list[dict[str, Any]], side: str) -> list[Finding]:
    """Say it when the same step of one text takes very different times during the sweep."""
    context = min((one["context"] for one in sweep.items(rows)), default=0)
    samples = sweep.steps_of(rows, {"context": context, "batch": 1, "padded": False})
    spread = timing.spread_pct([1000 / one for one in samples])
    if spread is None or spread <= timing.NOISY_PCT:
        return []
    variant = "very" if spread > timing.VERY_NOISY_PCT else None
    return [finding("NOISY", numbers={"iqr_pct": spread}, variant=variant, side=side, spread=spread)]


def judge_first_pass(rows: list[dict[str, Any]], side: str) -> list[Finding]:
    """Say it when the first pass over (batch, length) pairs is slower than the later ones: work done once a shape."""
    found = first_visits.cost(sweep.first_visits(rows))
    if found is None or not found.slow:
        return []
    given = {"first_pass_step_ms": found.first_ms, "steady_step_ms": found.usual_ms}
    return [first_visits.slow(found, side, given)]


def judge_sensors(rows: list[dict[str, Any]], side: str) -> list[Finding]:
    """Say when one text alone got slower while the sweep went on, or heat or memory stood in the way of any batch."""
    steady = [row for row in rows if row.get("visit") == "steady" and is_number(row.get("decode_step_ms"))]
    least = min((row["context"] for row in steady), default=None)
    alone = [row for row in steady if row["batch"] == 1 and row["context"] == least]  # equal work, in its order
    calls = [row["decode_step_ms"] for row in alone]
    found = sensor_judges.faults([row.get("sensor") for row in alone], calls, f"{side} decode step")
    told = {one["code"] for one in found}
    every = sensor_judges.faults([row.get("sensor") for row in steady], op=f"{side} decode step")
    return found + [one for one in every if one["code"] not in told]


def discarded(record: dict[str, Any]) -> list[Finding]:
    """Return what a sweep refutes: bandwidth far below the roof, arithmetic where more rows take no time."""
    numbers = numbers_of(record)
    share, growth, largest = numbers["roof_pct"], numbers["step_growth"], numbers["largest_batch"]
    found = []
    if share is not None and share <= FAR_PCT:
        given = {key: numbers[key] for key in ("gb_s", "roof_pct")}
        found.append(finding("NOT_BANDWIDTH", numbers=given, **_roof(record)))
    if growth is not None and growth <= FLAT and largest >= LEAST_BATCH:
        given = {key: numbers[key] for key in ("step_growth", "largest_batch")}
        found.append(finding("NOT_ARITHMETIC", numbers=given))
    return found
