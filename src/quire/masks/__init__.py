"""Attention masks, in the form that each backend needs.

Every form follows one rule: the token at q attends to the keys from `first_visible[q]` to q, which
is its own fragment, or the last `window` tokens of it. Padding is a fragment of its own.
"""
