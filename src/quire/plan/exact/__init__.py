"""Rows that documents fill exactly, found on the histogram of sizes: the searches of `exact_fit`.

    problem    sizes and counts in the largest unit; the kinds of rows that a search found
    dealt      documents dealt to many rows at once by array operations; for small plans
    scarcest   the largest document first, completed by sizes as equal as possible
    shuffled   documents in random order, completed by subset sums; for rows of many documents
    evenly     the size that lags behind first, so all run out together; for rows of about three

Each kind of row is used as often as the counts allow, or for a share of that, so the cost depends
on the number of distinct sizes and hardly on the number of documents. The rows are the same on any
machine: steps are counted, not seconds, and IEEE 754 defines all arithmetic exactly.
"""
