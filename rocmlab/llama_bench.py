"""What does llama-bench's output say? JSON, JSON lines, CSV and Markdown become one kind of test record. Pure.

Format of tools/llama-bench of ggml-org/llama.cpp, from its first field names to those of 2026-10. A test reads a prompt
(pp), writes tokens (tg) or both (pg); its rate is the mean of its repetitions.
"""

from __future__ import annotations

import csv
import json
import math
import re
from typing import Any

Row = dict[str, Any]
JSON_KEYS = {"avg_ts", "n_prompt", "n_gen", "model_size"}
CSV_HEADER = re.compile(r'^"?build_commit"?,.*\bavg_ts\b.*$', re.MULTILINE)
MD_HEADER = re.compile(r"^\|\s*model\s*\|(?=.*\|\s*backend\s*\|).*\|\s*t/s\s*\|\s*$", re.MULTILINE)
TEST = re.compile(r"(?:pp ?(?P<pp>\d+))?\s*\+?\s*(?:tg ?(?P<tg>\d+))?\s*(?:@ ?d ?(?P<depth>\d+))?$")
RATE = re.compile(r"([\d.]+(?:e[+-]?\d+)?)\s*(?:±|\+/-)?\s*([\d.]+)?")
SIZES = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 1e3, "M": 1e6, "T": 1e12}
# Devices as the back ends announce them on stderr, which a terminal shows above the table.
DEVICE = re.compile(r"^\s*(?:Device \d+: (?P<cuda>[^,\n]+),|ggml_vulkan: \d+ = (?P<vulkan>[^(|\n]+))", re.MULTILINE)
KIND = re.compile(r"\b(BF16|F16|F32|MXFP4|I?Q\d\w*|TQ\d_\d)\b")
NO_GPU = {"CPU", "BLAS", "ZenDNN", "KLEIDIAI"}  # back ends that run on the processor


def recognise(head: str) -> bool:
    """Tell whether a text is llama-bench's output, by its first part."""
    return bool(CSV_HEADER.search(head) or MD_HEADER.search(head)) or ('"avg_ts"' in head and '"n_gen"' in head)


def parse(text: str) -> tuple[list[Row], int]:
    """Return (tests, entries that could not be read) of any of its formats; log lines around them are skipped."""
    if MD_HEADER.search(text):
        return _markdown(text)
    found, damaged = _csv(text) if CSV_HEADER.search(text) else _json(text)
    tests = [one for one in map(_test, found) if one]
    return tests, damaged + len(found) - len(tests)


def _json(text: str) -> tuple[list[Row], int]:
    """Read an array, or objects one a line; an array cut short gives the objects that are whole."""
    decoder, found, damaged = json.JSONDecoder(), [], 0
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            damaged += 1
            place = text.find("{", place + 1)
            continue
        if isinstance(value, dict) and value.keys() >= JSON_KEYS:
            found.append(value)
        place = text.find("{", end)
    return found, damaged


def _csv(text: str) -> tuple[list[Row], int]:
    match = CSV_HEADER.search(text)
    lines = text[match.start() if match else 0 :].replace("\0", "").splitlines()
    found, damaged = [], 0
    try:
        rows = list(csv.reader(lines))
    except csv.Error:
        return [], len(lines)
    for cells in rows[1:]:
        if len(cells) == len(rows[0]):
            found.append(dict(zip(rows[0], cells, strict=True)))
        elif any(cells):
            damaged += 1
    return found, damaged


def _test(raw: Row) -> Row | None:
    """Return a record of one test in JSON or CSV; None where a number that makes the test is missing."""
    rate, prompt, new, size = (_number(raw.get(key)) for key in ("avg_ts", "n_prompt", "n_gen", "model_size"))
    if rate is None or prompt is None or new is None or rate <= 0:
        return None
    samples = raw.get("samples_ts")
    good = [one for one in samples if _number(one)] if isinstance(samples, list) else []
    layers = _number(raw.get("n_gpu_layers"))
    backend = str(raw.get("backends") or _older(raw) or "unknown")
    made: Row = {"model": str(raw.get("model_type") or "unknown"), "file": str(raw.get("model_filename") or "")}
    made |= {"model_bytes": size, "backend": backend, "gpu": str(raw.get("gpu_info") or "").strip() or None}
    made |= {"cpu": str(raw.get("cpu_info") or "").strip() or None, "threads": _whole(raw.get("n_threads"))}
    made |= {"gpu_layers": layers, "devices": raw.get("devices"), "prompt_tokens": int(prompt), "new_tokens": int(new)}
    made |= {"depth": _whole(raw.get("n_depth")) or 0, "tok_s": rate, "stddev": _number(raw.get("stddev_ts"))}
    return made | {"samples": good, "build": str(raw.get("build_commit") or "")}


def _older(raw: Row) -> str | None:
    """Return the back end as builds before 2024-11 wrote it: a flag each."""
    names = {"cuda": "CUDA", "vulkan": "Vulkan", "hip": "ROCm", "metal": "Metal", "sycl": "SYCL", "kompute": "Kompute"}
    on = [name for key, name in names.items() if str(raw.get(key)).lower() in ("1", "true")]
    told = any(key in raw for key in names)
    return ",".join(on) or ("CPU" if told else None)


