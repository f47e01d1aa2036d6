"""Prices for parcels."""


def price(weight_kg: float) -> float:
    """In euro."""
    return 4.5 if weight_kg <= 2 else 8.9
