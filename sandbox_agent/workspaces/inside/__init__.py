"""The hands of a checkpoint inside the container: they give file contents out, and put a tree back as it was.

The host sends the text of these modules to the container's Python, which runs it at the tools' uid, and talks to it in
frames over stdin and stdout; so they import nothing of ours but each other. They go below the workspace by descriptors
and never through a link. They are as little trusted as all else in there: the host checks whatever they say.
"""
