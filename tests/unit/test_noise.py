"""What is noise and what is not, and that the documentation lists every rule."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sandbox_agent.records import noise as noise_module
from sandbox_agent.records.noise import LEFT_OUT_OF_TREES, RULES, Noise, Rule, counts_in_tree

PAGE = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_finds_its_example_and_is_documented(rule: Rule) -> None:
    """Whole, and by its name in the table."""
    assert rule.pattern.search(rule.example)
    assert Noise().text(rule.example) != rule.example
    assert f"| {rule.name} |" in PAGE


@pytest.mark.parametrize(
    "text",
    ["3 passed", "line 42", "1.2.3", "version 10", "0x1f", "id 123456", "2026", "sha " + "ab" * 32, "v1s"],
)
def test_other_numbers_are_no_noise(text: str) -> None:
    """Counts, versions, hashes, lines: a difference in them counts."""
    assert Noise().text(text) == text


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_stands_for_noise_is_none(rule: Rule) -> None:
    """A text that was brought into this form already stays as it is: both sides of a comparison may be."""
    once = Noise().text(f"a {rule.example}")
    assert Noise().text(once) == once


def test_output_that_is_no_text_is_compared_by_what_is_in_it() -> None:
    """Times in it are noise, other bytes are not; what is no base64 is left as it is."""

    def of(output: bytes) -> object:
        return Noise().meta({"stdout_base64": base64.b64encode(output).decode(), "duration_s": 1.0})

    assert of(b"\xff at 12:00:01") == of(b"\xff at 13:11:12")
    assert of(b"\xff") != of(b"\xfe")
    assert Noise().meta({"stdout_base64": "12:00:01!", "more": "12:00:01"})["stdout_base64"] == "<time>!"


def test_two_runs_of_one_thing_compare_equal() -> None:
    """In another folder, as another user, at another time."""
    here = Noise(["/home/me/project", "/srv/copy"], [1000, 4242])
    one = "in /home/me/project/a.py: 3 passed in 0.12s, uid=1000(agent) 1000\n-rw-r--r-- 1 agent agent 2 Nov 30 12:00 a"
    two = "in /srv/copy/a.py: 3 passed in 1.02s, uid=4242(agent) 4242\n-rw-r--r-- 1 agent agent 2 Dec  1 04:11 a"

    assert here.text(one) == here.text(two)
    assert here.text("/home/me/project-2") == "/home/me/project-2"


def test_what_does_not_count_in_trees_is_documented() -> None:
    """And nothing else is left out."""
    assert not counts_in_tree("a/__pycache__/b.cpython-311.pyc")
    assert not counts_in_tree(".git/index")
    assert not counts_in_tree("sub/.git/index")
    assert counts_in_tree(".git/HEAD")
    assert counts_in_tree("index")
    assert counts_in_tree("x.git/index")
    assert all(f"`{pattern}`" in PAGE for pattern in LEFT_OUT_OF_TREES)


def test_a_text_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request of a run has the whole conversation; what is remembered has an end."""
    monkeypatch.setattr(noise_module, "MOST_KNOWN_CHARS", 700)
    made: list[str] = []

    class Counting(Noise):
        def _made(self, text: str) -> str:
            made.append(text)
            return super()._made(text)

    noise, texts = Counting(), [f"at 12:00:0{number} " + "x" * 200 for number in range(4)]
    for _ in range(3):
        assert [noise.text(text) for text in texts[:2]] == ["at <time> " + "x" * 200] * 2
    assert made == texts[:2]
    for text in texts:
        noise.text(text)
    noise.text(texts[0])
    assert made == [*texts, texts[0]]
