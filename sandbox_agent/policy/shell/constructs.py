"""Kinds of nodes of the syntax tree: what is wrong with those that are no plain structure, how to call the rest."""

from __future__ import annotations

import re

LOOP_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")
# Programs read these even in lower case.
PROXY_VARIABLE = re.compile(r"(?:https?|ftp|all|no)_proxy")
EXPANSIONS = {
    "ParamExp": "a variable is only known at run time",
    "ArithmExp": "arithmetic can run what a variable holds",
    "CmdSubst": "the output of a command is only known at run time",
    "ProcSubst": "a process substitution runs beside the command",
    "ExtGlob": "an extended pattern is not judged",
}
CONSTRUCTS = {
    "FuncDecl": "it defines a function, which can stand in for any program",
    "CoprocClause": "it runs in the background",
    "ArithmCmd": "arithmetic can assign and can run what a variable holds",
    "LetClause": "arithmetic can assign and can run what a variable holds",
    "CStyleLoop": "arithmetic can assign and can run what a variable holds",
}


PLACES = {
    "ForClause": "loop",
    "WhileClause": "loop",
    "IfClause": "if",
    "CaseClause": "case",
    "Subshell": "subshell",
    "FuncDecl": "function",
    "CoprocClause": "coprocess",
    "CmdSubst": "substitution",
    "ProcSubst": "process substitution",
}
