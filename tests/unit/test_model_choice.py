"""What `--model` and `--fallback-model` may be."""

from __future__ import annotations

import pytest

from sandbox_agent.engine.model_choice import fallback_name, model_kind
from sandbox_agent.errors import ConfigError


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")


def test_a_model_is_a_kind_and_a_name() -> None:
    """The module that makes it, and what it gets."""
    assert model_kind("anthropic:claude-x") == ("anthropic", "claude-x")
    assert model_kind("script:a:b.yaml") == ("scripted", "a:b.yaml")


@pytest.mark.parametrize("spec", ["claude-x", "anthropic:", ":x", "openai:x", ""])
def test_another_spelling_is_refused(spec: str) -> None:
    """With the right one."""
    with pytest.raises(ConfigError, match="write anthropic:NAME or script:FILE"):
        model_kind(spec)


def test_a_bare_name_of_the_api_is_answered_with_its_kind() -> None:
    """As other agents take it."""
    with pytest.raises(ConfigError, match=r"\(did you mean anthropic:claude-sonnet-5-5\?\)"):
        model_kind("claude-sonnet-5-5")


def test_a_fallback_is_another_model_of_the_api() -> None:
    """None stays none."""
    assert fallback_name("anthropic:claude-y", "anthropic:claude-x") == "claude-y"
    assert fallback_name(None, "script:x.yaml") is None


@pytest.mark.parametrize(
    ("spec", "model", "why"),
    [
        ("claude-y", "anthropic:claude-x", "write anthropic:NAME"),
        ("anthropic: ", "anthropic:claude-x", "write anthropic:NAME"),
        ("script:x.yaml", "anthropic:claude-x", "write anthropic:NAME"),
        ("anthropic:claude-y", "script:x.yaml", "--model is script:x.yaml"),
        ("anthropic:claude-x", "anthropic:claude-x", "the model itself"),
    ],
)
def test_a_fallback_that_is_none_is_refused_at_the_start(spec: str, model: str, why: str) -> None:
    """Not when it is needed."""
    with pytest.raises(ConfigError, match=why):
        fallback_name(spec, model)
