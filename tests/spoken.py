"""What tests ask of findings: their codes, one of them, and that each can be said in both languages."""

from rocmlab import findings


def codes(found) -> list[str]:
    return [one["code"] for one in found]


def said_codes(found) -> list[str]:
    """Return the codes of findings whose sentences are whole: nothing unknown in them and no placeholder left."""
    for one in found:
        for lang in findings.LANGUAGES:
            spoken = findings.say(one, lang)
            assert spoken["sentence"] and "unknown" not in spoken["sentence"]
            assert "{" not in spoken["sentence"] + spoken["advice"]
    return codes(found)


def only(found, code):
    """Return the one finding of a code, which can be said in both languages."""
    (one,) = [one for one in found if one["code"] == code]
    assert all(findings.say(one, lang)["sentence"] for lang in findings.LANGUAGES)
    return one


def said(found) -> str:
    """Return sentence and advice of a finding."""
    spoken = findings.say(found)
    return f"{spoken['sentence']} {spoken['advice']}"
