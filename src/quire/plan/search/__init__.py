"""A search for fewer rows than best-fit finds, within one budget per row or several.

The search is column generation (Gilmore and Gomory). A *pattern* is a kind of row: how many
documents of each class of sizes it holds. A linear program over the patterns known so far sets a
price for each class; a knapsack at these prices finds patterns worth more than a row; they join the
program until there are none.

    one_budget       `solve_patterns`, behind the strategy ``tight``
    several_budgets  `pack_vectors`: rows limited in tokens, images and documents at once
    bound            proven lower bounds, from the prices of the program
    columns          the linear program and the search; knows nothing of documents
    knapsack         the best row at given prices
    classes          documents of similar size, grouped to keep the program small
    patterns, fit    from patterns back to rows of documents, completed by best-fit
    budgets          sizes in several dimensions, validated and reduced

Work is counted in elementary steps, not timed, so results do not depend on the machine's speed.
"""
