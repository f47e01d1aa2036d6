"""How front ends spell durations, token counts and sizes."""

from __future__ import annotations

from sandbox_agent.engine.budget import amount
from sandbox_agent.types import Usage


def duration(seconds: float) -> str:
    """ "0.02 s", "12.3 s", "2 min 05 s"."""
    if seconds < 10:
        return f"{max(seconds, 0):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def count(number: int, noun: str) -> str:
    """ "1 line", "2,000 lines"; words in -y, -ch or -s get their plural."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        noun = noun[:-1] + "ie"
    elif noun.endswith(("ch", "s")):
        noun += "e"
    return f"{number:,} {noun}s"


def size(number: int) -> str:
    """ "1 byte", "12 bytes", "3.4 KiB", "1,024.0 GiB"."""
    if number < 1024:
        return count(number, "byte")
    scaled, units = number / 1024, ["KiB", "MiB", "GiB"]
    while scaled >= 1024 and len(units) > 1:
        scaled, _ = scaled / 1024, units.pop(0)
    return f"{scaled:,.1f} {units[0]}"


def tokens(usage: Usage) -> str:
    """ "12,345 tokens in (9,000 from the cache), 678 out"."""
    total = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    cached = f" ({usage.cache_read_input_tokens:,} from the cache)" if usage.cache_read_input_tokens else ""
    return f"{total:,} tokens in{cached}, {usage.output_tokens:,} out"


def cost(cost_usd: float | None, usage: Usage) -> str:
    """ "0.12 USD", "cost unknown"; nothing where nothing was used."""
    if not usage.total_tokens:
        return ""
    if cost_usd is None:
        return "cost unknown"
    if cost_usd < 0.0001:
        return "under 0.0001 USD" if cost_usd else "no cost"
    return f"{amount('cost_usd', cost_usd)} USD"


def shorten(line: str, max_chars: int = 200) -> str:
    """The line, or its head and tail with the number of characters left out between them."""
    if len(line) <= max_chars:
        return line
    head, tail = max_chars * 2 // 3, max_chars // 4
    return f"{line[:head]} [... {len(line) - head - tail:,} characters ...] {line[-tail:]}"
