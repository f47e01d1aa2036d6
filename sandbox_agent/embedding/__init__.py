"""What a program of somebody else's works with: `sandbox_agent.run`, `Session`, `build_tool`. Documented in
docs/python.md; everything here is reached from the top of the package.
"""
