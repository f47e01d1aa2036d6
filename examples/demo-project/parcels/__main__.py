"""`python3 -m parcels WEIGHT --zone ZONE --size LxWxH`"""

import argparse

from parcels.quote import quote


def main() -> None:
    parser = argparse.ArgumentParser(prog="parcels", description="Quote the price of a parcel.")
    parser.add_argument("weight", type=float, help="weight in kg")
    parser.add_argument("--zone", default="home", help="home, eu or world")
    parser.add_argument("--size", default="20x20x10", help="length x width x height in cm")
    parser.add_argument("--regular", action="store_true", help="a regular customer")
    args = parser.parse_args()
    size = tuple(int(side) for side in args.size.split("x"))
    result = quote(args.weight, zone=args.zone, size_cm=size, regular=args.regular)
    print(f"{result.total_cents / 100:.2f}  ({result.band})")


if __name__ == "__main__":
    main()
