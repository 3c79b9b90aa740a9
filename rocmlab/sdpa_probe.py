"""Which paths of attention work on a machine elsewhere? Judge of rocmlab-sdpa-probe-1 records, pure.

Such a record holds every back end of scaled dot product attention forced in turn at one shape, and the default.
"""

from __future__ import annotations

from typing import Any

from rocmlab import archs
from rocmlab.attention import SWITCH
from rocmlab.attention_judges import SLOWER, math_only
from rocmlab.attention_tables import FUSED, Row
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number


def judge(record: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return (numbers, findings) of a rocmlab-sdpa-probe-1 record: each back end forced, and the default."""
    forced = {_short(name): one for name, one in _dict(record.get("forced")).items() if isinstance(one, dict)}
    default, arch = _dict(record.get("default")), record.get("arch")
    arch = archs.parse(arch).base or arch if isinstance(arch, str) else None
    ok = [name for name, one in forced.items() if one.get("ok") is True]
    numbers: dict[str, Any] = {"backends_ok": len(ok)}
    for name, one in [*forced.items(), ("default", default)]:
        numbers |= _ms(name, one)
    mine, math = numbers.get("default_ms"), numbers.get("math_ms")
    numbers["default_over_math_pct"] = 100 * (mine / math - 1) if mine and math else None
    if numbers["default_over_math_pct"] is None:
        numbers["default_over_math_pct_reason"] = "the record lacks one of the two times"
    env = _dict(record.get("env"))
    on = str(env.get(SWITCH) or "0").strip().lower() in ("1", "on", "true", "yes", "y")
    return numbers, _probed(forced, default, ok, numbers, arch, on)


def _probed(
    forced: dict[str, Row], default: Row, ok: list[str], numbers: dict[str, Any], arch: str | None, on: bool
) -> list[Finding]:
    if not ok and default.get("ok") is not True:
        return [finding("ATTENTION_NONE", said="; ".join(f"{k}: {v.get('error')}" for k, v in forced.items())[:600])]
    found: list[Finding] = []
    if default.get("ok") is False:
        found.append(finding("ATTENTION_DEFAULT_FAILS", said=str(default.get("error"))[:300], paths=", ".join(ok)))
    refused = [name for name in FUSED if name in forced and name not in ok]
    fused = [name for name in ok if name in FUSED]
    if "math" in ok and refused and not fused:
        found.append(math_only(refused, arch, on))
        return found + ([finding("SWITCH_NO_EFFECT", switch=SWITCH, card=arch)] if on else [])
    times = {name: numbers[f"{name}_ms"] for name in ok if numbers.get(f"{name}_ms")}
    mine = numbers.get("default_ms")
    if times and mine:
        best = min(times, key=lambda name: times[name])
        given = {"default_over_fastest": mine / times[best]}
        slow = mine > SLOWER * times[best]
        found.append(finding("ATTENTION_DEFAULT_SLOW" if slow else "ATTENTION_PATHS", numbers=given, best=best,
                             variant="one" if slow else None, paths=", ".join(ok)))  # fmt: skip
    elif ok:
        found.append(finding("ATTENTION_PATHS", numbers={}, best="-", paths=", ".join(ok), variant="no_times"))
    return found


def _short(name: str) -> str:
    return {"FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "efficient", "CUDNN_ATTENTION": "cudnn"}.get(
        name.upper(), name.lower()
    )


def _ms(name: str, one: Row) -> dict[str, Any]:
    value = one.get("median_ms")
    if is_number(value) and value > 0:
        return {f"{name}_ms": value}
    return {f"{name}_ms": None, f"{name}_ms_reason": str(one.get("error") or "the record holds no time")[:300]}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
