"""What a run says as a whole: card, verdict, the three answers, notices, and why a question has no answer.

`facts = outline.read(run)` reads a run folder once; everything else is a pure function of it, in either language.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import METHOD_VERSION, findings, results, sections, words
from rocmlab.findings import Finding
from rocmlab.sections import HOUSE, Section
from rocmlab.words import LANGUAGES, pick, word

QUESTIONS = ("works", "slow", "faster")
# The notebook whose result answers each question, to name when there is no answer.
ANSWERED_BY = {"works": "01", "slow": "12", "faster": "11"}
DIED = ("failed", "crashed", "timed_out", "out_of_memory")


@dataclass
class Facts:
    """Everything the page says about one run, read once for both languages."""

    run: Path
    birth: dict[str, Any]
    snapshot: dict[str, Any]
    made: dict[str, Section]
    notebooks: dict[str, Path]
    damaged: dict[str, int]
    tables_of: dict[str, list[str]]

    @property
    def subject(self) -> dict[str, Any]:
        found = self.birth.get("subject")
        return found if isinstance(found, dict) else {}

    def status(self, notebook: str) -> dict[str, Any]:
        """Return a notebook's row of run.json, {} when it has none."""
        every = self.birth.get("notebooks")
        row = every.get(notebook) if isinstance(every, dict) else None
        return row if isinstance(row, dict) else {}

    @property
    def own(self) -> list[Finding]:
        """What the runner found before it began, such as a card that was asked for and is not there."""
        found = self.birth.get("findings")
        every = found if isinstance(found, list) else []
        return [one for one in every if isinstance(one, dict) and one.get("code") in findings.messages()]

    @property
    def found(self) -> list[Finding]:
        """Everything that was found, by the runner and by every section."""
        return [*self.own, *(one for section in self.made.values() for one in section.findings)]


def read(run: Path) -> Facts:
    """Read a run folder: what is missing or damaged becomes an empty part, never an exception."""
    executed = {path.name[:2]: path for path in sorted((run / "notebooks").glob("[0-9][0-9]*.ipynb"))}
    damaged, tables_of = _records(run)
    made = {section.notebook: section for section in sections.collect(run)}
    birth = results.birth(run)
    return Facts(run, birth, sections.snapshot(run), made, executed, damaged, tables_of)


def _records(run: Path) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return (damaged lines of each file, record files that each notebook wrote)."""
    damaged: dict[str, int] = {}
    tables_of: dict[str, list[str]] = {}
    for path in sorted((run / "records").glob("*.jsonl")):
        rows, broken = results.parse_lines(path.read_text(encoding="utf-8", errors="replace"))
        if broken:
            damaged[path.name] = broken
        for notebook in sorted({str(row.get("notebook")) for row in rows}):
            tables_of.setdefault(notebook, []).append(path.name)
    return damaged, tables_of


def card(facts: Facts, lang: str) -> str:
    """Return the card's name for the title: the subject's; on a CPU run the card the system lists, else the CPU's."""
    subject, listed = facts.subject, facts.snapshot.get("system_gpus") or []
    arch = subject.get("arch")
    if arch and arch != "cpu":
        return f"{subject.get('name') or arch} ({arch})"
    if listed:
        return str(listed[0])
    host = facts.snapshot.get("host")
    cpu = host.get("cpu") if isinstance(host, dict) else None
    processor = subject.get("name") or cpu
    return f"{processor} (CPU)" if processor else word("card_unknown", lang)


def verdict(facts: Facts) -> tuple[str, str, str]:
    """Return (code, status, key of the wording) of the whole run: the worst finding, whatever notebook it is from."""
    if not facts.found:
        return "NOTHING_MEASURED", "unknown", "verdict_none"
    code, status = findings.verdict(facts.found)
    given = answers(facts)
    works = given.get("works")
    if works and works["status"] == "broken":
        return works["code"], "broken", "verdict_dead"
    if facts.subject.get("arch") == "cpu":
        return code, status, "verdict_cpu"
    known = [given[question]["status"] for question in ("works", "slow") if question in given]
    if status == "unknown" and len(known) == 2 and set(known) <= {"ok", "warn"}:
        return code, status, f"verdict_{max(known)}"  # both questions are answered; what is open is of smaller weight
    return code, status, f"verdict_{status}"


