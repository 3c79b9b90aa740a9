"""cuDNN's own log: which engine ran which operation, on which tensors, and when a plan had to be made for it.

Every API call is one record over many lines, and most are followed by a second record with the returned status alone.
`cudnnBackendExecute` writes the whole plan that it runs: the operations with their tensors, the engine's number and its
knobs (settings). What happens between its two records belongs to it: the mode that cuDNN found, and products that the
engine hands to cuBLASLt. Heuristics queries name many engines that are never run; they are not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rocmlab.libraries import Call, Log

EXECUTE, MODE, PLAN = "BackendExecute", "BackendExecuteGraphVisualize", "BackendFinalize"
# Layers by the names of the older API, which some operators still use; a newer plan tells its operations instead.
LAYERS = {
    "ConvolutionForward": "convolution", "ConvolutionBiasActivationForward": "convolution",
    "ConvolutionBackwardData": "convolution", "ConvolutionBackwardFilter": "convolution",
    "BatchNormalizationForward": "batch_norm", "BatchNormalizationBackward": "batch_norm",
    "NormalizationForward": "batch_norm", "RNNForward": "rnn", "RNNBackward": "rnn", "PoolingForward": "pooling",
    "SoftmaxForward": "softmax", "ActivationForward": "activation", "MultiHeadAttnForward": "attention",
}  # fmt: skip
# What an operation of a plan, or the mode that cuDNN found for all of them, is called elsewhere.
OPERATIONS = {"SDPA": "attention", "CONV": "convolution", "BATCH_NORM": "batch_norm", "RESAMPLE": "pooling"}
TYPES = {
    "HALF": "float16", "FLOAT": "float32", "DOUBLE": "float64", "BFLOAT16": "bfloat16", "INT8": "int8",
    "INT32": "int32", "FP8_E4M3": "float8_e4m3", "FP8_E5M2": "float8_e5m2", "FAST_FLOAT_FOR_FP8": "float8",
}  # fmt: skip
FRONTEND = re.compile(r"(Executing|Executed) \"?_*([\w=]+)\"?( plan|\.)")
FINALIZE_MODE = re.compile(r'"finalizeMode":"(\w+)"')
CLOCK = re.compile(r"T(\d+):(\d+):([\d.]+)")
SHOWN = ("q", "k", "x", "w", "a", "b")  # the tensors that make a shape


@dataclass
class Record:
    """One record while it is read. `tensors` and `types` keep the first of each name, those of the first operation."""

    function: str
    line: int
    reading: bool
    tensor: str = ""
    operations: list[str] = field(default_factory=list)
    tensors: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, value: str) -> None:
        """Keep one argument, if it says something about what ran."""
        said = value.partition("val=")[2].rstrip(";")
        if name.endswith("Desc"):
            self.tensor = name[:-4]
        elif name == "operation":
            self.operations.append(value.removeprefix("type=CUDNN_BACKEND_OPERATION_").removesuffix("_DESCRIPTOR:"))
        elif name in ("dimA", "type", "dataType", "computeType", "mathPrec"):
            if len(self.operations) < 2:
                self._describe(name, said)
        elif name.startswith("CUDNN_KNOB_TYPE_"):
            self.settings[name.removeprefix("CUDNN_KNOB_TYPE_").lower().replace("_", " ")] = said
        elif name in ("engine_id", "algo", "descriptor", "executionPlan", "apiLog"):
            self.values.setdefault(name, said or value)

    def _describe(self, name: str, said: str) -> None:
        if name == "dimA":
            self.tensors.setdefault(self.tensor, said.strip("[]").replace(",", "x"))
        else:
            self.types.setdefault(self.tensor if name in ("type", "dataType") else "inside", said.split(" ")[0])


class Parser:
    """Reads cuDNN's records as `nvidia.Parser` cuts them out of the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.record: Record | None = None
        self.status = self.time = ""
        self.planned: tuple[str, str] | None = None  # when the plan now being made was begun, and for what
        self.fronts = False  # the front end has spoken; its headings and tables belong to it
        self.frontend: tuple[str, int] | None = None

    def start(self, function: str, line: int) -> None:
        """Begin a record."""
        self.close()
        name = function.removeprefix("cudnn")
        reading = name in (EXECUTE, MODE, PLAN) or any(name.startswith(start) for start in LAYERS)
        self.record, self.status, self.time = Record(name, line, reading), "", ""

    def argument(self, text: str) -> None:
        """Take one line of the record."""
        record = self.record
        if record is None:
            return
        if "cudnnStatus_t; val=" in text:
            self.status = text.partition("val=")[2].split(" ")[0].rstrip(";")
        elif record.reading:
            name, _, value = text[2:].strip().partition(": ")
            if name == "Time":
                self.time = value
            else:
                record.take(name, value)
        if text.startswith("i! Process="):
            self.close()

    def front(self, text: str, line: int) -> None:
        """Take a line of cuDNN's front end: it names a plan before and after running it."""
        self.close()
        self.fronts = True
        match = FRONTEND.search(text)
        if match is None:
            return
        self._unlogged()
        if match[1] == "Executing":
            self.log.libraries["cuDNN"] += 1
            self.frontend = (match[2], line)

    def finish(self) -> None:
        """Settle everything that is still held at the end of a log."""
        self.close()
        self._unlogged()

    def _unlogged(self) -> None:
        """Count a plan that only the front end spoke of."""
        if self.frontend:
            self.log.add(Call("cuDNN", "plan", "plan", kernel=self.frontend[0]), self.frontend[1])
        self.frontend = None

    def close(self) -> None:
        """Count the record that was being read; one with a status alone is the end of the one before it."""
        record, self.record = self.record, None
        if record is None:
            return
        if not record.function.startswith(EXECUTE):
            self.log.settle()
        if record.function == PLAN:
            self._plan(record)
        elif self.status:
            self._ended(record)
        elif record.function == EXECUTE:
            self.frontend = None
            self.log.hold(executed(record), record.line)
        elif record.function == MODE:
            self._mode(record)
        elif record.reading:
            self.log.add(layer(record), record.line)
        else:
            self.log.add(Call("cuDNN", f"cudnn{record.function}", "api"), record.line)

    def _ended(self, record: Record) -> None:
        if record.function != EXECUTE:
            return
        self.log.settle()
        if not self.status.endswith("_SUCCESS"):
            text = f"cudnnBackendExecute: {self.status}"
            self.log.sign("library_error", record.line, text, library="cuDNN", text=text)

    def _mode(self, record: Record) -> None:
        """Name a plan of many small operations by the mode that cuDNN found for it."""
        match, held = FINALIZE_MODE.search(record.values.get("apiLog", "")), self.log.waiting
        if match and held and held[0].library == "cuDNN" and held[0].kind == "plan" and kind(match[1]) != "plan":
            self.log.waiting = (held[0]._replace(kind=kind(match[1]), routine=match[1]), held[1])

    def _plan(self, record: Record) -> None:
        """Count a plan that was made, with the time between the two records of its Finalize."""
        if "EXECUTION_PLAN" in record.values.get("descriptor", ""):
            self.planned = (self.time, operation(record))
        elif self.status and self.planned:
            began, what = self.planned
            call = Call("cuDNN", "plan made", "plan_made", what, stage="search")
            self.log.add(call, record.line, ms=between(began, self.time))
            self.planned = None


