"""What no other reader knows: said plainly, with the list of what can be read."""

from __future__ import annotations

from rocmlab.findings import finding
from rocmlab.readers import Evidence, Reading, gemm_rates, measurements, records

KINDS = (
    "snapshots, generation records, timings, results, record tables (.jsonl), run folders, bundles, lists of machines, "
    "executed notebooks, profiler traces, library logs, tool output, llama-bench output"
)


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
        found = finding("UNKNOWN_CONTENT", file=evidence.name, kinds=KINDS)
    return Reading("unknown", schema, findings=[found])
