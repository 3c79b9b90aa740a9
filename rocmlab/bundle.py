"""One zip of a run that may be sent to anybody: `make(run)` writes it, `opened(path)` opens one, or says why not.

Under 10 MB: what is needed to compare and to read comes first, what no longer fits is left out and named. Every text is
redacted again, traces lose all that is not their events. The same run gives the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocmlab import __version__, readers, redaction, results, words
from rocmlab.redaction import Redactor, plain_png

SCHEMA = "rocmlab-bundle-1"
MANIFEST = "bundle.json"
LIMIT_BYTES = 10_000_000  # what a forum or a mail takes as an attachment
LARGEST_TEXT = 64_000_000  # of one file before packing; larger ones are left out
LOG_BYTES = 200_000  # of each log, from its end: what went wrong stands there
PACKED_BYTES, UNPACKED_BYTES, MOST_FILES = 50_000_000, 200_000_000, 2000  # of a zip that is opened
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
# In order of worth: a run that is too large loses its last ones. Reference to figures: the Markdown needs the PNG.
PARTS = (
    "run.json", "findings.json", "records/*.jsonl", "summary*.md", "bug-report*.md", "index*.html", "notebooks/*.ipynb",
    "[0-9][0-9]*.md", "figures/*.png", "logs/*.log", "pages/*.html", "figures/*.svg",
    "traces/*.json.gz", "traces/*.json",
)  # fmt: skip
NAME = re.compile(
    r"(?a)(?:run|findings|bundle)\.json|records/[\w.-]+\.jsonl|(?:summary|bug-report|\d\d)[\w.-]*\.md|index[\w.-]*\.html|"
    r"(?:notebooks/[\w.-]+\.ipynb|figures/[\w.-]+\.(?:png|svg)|logs/[\w.-]+\.log|pages/[\w.-]+\.html|traces/[\w.-]+\.json\.gz)"
)
# Names that Windows takes for devices.
RESERVED = re.compile(r"(?i)(?:^|/)(?:con|prn|aux|nul|com\d|lpt\d)\.")
# Of a trace: all else, such as host_name, env, command lines and folders, is about who recorded it.
TRACE_KEYS = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "deviceProperties", "traceEvents")


class BundleError(ValueError):
    """A zip that is not opened; `why` says it in both languages."""

    def __init__(self, key: str, **values: Any) -> None:
        self.why = words.both(key, **values)
        super().__init__(self.why["en"])


# ---- make


def make(run: Path, target: Path | None = None) -> tuple[Path, dict[str, Any]]:
    """Write the bundle of a run folder beside it and return (path, manifest). Raises ValueError for no run folder."""
    if results.birth(run).get("schema") != results.BIRTH_SCHEMA:
        raise ValueError(f"{run.name}: not a run folder (no run.json of schema {results.BIRTH_SCHEMA})")
    target = target or run.with_name(f"{run.name}.zip")
    redactor = learned(run)
    kept, left_out = chosen(run, redactor)
    manifest = {
        "schema": SCHEMA,
        "rocmlab_version": __version__,
        "run": redactor.text(run.name),
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in kept.items()
        },
        "left_out": left_out,
    }
    kept[MANIFEST] = (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()
    _write(target, kept)
    return target, manifest


def learned(run: Path) -> Redactor:
    """Return a redactor that knows the names which the texts of a run give away."""
    redactor = Redactor(results._patterns())
    for path in files(run):
        if path.suffix not in (".png", ".gz"):
            redactor.learn(_text(path))
        if path.suffix in (".json", ".jsonl", ".ipynb"):
            # The same with letters as themselves: JSON may write a name or a backslash as an escape.
            redactor.learn(re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), _text(path)))
    return redactor


def files(run: Path) -> list[Path]:
    """Return what a bundle may hold, best first: plain files with names of ours, links left out."""
    found: dict[Path, None] = {}
    for pattern in PARTS:
        mine = sorted(one for one in run.glob(pattern) if one.is_file() and not one.is_symlink())
        for path in mine:
            name = path.relative_to(run).as_posix()
            if NAME.fullmatch(name if not name.startswith("traces/") else name.removesuffix(".gz") + ".gz"):
                found[path] = None
    return [one for one in found if not one.stem.endswith("-narrow")]


def chosen(run: Path, redactor: Redactor) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return (clean content by name, why others are left out), as much as fits."""
    kept: dict[str, bytes] = {}
    left_out, room = {}, LIMIT_BYTES - 200_000  # for the manifest and the zip's own directory
    for path in files(run):
        name = path.relative_to(run).as_posix()
        if redactor.text(name) != name:
            left_out[redactor.text(name)] = "its name is somebody's"
            continue
        if path.stat().st_size > LARGEST_TEXT:
            left_out[name] = "too large"
            continue
        try:
            name, data = clean(path, name, redactor)
        except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
            left_out[name] = f"cannot be read: {type(error).__name__}"
            continue
        packed = len(zlib.compress(data, 9)) + 2 * len(name) + 200
        if packed > room:
            left_out[name] = f"no room within {LIMIT_BYTES / 1e6:.0f} MB"
            continue
        room -= packed
        kept[name] = data
    return kept, left_out


