"""The part of WebFetch that runs in the container, of the standard library alone: the host parses nothing of a page."""
