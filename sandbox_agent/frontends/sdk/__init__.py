"""A session driven by a program over the standard streams, one JSON object a line: the protocol that the package
claude-agent-sdk speaks to its CLI. docs/sdk.md says what of it is here and what is different.
"""
