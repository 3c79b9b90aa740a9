"""The HIP runtime's log (AMD_LOG_LEVEL): a counter of launches, copies and synchronisations that works on Windows too.

Level 3 writes each HIP call twice, when it starts and when it returns; each is a form of one call. Forms of a line:
`:3:hip_module.cpp :470 : 305270480415 us: [pid:1 tid:0x15] hipLaunchKernel ( ...`, older ones with `PID: [tid]`, on
Windows without either, and a short one without a time.
"""

from __future__ import annotations

import re

from rocmlab.libraries import Call, Log
from rocmlab.readers.miopen import GFX
from rocmlab.readers.rocblas import FALLBACK_FILE

START = re.compile(r":([0-4]):([\w.+-]+)\s*:(\d+)\s*: *")
STAMP = re.compile(r"\d+(?: us)? *: *")
PROCESS = re.compile(r"(?:\[pid: *\d+ +tid: *\S+\]|\d+: *\[(?:tid:)?\S+\]|\[(?:tid:)?[0-9a-fx]+\]) *")
RETURNED = re.compile(r"(hip\w+): Returned (hip\w+)")
CALLED = re.compile(r"(hip\w+) \(")
SHADER = re.compile(r"ShaderName : (\S+)")
DIRECTION = re.compile(r"hipMemcpy(\w+To\w+|Default)\b")
ISA = re.compile(rf"for ISA: \S*?--({GFX})|amdgcn-amd-amdhsa--({GFX}) - \[Not Found\]")

# Calls that are launches whatever they are named after; copies and waits are told by their names.
LAUNCH = re.compile(
    r"hip(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel|hipGraphLaunch|hipLaunchKernelExC|hipLaunchByPtr"
)
WAIT = re.compile(r"hip(?:Device|Stream|Event)Synchronize|hipStreamWaitEvent")


class Parser:
    """Reads AMD_LOG_LEVEL lines into a log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.kinds: dict[str, str] = {}

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line without the runtime's start."""
        match = START.search(text)
        if match is None:
            return ""
        log = self.log
        log.libraries["HIP runtime"] += 1
        at = match.end()
        for prefix in (STAMP, PROCESS):
            found = prefix.match(text, at)
            at = found.end() if found else at
        level, body = match[1], text[at:].strip()
        if not body:
            return "damaged"
        if body.startswith("hip"):
            self._call(body, line)
        if level < "3" or not body.startswith("hip") or "allback" in body:
            self._body(level, body, line)
        return "known"

    def _body(self, level: str, body: str, line: int) -> None:
        log = self.log
        if match := SHADER.search(body):
            log.add(Call("HIP runtime", "ShaderName", "kernel", kernel=match[1]), line)
        if level in "01" or "Error" in body:
            if match := ISA.search(body):
                log.sign("no_code_object", line, match[1] or match[2], arch=match[1] or match[2], backend="HIP")
            elif "Cannot find CO in the bundle" in body or "hipErrorNoBinaryForGpu" in body:
                log.sign("no_code_object", line, "", arch="", backend="HIP")
        if (match := FALLBACK_FILE.search(body)) is not None:
            log.sign("fallback_kernel", line, match[0], kernel=match[0], m=None, n=None, k=None)

    def _call(self, body: str, line: int) -> None:
        log = self.log
        if match := RETURNED.match(body):
            name, result = match.groups()
            log.add(Call("HIP runtime", name, self._kind(name)), line, "returned")
            if result not in ("hipSuccess", "hipErrorNotReady", "hipErrorPeerAccessAlreadyEnabled"):
                log.sign("hip_call_failed", line, f"{name} {result}", call=name, error=result)
        elif match := CALLED.match(body):
            log.add(Call("HIP runtime", match[1], self._kind(match[1])), line, "called")
            if match[1].startswith("hipMemcpy") and (direction := DIRECTION.search(body, match.end())):
                log.add(Call("HIP runtime", direction[1], "direction"), line)

    def _kind(self, name: str) -> str:
        if name not in self.kinds:
            self.kinds[name] = (
                "launch" if LAUNCH.fullmatch(name)
                else "copy" if name.startswith(("hipMemcpy", "hipMemset"))
                else "sync" if WAIT.fullmatch(name)
                else "api"
            )  # fmt: skip
        return self.kinds[name]
