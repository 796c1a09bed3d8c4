"""Real text that every Debian machine carries: the paragraphs of its licence texts, tokenized."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

LICENCE_DIRECTORY = Path("/usr/share/common-licenses")
PARAGRAPH_CHARACTERS_MIN = 200


@dataclass(frozen=True)
class Batches:
    """Token ids and masks, int32 [batch_count, batch_size, tokens]."""

    ids: np.ndarray
    masks: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def paragraphs(directory: Path = LICENCE_DIRECTORY) -> list[str]:
    """Every different paragraph of at least 200 characters, in the order of the files' names.

    Licences quote each other; a paragraph that occurs twice word for word is kept once, since its
    nearest neighbour would be a tie.
    """
    found: dict[str, None] = {}
    for path in sorted(directory.glob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace")):
            text = " ".join(block.split())
            if len(text) >= PARAGRAPH_CHARACTERS_MIN:
                found[text] = None
    if not found:
        raise FileNotFoundError(f"no licence text under {directory}; is this a Debian machine?")
    return list(found)


def load_tokenizer(directory: Path, tokens_max: int) -> Tokenizer:
    """The model's own tokenizer, truncating and padding every text to `tokens_max` tokens."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(tokens_max)
    tokenizer.enable_padding(length=tokens_max)
    return tokenizer


def make_batches(
    texts: list[str], tokenizer: Tokenizer, batch_size: int, batch_count: int
) -> Batches:
    """Spreads the choice of `batch_size * batch_count` texts evenly over `texts`; when there are
    fewer texts than that, they repeat."""
    wanted = batch_size * batch_count
    chosen = [texts[index * len(texts) // wanted] for index in range(wanted)]
    encoded = tokenizer.encode_batch(chosen)
    shape = (batch_count, batch_size, -1)
    return Batches(
        ids=np.array([item.ids for item in encoded], np.int32).reshape(shape),
        masks=np.array([item.attention_mask for item in encoded], np.int32).reshape(shape),
    )
