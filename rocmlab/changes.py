"""The catalogue: one change of the decode step an entry, whether it is a question or a remedy, and what it needs.

Pure: nothing here touches a device. `arms.py` knows how to make each, `predictions.py` what it should do to a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rocmlab import words

QUESTION, REMEDY = "question", "remedy"
LIMIT_S = 25.0
COMPILE_LIMIT_S = 120.0


@dataclass(frozen=True)
class Change:
    """One change: its arm (a function of arms.py), what that is given, and what must be there for it to exist.

    `like` names the change whose operators are counted for it, where its own cannot be (a graph runs those of its
    step).
    """

    name: str
    kind: str
    arm: str
    given: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    limit_s: float = LIMIT_S
    like: str = ""

    @property
    def label(self) -> dict[str, str]:
        """What it is called, in both languages."""
        return words.both(f"experiment_{self.name}")


def _question(name: str, arm: str, needs: tuple[str, ...] = (), like: str = "", **given: Any) -> Change:
    return Change(name, QUESTION, arm, given, needs, like=like)


def _remedy(
    name: str, arm: str, needs: tuple[str, ...] = (), like: str = "", limit_s: float = LIMIT_S, **given: Any
) -> Change:
    return Change(name, REMEDY, arm, given, needs, limit_s, like)


_GPU, _CPU = ("accelerator",), ("cpu",)
_EVERY = [
    _question("depth_half", "depth", share=0.5),
    _question("width_x2", "width", times=2),
    _question("width_x4", "width", times=4),
    _question("width_tiny", "width", times=0),
    _question("float32", "dtype", dtype="float32"),
    _remedy("float16", "dtype", dtype="float16"),
    _remedy("bfloat16", "dtype", dtype="bfloat16"),
    *[_question(f"batch_{rows}", "eager", rows=rows) for rows in (2, 8, 32, 128)],
    *[_question(f"context_{length}", "eager", context=length) for length in (256, 1024, 4096)],
    *[_question(f"attention_{one}", "attention", backend=one) for one in ("math", "flash", "efficient")],
    _question("attention_cudnn", "attention", (*_GPU, "nvidia"), backend="cudnn"),
    _question("generate", "generate"),
    _question("host_delay", "host_delay", dose="host"),
    _question("device_delay_hidden", "device_delay", _GPU, dose="hidden"),
    _question("device_delay", "device_delay", _GPU, dose="shown"),
    _question("one_core", "one_core", _GPU),
    _question("threads_1", "threads", _CPU, threads=1),
    _question("first_visit", "first_visit", start=320),
    _question("first_visit_no_cudnn", "first_visit", (*_GPU, "nvidia"), start=576, cudnn=False),
    _remedy("fused_rmsnorm", "patched", fused=True),
    _remedy("merged_linears", "patched", merged=True),
    _remedy("rows_padded", "patched", _CPU, padded=True),
    _remedy("weights_transposed", "patched", _CPU, transposed=True),
    _remedy("static_cache", "static"),
    _remedy("lean", "lean", ("known_layers",)),
    _remedy("graph", "static", _GPU, like="static_cache", graph=True),
    _remedy("graph_fused_merged", "static", _GPU, like="fused_merged", graph=True, fused=True, merged=True),
    _remedy("lean_graph", "lean", (*_GPU, "known_layers"), like="lean", graph=True),
    _remedy(
        "lean_compiled", "lean", (*_GPU, "known_layers", "triton"), like="lean", limit_s=COMPILE_LIMIT_S, graph=True,
        compiled="default",
    ),
    _remedy("compiled", "static", (*_GPU, "triton"), "static_cache", COMPILE_LIMIT_S, graph=True, compiled="default"),
    _remedy(
        "compiled_autotune", "static", (*_GPU, "triton"), "static_cache", 2 * COMPILE_LIMIT_S, graph=True,
        compiled="max-autotune-no-cudagraphs",
    ),
    _remedy("tunableop", "tunable", (*_GPU, "rocm"), limit_s=90.0),
    _remedy("prompt_lookup", "prompt_lookup", ("real_text",), guess=8),
]  # fmt: skip
CATALOGUE = {one.name: one for one in _EVERY}

# Changes whose operators are counted before anything is predicted: what they do to a step is in its structure.
COUNTED: dict[str, tuple[str, dict[str, Any]]] = {
    "depth_half": ("depth", {"share": 0.5}),
    "attention_math": ("attention", {"backend": "math"}),
    "fused_rmsnorm": ("patched", {"fused": True}),
    "merged_linears": ("patched", {"merged": True}),
    "static_cache": ("static", {}),
    "fused_merged": ("static", {"fused": True, "merged": True}),
    "lean": ("lean", {}),
}


def chosen(names: list[str]) -> list[Change]:
    """Return the changes of these names in the catalogue's order; ["all"] is every one. Raises ValueError."""
    unknown = [name for name in names if name not in CATALOGUE and name != "all"]
    if unknown:
        raise ValueError(f"experiments: {', '.join(unknown)} is not known. Known: {', '.join(CATALOGUE)}")
    return [one for one in CATALOGUE.values() if one.name in names or "all" in names]


def counted(plan: list[Change]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return {name: (arm, given)} of what a plan needs counted."""
    wanted = {one.like or one.name for one in plan} | {"depth_half"}
    return {name: how for name, how in COUNTED.items() if name in wanted}


def absent(change: Change, facts: dict[str, Any]) -> str | None:
    """Return the key of the words that say why a change cannot exist here, None where it can."""
    there = {
        "accelerator": facts.get("device") != "cpu",
        "cpu": facts.get("device") == "cpu",
        "rocm": bool(facts.get("hip")),
        "nvidia": not facts.get("hip"),
        "triton": bool(facts.get("triton")),
        "real_text": bool(facts.get("real_text")),
        "known_layers": bool(facts.get("known_layers")),
    }
    for need in change.needs:
        if not there[need]:
            return f"needs_{need}"
    if change.arm == "dtype" and change.given["dtype"] == facts.get("dtype"):
        return "needs_other_dtype"
    return None


def seen_like(change: Change, facts: dict[str, Any]) -> dict[str, Any] | None:
    """Return the counted operators of a step with this change, None where they were not counted."""
    return (facts.get("counts") or {}).get(change.like or change.name)
