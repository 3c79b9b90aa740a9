"""What does pip say, and what would it bring? Standard library only; serves the set-up."""

from __future__ import annotations

import os
import re
from typing import Any

from rocmlab.interpreter import environment

REASONS = (
    (r"No space left on device|Errno 28|not enough space on the disk", "the disk is full"),
    (r"Permission denied|Errno 13|WinError 5\b", "a folder may not be written"),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeout|Temporary failure in name resolution|getaddrinfo"
        r"|Max retries|SSLError|ProxyError|ReadTimeout|RemoteDisconnected|Connection (broken|aborted|reset|refused)",
        "the package index could not be reached (no network, or a proxy is needed)",
    ),
)


def explain(text: str, constraint: str = "") -> str:
    """Turn the end of pip's log into a few words; `constraint` is the torch that pip had to leave as it is."""
    for pattern, words in REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    if re.search(r"ResolutionImpossible|conflicting dependencies", text):
        return f"a package asked for another torch than {constraint}" if constraint else "packages exclude one another"
    errors = re.findall(r"(?m)^\s*ERROR: (.+)$", text)
    return f"pip says: {errors[-1]}" if errors else "pip gave no reason"


def cuda_parts(report: dict[str, Any]) -> list[str]:
    """Return the names in a report of `pip install --dry-run --report` that only a CUDA build of torch needs."""
    wanted = [(one["metadata"]["name"].lower(), one["metadata"]["version"]) for one in report.get("install", [])]
    return [name for name, version in wanted if name.startswith(("nvidia-", "cuda-")) or "+cu" in version]


def only_this_index(url: str, configured: str) -> dict[str, str]:
    """Return the environment in which pip asks one index and no other, with the proxy and certificates of before.

    `configured` is what `pip config list` prints. Any further index, even a mirror, would win with a newer CUDA build.
    """
    kept = {key: value for key, value in environment().items() if not re.match(r"PIP_(\w*INDEX\w*|FIND_LINKS)$", key)}
    for name, value in re.findall(r"(?m)^(?:global|install)\.(cert|proxy|trusted-host|timeout)='(.*)'", configured):
        kept.setdefault(f"PIP_{name.upper().replace('-', '_')}", value)
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": url}
