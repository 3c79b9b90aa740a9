"""The answer of `rocmlab check`: one screen for a person, one JSON object for a program. Pure.

Console text is ASCII marks and characters that code page 936 has, wrapped by display width.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from typing import Any

from rocmlab import advice, environment, factsheet, findings, gpus, words

MARKS = {"ok": "[ok]", "warn": "[! ]", "broken": "[!!]", "unknown": "[? ]"}
WIDTH = 100
# Wide characters that no line may begin with, and that none may end with.
CLOSING, OPENING = set("，。；：、）】》”’"), set("（【《“‘")
# Verdicts after which another way of using the card is worth a thought; a wrong build or a mask is simply mended.
NOT_SERVED = {
    *("KERNELS_MISSING", "KERNELS_LISTED_BUT_FAIL", "LAUNCH_FAILED", "LAUNCH_CRASHED", "LAUNCH_TIMED_OUT"),
    *("LAUNCH_WRONG_VALUE", "DRIVER_DOES_NOT_ENUMERATE", "WSL_NO_DEVICE", "TORCH_CRASHED", "DEVICES_TIMED_OUT"),
}
WORDS = {
    "works": {"en": "It works", "zh": "可以工作"},
    "cpu": {"en": "No GPU to use: the CPU is the subject", "zh": "没有可用的 GPU：测试对象是 CPU"},
    "warn": {"en": "It works, with faults", "zh": "可以工作，但有问题"},
    "broken": {"en": "It does not work", "zh": "不能工作"},
    "unknown": {"en": "It cannot be told", "zh": "无法判断"},
    "next": {"en": "Next step", "zh": "下一步"},
    "machine": {"en": "Machine", "zh": "机器"},
    "found": {"en": "Findings", "zh": "检查结果"},
}


def verdict_words(probe: dict[str, Any], found: list[findings.Finding], lang: str) -> tuple[str, str]:
    """Return (status, the answer in words) of "does it work"."""
    _, status = findings.verdict(found)
    on_cpu = gpus.subject(probe)["device"] == "cpu"
    key = status if status in ("broken", "unknown", "warn") else "cpu" if on_cpu else "works"
    return status, WORDS[key][lang]


def about(probe: dict[str, Any], found: list[findings.Finding]) -> str:
    """Return what the headline speaks of: the card that is broken, else the device under study."""
    worst = next((one for one in found if one["status"] in ("broken", "unknown")), None)
    card = (worst or {"words": {}})["words"].get("card")
    if card:
        return str(card)
    chosen, here = gpus.subject(probe), gpus.main_card(probe)
    return here.name if worst and here else f"{chosen['name']} ({chosen['arch']})"


def next_step(found: list[findings.Finding], lang: str) -> str:
    """Return the one next step: the advice of the worst finding that has one."""
    said = (findings.say(one, lang)["advice"] for one in findings.worst_first(found))
    return next((one for one in said if one), "")


def console(probe: dict[str, Any], lang: str = "en") -> str:
    """Return the whole answer as text."""
    probe = gpus.tidy(probe)
    found = environment.judge(probe)
    status, said = verdict_words(probe, found, lang)
    lines = [f"{MARKS[status]} {said}: {about(probe, found)}", ""]
    lines += [WORDS["machine"][lang], *machine_lines(probe, lang), ""]
    if found:
        lines += [WORDS["found"][lang]]
        for one in found:
            sentence = findings.say(one, lang)["sentence"]
            lines += fold(f"{MARKS[one['status']]} {one['code']}: {sentence}", "  ", "       ")
        lines += [""]
    step = next_step(found, lang)
    if step:
        lines += [WORDS["next"][lang], *fold(f"-> {step}", "  ", "     "), ""]
    return "\n".join([*lines, *_limits(probe, lang), *_ways(probe, found, lang)]).rstrip()


def machine_lines(probe: dict[str, Any], lang: str) -> list[str]:
    """Return the facts of the machine, one a line, aligned."""
    rows = [(words.pick(row["fact"], lang), words.pick(row["value"], lang)) for row in factsheet.rows(probe)]
    width = max(columns(fact) for fact, _ in rows)
    lines = []
    for fact, value in rows:
        lines += fold(f"{fact}{' ' * (width - columns(fact))}  {value}", "  ", " " * (width + 4))
    return lines


def _limits(probe: dict[str, Any], lang: str) -> list[str]:
    rows = advice.limits(probe)
    if not rows:
        return []
    lines = [words.word("limits", lang, arch=advice.target_of(probe))]
    for row in rows:
        lines += fold(f"- {row['limit'][lang]}", "  ", "    ")
    return [*lines, ""]


def _ways(probe: dict[str, Any], found: list[findings.Finding], lang: str) -> list[str]:
    """Return the ways out, only where the card cannot be served as it is."""
    rows = advice.ways_out(probe) if findings.verdict(found)[0] in NOT_SERVED else []
    lines = [words.word("ways", lang)] if rows else []
    for row in rows:
        lines += fold(f"- {row['way'][lang]}: {row['known'][lang]}", "  ", "    ")
    return lines


def as_json(probe: dict[str, Any], lang: str = "en") -> str:
    """Return snapshot, verdict, findings and what stands beside them as one line of JSON."""
    probe = gpus.tidy(probe)
    found = environment.judge(probe)
    code, status = findings.verdict(found)
    answer = {
        "verdict": code,
        "status": status,
        "subject": gpus.subject(probe),
        "findings": [findings.say(one, lang) for one in found],
        "next_step": next_step(found, lang),
        "limits": [{"limit": row["limit"][lang], "source": row["source"]} for row in advice.limits(probe)],
        "ways_out": [{key: value[lang] for key, value in row.items()} for row in advice.ways_out(probe)],
        "snapshot": probe,
    }
    return json.dumps(answer, ensure_ascii=True, allow_nan=False)


def fold(text: str, first: str, rest: str, width: int | None = None) -> list[str]:
    """Wrap text by display width (a Chinese character takes two columns); breaks at spaces, or between Chinese ones."""
    limit = width or min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    lines, line = [], first
    for piece in _pieces(" ".join(text.split("\n"))):
        if columns(line) + columns(piece.rstrip()) > limit and line.strip():
            lines.append(line.rstrip())
            line = rest
            piece = piece.lstrip()
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


def _pieces(text: str) -> list[str]:
    """Cut text where a line may break: after a space and around wide characters, never before closing punctuation."""
    pieces: list[str] = []
    word = ""
    for character in text:
        wide = columns(character) == 2
        if character in CLOSING:
            pieces.append((word or (pieces.pop() if pieces else "")) + character)
            word = ""
        elif character in OPENING:
            pieces.append(word)
            word = character
        elif wide:
            pieces += [word + character] if word[-1:] in OPENING else [word, character]
            word = ""
        else:
            word += character
        if character == " ":
            pieces.append(word)
            word = ""
    return [piece for piece in [*pieces, word] if piece]


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)
