"""The self-test of the sandbox: small programs that try to get out, and what their answers mean.

The probes are data (`probes/*.yaml`), run in a sandbox like any command; this room knows no engine. Callers: `cli`.
"""
