"""Prices, in cents."""


def with_tax(net_cents: int, percent: int) -> int:
    """The gross price."""
    return net_cents + percent
