"""Shell text taken apart for the policy: `analyse` gives every simple command at any depth, and what is known of it."""

from sandbox_agent.policy.shell.analyse import ShellAnalysis, analyse, look_again
from sandbox_agent.policy.shell.model import SimpleCommand

__all__ = ["ShellAnalysis", "SimpleCommand", "analyse", "look_again"]
