"""The seccomp profiles of our containers: `calls.toml` for people, and the JSON made from it for the engine.

An engine's own profile is made for services of every kind; this one is made for builds, tests and shells. Each call and
each argument that may come in stands in `calls.toml` with its reason.
"""
