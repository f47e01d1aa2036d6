"""Price quotes for parcels."""

from parcels.quote import Quote, quote

__all__ = ["Quote", "quote"]
