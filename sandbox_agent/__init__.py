"""sandbox_agent runs an AI agent on a folder without giving it the machine.

Importing this package does nothing and costs almost nothing: the command line is `sandbox_agent.cli`,
the composition root is `sandbox_agent.engine.open`.
"""

__version__ = "0.1.0"
