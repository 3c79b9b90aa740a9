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
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import bundled
from rocmlab.bundled import ModelError, first_line, quiet, set_rope_theta

HUB_MODEL = "Qwen/Qwen3-0.6B"
HUB_SIZE = "1.5 GB"
REACHABLE_S = 4
SEED = 0
BLOCK_VALUES = 4_194_301  # a prime near 4 Mi, so that no two rows of a matrix are the same values
WEIGHT_STD = 0.02  # of both models' own initialisation

# Shapes of public models, from their published config.json. Only what differs from the class's default is named.
_QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8}
_QWEN3 |= {"rope_theta": 1_000_000.0, "tie_word_embeddings": True, "max_position_embeddings": 40960}
PRESETS: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": _QWEN3
    | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "qwen3-1.7b": _QWEN3
    | {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
    "qwen3-4b": _QWEN3
    | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
    "smollm2-135m": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536}
    | {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "rope_theta": 100_000.0}
    | {"tie_word_embeddings": True, "max_position_embeddings": 8192},
    "tiny": {"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
    | {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
}

warnings.filterwarnings("ignore", message="IProgress not found")  # a progress bar that no page could show anyway

PROMPTS = {
    "short_factual": "Which planet of the solar system has the most moons, and about how many are known?",
    "summarization": (
        "Summarise in two sentences: A graphics card that its maker does not list can often be used all the same. "
        "Somebody compiles the libraries for it, every operator runs, and the results agree with the processor. "
        "Yet the speed disappoints, and the usual suspects are named without measurement: the driver, the memory, "
        "the model, the operating system. Only a timeline of one single step shows who waits for whom."
    ),
    "reasoning": (
        "A train leaves at 9:40 and needs 2 hours and 35 minutes, including one stop of 12 minutes. It makes up "
        "5 minutes on the way. When does it arrive, and how long was it moving? Explain step by step."
    ),
    "code_generation": (
        "Write a Python function that takes a list of token times in seconds and returns the median gap between "
        "neighbours in milliseconds. Handle a list with fewer than two times."
    ),
    "long_form": "Describe, for a reader without a technical background, what happens inside a computer while it "
    "writes an answer one word at a time.",
}


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
    shape = own if own in PRESETS else "qwen3-0.6b"
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
        return None if rest in PRESETS else f"{spec} is not a known shape. Known: {', '.join(PRESETS)}"
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
        model, tokenizer, name = random_model(rest, dtype, device), None, rest
    elif spec == "bundled":
        model, tokenizer = _pretrained(str(bundled.folder()), dtype)
        name = bundled.NAME
    else:
        model, tokenizer = _pretrained(spec, dtype)
        name = Path(spec).name
    model = model.to(device=torch.device(device)).eval()
    return Loaded(model, tokenizer, spec, name, identity(spec), real_text=kind != "random")


def random_model(preset: str, dtype: str, device: str) -> Any:
    """Make a model of a preset's shape with seeded random weights, directly on its device; equal on every device.

    The weights are one block of normal values laid end to end, each tensor at its own offset: drawing 600 million
    values would take longer than the measurement, and the speed of a dense product does not depend on repeats.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if preset not in PRESETS:
        raise ModelError(f"random:{preset} is not a known shape. Known: {', '.join(PRESETS)}")
    values = dict(PRESETS[preset])
    theta = values.pop("rope_theta", None)
    config = AutoConfig.for_model(**values)
    if theta:
        set_rope_theta(config, theta)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    generator = torch.Generator().manual_seed(SEED)
    block = torch.randn(BLOCK_VALUES, generator=generator).mul_(WEIGHT_STD).to(device, getattr(torch, dtype)).repeat(2)
    weights = {name: _filled(block, value.shape, index) for index, (name, value) in enumerate(_own(model))}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    # The rotary tables are no part of the weights: made on the meta device, they would stay empty.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    return model


def _own(model: Any) -> list[tuple[str, Any]]:
    """Return (name, tensor) of every weight, without the head that is tied to the embedding."""
    tied = model.config.tie_word_embeddings
    return [(name, value) for name, value in model.state_dict().items() if not (tied and name == "lm_head.weight")]


def _filled(block: Any, shape: Any, index: int) -> Any:
    """Return a tensor of this shape cut from the (doubled) block; the weights of a norm (one dimension) are ones."""
    count = shape.numel()
    if len(shape) == 1:
        return block.new_ones(shape)
    offset, filled = index * 7919 % BLOCK_VALUES, block.new_empty(count)
    for start in range(0, count, BLOCK_VALUES):
        length = min(BLOCK_VALUES, count - start)
        filled[start : start + length] = block[offset : offset + length]
    return filled.view(shape)


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
        return f"random-{rest}-seed{SEED}"
    source = bundled.gguf_file() if spec == "bundled" else None
    if source:
        return bundled.sha256(source)[:16]
    if Path(spec).is_dir():
        files = [(path.name, path.stat()) for path in sorted(Path(spec).iterdir()) if path.is_file()]
        listing = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files)
        return hashlib.sha256(listing.encode()).hexdigest()[:16]
    found = _in_cache(spec, "config.json")
    return found.parent.name[:16] if found else "not-in-cache"


# ---- bytes and tokens


def weight_bytes(model: Any) -> int:
    """Return the bytes of weights read for one token: each unique parameter once; an untied embedding is one row."""
    unique = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    total = sum(parameter.numel() * parameter.element_size() for parameter in unique.values())
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    if head is None or head.weight.data_ptr() != table.data_ptr():
        total -= table.numel() * table.element_size()
    return total


def kv_bytes_a_position(model: Any) -> int:
    """Return the bytes of key and value cache of one position, all layers."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * head_dim * model.dtype.itemsize


def prompt_ids(loaded: Loaded, text: str) -> list[int]:
    """Return a prompt's token ids: the model's chat template, or for random weights one stable id a word."""
    if loaded.tokenizer is None:
        words = re.findall(r"\w+|[^\w\s]", text)
        return [zlib.crc32(word.encode()) % loaded.model.config.vocab_size for word in words]
    message = [{"role": "user", "content": text}]
    if not getattr(loaded.tokenizer, "chat_template", None):
        return list(loaded.tokenizer(text)["input_ids"])
    ids = loaded.tokenizer.apply_chat_template(message, add_generation_prompt=True, enable_thinking=False)
    return list(ids["input_ids"] if hasattr(ids, "keys") else ids)


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
