"""Records as people publish them, one of each kind, and what is trained of them."""

from __future__ import annotations

from typing import Any

HI = {"role": "user", "content": "Hi?"}
HELLO = {"role": "assistant", "content": "Hello."}
BYE = {"role": "assistant", "content": "Bye."}

TEXT = {"text": "Hello."}
MESSAGES = {"messages": [HI, HELLO]}
SHAREGPT = {
    "conversations": [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "Hi?"},
        {"from": "gpt", "value": "Hello."},
    ]
}
COMPLETION = {"prompt": "2 + 2 =", "completion": " 4"}
CHAT_COMPLETION = {"prompt": [HI, HELLO, HI], "completion": [BYE]}
INSTRUCTION = {"instruction": "Add.", "input": "2 2", "output": "4"}
NO_INPUT = {"instruction": "Say hello.", "input": "", "output": "Hello."}
PAIR = {"prompt": "Hi?", "chosen": " Hello.", "rejected": " What?"}
IMPLICIT_PAIR = {"chosen": "Q: Hi? A: Hello.", "rejected": "Q: Hi? A: What?"}
CHAT_PAIR = {"chosen": [HI, HELLO], "rejected": [HI, BYE]}
TOKENS = {"input_ids": [5, 6, 7]}

KINDS: dict[str, list[dict[str, Any]]] = {
    "text": [TEXT],
    "messages": [MESSAGES],
    "sharegpt": [SHAREGPT],
    "prompt_completion": [COMPLETION, CHAT_COMPLETION],
    "instruction": [INSTRUCTION, NO_INPUT],
    "preference": [PAIR, IMPLICIT_PAIR, CHAT_PAIR],
    "tokens": [TOKENS],
}
TRAINED = [
    (MESSAGES, ["Hello.<|im_end|>"]),
    (SHAREGPT, ["Hello.<|im_end|>"]),
    (COMPLETION, [" 4<|im_end|>"]),
    (CHAT_COMPLETION, ["Bye.<|im_end|>"]),
    (INSTRUCTION, ["4<|im_end|>"]),
    (NO_INPUT, ["Hello.<|im_end|>"]),
    (PAIR, [" Hello.<|im_end|>", " What?<|im_end|>"]),
    (IMPLICIT_PAIR, [" Hello.<|im_end|>", " What?<|im_end|>"]),
    (CHAT_PAIR, ["Hello.<|im_end|>", "Bye.<|im_end|>"]),
]
"""What Qwen3's tokenizer trains, without the empty thoughts that its template writes first."""
