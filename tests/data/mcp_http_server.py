"""A well-behaved MCP server behind a URL, of the public package; prints its port. Words: http or sse, and a port."""

import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("web")


@server.tool()
def echo(text: str) -> str:
    """Gives back."""
    return text


@server.tool()
async def slow(ctx: Context, steps: int) -> str:
    """Tells of its progress."""
    for step in range(steps):
        await ctx.report_progress(step, steps, "working")
    return "done"


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    app = server.streamable_http_app() if sys.argv[1] == "http" else server.sse_app()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


main()
