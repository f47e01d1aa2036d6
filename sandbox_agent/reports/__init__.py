"""Reports of a session for people and pipelines, made of its record alone: HTML, Markdown, JUnit and SARIF.

`telling` folds a record to a `story`, the other modules write one form each. Nothing here is told how the run felt
about itself: what is not in the record is in no report. Whatever a report quotes may have been written by a hostile
repository.
"""
