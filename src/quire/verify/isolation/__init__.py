"""The proof that packed documents do not see each other inside a model.

`check` holds the entry point and the verdict, `report` its options and result. `documents` finds
the documents of a batch, `consistency` compares the parts of the batch, `effects` measures how
documents affect each other and whether an effect could be seen at all, and `diagnosis` finds the
cause. `model` and `model_call` run the model. `attention_choice` and `causal_lm` use the check for
the collator and for the command line.
"""
