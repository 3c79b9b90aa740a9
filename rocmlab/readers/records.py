"""What was measured, and is all of it there? Record tables (JSON lines), run folders and their birth certificates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rocmlab import findings, results, speedup, texts
from rocmlab.findings import Finding, finding
from rocmlab.readers import Evidence, Reading, measurements
from rocmlab.readers.notebooks import CODES

RUN_SCHEMA = "rocmlab-run-1"
SCHEMAS = (results.BIRTH_SCHEMA, RUN_SCHEMA)
# Fields of a rocmlab-run-1 file that say what its one value means; `value` itself is named by `metric`.
RUN_NUMBERS = ("prompt_tokens", "new_tokens", "batch", "warmup_runs", "repeats")


def recognise(evidence: Evidence) -> bool:
    if evidence.path.is_dir():
        return (evidence.path / "run.json").is_file()
    return evidence.schema in SCHEMAS or _is_lines(evidence)


def read(evidence: Evidence) -> Reading:
    if evidence.path.is_dir():
        return _folder(evidence.path)
    if evidence.schema == results.BIRTH_SCHEMA:
        return _birth(evidence.json, evidence.path.parent, evidence.name)
    return _run(evidence) if evidence.schema == RUN_SCHEMA else _lines(evidence)


# ---- JSON lines


def _is_lines(evidence: Evidence) -> bool:
    """Lines that are JSON objects of their own, at least half of them; one record alone only if it is one of ours."""
    if evidence.json is not None:
        one = evidence.json
        return isinstance(one, dict) and "schema" not in one and {"run", "notebook", "attempt"} <= one.keys()
    lines = [line for line in evidence.text.splitlines() if line.strip()]
    starts = sum(line.lstrip().startswith("{") for line in lines)
    if not lines or starts * 2 < len(lines):
        return False
    records, damaged = results.parse_lines(evidence.text)
    return len(records) > 0 and len(records) >= damaged


def _lines(evidence: Evidence) -> Reading:
    records, damaged = results.parse_lines(evidence.text)
    lost = measurements.finite(records)[1]
    attempts = {record["attempt"] for record in records if "attempt" in record}
    numbers: dict[str, Any] = {"records": len(records), "damaged_lines": damaged, "not_a_number": len(lost)}
    if attempts:
        numbers["attempts"] = len(attempts)
    found = []
    if lost:
        found.append(finding("NOT_A_NUMBER", count=len(lost), keys=", ".join(lost[:8])))
    if damaged:
        found.append(finding("DAMAGED_LINES", numbers={"records": len(records), "damaged_lines": damaged}))
    found += _judged(records)
    schemas = {record.get("schema") for record in records}
    schema = schemas.pop() if len(schemas) == 1 else None
    return Reading("records", schema, numbers, found, finding("RECORDS_READ", file=evidence.name, records=len(records)))


def _judged(records: list[dict[str, Any]]) -> list[Finding]:
    """Judge a table of notebook 03 by itself: generations, texts, or how the measuring processes ended."""
    newest = max((str(one.get("attempt", "")) for one in records), default="")
    rows = [measurements.finite(one)[0] for one in records if str(one.get("attempt", "")) == newest]
    try:
        if all({"visit", "arm", "kind", "token_stamps_s"} <= one.keys() for one in rows):
            return speedup.judge(rows, [])
        if all({"cpu_float32", "subject", "gaps_logits"} <= one.keys() for one in rows):
            return texts.judge_text(rows)
        if all({"what", "status", "words"} <= one.keys() for one in rows):
            return speedup.judge_processes(rows)
    except (TypeError, ValueError, KeyError, AttributeError):
        return [finding("RECORDS_ODD")]
    return []


# ---- runs


def _folder(path: Path) -> Reading:
    birth = results.birth(path)
    if not birth:
        return Reading("run", None, {}, [finding("RUN_DAMAGED", file=f"{path.name}/run.json")])
    return _birth(birth, path, path.name)


def _birth(birth: dict[str, Any], folder: Path, name: str) -> Reading:
    """Read a run from its certificate, and from what is beside it: findings.json and the records."""
    rows = {number: row for number, row in _dict(birth.get("notebooks")).items() if isinstance(row, dict)}
    states = [row.get("status") for row in rows.values()]
    tables = [results.parse_lines(_text(path)) for path in sorted((folder / "records").glob("*.jsonl"))]
    damaged = sum(table[1] for table in tables)
    took = [row["seconds"] for row in rows.values() if isinstance(row.get("seconds"), (int, float))]
    numbers: dict[str, Any] = {
        "notebooks": len(rows),
        **{f"notebooks_{state}": states.count(state) for state in ("ok", *CODES, "skipped")},
        "seconds": round(sum(took), 3),
        "records": sum(len(table[0]) for table in tables),
        "damaged_lines": damaged,
        "method_version": birth.get("method_version"),
    }
    if numbers["method_version"] is None:
        said = birth.get("method_version_reason")
        numbers["method_version_reason"] = said if isinstance(said, str) else "the certificate names none"
    found = [_ended_badly(number, row) for number, row in rows.items() if row.get("status") in CODES]
    if damaged:
        found.append(finding("DAMAGED_LINES", numbers={"records": numbers["records"], "damaged_lines": damaged}))
    found += [one for one in _list(birth.get("findings")) if _known(one)]
    stored = _dict(results.read_json(folder / "findings.json"))
    found += _said_before(stored)
    subject = _dict(birth.get("subject"))
    headline = finding(
        "RUN_READ", file=name, device=subject.get("name"), arch=subject.get("arch"), started=birth.get("started")
    )
    given = [one for one in _dict(stored.get("answers")).values() if str(_dict(one).get("code")) in findings.messages()]
    return Reading("run", results.BIRTH_SCHEMA, numbers, found, headline, answers=[_read_back(one) for one in given])


def _ended_badly(number: str, row: dict[str, Any]) -> Finding:
    numbers = {"code_cell": row.get("code_cell"), "limit_s": row.get("limit_s")}
    words = {"notebook": number, "cell": row.get("cell"), "message": row.get("message")}
    return finding(CODES[row["status"]], numbers=numbers, variant="run", **words)


def _known(found: Any) -> bool:
    """Tell whether a stored finding is one that can be said here: its code and every placeholder are known."""
    try:
        return bool(findings.say(found))
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _said_before(stored: dict[str, Any]) -> list[Finding]:
    """Return the findings of findings.json, where they are stored said: their code, with the sentence as it stands."""
    every = [one for section in _dict(stored.get("sections")).values() for one in _list(section)]
    return [_read_back(one) for one in every if str(_dict(one).get("code")) in findings.messages()]


def _read_back(stored: dict[str, Any]) -> Finding:
    entry = findings.messages()[stored["code"]]
    said = {
        lang: {part: str(_dict(stored.get(lang)).get(part) or "") for part in ("sentence", "advice")}
        for lang in findings.LANGUAGES
    }
    numbers = _dict(stored.get("numbers"))
    return {"code": stored["code"], "status": entry["status"], "sort": entry["sort"], "numbers": numbers, "said": said}


def _run(evidence: Evidence) -> Reading:
    """Read one rocmlab-run-1 file: a single value with the settings that it was measured with."""
    run, metric = evidence.json, evidence.json.get("metric")
    numbers = {key: run[key] for key in RUN_NUMBERS if key in run}
    device = _dict(run.get("device"))
    if isinstance(metric, str):
        value = run.get("value")
        usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        numbers = {metric: value if usable else None, **numbers}
        if not usable:
            numbers[f"{metric}_reason"] = "the file gives no number"
    headline = finding(
        "SINGLE_RUN_READ",
        file=evidence.name,
        device=device.get("name"),
        arch=str(device.get("gcnArchName") or "unknown").split(":")[0],
        metric=metric,
        value=numbers.get(str(metric)),
    )
    return Reading("run", RUN_SCHEMA, numbers, [], headline)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
