from parcels import quote


def test_a_small_parcel_at_home():
    assert quote(1.0).total_cents == 450


def test_exactly_two_kilos_is_still_small():
    assert quote(2.0, zone="eu").total_cents == 1390


def test_a_light_but_large_box_is_charged_by_volume():
    assert quote(1.0, size_cm=(50, 40, 30)).band == "XL"


def test_regular_customers_pay_less():
    assert quote(1.0, regular=True).total_cents == 405
