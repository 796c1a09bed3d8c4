"""The demo's model against an independent NumPy forward pass and against published scores."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "minilm_demo"))
pytest.importorskip("jax")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

import corpus
import jax
import model
from safetensors.numpy import load_file

try:
    DIRECTORY = model.model_directory()
except FileNotFoundError as missing:
    pytest.skip(str(missing), allow_module_level=True)


def reference_forward(ids: list[int]) -> np.ndarray:
    """One unpadded text through BERT in float64, from the raw tensors, with loops over heads."""
    raw: dict[str, Any] = {
        name: value.astype(np.float64)
        for name, value in load_file(DIRECTORY / "model.safetensors").items()
    }

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        out: np.ndarray = np.einsum("ti,oi->to", x, raw[name + ".weight"]) + raw[name + ".bias"]
        return out

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(1)[:, None]) / np.sqrt(x.var(1)[:, None] + 1e-12)
        out: np.ndarray = x * raw[name + ".weight"] + raw[name + ".bias"]
        return out

    x = raw["embeddings.word_embeddings.weight"][ids]
    x = x + raw["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm("embeddings.LayerNorm", x + raw["embeddings.token_type_embeddings.weight"][0])
    for index in range(6):
        base = f"encoder.layer.{index}"
        q, k, v = (linear(f"{base}.attention.self.{n}", x) for n in ("query", "key", "value"))
        mixed = np.zeros_like(q)
        for head in range(12):
            part = slice(32 * head, 32 * head + 32)
            scores = np.exp(q[:, part] @ k[:, part].T / math.sqrt(32))
            mixed[:, part] = scores / scores.sum(1, keepdims=True) @ v[:, part]
        attended = x + linear(f"{base}.attention.output.dense", mixed)
        x = norm(f"{base}.attention.output.LayerNorm", attended)
        h = linear(f"{base}.intermediate.dense", x)
        h = h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
        x = norm(f"{base}.output.LayerNorm", x + linear(f"{base}.output.dense", h))
    mean = x.mean(0)
    vector: np.ndarray = mean / np.linalg.norm(mean)
    return vector


def embed(texts: list[str], tokens_max: int) -> np.ndarray:
    tokenizer = corpus.load_tokenizer(DIRECTORY, tokens_max)
    batches = corpus.make_batches(texts, tokenizer, len(texts), 1)
    forward = jax.jit(model.forward)
    return np.asarray(forward(model.load_params(), batches.ids[0], batches.masks[0]))


def test_forward_agrees_with_an_independent_float64_pass() -> None:
    texts = [*corpus.paragraphs()[:3], "Short."]
    vectors = embed(texts, tokens_max=96)
    tokenizer = corpus.load_tokenizer(DIRECTORY, 96)
    tokenizer.no_padding()
    for text, vector in zip(texts, vectors, strict=True):
        reference = reference_forward(tokenizer.encode(text).ids)
        assert np.abs(vector - reference).max() < 2e-6, text


def test_similarities_are_the_published_ones() -> None:
    # The quick start of sentence-transformers prints these for this model, to four digits.
    vectors = embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."], 32
    )
    similarity = vectors @ vectors.T
    published = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    assert np.abs(similarity - published).max() < 1e-4


def test_slices_of_the_ranks_add_up_to_the_whole_layer() -> None:
    # The compute-only pass of the demo runs `forward` on one rank's slice: its row-parallel
    # matrices must be the halves whose products add up to the whole product.
    params = model.load_params()
    rng = np.random.default_rng(7)
    x = jax.numpy.asarray(rng.standard_normal((1, 5, model.HIDDEN_SIZE)).astype(np.float32))
    bias = jax.numpy.zeros((1, 1, 1, 5))
    whole = model.attention(params["layers"][0], x, bias)
    output_bias = params["layers"][0]["attention_output"]["bias"]
    halves = [
        model.attention(model.slice_of_rank(params, rank, 2)["layers"][0], x, bias) - output_bias
        for rank in range(2)
    ]
    np.testing.assert_allclose(halves[0] + halves[1] + output_bias, whole, atol=2e-5)


def test_paragraphs_are_real_different_and_long_enough() -> None:
    texts = corpus.paragraphs()
    assert len(texts) >= 250
    assert len(set(texts)) == len(texts)
    assert min(map(len, texts)) >= corpus.PARAGRAPH_CHARACTERS_MIN
