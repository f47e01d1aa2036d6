"""The resident program that runs inside the container, and the wire format it shares with the host.

Its modules use the standard library only and must run on Python 3.9: their source is sent over the exec stream at
start, so host and runner are always of one version. `wire` is the only one that the host imports to use;
the host reads the others as text (`sandboxes.program`).
"""
