"""A run that was sent as one zip: read as the folder it was; a zip of any other kind is refused with the reason."""

from __future__ import annotations

import dataclasses

from rocmlab import bundle
from rocmlab.findings import finding
from rocmlab.readers import Evidence, Reading, records

ZIP_HEADS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")


def recognise(evidence: Evidence) -> bool:
    return evidence.head.startswith(ZIP_HEADS) or (
        evidence.name.lower().endswith(".zip") and not evidence.path.is_dir()
    )


def read(evidence: Evidence) -> Reading:
    """Read a bundle; one that is not opened is of kind unknown, with the reason."""
    try:
        with bundle.opened(evidence.path) as folder:
            found = records.read(Evidence(folder))
    except bundle.BundleError as error:
        return Reading("unknown", findings=[finding("BUNDLE_REFUSED", file=evidence.name, why=error.why)])
    if found.headline:
        words = found.headline["words"] | {"file": evidence.name}
        found.headline = {**found.headline, "words": words}
    return dataclasses.replace(found, kind="bundle")
