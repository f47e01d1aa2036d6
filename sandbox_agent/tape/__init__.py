"""The transcript on disk: one JSON line an event, each carrying the hash of the line before.

`lines` reads the file, `chain` verifies it, `transcript` writes it and gives its events back.
"""

from sandbox_agent.tape.chain import GENESIS, Break, Chain, verify
from sandbox_agent.tape.transcript import Entry, Tape, TapeWriter, read_tape

__all__ = ["GENESIS", "Break", "Chain", "Entry", "Tape", "TapeWriter", "read_tape", "verify"]