def _markdown(text: str) -> tuple[list[Row], int]:
    """Read the tables as printed; the devices named above them tell the card, since the table does not."""
    devices = [(m["cuda"] or m["vulkan"]).strip() for m in DEVICE.finditer(text)]
    build = re.search(r"^build: (\w+)", text, re.MULTILINE)
    heads: list[str] = []
    found, damaged = [], 0
    for line in [one.strip() for one in text.splitlines() if one.strip().startswith("|")]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if MD_HEADER.match(line):
            heads = cells
        elif heads and not set(line) <= set("|-: "):
            made = _line(dict(zip(heads, cells, strict=False))) if len(cells) == len(heads) else None
            damaged += made is None
            found += [made | {"gpu": ", ".join(devices) or None, "build": build[1] if build else ""}] if made else []
    return found, damaged


def _line(cells: dict[str, str]) -> Row | None:
    test, rate = TEST.match(cells.get("test", "")), RATE.match(cells.get("t/s", ""))
    if not test or not (test["pp"] or test["tg"]) or not rate or not _number(rate[1]):
        return None
    made: Row = {"model": cells.get("model") or "unknown", "file": "", "model_bytes": _size(cells.get("size"))}
    made |= {"backend": cells.get("backend") or "unknown", "cpu": None, "threads": _whole(cells.get("threads"))}
    made |= {"gpu_layers": _number(cells.get("ngl")), "devices": cells.get("dev"), "samples": []}
    made |= {
        "prompt_tokens": int(test["pp"] or 0),
        "new_tokens": int(test["tg"] or 0),
        "depth": int(test["depth"] or 0),
    }
    return made | {"tok_s": _number(rate[1]), "stddev": _number(rate[2])}


def _size(text: str | None) -> float | None:
    """Return bytes of "92.10 MiB"."""
    number, _, unit = (text or "").partition(" ")
    value = _number(number)
    return value * SIZES[unit.upper()] if value is not None and unit.upper() in SIZES else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and abs(found) < 1e18 else None


def _whole(value: Any) -> int | None:
    found = _number(value)
    return int(found) if found is not None else None


# ---- what the tests mean


def on_cpu(test: Row) -> bool:
    """Tell whether a test ran on the processor: by its back end, or because nothing was handed to the card."""
    backends = {one.strip() for one in test["backend"].split(",")}
    return backends <= NO_GPU or test["gpu_layers"] == 0 or test["devices"] == "none"


def device(test: Row) -> str:
    """Return CPU, or the card's name; the back end where no name is given."""
    return "CPU" if on_cpu(test) else str(test["gpu"] or test["backend"])


def kind(test: Row) -> str:
    """Return pp, tg or pg."""
    return "pg" if test["prompt_tokens"] and test["new_tokens"] else "tg" if test["new_tokens"] else "pp"


def gb_s(test: Row) -> float | None:
    """Return the bytes of weights that writing moves, in GB/s: rate x model size, every weight read once a token."""
    if kind(test) != "tg" or not test["model_bytes"]:
        return None
    return test["tok_s"] * test["model_bytes"] / 1e9


def quantisation(file_type: Any, name: str) -> str | None:
    """Return Q4_1, F32 ... from a model's description or file name."""
    found = KIND.findall(f"{name} {file_type or ''}".replace(".gguf", "").replace(".", " "))
    return found[-1] if found else None


def backend_of(system_info: str) -> str:
    """Return the back ends in llama.cpp's line on the system, "CUDA : ARCHS = 900 | CPU : SSE3 = 1": CPU if alone."""
    names = re.findall(r"(?:^|[|\n])\s*([A-Za-z]\w*) : ", system_info)
    others = [one for one in dict.fromkeys(names) if one not in NO_GPU]
    return ",".join(others) or "CPU"


def rows(tests: list[Row]) -> list[Row]:
    """Return rows of the table `yardstick`: reading and writing of one model on one device together."""
    found: dict[tuple[Any, ...], Row] = {}
    for test in tests:
        key = (test["model"], test["file"], test["backend"], device(test), test["threads"], test["gpu_layers"])
        row = found.setdefault(key, _row(test))
        name = {"pp": "prefill", "tg": "decode"}.get(kind(test))
        if name and not test["depth"] and not row[f"{name}_tok_s"]:
            row[f"{name}_tok_s"] = [round(one, 3) for one in test["samples"] or [test["tok_s"]]]
            row["prompt_tokens" if name == "prefill" else "new_tokens"] = test[
                "prompt_tokens" if name == "prefill" else "new_tokens"
            ]
    return list(found.values())


def _row(test: Row) -> Row:
    name = test["file"].replace("\\", "/").rsplit("/", 1)[-1] or test["model"]
    row: Row = {"engine": "llama-bench", "version": test["build"], "backend": test["backend"], "device": device(test)}
    row |= {"model": name, "quantisation": quantisation(test["model"], name), "model_bytes": test["model_bytes"]}
    row |= {"threads": test["threads"], "prompt_tokens": None, "prefill_tok_s": [], "decode_tok_s": []}
    return row | {"status": "OK", "reason": None, "method": "llama-bench: no sampling, logits stay on the device"}
