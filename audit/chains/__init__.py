"""Chains: K recursive draft slots, each drafting from the slot before it, checked by the verifier.

`recursion` says what a slot reads of the one before, `drafting` drafts a batch of anchors,
`verifying` checks them, `figures` makes estimates, `asking` is `audit chain`; `live` is a real
speculative decoding loop and `lossless` holds it against plain decoding. Only `records` and
`figures` load no torch.
"""