def answers(facts: Facts) -> dict[str, Finding]:
    """Return the answer to each question: the worst for "works", else the latest notebook's, which knows the most."""
    given: dict[str, Finding] = {}
    for section in sorted(facts.made.values(), key=lambda s: s.notebook):
        for question, found in section.answers.items():
            rank = findings.ORDER.index
            if question != "works" or question not in given or rank(found["status"]) <= rank(given[question]["status"]):
                given[question] = found
    return given


def why_not(facts: Facts, notebook: str, lang: str, short: bool = False) -> str:
    """Return why a notebook gives no answer, as one sentence; "" when it ran and has something to show.

    `short` leaves its number out where the reader sees it anyway.
    """
    row, section = facts.status(notebook), facts.made.get(notebook)
    status = row.get("status")
    if status in (*DIED, "skipped"):
        cell = row.get("cell") or row.get("code_cell") or words.NONE
        message = str(row.get("message") or "").strip().splitlines()
        said = word(f"reason_{status}", lang, notebook=notebook, cell=cell, message=message[0] if message else "")
        return said.strip()
    if status or notebook in facts.notebooks:
        return pick(section.missing, lang) if section and section.missing else ""
    if section and not section.missing:
        return ""  # records without a notebook: pages can be rebuilt from records alone
    exists = any((results.home() / "notebooks").glob(f"{notebook}_*.ipynb"))
    return word(
        f"{'short' if short else 'reason'}_{'not_run' if exists else 'not_in_version'}", lang, notebook=notebook
    )


def reason(facts: Facts, question: str, lang: str) -> str:
    """Return why one of the three questions has no answer."""
    notebook = ANSWERED_BY[question]
    ran = facts.status(notebook).get("status") or notebook in facts.notebooks
    return why_not(facts, notebook, lang) or word(
        "reason_no_answer" if ran else "reason_not_run", lang, notebook=notebook
    )


def missing(facts: Facts, lang: str) -> dict[str, list[str]]:
    """Return {reason: notebooks} of everything without an answer, for a short list."""
    grouped: dict[str, list[str]] = {}
    for notebook in HOUSE:
        why = why_not(facts, notebook, lang, short=True)
        if why:
            grouped.setdefault(why, []).append(notebook)
    return grouped


def provenance(facts: Facts, lang: str) -> list[str]:
    """Return the grey line: memory, system, torch, HIP or CUDA, Python, model, dtype, date."""
    probe, subject = facts.snapshot, facts.subject
    hip, cuda = probe.get("torch_version_hip"), probe.get("torch_version_cuda")
    memory = subject.get("memory_bytes") if subject.get("arch") != "cpu" else None
    parts = [
        word("provenance_memory", lang, memory=words.number(memory, "B")) if memory else "",
        system(probe.get("platform")),
        f"torch {probe['torch_version']}" if probe.get("torch_version") else "",
        f"HIP {hip}" if hip else f"CUDA {cuda}" if cuda else "",
        f"Python {probe['python']}" if probe.get("python") else "",
        *(part for section in facts.made.values() for part in section.provenance),
        str(facts.birth.get("started") or "")[:10],
    ]
    every = list(dict.fromkeys(str(part) for part in parts if part))
    # "float16" says nothing more beside "CPU float32 / GPU float16".
    return [one for one in every if not any(one in other.split() for other in every if other != one)]


