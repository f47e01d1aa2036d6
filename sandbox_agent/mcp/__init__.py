"""Tools of MCP servers: connecting to a server wherever it runs, and making its tools ours.

Whatever a server says is data from somebody who is not trusted: bounded, checked, and named after the server. Nothing
outside of this room imports the package `mcp`, which takes a second of CPU: load its modules late, by `registry.load`.
"""
