"""Logs of GPU libraries, the HIP runtime, CPU libraries, and error messages: any text, told apart by its lines.

A file is read line by line and never held whole. A line belongs to the library whose mark it carries; where output of
two programs was mixed into one line, each part is read by itself. What nobody knows is counted, never dropped silently.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rocmlab import findings, libraries, library_judges
from rocmlab.libraries import Log
from rocmlab.readers import Evidence, Reading, errors, hipblaslt, miopen, nvidia, onednn, rocblas, runtime_log

OWN = 12  # characters that may stand before a record at the start of its line
PIECE = 1 << 16  # longest piece of a line that is read at once
SCANNED = 1 << 28  # bytes searched for a mark when the beginning of a file shows none
MARK = "rocmlab-mark: "
ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
RUNTIME = re.compile(r":[0-4]:[\w.+-]+\.(?:cpp|hpp|h|inl) *:\d+ *:")

SUSPECT = re.compile(r"^:[01]:|[eE]rror|fault|access")

# Where a record of a library may start in the middle of a line, because another program had not finished its own.
STARTS = (
    "MIOpen(HIP)", "MIOpen: ", "MIOpen Error:", "rocblas-bench -f", "rocblas_gemm_ex,", "rocblas_internal,",
    "hipblaslt-bench --", "onednn_verbose,",
    "dnnl_verbose,", "MKL_VERBOSE ", "I! cuBLAS", "I! CuDNN", MARK,
)  # fmt: skip
# What may stand before a mark at the start of a line: a path, a count, a time, a quote, a tag in brackets.
LEAD = re.compile(r"[\s\d\"'>$./\\\w:+-]*?(?:\.exe)?$")

# Documents and programs quote logs; they are none.
PROSE = re.compile(
    r"^(?:#{2,6} \S|#+ \S.*\r?\n\r?\n|\|[ :|-]+\|\s*$|def \w+\(|class \w+[(:]|import \w+\s*$|from [\w.]+ import )",
    re.MULTILINE,
)
CERTAIN = re.compile(
    r"^(?:MIOpen(?:\(HIP\))?: \w+ \[|\./rocblas-bench -f|hipblaslt-bench --|onednn_verbose,|MKL_VERBOSE "
    r"|rocblas_\w+,|:[0-4]:\w+\.[ch]pp|\[[-\d: ]+\]\[(?:HIPBLASLT|cublasLt)\])",
    re.MULTILINE,
)

KIND_LOG, KIND_MESSAGE = "log", "message"


class Reader(Protocol):
    """What each library's parser offers."""

    def feed(self, text: str, line: int) -> str: ...


class Parsers:
    """One parser a library over one log, and the rules of whose line it is."""

    def __init__(self) -> None:
        self.log = log = Log()
        self.miopen, self.rocblas, self.lt = miopen.Parser(log), rocblas.Parser(log), hipblaslt.Parser(log)
        self.nvidia, self.cpu = nvidia.Parser(log), onednn.Parser(log)
        self.runtime, self.errors = runtime_log.Parser(log), errors.Parser(log)
        self.marked: tuple[tuple[tuple[str, ...], Reader], ...] = (
            (onednn.MARKS, self.cpu),
            (hipblaslt.MARKS, self.lt),
            (rocblas.MARKS, self.rocblas),
            (miopen.MARKS, self.miopen),
            (nvidia.MARKS, self.nvidia),
        )
        # The first characters of the commonest lines; only a short cut, the marks decide about all others.
        self.starting: dict[str, Reader] = {"one": self.cpu, "MKL": self.cpu, "MIO": self.miopen}
        self.starting |= {"roc": self.rocblas, "./r": self.rocblas, "hip": self.lt, "i! ": self.nvidia}

    def feed(self, text: str, line: int) -> None:
        """Read one line."""
        self.log.lines += 1
        if text.isspace() or not text:
            return
        pieces = parts(text)
        if pieces is not None:
            self._count({self._part(piece, line) for piece in pieces}, line)
        elif (outcome := self._part(text, line)) == "known":
            self.log.known += 1
            self.log.library_lines += 1
        else:
            self._count({outcome}, line)

    def _count(self, outcomes: set[str], line: int) -> None:
        log = self.log
        if "known" in outcomes:
            log.known += 1
            log.library_lines += 1
        elif outcomes == {""}:
            log.other += 1
        elif outcomes != {"damaged"}:
            log.known += 1
        if "damaged" in outcomes:
            log.library_lines += 1
            log.damaged += 1
            log.damaged_line = log.damaged_line or line

    def _part(self, text: str, line: int) -> str:
        if text.startswith(MARK):
            self.log.enter(text[len(MARK) :].strip())
            return "mark"
        if text[0] in " \t}" and (self.lt.follow(text) or self.miopen.follow(text)):
            return "known"
        if text[0] in " ={" and self.nvidia.follow(text):
            return "known"
        if self.rocblas.columns and self.rocblas.follow(text, line):
            return "known"
        if text[0] == ":" or ("pp" in text and RUNTIME.search(text)):
            outcome = self.runtime.feed(text, line)
            if outcome:
                if SUSPECT.search(text):
                    self.errors.feed(text, line)
                return outcome
        own = self.starting.get(text[:3])
        if own is not None and (outcome := own.feed(text, line)):
            return outcome
        for marks, parser in self.marked:
            for mark in marks:
                if mark in text:
                    outcome = parser.feed(text, line)
                    if outcome:
                        return outcome
                    break
        return self.errors.feed(text, line) if any(mark in text for mark in errors.MARKS) else ""

    def close(self) -> Log:
        """Finish what is held back for lines to come, and return the log."""
        self.miopen.close()
        held = [self.lt.close(), self.nvidia.finish()]
        self.log.damaged += sum(held)
        self.rocblas.close()
        return self.log


