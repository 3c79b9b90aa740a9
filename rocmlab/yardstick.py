"""How fast does another engine run the same weights on the same device? llama.cpp beside torch, where it is installed.

`study(run)` looks for `llama-bench` on the PATH and for the Python package `llama_cpp`, and runs the bundled model with
what it finds: as it comes (quantised), and in float32, so that both engines read the same bytes; then torch itself, on
the same prompt. Each in a child process with a time limit; rows go to the table `yardstick`. Nothing here is required:
what is absent is a row that says so, and how to get it.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from rocmlab import bundled, isolate, llama_bench, model_bytes, timing
from rocmlab.results import Run
from rocmlab.yardstick_judges import LABELS, judge, table

__all__ = ["LABELS", "judge", "study", "table"]

TABLE = "yardstick"
PROMPT, TOKENS, REPEATS = 128, 32, 6
LIMIT_S = 60.0
GET = (
    "python -m pip install llama-cpp-python (it is compiled for this machine: minutes), or llama-bench from the "
    "releases of github.com/ggml-org/llama.cpp on the PATH, built for Vulkan or HIP to reach an AMD card"
)


def study(
    run: Run, *, limit_s: float = LIMIT_S, torch_arms: list[dict[str, str]] | None = None, prompt: int = PROMPT,
    tokens: int = TOKENS, repeats: int = REPEATS,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure every engine that is here within about `limit_s` together; return the rows, which are in the table too.

    `torch_arms` are {device, dtype} on which torch runs the same model (the CPU in float32 where none are given); no
    other engine, no torch either: there is nothing to compare.
    """
    deadline, size = time.monotonic() + limit_s, {"prompt": prompt, "tokens": tokens, "repeats": repeats}
    source = bundled.gguf_file()
    if source is None:
        return _kept(run, [_absent("llama.cpp", f"the bundled model is not installed ({bundled.ADVICE})")])
    bench, package = shutil.which("llama-bench"), importlib.util.find_spec("llama_cpp")
    if not bench and not package:
        return _kept(run, [_absent("llama.cpp", f"neither llama-bench nor the package llama_cpp is here; {GET}")])
    plain = _float32(source, deadline - limit_s / 2)
    paths = [*([plain] if isinstance(plain, Path) else []), source]
    engine = functools.partial(_bench, bench) if bench else _package
    arms = torch_arms or [{"device": "cpu", "dtype": "float32"}]
    # What compares the engines comes first: weights of as many bytes, then torch; fewer bytes if there is time left.
    jobs = [functools.partial(engine, path, size) for path in paths[:1]]
    jobs += [functools.partial(_torch, arm, size) for arm in arms]
    jobs += [functools.partial(engine, path, size) for path in paths[1:]]
    rows = [] if isinstance(plain, Path) else _kept(run, [_absent("llama.cpp", plain) | {"quantisation": "F32"}])
    for place, job in enumerate(jobs):
        rows += _kept(run, job(max(1.0, (deadline - time.monotonic()) / (len(jobs) - place))))
    return rows


