"""Measures the product beside a plain subprocess, `docker exec` and other agents; `python -m bench --help`."""
