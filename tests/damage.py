"""Small faults planted in a piece of evidence: values that should not be there, bytes cut, overwritten or repeated."""

import copy
import json

NASTY = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\0", b"\xff", b"null", b"-", b"1e308", b"NaN", b"Infinity"]
NASTY += [b"\n", b"\r\n", b".", b"9" * 5000, b"\xef\xbb\xbf", b"<", "\u00b2".encode(), b" " * 40]
VALUES = [None, -5, 0, 1e308, float("nan"), float("inf"), "12", "x", "", [], {}, [None], {"a": 1}, True, -1e15, 10**400]


def spots(document):
    """Return every (container, key) of a document."""
    found, waiting = [], [document]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else []
        found += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return found


def with_odd_values(rng, data):
    """Change, remove or repeat some values of a JSON document; bytes that are none stay as they are."""
    try:
        document = copy.deepcopy(json.loads(data))
    except ValueError:
        return data
    for _ in range(rng.randrange(1, 4)):
        if not (places := spots(document)):
            break
        container, key = rng.choice(places)
        if rng.random() < 0.15:
            del container[key]
        else:
            container[key] = rng.choice(VALUES)
    return json.dumps(document).encode()


def with_odd_bytes(rng, data):
    """Cut, overwrite, remove or repeat some bytes."""
    changed = bytearray(data)
    for _ in range(rng.randrange(0, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                del changed[at : at + rng.randrange(1, 60)]
            case 1:
                changed[at : at + 1] = rng.choice(NASTY)
            case 2:
                changed[at:at] = changed[max(0, at - 80) : at]
            case 3:
                del changed[max(at, 20) :]
    return bytes(changed)
