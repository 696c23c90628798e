"""The connector decides by what a model's caches are, never by what something is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import name, parse, python_files

METHODS = "mtp|dspark|eagle|eagle3|medusa|dflash|ngram|suffix|draft_model|mlp_speculator"
FAMILIES = (
    "llama|glm|kimi|qwen|deepseek|gemma|mistral|mixtral|jamba|bamba|nemotron|falcon|granite|phi|"
    "minimax|zamba|plamo|lfm|gpt|opt|olmo|step3|ernie|hunyuan|longcat"
)
ARCHITECTURE = re.compile(r"For(?:CausalLM|ConditionalGeneration)|(?:MTP|Draft)Model")
_WORD = re.compile(rf"(?i)(?<![a-z])(?:{METHODS}|{FAMILIES})\d*(?![a-z])")
CONFIG = re.compile(r"^(?:architectures?|model_type|hf_config|hf_text_config|method)$")
"""Attributes by which vLLM's configuration tells models and methods apart."""


def names_of_models(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Identifiers and texts that name a model, an architecture or a speculative method, and
    attributes that tell; docstrings may name them."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        for text in _texts(node):
            if id(node) not in docstrings and (_WORD.search(text) or ARCHITECTURE.search(text)):
                yield node.lineno, text  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and CONFIG.match(node.attr):
            yield node.lineno, node.attr


def _texts(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute | ast.FunctionDef | ast.ClassDef):
        return [node.attr if isinstance(node, ast.Attribute) else node.name]
    if isinstance(node, ast.alias):
        return [node.name]
    return []


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("path", python_files("connector"), ids=name)
def test_the_connector_knows_no_model_and_no_method_by_name(path: Path) -> None:
    """No condition can depend on one, because no code mentions one."""
    assert list(names_of_models(parse(path))) == []


@pytest.mark.parametrize(
    "source",
    [
        "if config.method == 'mtp': ...",
        "speculative.method",
        "use_eagle()",
        "'GlmForCausalLM' in names",
        "import vllm.models.glm5next",
        "model.hf_config",
        "if kind == 'kimi_linear': ...",
    ],
)
def test_a_name_is_found_however_it_is_used(source: str) -> None:
    """As a text, an identifier, an import or an attribute."""
    assert list(names_of_models(ast.parse(source)))


@pytest.mark.parametrize("source", ["'''As GLM with MTP does.'''", "prompt = option", "glmx()"])
def test_other_words_are_left_alone(source: str) -> None:
    """Documentation, and words that only contain one."""
    assert list(names_of_models(ast.parse(source))) == []
