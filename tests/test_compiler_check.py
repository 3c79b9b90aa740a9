"""The runtime compiler: Debian's HIPRTC really compiles for a card that is not here, and really fails on a header."""

import pytest

from rocmlab import compiler_check, isolate


@pytest.fixture(scope="module")
def checked():
    if not compiler_check.libraries():
        pytest.skip("no HIPRTC here (Debian: libamdhip64-5)")
    return compiler_check.run("gfx1032")


def test_a_plain_kernel_compiles_for_a_card_that_is_not_here(checked):
    assert checked["plain"]["ok"] and checked["plain"]["bytes"] > 1000
    assert checked["arch"] == "gfx1032" and checked["library"] and checked["reason"] is None


def test_an_old_hiprtc_fails_on_the_header_and_says_where(checked):
    if not (checked["library"] or "").startswith("libamdhip64.so.5"):
        pytest.skip("another HIPRTC than Debian's 5.2, which may well compile it")
    assert checked["type_traits"]["ok"] is False
    assert "type_traits" in checked["type_traits"]["log"] and checked["type_traits"]["bytes"] is None


def test_a_target_that_ends_the_compiler_is_a_row(checked):
    failed = compiler_check.run("gfx9999")
    assert failed["plain"]["ok"] is False and failed["plain"]["log"]


def test_without_a_library_there_is_a_reason(monkeypatch):
    monkeypatch.setattr(compiler_check, "libraries", lambda: [])
    assert compiler_check.run("gfx1032") == {
        **dict.fromkeys(("library", "version", "plain", "type_traits")),
        "arch": "gfx1032",
        "reason": "no HIPRTC library found",
    }


def test_a_library_that_is_none_is_an_error_not_a_crash(tmp_path):
    fake = tmp_path / "libhiprtc.so"
    fake.write_bytes(b"not a library")
    arguments = {"paths": [str(fake)], "kind": "plain", "arch": "gfx1032"}
    outcome = isolate.call("rocmlab.compiler_check:compile_one", arguments, limit_s=20)
    assert outcome.status == "ERROR" and "libhiprtc.so" in outcome.error
