"""Run it: it says nothing when all is well."""

from prices import with_tax

assert with_tax(1000, 20) == 1200, with_tax(1000, 20)
