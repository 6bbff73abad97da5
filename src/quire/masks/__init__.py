"""What a token may see, in the form that each attention backend wants.

One rule stands behind every form: the token at q sees the keys from `first_visible[q]` to q, which
is its own fragment, or the last `window` tokens of it. Padding is a fragment of its own.
"""
