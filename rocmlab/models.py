"""Which model, from where, and why: a hub model, a local folder, the bundled one, or random weights of a real shape.

`settle("auto", accelerator=True)` decides, `load(spec, device, dtype)` loads. Random weights run the same kernels and
read the same bytes as trained ones, so they serve for speed; only real weights serve for text.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import time
import urllib.request
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import bundled, random_weights
from rocmlab.bundled import ModelError, first_line, quiet

HUB_MODEL = "Qwen/Qwen3-0.6B"
HUB_SIZE = "1.5 GB"
REACHABLE_S = 4

warnings.filterwarnings("ignore", message="IProgress not found")  # a progress bar that no page could show anyway


@dataclass(frozen=True)
class Settled:
    """What was chosen: `speed` and `text` are specs for load() (text may be None), `why` says it in English."""

    speed: str
    text: str | None
    why: str


@dataclass(frozen=True)
class Loaded:
    """A model ready to run on one device in one dtype, its tokenizer (None for random weights) and its identity."""

    model: Any
    tokenizer: Any
    spec: str
    name: str
    model_hash: str
    real_text: bool


# ---- decide


def settle(choice: str = "auto", *, accelerator: bool, hub_model: str = HUB_MODEL) -> Settled:
    """Decide which model to measure, without fetching anything: offer() and `rocmlab model` do that, when asked."""
    text = "bundled" if bundled.gguf_file() else None
    if choice != "auto":
        real = not choice.startswith("random:")
        return Settled(choice, choice if real else text, f"{choice} was asked for")
    if not accelerator:
        if text:
            return Settled("bundled", "bundled", "the CPU is the subject, so the small bundled model is used")
        return Settled("random:smollm2-135m", None, f"the bundled model is not installed ({bundled.ADVICE})")
    if cached(hub_model):
        return Settled(hub_model, hub_model, f"{hub_model} is in the local cache")
    own = hub_model.split("/")[-1].lower()
    shape = own if own in random_weights.PRESETS else "qwen3-0.6b"
    exact = "of its exact shape (same kernels, same bytes)"
    like = exact if own == shape else f"of the shape of {shape}, not of its own"
    size = f" ({HUB_SIZE})" if hub_model == HUB_MODEL else ""
    why = (
        f"{hub_model}{size} is not in the local cache, so speed is measured with random weights {like} and text with "
        f"the bundled model. To measure the real one: rocmlab model --model {hub_model} (HF_ENDPOINT names a mirror; a "
        f"local folder works as well)"
    )
    return Settled(f"random:{shape}", text, why)


def cached(hub_model: str) -> bool:
    """Return whether the hub model's config and weights lie in the local cache or the name is a local folder."""
    if Path(hub_model).is_dir():
        return True
    weights = _in_cache(hub_model, "model.safetensors") or _in_cache(hub_model, "model.safetensors.index.json")
    return bool(_in_cache(hub_model, "config.json") and weights)


def _in_cache(hub_model: str, name: str) -> Path | None:
    """Return a cached file of a hub model; None when it is not there, or the name can be no hub model's."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        found = try_to_load_from_cache(hub_model, name)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def refusal(spec: str) -> str | None:
    """Return why a spec can never be loaded, before anything runs; None where it may be."""
    kind, _, rest = spec.partition(":")
    if kind == "random":
        known = random_weights.PRESETS
        return None if rest in known else f"{spec} is not a known shape. Known: {', '.join(known)}"
    if spec in ("auto", "bundled") or Path(spec).is_dir() or re.fullmatch(r"[\w.-]+/[\w.-]+", spec):
        return None
    return f"{spec} is neither a folder here nor a hub id such as {HUB_MODEL}; auto, bundled and random:SHAPE work too."


def reachable(hub_model: str = HUB_MODEL) -> bool:
    """Return whether the hub (or the mirror in HF_ENDPOINT) knows this model and answers within seconds."""
    try:
        endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        with urllib.request.urlopen(f"{endpoint}/api/models/{hub_model}", timeout=REACHABLE_S):
            return True
    except (OSError, ValueError):
        return False


def offer(hub_model: str = HUB_MODEL) -> None:
    """At a terminal, ask whether to fetch a hub model that is missing but within reach; 1.5 GB never come unasked."""
    if cached(hub_model) or not sys.stdin.isatty() or not reachable(hub_model):
        return
    size = HUB_SIZE if hub_model == HUB_MODEL else "some GB"
    print(f"The model {hub_model} is not on this machine. Fetch it now ({size})? Without it, random weights of a real")
    print("shape are measured; texts then come from the small bundled model. HF_ENDPOINT can name a mirror.")
    with contextlib.suppress(EOFError):
        if input("Fetch? [y/N] ").strip().lower() in ("y", "yes"):
            fetch(hub_model)


def fetch(hub_model: str) -> None:
    """Fetch a hub model into the local cache; a failure is one line, because the report goes on without it."""
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(hub_model, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"])
    except Exception as error:
        print(f"{hub_model} could not be fetched ({first_line(error)}); random weights of its shape are used.")


# ---- load


def load(spec: str, device: str, dtype: str) -> Loaded:
    """Load a model in evaluation mode. `dtype` is float32, float16 or bfloat16; raises ModelError with what to do."""
    import torch

    kind, _, rest = spec.partition(":")
    if kind == "random":
        model, tokenizer, name = random_weights.random_model(rest, dtype, device), None, rest
    elif spec == "bundled":
        model, tokenizer = _pretrained(str(bundled.folder()), dtype)
        name = bundled.NAME
    else:
        model, tokenizer = _pretrained(spec, dtype)
        name = Path(spec).name
    model = model.to(device=torch.device(device)).eval()
    return Loaded(model, tokenizer, spec, name, identity(spec), real_text=kind != "random")


def _pretrained(name: str, dtype: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype))
            return model, AutoTokenizer.from_pretrained(name)
    except Exception as error:
        where = "folder" if Path(name).exists() else "hub model"
        raise ModelError(
            f"The {where} {name} cannot be loaded ({first_line(error)}). Check the name, the network (HF_ENDPOINT "
            f"names a mirror) or the files; random:qwen3-0.6b needs neither."
        ) from error


def identity(spec: str) -> str:
    """Return what tells these weights from others, without loading them: a hash, a commit, or a seed.

    A local folder is known by names, sizes and times of its files, the bundled model by the hash of its GGUF.
    """
    kind, _, rest = spec.partition(":")
    if kind == "random":
        return f"random-{rest}-seed{random_weights.SEED}"
    source = bundled.gguf_file() if spec == "bundled" else None
    if source:
        return bundled.sha256(source)[:16]
    if Path(spec).is_dir():
        files = [(path.name, path.stat()) for path in sorted(Path(spec).iterdir()) if path.is_file()]
        listing = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files)
        return hashlib.sha256(listing.encode()).hexdigest()[:16]
    found = _in_cache(spec, "config.json")
    return found.parent.name[:16] if found else "not-in-cache"


# ---- the verb


def prepare(spec: str) -> int:
    """Fetch and prepare a model, say what it took, return 0; 2 with a sentence when it cannot be had."""
    began = time.perf_counter()
    try:
        loaded = load(spec, "cpu", "float32")
    except ModelError as error:
        print(f"rocmlab: {error}", file=sys.stderr)
        return 2
    count = sum(p.numel() for p in loaded.model.parameters())
    print(f"{loaded.name}: {count:,} parameters, ready after {time.perf_counter() - began:.1f} s")
    return 0
