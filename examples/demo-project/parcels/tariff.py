"""The tariff: weight bands per zone. A band covers weights up to and including its limit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    name: str
    limit_kg: float
    price_cents: int


TARIFF = {
    "home": (Band("S", 2.0, 450), Band("M", 5.0, 690), Band("L", 10.0, 990), Band("XL", 31.5, 1690)),
    "eu": (Band("S", 2.0, 1390), Band("M", 5.0, 1690), Band("L", 10.0, 2190), Band("XL", 31.5, 4490)),
    "world": (Band("S", 2.0, 1890), Band("M", 5.0, 2990), Band("L", 10.0, 4490), Band("XL", 31.5, 9990)),
}


class TooHeavy(ValueError):
    """No band takes this weight."""


def band_for(zone, weight_kg):
    """The cheapest band of the zone that takes the weight."""
    for band in TARIFF[zone]:
        if weight_kg < band.limit_kg:
            return band
    raise TooHeavy(f"{weight_kg} kg is more than zone {zone} takes")
