"""What a draft head is worth: bytes read per draft step, and a model of the time of a round.

`stored` reads bytes from files, `rounds` and `machine` are the arithmetic, `asking` puts them
together. A model on stated assumptions, never a measured speed; an engine's own measurements are
shown beside it (`measured`). Only `stored` and `asking` load torch.
"""
