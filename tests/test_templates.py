"""What the templates do to a text: numbers stand out, and what looks like a tag stays text."""

import pytest
from bs4 import BeautifulSoup

from rocmlab import templates


@pytest.mark.parametrize(
    ("sentence", "bold"),
    [
        ("The GPU writes 25.0 tok/s, 1.80× the CPU (13.9 tok/s).", ["25.0 tok/s", "1.80×", "13.9 tok/s"]),
        ("GPU 快 1.8 倍，显存带宽用了 13.2%。", ["1.8 倍", "13.2%"]),
        ("gfx1032 under torch 2.9.1 <b> on Windows 11", []),
    ],
)
def test_numbers_stand_out_in_the_answers(sentence, bold):
    marked = BeautifulSoup(str(templates.environment().filters["numbers"](sentence)), "html.parser")
    assert [tag.text for tag in marked.find_all("b")] == bold
    assert marked.text == sentence
