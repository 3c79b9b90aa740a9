"""The table of codes: both languages say the same, every code is complete, and the worst finding gives the verdict."""

import string

import pytest

from rocmlab import findings

TABLE = findings.messages()


def wordings():
    for code, entry in TABLE.items():
        yield code, entry
        for variant, words in (entry.get("variants") or {}).items():
            yield f"{code}/{variant}", words


def fields(text: str) -> list[tuple[str, str]]:
    return sorted((name, spec or "") for _, name, spec, _ in string.Formatter().parse(text or "") if name is not None)


@pytest.mark.parametrize(("code", "words"), list(wordings()), ids=lambda value: value if isinstance(value, str) else "")
def test_both_languages_have_the_same_parts_and_placeholders(code, words):
    assert {"sentence"} <= set(words["en"]) == set(words["zh"]) <= {"sentence", "advice"}
    for part in words["en"]:
        assert fields(words["en"][part]) == fields(words["zh"][part]), part
        assert bool(words["en"][part]) == bool(words["zh"][part])


@pytest.mark.parametrize("code", TABLE)
def test_every_code_has_a_known_status_and_sort(code):
    entry = TABLE[code]
    assert entry["status"] in findings.ORDER
    assert entry["sort"] in ("fault", "answer", "note", "headline")
    assert entry["status"] == "ok" or entry["sort"] in ("fault", "answer")
    assert code == code.upper()


def test_a_missing_number_is_said_to_be_unknown():
    found = findings.finding("OTHER_WORK", numbers={"others_cpu_pct": None, "others_cpu_max_pct": 30.0})
    assert "unknown%" in findings.say(found)["sentence"]
    assert "未知" in findings.say(found, "zh")["sentence"]


def test_an_unknown_code_is_a_fault_of_ours():
    with pytest.raises(KeyError):
        findings.finding("NO_SUCH_CODE")


def test_worst_first_and_the_verdict():
    note = findings.finding("LIKE_FOR_LIKE")
    warn = findings.finding("STOPPED_EARLY")
    answer = findings.finding("SPEEDUP")
    unknown = findings.finding("NOT_A_NUMBER")
    broken = findings.finding("WRONG_TEXT")
    order = findings.worst_first([note, answer, warn, unknown, broken])
    assert [f["code"] for f in order] == ["WRONG_TEXT", "NOT_A_NUMBER", "STOPPED_EARLY", "SPEEDUP", "LIKE_FOR_LIKE"]
    assert findings.verdict(order) == ("WRONG_TEXT", "broken")
    assert findings.verdict([note, answer]) == ("SPEEDUP", "ok")
    assert findings.verdict([note]) == findings.verdict([]) == ("OK", "ok")


@pytest.mark.parametrize("name", ["messages.yaml", "words.yaml", "archs.yaml"])
def test_no_key_stands_twice(name):
    """YAML lets a later key win silently, and two people may add the same code."""
    import re
    from collections import Counter
    from importlib import resources

    text = resources.files("rocmlab").joinpath(name).read_text(encoding="utf-8")
    keys = Counter(re.findall(r"^([A-Za-z_0-9]+):", text, re.MULTILINE))
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("odd", [[], "many", {}, {"de": 1}, 10**400, float("inf"), float("nan")])
@pytest.mark.parametrize("lang", findings.LANGUAGES)
def test_what_is_no_number_is_said_to_be_unknown_and_never_raises(odd, lang):
    found = findings.finding("OTHER_WORK", numbers={"others_cpu_pct": odd, "others_cpu_max_pct": 30.0})
    assert f"{findings.UNKNOWN[lang]}%" in findings.say(found, lang)["sentence"]


def test_no_infinity_in_the_numbers_of_a_finding():
    numbers = {"a": float("inf"), "b": float("nan"), "c": 1.5, "d": None, "e": True}
    found = findings.finding("OTHER_WORK", numbers=numbers)["numbers"]
    assert (found["a"], found["b"], found["c"], found["d"], found["e"]) == (None, None, 1.5, None, True)
    assert found["a_reason"] and found["b_reason"] and "d_reason" not in found
    assert numbers["a"] == float("inf")


@pytest.mark.parametrize(
    ("value", "spec", "said"),
    [
        (1460.2, ".3g", "1,460"),
        (-123456.0, ".2g", "-120,000"),
        (999.6, ".3g", "1,000"),
        (12.34, ".3g", "12.3"),
        (1.5e-7, ".3g", "1.5e-07"),
        (2.5e12, ".3g", "2.5e+12"),
        (None, ".3g", "unknown"),
        ("1.0e+03", "", "1.0e+03"),
    ],
)
def test_thousands_are_written_as_people_write_them(value, spec, said):
    assert findings._Nullable("en").format_field(value, spec) == said
