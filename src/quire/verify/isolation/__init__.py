"""The proof that packed documents do not see each other inside a model.

`check` holds the entry point and the verdict, `report` its options and result. `documents` finds
the documents of a batch, `consistency` compares the parts of the batch, `effects` measures how
documents affect each other, `control` whether an effect could be seen at all, and `diagnosis` finds
the cause of a leak. `model`, `model_call` and `single_document` run the model. `attention_choice`
and `causal_lm` use the check for the collator and for the command line.
"""
