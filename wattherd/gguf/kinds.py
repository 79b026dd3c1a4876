"""Which file is which: what can be served, what belongs beside it, and how it must be started. One sentence for each misfit. Pure."""

from __future__ import annotations

from typing import Optional, Tuple

from wattherd import errors
from wattherd.gguf import reader
from wattherd.gguf.header import Header

#: Draft models that share their target's vocabulary instead of having one to compare.
_WITHOUT_VOCABULARY = frozenset(("eagle3", "dflash", "gemma4-assistant"))
_OPTIONS = {"mean": "embedding", "cls": "embedding", "last": "embedding", "rank": "reranking"}


def servable(header: Header, shown: str) -> None:
    """`gguf-not-servable` with the reason, for what ends in .gguf and is no language model. `shown` is what the operator calls it."""
    reason = _reason(header)
    if reason:
        called = f" (it calls itself '{header.name}')" if header.name else ""
        raise errors.Problem(
            "gguf-not-servable",
            f"{shown}{called} cannot be served: {reason[0]}",
            hint=reason[1],
            kind=header.kind,
            architecture=header.architecture,
        )


def _reason(header: Header) -> Optional[Tuple[str, str]]:
    if header.kind == "vocabulary":
        return "it holds a vocabulary and no tensors (such files are for tests of tokenizers)", "name the file with the weights"
    if header.kind == "adapter":
        base = header.base_model or f"the {header.architecture or 'same'} model that it was trained on"
        return "it is a LoRA adapter, which needs its base model", f"serve {base} and list this file under its adapters: (--lora)"
    if header.kind == "imatrix":
        return "it is an importance matrix, an input for making quantised files", "name one of the quantised files that lie beside it"
    if header.kind == "projector":
        return (
            "it is a projector for images or sound (mmproj), which needs its text model",
            "serve the text model and give it this file as its projector: (--mmproj)",
        )
    if header.kind == "other":
        what = f"its architecture '{header.architecture}'" if header.architecture else "a file that names no architecture"
        return (
            f"{what} has no context length, so it is no language model (an image or speech model, perhaps)",
            "name a text, embedding or reranking model",
        )
    return None


def check_said(name: str, architecture: str, quantisation: str, context: int, found: Header) -> None:
    """What the catalogue says of a model must be what its header says; both are named. '' and 0 are not said."""
    for word, said, told in (
        ("architecture", architecture, found.architecture),
        ("quantisation", quantisation, found.file_type),
        ("context", context, found.context_length),
    ):
        unknown = not told or told == "GUESSED" or str(told).startswith("type ")
        if said and not unknown and str(said).lower() != str(told).lower():
            raise errors.Problem(
                "model-mismatch",
                f"models.yaml says that {name} has the {word} {said}, and its header says {told}",
                hint=f"is its source the file that you mean? then write {word}: {told}",
            )


def check_projector(shown: str, header: Header, target: Header) -> str:
    """`gguf-not-servable` for what is no projector. A width that does not fit is a warning in words: only the server can be sure."""
    if header.kind != "projector":
        raise _not_a(shown, "projector", header)
    width = target.shape.embedding
    if not header.projection or not width or header.projection == width:
        return ""
    # Some kinds merge neighbouring patches, and their width is a multiple that depends on the text model.
    return f"{shown} gives vectors of {header.projection}, and {target.name or 'its model'} takes {width}: a projector of another size?"


def check_adapter(shown: str, header: Header, target: Header) -> None:
    if header.kind != "adapter":
        raise _not_a(shown, "LoRA adapter", header)
    if header.architecture and target.architecture and header.architecture != target.architecture:
        base = f" (of {header.base_model})" if header.base_model else ""
        raise errors.Problem(
            "model-mismatch",
            f"{shown} is an adapter for {header.architecture}{base}, and the model is {target.architecture}",
            hint="an adapter fits the model that it was trained on, and no other architecture",
        )


def check_draft(name: str, header: Header, draft_name: str, draft: Header) -> None:
    """`model-mismatch` with all that differs, by the rules of llama.cpp: same kind of vocabulary, same tokens, same bos and eos."""
    if draft.architecture in _WITHOUT_VOCABULARY:
        return
    differs = _vocabulary_differences(header, draft)
    if differs:
        raise errors.Problem(
            "model-mismatch",
            f"{draft_name} cannot draft for {name}: {'; '.join(differs)}",
            hint="a draft model needs its target's vocabulary: take a small model of the same family and generation",
        )


def _vocabulary_differences(target: Header, draft: Header) -> list[str]:
    found = []
    if target.tokenizer and draft.tokenizer and target.tokenizer != draft.tokenizer:
        found.append(f"its tokenizer is {draft.tokenizer}, not {target.tokenizer}")
    apart = abs(target.token_count - draft.token_count)
    if target.token_count and draft.token_count:
        if apart > reader.MOST_TOKENS_APART:
            found.append(f"it has {draft.token_count:,} tokens, not {target.token_count:,}")
        elif _digest(target, draft.token_count) != _digest(draft, target.token_count):
            found.append("its tokens have other texts")
    for word, mine, theirs, adds in (
        ("bos", target.bos, draft.bos, (_adds_bos(target), _adds_bos(draft))),
        ("eos", target.eos, draft.eos, (target.adds_eos or "no", draft.adds_eos or "no")),
    ):
        if "" not in adds and adds[0] != adds[1]:
            found.append(f"one of the two adds {word} and the other does not")
        elif adds == ("yes", "yes") and mine != theirs and -1 not in (mine, theirs):
            found.append(f"its {word} is token {theirs}, not {mine}")
    return found


def _adds_bos(header: Header) -> str:
    """The default of a sentencepiece vocabulary is yes; of the others it depends on more than the header says."""
    return header.adds_bos or ("yes" if header.tokenizer == "llama" else "")


def _digest(header: Header, other_count: int) -> str:
    """Of as many tokens as the shorter of the two vocabularies has."""
    digests = header.tokens.split()
    index = header.token_count - min(header.token_count, other_count)
    return digests[index] if index < len(digests) else ""


def option_kind(header: Header) -> str:
    """The `kind:` that this model has to be served with; '' where it can be served as chat or is not known."""
    return _OPTIONS.get(header.pooling, "")


def check_option(where: str, pooling: str, kind: str) -> None:
    """`model-mismatch` when an embedding or reranking model is served as something else, or a chat model as one of them."""
    needed = _OPTIONS.get(pooling, "")
    if needed and kind != needed:
        raise errors.Problem(
            "model-mismatch",
            f"{where}: the model pools by '{pooling}', which makes it an {needed} model, and it is served as kind '{kind}'",
            hint=f"write kind: {needed}",
        )
    if not needed and pooling and kind == "reranking":
        raise errors.Problem(
            "model-mismatch",
            f"{where}: the model pools by '{pooling}' and is served as kind 'reranking', which needs a model that ranks",
            hint="write kind: chat, or name a reranking model",
        )


def _not_a(shown: str, wanted: str, header: Header) -> errors.Problem:
    what = f"a {header.kind}" if header.kind != "other" else "something else"
    if header.kind in {"adapter", "imatrix"}:
        what = f"an {header.kind}"
    return errors.Problem(
        "gguf-not-servable",
        f"{shown} is no {wanted}: its header says that it is {what} of architecture '{header.architecture or 'unknown'}'",
        hint="what a file is stands in its header, whatever its name: name the right one",
        kind=header.kind,
        architecture=header.architecture,
    )
