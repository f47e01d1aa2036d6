"""What is added to the price of the band, and what is taken off."""

BULKY_FROM_CM = 120
BULKY_CENTS = 800
REGULAR_PERCENT = 10


def bulky_cents(size_cm):
    """Boxes are bulky when length plus girth reaches the limit."""
    length, *others = sorted(size_cm, reverse=True)
    girth = 2 * sum(others)
    return BULKY_CENTS if length + girth >= BULKY_FROM_CM * 2 else 0


def discounted(cents, regular):
    return cents - cents * REGULAR_PERCENT // 100 if regular else cents