def _kept(run: Run, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    run.append(TABLE, [row | {"load": timing.load()} for row in rows])
    return rows


def _absent(engine: str, reason: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("backend", "device", "model", "quantisation", "model_bytes", "threads"))
    return {"engine": engine, **nothing, "prefill_tok_s": [], "decode_tok_s": [], "status": "ABSENT", "reason": reason}


def _threads() -> int:
    """Return the physical cores: more threads than these slow llama.cpp down."""
    return psutil.cpu_count(logical=False) or psutil.cpu_count() or 1


# ---- llama-bench


def _bench(program: str, path: Path, size: dict[str, int], limit_s: float) -> list[dict[str, Any]]:
    """Run llama-bench as it was built, and where that is for a GPU once more on the CPU alone."""
    deadline = time.monotonic() + limit_s
    usual = [program, "-m", str(path), "-p", str(size["prompt"]), "-n", str(size["tokens"]), "-r", str(size["repeats"])]
    usual += ["-t", str(_threads()), "-o", "json"]
    rows = _ran(usual, path, limit_s)
    if any(row["status"] == "OK" and row["device"] != "CPU" for row in rows):
        rows += _ran([*usual, "-ngl", "0", "-dev", "none"], path, max(1.0, deadline - time.monotonic()))
    return rows


def _ran(command: list[str], path: Path, limit_s: float) -> list[dict[str, Any]]:
    """Run llama-bench; a test that it did not come to leaves its samples empty, and the row says why."""
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        code, seconds, out, err = isolate.run(
            command, limit_s=limit_s, env=isolate.child_environment(), folder=Path(folder)
        )
        whole = Path(folder, "stdout").read_text(encoding="utf-8", errors="replace")
    rows = llama_bench.rows(llama_bench.parse(whole)[0]) or [_absent("llama-bench", "") | {"model": path.name}]
    for row in rows:
        row["seconds"] = round(seconds, 1)
        if not row["decode_tok_s"]:
            said = (err or out).strip()[-300:]
            why = f"still running after {limit_s:.0f} s" if code is None else f"{isolate.meaning(code)[1]}: {said}"
            row |= {"status": "TIMEOUT" if code is None else "ERROR", "reason": why}
    return rows


# ---- the package


def _package(path: Path, size: dict[str, int], limit_s: float) -> list[dict[str, Any]]:
    """Run the Python package: on its GPU back end if it has one, and on the CPU."""
    deadline = time.monotonic() + limit_s
    rows = [_packaged(path, size, limit_s, layers=-1)]
    if rows[0]["status"] == "OK" and rows[0]["device"] != "CPU":
        rows.append(_packaged(path, size, max(1.0, deadline - time.monotonic()), layers=0))
    return rows


def _packaged(path: Path, size: dict[str, int], limit_s: float, layers: int) -> dict[str, Any]:
    given = {"path": str(path), "threads": _threads(), "layers": layers, **size}
    outcome = isolate.call("rocmlab.yardstick:with_package", given, limit_s=limit_s)
    if outcome.status == "OK":
        return outcome.result
    return _absent("llama_cpp", outcome.words) | {"model": path.name, "status": outcome.status}


def with_package(path: str, threads: int, layers: int, prompt: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Read a prompt and write tokens with llama_cpp, after one round that does not count; return a row."""
    import random

    import llama_cpp

    engine = llama_cpp.Llama(path, n_ctx=prompt + tokens + 8, n_threads=threads, n_threads_batch=threads,
                             n_gpu_layers=layers, verbose=False)  # fmt: skip
    draw = random.Random(0)
    found: dict[str, list[float]] = {"prefill_tok_s": [], "decode_tok_s": []}
    ids = [draw.randrange(1, engine.n_vocab()) for _ in range(prompt)]
    with timing.OtherWork() as others:
        for turn in range(repeats + 1):
            engine.reset()
            began = time.perf_counter()
            engine.eval(ids)
            filled = time.perf_counter()
            for token in ids[:tokens]:
                engine.eval([token])
            ended = time.perf_counter()
            if turn:
                found["prefill_tok_s"].append(round(prompt / (filled - began), 3))
                found["decode_tok_s"].append(round(tokens / (ended - filled), 3))
    said = llama_cpp.llama_print_system_info().decode("utf-8", "replace")
    backend = llama_bench.backend_of(said) if layers else "CPU"
    kind = llama_bench.quantisation(engine.metadata.get("general.file_type"), path)
    row = {"engine": "llama_cpp", "version": llama_cpp.__version__, "backend": backend, "model": Path(path).name}
    row |= {"device": "CPU" if backend == "CPU" else backend, "quantisation": kind, "threads": threads}
    row |= {"model_bytes": llama_cpp.llama_model_size(engine.model), "prompt_tokens": prompt, "new_tokens": tokens}
    row |= {"others_cpu_pct": others.pct, "method": "wall, logits on the host after each token"}
    return row | found | {"status": "OK", "reason": None}


# ---- torch on the same prompt


def _torch(arm: dict[str, str], size: dict[str, int], limit_s: float) -> list[dict[str, Any]]:
    given = {"device": arm["device"], "dtype": arm["dtype"], **size}
    outcome = isolate.call("rocmlab.yardstick:with_torch", given, limit_s=limit_s)
    return [outcome.result or _absent("torch", outcome.words) | {**_arm(arm), "status": outcome.status}]


def _arm(arm: dict[str, str]) -> dict[str, Any]:
    return {"backend": "eager", "device": arm["device"], "quantisation": arm["dtype"]}


def with_torch(device: str, dtype: str, prompt: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Read the same kind of prompt and write as many tokens with the bundled model in torch; return a row."""
    import torch

    from rocmlab import decode, models, rates

    timing.use(device)
    loaded = models.load("bundled", device, dtype)
    ids = decode.random_prompts(loaded.model.config.vocab_size, [prompt])
    found: dict[str, list[float]] = {"prefill_tok_s": [], "decode_tok_s": []}
    with timing.OtherWork() as others:
        for turn in range(repeats + 1):
            record = decode.write(loaded.model, device, ids, tokens)
            if turn:
                found["prefill_tok_s"].append(round(prompt / record["t_prefill_s"], 3))
                found["decode_tok_s"].append(round(rates.rates(record)["decode_tok_s"], 3))
    row = {"engine": "torch", "version": torch.__version__, **_arm({"device": device, "dtype": dtype})}
    row |= {"device": "CPU" if device == "cpu" else torch.cuda.get_device_name(torch.device(device))}
    row |= {
        "model": loaded.name,
        "model_bytes": model_bytes.weight_bytes(loaded.model),
        "threads": torch.get_num_threads(),
    }
    row |= {"prompt_tokens": prompt, "new_tokens": tokens, "others_cpu_pct": others.pct}
    return row | {**found, "status": "OK", "reason": None, "method": "wall, token on the host after each step"}


# ---- the same weights in float32


def _float32(source: Path, deadline: float) -> Path | str:
    """Return the bundled model as a float32 GGUF, made once in the cache; a sentence where that cannot be done."""
    kept = bundled.cache() / f"{source.stem.rsplit('.', 1)[0]}.{bundled.sha256(source)[:8]}.F32.gguf"
    if kept.is_file():
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"the cache {kept.parent} cannot be written ({error.strerror})"
    given = {"source": str(source), "target": str(kept)}
    outcome = isolate.call("rocmlab.yardstick:to_float32", given, limit_s=max(1.0, deadline - time.monotonic()))
    return kept if outcome.status == "OK" else f"not converted to float32: {outcome.words}"


def to_float32(source: str, target: str) -> None:
    """Write a GGUF file with every tensor in float32 and the same metadata."""
    from gguf import GGUFReader, GGUFWriter, LlamaFileType, dequantize

    reader = GGUFReader(source)
    scratch = Path(target).with_suffix(".tmp")
    writer = GGUFWriter(scratch, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kinds = field.types
        writer.add_key_value(field.name, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    writer.add_file_type(LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    scratch.replace(target)
