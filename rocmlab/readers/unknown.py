"""What no other reader knows: said plainly, with the list of what can be read."""

from __future__ import annotations

from rocmlab.findings import finding
from rocmlab.readers import Evidence, Reading, gemm_rates, measurements, records

KINDS = {
    "en": "snapshots, generation records, timings, results, record tables (.jsonl), run folders, bundles, lists of "
    "machines, executed notebooks, profiler traces, library logs, tool output, error messages, llama-bench output",
    "zh": "设备快照、生成记录、计时、结果、记录表（.jsonl）、运行目录、bundle、机器列表、执行过的 notebook、"
    "profiler trace、库日志、工具输出、报错信息、llama-bench 输出",
}
PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF")


def recognise(evidence: Evidence) -> bool:
    return True


def read(evidence: Evidence) -> Reading:
    schema = evidence.schema
    if schema and schema.startswith("rocmlab-"):
        found = finding(
            "UNKNOWN_SCHEMA",
            file=evidence.name,
            schema=schema,
            known=", ".join(sorted((*measurements.READERS, *records.SCHEMAS, gemm_rates.SCHEMA))),
        )
    else:
        found = finding("UNKNOWN_CONTENT", variant=_variant(evidence), file=evidence.name, kinds=KINDS)
    return Reading("unknown", schema, findings=[found])


def _variant(evidence: Evidence) -> str | None:
    """Return what can be said of a file beside that it is not known: that it is empty, a folder, a picture."""
    if evidence.path.is_dir():
        return "folder"
    if not evidence.text.strip():
        return "empty"
    return "picture" if evidence.head.startswith(PICTURES) else None
