"""The weight a parcel is charged for: what it weighs, or what its volume would weigh if that is more."""

CM3_PER_KG = 5000


def volumetric_kg(size_cm):
    length, width, height = size_cm
    return length * width * height / CM3_PER_KG


def chargeable_kg(weight_kg, size_cm):
    if weight_kg <= 0:
        raise ValueError("a parcel weighs something")
    return max(weight_kg, volumetric_kg(size_cm))
