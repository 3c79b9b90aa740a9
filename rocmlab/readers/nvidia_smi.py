"""nvidia-smi: the answer to one query, to one row a GPU, with the fields of smi.py and `link` (the PCIe lanes)."""

from __future__ import annotations

from typing import Any

from rocmlab.readers.smi import number, row

QUERY = (
    "index,name,driver_version,temperature.gpu,power.draw,power.limit,clocks.sm,clocks.mem,utilization.gpu,"
    "memory.total,memory.used,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current,pcie.link.gen.max"
)


def parse(text: str) -> list[dict[str, Any]]:
    """Read `nvidia-smi --query-gpu=QUERY --format=csv,noheader,nounits`, one row a GPU."""
    rows = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == len(QUERY.split(",")) and parts[0].isdigit():
            values = [None if part.startswith("[") or part in ("N/A", "") else part for part in parts]
            rows.append(_row(values))
    return rows


def _row(values: list[str | None]) -> dict[str, Any]:
    index, name, driver, *rest = values
    temp, power, cap, sclk, mclk, use, total, used, width, max_width, gen, max_gen = (number(one) for one in rest)
    link = {"width": width, "max_width": max_width, "generation": gen, "max_generation": max_gen}
    found = row(
        index=int(index or 0),
        name=name,
        driver=driver,
        temp_c=temp,
        power_w=power,
        power_cap_w=cap,
        sclk_mhz=sclk,
        mclk_mhz=mclk,
        use_percent=use,
        memory_total_bytes=None if total is None else total * 2**20,
        memory_used_bytes=None if used is None else used * 2**20,
    )
    return {**found, "link": link}
