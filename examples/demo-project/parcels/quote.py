"""A quote: the band's price, plus surcharges, less the discount."""

from dataclasses import dataclass

from parcels.surcharge import bulky_cents, discounted
from parcels.tariff import band_for
from parcels.weight import chargeable_kg


@dataclass(frozen=True)
class Quote:
    band: str
    total_cents: int


def quote(weight_kg, zone="home", size_cm=(20, 20, 10), regular=False):
    band = band_for(zone, chargeable_kg(weight_kg, size_cm))
    total = discounted(band.price_cents + bulky_cents(size_cm), regular)
    return Quote(band.name, total)