def parts(text: str) -> list[str] | None:
    """Cut a line where a second record starts; None for the many lines where none does."""
    # A record that starts further left is a line's own, behind a path or a count; its parser finds it there.
    find = text.find
    if (
        find("MIOpen", OWN) < 0 and find("bench -", OWN + 6) < 0 and find("nn_verbose,", OWN) < 0
        and find("MKL_VERBOSE", OWN) < 0 and find("I! ", OWN) < 0 and find("rocblas_gemm_ex,", OWN) < 0
        and find("rocblas_internal,", OWN) < 0 and find(MARK, OWN) < 0
        and (find("pp", OWN) < 0 or RUNTIME.search(text, OWN) is None)
    ):  # fmt: skip
        return None
    places = {m.start() for start in STARTS for m in re.finditer(re.escape(start), text)}
    places |= {m.start() for m in RUNTIME.finditer(text)}
    if len(places) == 1 and LEAD.match(text[: min(places)]):
        return None
    bounds = [0, *sorted(places - {0}), len(text)]
    return [part for a, b in itertools.pairwise(bounds) if (part := text[a:b]).strip()]


def lines(path: Path) -> Iterator[str]:
    """Return the lines of a text file as tools really write them: UTF-8, GBK line by line, UTF-16 with a mark or not;
    carriage returns end a line, colours are dropped, a line without end comes in pieces."""
    with path.open("rb") as file:
        encoding = wide(file.read(PIECE))
        file.seek(0)
        for piece in _wide_pieces(file, encoding) if encoding else iter(lambda: file.readline(PIECE), b""):
            text = piece if isinstance(piece, str) else _decode(piece)
            text = text.rstrip("\r\n")
            if "\x1b" in text or "\ufeff" in text:
                text = ANSI.sub("", text.strip("\ufeff"))
            if "\r" in text:
                yield from text.split("\r")
            else:
                yield text


def wide(head: bytes) -> str:
    """Return the name of the UTF-16 form of a text, "" for one byte a character."""
    if head.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    sample = head[:4096]
    if len(sample) > 8 and sample[1::2].count(0) > 0.7 * len(sample[1::2]):
        return "utf-16-le"
    if len(sample) > 8 and sample[0::2].count(0) > 0.7 * len(sample[0::2]):
        return "utf-16-be"
    return ""


def _wide_pieces(file: Any, encoding: str) -> Iterator[str]:
    decoder, held = codecs.getincrementaldecoder(encoding)("replace"), ""
    for block in iter(lambda: file.read(PIECE), b""):
        held += decoder.decode(block)
        *whole, held = held.split("\n")
        yield from whole
        if len(held) > PIECE:
            yield held
            held = ""
    if held:
        yield held


def _decode(piece: bytes) -> str:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return piece.decode("gbk")
    except UnicodeDecodeError:
        return piece.decode("utf-8", errors="replace")


def parse(path: Path) -> Log:
    """Read one log. Raises OSError when it cannot be opened; what it holds never raises."""
    parsers = Parsers()
    for number, text in enumerate(lines(path), 1):
        if number == 1 and text.startswith("# amd-sample |"):
            continue
        parsers.feed(text, number)
    return parsers.close()


def parse_text(text: str) -> Log:
    """Read a log that is already in memory."""
    parsers = Parsers()
    for number, line in enumerate(text.splitlines(), 1):
        parsers.feed(line, number)
    return parsers.close()


def recognise(evidence: Evidence) -> bool:
    """Whether any line is a library's or a known message. JSON, binaries and prose that quotes logs are not."""
    head = evidence.head
    if (
        not head
        or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
        or re.match(rb"\s*\[\s*[\[\]{\"0-9.-]*\s*[{\"]", head)
    ):
        return False
    encoding = wide(head)
    if not encoding and b"\0" in head[:1024]:
        return False
    text = head.decode(encoding, errors="replace") if encoding else _decode(head)
    if _owned(text):
        return True
    return evidence.path.stat().st_size > len(head) and _deeper(evidence.path)


def _owned(text: str) -> bool:
    if PROSE.search(text) and len(CERTAIN.findall(text)) < 3:
        return False
    log = parse_text(text.removeprefix("\ufeff"))
    return bool(log.libraries or library_judges.judge(log))


def _deeper(path: Path) -> bool:
    """Look further into a file whose beginning is something else, such as a program's own output before it failed."""
    marks = [m.encode() for m in (*STARTS, *errors.MARKS, "rocblas_", "HIPBLASLT]", "rocBLAS error")]
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            if any(mark in block for mark in marks) and _owned(_decode(block)):
                return True
            if file.tell() > SCANNED:
                break
    return False


def read(evidence: Evidence) -> Reading:
    """Judge one log or message."""
    log = parse(evidence.path)
    kind = KIND_LOG if log.library_lines or log.libraries else KIND_MESSAGE
    numbers = libraries.numbers(log)
    found = library_judges.judge(log)
    for one in found:
        numbers = {**numbers, **one["numbers"]}
    return Reading(kind, None, numbers, found, headline(log, numbers) if kind == KIND_LOG else None)


def headline(log: Log, numbers: dict[str, Any]) -> findings.Finding:
    """Say in one sentence whose log this is."""
    names = ", ".join(name for name, _ in log.libraries.most_common()) or "-"
    return findings.finding("LOG_READ", numbers=numbers, libraries=names, known=log.known)
