"""The bundle of a recorded run as a file: its steps in a chain, its parts in a zip, and what counts as noise."""
