"""Vocabulary trims: which ids a head should keep, whether a given list is any good, and the cut.

Read `making` (a ranked vocabulary from traces), `checking` and `judging` (any list held against
traces) and `trimming` (the head under it, written and read back) first. `sweep` tries several
sizes in one pass over the reference; `escaped` says which missing ids cost most.
"""
