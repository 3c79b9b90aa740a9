"""What stands beside a verdict: what can never work on this card, the ways out, and what older guides get wrong. Pure.

Every row has its source and date; a card that is not in archs.yaml gets no claims about its target.
"""

from __future__ import annotations

from typing import Any

from rocmlab import archs, packaged
from rocmlab.findings import LANGUAGES, UNKNOWN
from rocmlab.gpus import cards, main_card, system

Row = dict[str, Any]
YES_NO = {True: {"en": "yes", "zh": "是"}, False: {"en": "no", "zh": "否"}}
PARTS = ("needs", "known")
NONE = {"en": "none", "zh": "无"}


def texts() -> dict[str, Any]:
    """Return advice.yaml."""
    return packaged.read("advice.yaml")


def target_of(probe: dict[str, Any]) -> str | None:
    """Return the target of the AMD card that a person means here, None on a machine without one."""
    card = main_card(probe)
    return card.arch if card and card.amd else None


def limits(probe: dict[str, Any]) -> list[Row]:
    """Return rows {limit: {en, zh}, source}: what no setting on this machine changes; [] without a known AMD card."""
    arch = target_of(probe)
    known = archs.target(arch)
    if not known:
        return []
    facts = {**known, **known["libraries"], "system": system(probe)}
    rows = []
    for one in texts()["limits"].values():
        if all(facts.get(key) == value for key, value in one["when"].items()):
            said = {lang: one[lang].format(arch=arch) for lang in LANGUAGES}
            rows.append({"limit": said, "source": one.get("source") or _list(one["list"])})
    return rows


def _list(name: str) -> str:
    found = archs.facts()["lists"][name]
    return f"{found['what']}, {found['date']}"


def support(probe: dict[str, Any]) -> list[Row]:
    """Return rows {list: {en, zh}, says: {en, zh}, date}: who supports this target, each list by itself and dated."""
    known = archs.target(target_of(probe))
    if not known:
        return []
    card = main_card(probe)
    rows = []
    for key, one in texts()["support"].items():
        value = _lookup(known, one["field"])
        if key.startswith("amd_") and known["support"]["named"] and card and card.arch:
            value = archs.listed(card.arch, one["system"], card.name)[0] if one.get("system") else value
        said = {lang: _said(value, lang) for lang in LANGUAGES}
        rows.append({"list": {lang: one[lang] for lang in LANGUAGES}, "says": said, "date": str(one["date"])})
    return rows


def _lookup(facts: Any, path: list[str]) -> Any:
    for part in path:
        facts = facts.get(part) if isinstance(facts, dict) else None
    return facts


def _said(value: Any, lang: str) -> str:
    """Say one entry of a list: yes, no, unknown, or its own word."""
    if isinstance(value, bool):
        return YES_NO[value][lang]
    return UNKNOWN[lang] if value is None else str(value)


def ways_out(probe: dict[str, Any]) -> list[Row]:
    """Return rows {way, needs, known}, each {en, zh}: what else could serve this card; [] without a known AMD card."""
    arch, where = target_of(probe), system(probe)
    if not archs.target(arch) or arch is None:
        return []
    words = {lang: _facts(arch, where, lang) for lang in LANGUAGES}
    rows = []
    for one in texts()["ways"].values():
        if where in one.get("systems", [where]):
            needs, known = ({lang: one[key][lang].format(**words[lang]) for lang in LANGUAGES} for key in PARTS)
            rows.append({"way": one["name"], "needs": needs, "known": known})
    return rows


def _facts(arch: str, where: str, lang: str) -> dict[str, str]:
    known, unknown = archs.target(arch) or {}, UNKNOWN[lang]
    listed = {key: archs.listed(arch, key)[0] for key in ("Linux", "WSL")}
    yes_no = {key: YES_NO[value][lang] if value is not None else unknown for key, value in listed.items()}
    return {
        "arch": arch,
        "command": archs.install(arch, where) or NONE[lang],
        "therock_linux": known["therock"]["linux"] or unknown,
        "therock_windows": known["therock"]["windows"] or unknown,
        "therock_date": str(archs.facts()["lists"]["therock"]["date"]),
        "listed_linux": yes_no["Linux"],
        "listed_wsl": yes_no["WSL"],
        "override": known["override"]["suggested"] or NONE[lang],
        "wavefront": str(known["wavefront"]),
        "cards": ", ".join(_listed_cards(where)),
    }


def _listed_cards(where: str) -> list[str]:
    """Return consumer cards of AMD's list for a system, newest generation first."""
    found = []
    for arch, known in reversed(archs.facts()["targets"].items()):
        if known["kind"] == "discrete" and archs.listed(arch, where)[0]:
            found += [name for name in known["names"] if " RX " in name and archs.listed(arch, where, name)[0]]
    return found[:8]


def older() -> list[Row]:
    """Return rows {says: {en, zh}, today: {en, zh}, source}: advice of older guides, answered."""
    return texts()["older"]


def amd_here(probe: dict[str, Any]) -> bool:
    """Tell whether advice about AMD cards belongs here: not on a machine whose only cards are of another maker."""
    found = cards(probe)
    return any(card.amd for card in found) or not found
