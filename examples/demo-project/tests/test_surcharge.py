from parcels.surcharge import bulky_cents


def test_a_long_tube_is_bulky():
    assert bulky_cents((200, 10, 10)) == 800


def test_a_shoe_box_is_not():
    assert bulky_cents((35, 25, 15)) == 0
