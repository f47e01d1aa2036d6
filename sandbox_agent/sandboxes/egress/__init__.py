"""The way out of a container that has no network: a forwarder in it, whose connections travel over an exec stream to
the proxy in the engine, which holds the rules.

`wire` and `forwarder` run in the container, sent there as text: they import nothing but the standard
library and `runner.outgoing`, which goes along.
"""