def system(platform: Any) -> str:
    """Shorten what Python calls the platform: "Windows 11 (10.0.26100)", "Linux 6.8.0"."""
    parts = str(platform or "").split("-")
    if parts[0] == "Windows" and len(parts) > 2:
        return f"Windows {parts[1]} ({parts[2]})"
    wsl = " (WSL)" if "microsoft" in str(platform).lower() else ""
    return f"{parts[0]} {parts[1]}{wsl}" if len(parts) > 1 else parts[0]


def notices(facts: Facts, lang: str) -> list[str]:
    """Return what a reader must know before any number: another card asked for, CPU run, overrides, load, damage."""
    birth, subject, said = facts.birth, facts.subject, []
    if not birth:
        said.append(word("notice_no_birth", lang))
    said += [findings.paragraph([one], lang)[0] for one in facts.own]
    if subject.get("arch") == "cpu":
        said.append(word("notice_cpu", lang))
    overrides = [f"{k}={v}" for k, v in (birth.get("variables") or {}).items() if "OVERRIDE_GFX" in k]
    if overrides:
        said.append(word("notice_override", lang, variables=", ".join(overrides)))
    load, cores = _load(birth)
    if load and cores and load > cores:
        said.append(word("notice_load", lang, load=words.number(load), cores=cores))
    if facts.damaged:
        files = word("list_comma", lang).join(facts.damaged)
        said.append(word("notice_damaged", lang, lines=sum(facts.damaged.values()), files=files))
    died = [n for n in HOUSE if facts.status(n).get("status") in DIED]
    if died:
        joined, heading = word("list_comma", lang).join(died), word("not_measured", lang)
        said.append(word("notice_died", lang, notebooks=joined, heading=heading))
    return said


def _load(birth: dict[str, Any]) -> tuple[float | None, int | None]:
    """Return (one-minute load, cores) however run.json wrote them."""
    load = birth.get("load")
    host = (birth.get("snapshot") or {}).get("host") if isinstance(birth.get("snapshot"), dict) else None
    cores = (host or {}).get("cores_logical") if isinstance(host, dict) else None
    if isinstance(load, dict):
        cores = load.get("cores") or cores
        load = load.get("load_1min", load.get("load", load.get("average")))
    if isinstance(load, list):
        load = load[0] if load else None
    return (float(load) if isinstance(load, (int, float)) else None), cores


def as_data(facts: Facts) -> dict[str, Any]:
    """Return findings.json: the verdict, the answers, and every finding said in both languages."""
    code, status, wording = verdict(facts)
    given = answers(facts)
    return {
        "schema": "rocmlab-findings-1",
        "method_version": METHOD_VERSION,
        "run": facts.run.name,
        "verdict": code,
        "status": status,
        "title": {lang: {"card": card(facts, lang), "verdict": word(wording, lang)} for lang in LANGUAGES},
        "answers": {q: _said(given[q]) if q in given else _unsaid(facts, q) for q in QUESTIONS},
        "notices": [_said(one) for one in facts.own],
        "sections": {n: [_said(one) for one in section.findings] for n, section in facts.made.items()},
        "discarded": {n: [_said(one) for one in s.discarded] for n, s in facts.made.items() if s.discarded},
        "not_measured": {
            n: {lang: why_not(facts, n, lang) for lang in LANGUAGES} for n in HOUSE if why_not(facts, n, "en")
        },
    }


def _said(found: Finding) -> dict[str, Any]:
    spoken = {lang: findings.say(found, lang) for lang in LANGUAGES}
    parts = {lang: {part: spoken[lang][part] for part in ("sentence", "advice")} for lang in LANGUAGES}
    return {"code": found["code"], "status": found["status"], "numbers": found["numbers"], **parts}


def _unsaid(facts: Facts, question: str) -> dict[str, Any]:
    said = {
        lang: {"sentence": word("answer_missing", lang, reason=reason(facts, question, lang)), "advice": ""}
        for lang in LANGUAGES
    }
    return {"code": None, "status": "none", "numbers": {}, **said}
