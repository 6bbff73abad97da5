"""The advice for literal figures: every threshold at its edge, every sentence in full."""

from __future__ import annotations

from quire.plan.comparison import Candidate, offer_tight, recommend


def figures(strategy: str = "best_fit", **changed) -> Candidate:
    plain = {
        "max_length": 8,
        "overlong": "split",
        "rows": 1000,
        "bound": 990,
        "utilization": 0.98765,
        "documents": 1000,
        "documents_cut": 0,
        "documents_truncated": 0,
        "documents_dropped": 0,
        "documents_broken": 0,
        "tokens": 9000,
        "tokens_lost": 0,
        "attention": 4.0,
        "steps": 1000,
    }
    return Candidate(strategy=strategy, **{**plain, **changed})


def advice(*candidates: Candidate) -> tuple[str, list[str]]:
    chosen, reasons = recommend(candidates)
    return chosen.strategy, reasons


def test_best_fit_is_chosen_and_its_cost_is_explained():
    assert advice(figures("first_fit"), figures("best_fit")) == (
        "best_fit",
        [
            "8 is the shortest length that breaks at most 5% of the documents: 0.0%.",
            "best_fit fills rows to 98.77%, 10 rows over the proven bound; "
            "rows are shuffled, so they are not sorted by length.",
        ],
    )


def test_order_is_kept_where_it_costs_one_row_in_a_hundred_and_no_more():
    best = figures("best_fit", rows=1000)
    assert advice(best, figures("greedy", rows=1010))[0] == "greedy"
    assert advice(best, figures("greedy", rows=1011))[0] == "best_fit"
    assert advice(best, figures("greedy", rows=1010))[1][1] == (
        "greedy fills rows to 98.77%, within 1% of the best, and keeps the order of the documents."
    )


def test_best_fit_is_taken_where_it_costs_two_rows_in_a_thousand_and_no_more():
    tight = figures("tight", rows=1000)
    taken, reasons = advice(tight, figures("best_fit", rows=1002))
    assert taken == "best_fit"
    assert reasons[1] == (
        "best_fit fills rows to 98.77%, 12 rows over the proven bound; tight would save 2."
    )
    assert advice(tight, figures("best_fit", rows=1003))[0] == "tight"


def test_a_plan_may_break_one_document_in_a_hundred_more_for_fewer_rows():
    whole = figures("best_fit", rows=1000)
    assert advice(whole, figures("tight", rows=900, documents_broken=10))[0] == "tight"
    assert advice(whole, figures("tight", rows=900, documents_broken=11))[0] == "best_fit"


def test_a_length_is_judged_by_the_plan_that_breaks_fewest_there():
    short = figures("best_fit", max_length=8, documents_broken=50)
    worse = figures("tight", max_length=8, documents_broken=60)
    longer = figures("best_fit", max_length=16)
    taken, reasons = recommend([short, worse, longer])
    assert taken is short
    assert reasons[0] == (
        "8 is the shortest length that breaks at most 5% of the documents: 5.0% (0.0% at 16)."
    )


def test_the_other_lengths_are_listed_in_order():
    lengths = [4096, 1024, 512, 2048]
    broken = {512: 900, 1024: 300, 2048: 51, 4096: 7}
    plans = [figures(max_length=n, documents_broken=broken[n]) for n in lengths]
    assert recommend(plans)[1][0] == (
        "4,096 is the shortest length that breaks at most 5% of the documents: 0.7% "
        "(90.0% at 512, 30.0% at 1,024, 5.1% at 2,048)."
    )
    assert recommend(plans[1:])[1][0] == (
        "every length breaks more than 5% of the documents; 2,048 breaks the fewest: 5.1% "
        "(90.0% at 512, 30.0% at 1,024)."
    )


def test_the_advice_mentions_more_cuts_only_if_they_save_rows():
    chosen = figures("best_fit", documents_cut=5, documents_broken=5)
    fuller = figures(
        "wrapped", rows=900, overlong="fill", documents_cut=1505, documents_broken=1505
    )
    assert recommend([chosen, fuller])[1][2:] == [
        "wrapped (fill) would save 100 rows, and cut 1,500 more documents."
    ]
    as_many_rows = figures("wrapped", documents_cut=505, documents_broken=505)
    assert len(recommend([as_many_rows, chosen])[1]) == 2
    as_many_cuts = figures("tight", rows=900, documents_cut=5, documents_broken=505)
    assert len(recommend([chosen, as_many_cuts])[1]) == 2


def test_tight_is_offered_with_the_rows_that_the_bound_leaves():
    best = figures(rows=1000, bound=990)
    greedy = figures("greedy", rows=1005, bound=980)
    assert offer_tight([greedy, best], best) == [
        "tight could save at most 10 rows (1.00%): --strategy tight"
    ]
    assert offer_tight([greedy, best], greedy) == [
        "tight could save at most 15 rows (1.49%): --strategy tight"
    ]
    assert offer_tight([figures(rows=991)], figures(rows=991)) == [
        "tight could save at most 1 row (0.10%): --strategy tight"
    ]


def test_tight_is_not_offered_where_it_was_tried_or_can_save_nothing():
    best = figures(rows=1000, bound=990)
    assert offer_tight([best, figures("tight", rows=992)], best) == []
    assert offer_tight([figures(rows=990)], figures(rows=990)) == []
    greedy = figures("greedy", rows=1010)
    assert offer_tight([greedy], greedy) == []
    elsewhere = [figures(max_length=16, bound=1), figures(overlong="fill", bound=1)]
    assert offer_tight([greedy, *elsewhere], greedy) == []
    assert len(offer_tight([best, figures("tight", max_length=16)], best)) == 1