def clean(path: Path, name: str, redactor: Redactor) -> tuple[str, bytes]:
    """Return (name in the bundle, content without what is private) of one file. Raises ValueError for a broken one."""
    if path.suffix == ".png":
        data = plain_png(path.read_bytes())
        if not data:
            raise ValueError("not a whole picture")
        return name, data
    if name.startswith("traces/"):
        return name.removesuffix(".gz") + ".gz", _trace(path, redactor)
    text = _text(path)
    if path.suffix == ".jsonl":
        text = "".join(redactor.json_text(line) + "\n" for line in text.splitlines() if line.strip())
    elif path.suffix in (".json", ".ipynb"):
        text = redactor.json_text(text, indent=1) + "\n"
    elif path.suffix == ".log":
        cut = text[-LOG_BYTES:]
        text = redactor.text(text)[-LOG_BYTES:] if cut != text else redactor.text(text)
    else:
        text = redaction.escaped(redactor.text(text))
    return name, text.encode("utf-8", errors="replace")


def _text(path: Path) -> str:
    return readers.decode(path.read_bytes()).replace("\r\n", "\n")


def _trace(path: Path, redactor: Redactor) -> bytes:
    """Return a trace with its events alone, packed again."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            raw = file.read(LARGEST_TEXT + 1)
        if len(raw) > LARGEST_TEXT:
            raise ValueError("too large")
    trace = json.loads(readers.decode(raw))
    events = trace if isinstance(trace, list) else trace.get("traceEvents")
    if not isinstance(events, list):
        raise ValueError("no events")
    kept = (
        {key: trace[key] for key in TRACE_KEYS if key in trace} if isinstance(trace, dict) else {"traceEvents": events}
    )
    kept["traceEvents"] = [one for one in events if not _about_the_machine(one)]
    redactor.learn(json.dumps(kept, ensure_ascii=False))
    text = json.dumps(redactor.json(kept), ensure_ascii=False)
    return gzip.compress(text.encode("utf-8", errors="replace"), compresslevel=9, mtime=0)


ABOUT_MACHINE = re.compile(r"(?i)\b(env(iron(ment)?)?|host_?name|command_?line|cwd|argv|user_?name)\b")


def _about_the_machine(event: Any) -> bool:
    """Tell whether an event is metadata about who recorded it: environment, host, command line."""
    if not isinstance(event, dict):
        return True
    told = [str(event.get("name"))]
    told += [str(key) for key in event["args"]] if isinstance(event.get("args"), dict) else []
    return event.get("ph") in ("M", "i", "I") and any(ABOUT_MACHINE.search(one) for one in told)


def _write(target: Path, kept: dict[str, bytes]) -> None:
    """Write a zip with sorted names and fixed times, whole or not at all."""
    scratch = target.with_name(f".{target.name}.tmp")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(kept):
            entry = zipfile.ZipInfo(name, FIXED_TIME)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, kept[name])
    scratch.replace(target)


# ---- open


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Unpack a bundle into a folder that is gone afterwards, and give that folder.

    Raises BundleError for what is damaged, too large, locked, or not made by `make`: nothing is written outside, and
    nothing is unpacked before every name has been looked at. Raises OSError when the file cannot be opened.
    """
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "bundle")
        if path.stat().st_size > PACKED_BYTES:
            raise BundleError("bundle_heavy", limit=PACKED_BYTES // 1_000_000)
        try:
            with zipfile.ZipFile(path) as archive:
                entries = checked(archive)
                _unpack(archive, entries, folder)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error, RuntimeError) as error:
            raise BundleError("bundle_damaged", error=f"{type(error).__name__}: {error}"[:200]) from None
        _verify(folder)
        yield folder


def checked(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the entries of a zip in which every name, kind and size is a bundle's. Raises BundleError."""
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise BundleError("bundle_many", limit=MOST_FILES)
    names = {one.filename for one in entries}
    for needed in (MANIFEST, "run.json"):
        if needed not in names:
            raise BundleError("bundle_foreign", missing=needed)
    for one in entries:
        kind = stat.S_IFMT(one.external_attr >> 16)
        if one.flag_bits & 1:
            raise BundleError("bundle_locked")
        if kind not in (0, stat.S_IFREG):
            raise BundleError("bundle_link", name=repr(one.filename[:80]))
        if not NAME.fullmatch(one.filename) or RESERVED.search(one.filename):
            raise BundleError("bundle_name", name=repr(one.filename[:80]))
        if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleError("bundle_damaged", error=f"packed in a way of its own, {one.compress_type}")
    # Windows and macOS take run.json and RUN.json for one file.
    if len({name.lower() for name in names}) < len(entries):
        raise BundleError("bundle_damaged", error="two files of one name")
    if sum(one.file_size for one in entries) > UNPACKED_BYTES:
        raise BundleError("bundle_large", limit=UNPACKED_BYTES // 1_000_000)
    return entries


def _unpack(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], folder: Path) -> None:
    """Write the entries: no more of each than the size it states, whatever the packed data hold."""
    for one in entries:
        target = folder / one.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(archive.read(one))


def _verify(folder: Path) -> None:
    """Compare every file with the manifest: a zip that was changed since is damaged. Raises BundleError."""
    manifest = results.read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise BundleError("bundle_foreign", missing=SCHEMA)
    stated_files = manifest.get("files")
    listed: dict[str, Any] = stated_files if isinstance(stated_files, dict) else {}
    present = {one.relative_to(folder).as_posix(): one for one in folder.rglob("*") if one.is_file()}
    present.pop(MANIFEST)
    for name, path in present.items():
        stated = listed.get(name)
        same = isinstance(stated, dict) and stated.get("sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
        if not same:
            raise BundleError("bundle_damaged", error=f"{name} is not as it was packed")
    if set(listed) - set(present):
        raise BundleError("bundle_damaged", error=f"{min(set(listed) - set(present))[:80]!r} is missing")
    if results.birth(folder).get("schema") != results.BIRTH_SCHEMA:
        raise BundleError("bundle_foreign", missing=results.BIRTH_SCHEMA)
