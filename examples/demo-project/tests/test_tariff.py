import pytest

from parcels.tariff import TooHeavy, band_for


@pytest.mark.parametrize(("weight", "band"), [(0.1, "S"), (2.0, "S"), (2.01, "M"), (5.0, "M"), (31.5, "XL")])
def test_a_band_covers_its_limit(weight, band):
    assert band_for("home", weight).name == band


def test_more_than_the_last_band_is_refused():
    with pytest.raises(TooHeavy):
        band_for("home", 31.6)
