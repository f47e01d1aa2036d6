"""Prices by the package `genai-prices`, which has its data with it. Load it late: it is an optional extra."""

from __future__ import annotations

import genai_prices

from sandbox_agent.types import Usage


def cost_usd(model: str, usage: Usage) -> float | None:
    """US dollars for one request to a model of Anthropic's; None for a name the package does not know."""
    counts = genai_prices.Usage(
        # The package's input is all that was read, wherever it came from.
        input_tokens=usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
        cache_write_1h_tokens=usage.cache_creation_1h_input_tokens,  # of those
        cache_read_tokens=usage.cache_read_input_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        found = genai_prices.calc_price(counts, model, provider_id="anthropic")
    except LookupError:
        return None
    return float(found.total_price)