def between(began: str, ended: str) -> float | None:
    """Return the milliseconds between two of cuDNN's times; None where one cannot be read."""
    clocks = [CLOCK.search(text) for text in (began, ended)]
    seconds = [3600 * int(c[1]) + 60 * int(c[2]) + float(c[3]) for c in clocks if c]
    return (seconds[1] - seconds[0]) % 86_400 * 1000 if len(seconds) == 2 else None


def kind(name: str) -> str:
    """Return what an operation or a mode is; "plan" for one that has no name of its own."""
    return next((found for part, found in OPERATIONS.items() if part in name), "plan")


def operation(record: Record) -> str:
    """Return what a plan does: the first of its operations that has a name, "plan" when none has."""
    return next((found for one in record.operations if (found := kind(one)) != "plan"), "plan")


def shape(record: Record) -> str:
    """Return the sizes of the tensors that went in, such as "x 2x64x28x28, w 32x64x1x1"."""
    return ", ".join(f"{name} {record.tensors[name]}" for name in SHOWN if record.tensors.get(name))


def executed(record: Record) -> Call:
    """Return the call of one executed plan; its kernel is the engine's number and settings, "" where none is told."""
    routine = "+".join(dict.fromkeys(record.operations)) or "plan"
    engine, knobs = record.values.get("engine_id"), record.settings
    kernel = f"engine {engine}" if engine else ""
    if kernel and knobs:
        kernel += f" ({', '.join(f'{name} {value}' for name, value in knobs.items())})"
    dtype, inside = types(record)
    return Call("cuDNN", routine, operation(record), shape(record), dtype=dtype, compute=inside, kernel=kernel)


def layer(record: Record) -> Call:
    """Return the call of one layer of the older API, which names an algorithm for convolutions only."""
    found = next(k for start, k in LAYERS.items() if record.function.startswith(start))
    dtype, inside = types(record)
    kernel = record.values.get("algo", "").split(" ")[0]
    return Call(
        "cuDNN", f"cudnn{record.function}", found, shape(record), dtype=dtype, compute=inside, kernel=kernel
    )  # fmt: skip


def types(record: Record) -> tuple[str, str]:
    """Return the dtype of the first tensor, and that of the arithmetic ("" where the log does not say)."""
    first = next((record.types[name] for name in SHOWN if name in record.types), "")
    found = [name.removeprefix("CUDNN_DATA_") for name in (first, record.types.get("inside", ""))]
    return TYPES.get(found[0], found[0].lower()), TYPES.get(found[1], found[1].lower())
