"""Complaints about the model file and what comes with it: missing, cut, corrupt, of another kind, or newer than the build."""

from __future__ import annotations

import re
from typing import Tuple

from wattherd.resources.complaints.rule import Groups, Rule

_FETCH = "invoke deploy compares its sha256 and copies it again; pin the digest in models.yaml"
_UPGRADE = (
    "deploy a newer llama.cpp to this node; and make sure that the unit runs it: the build number of the running binary is what counts"
)
_MODEL = "name the model itself in models.yaml, and this file where its kind belongs (projector, adapters, draft)"
_KINDS = (
    (("vers",), "it is a Git LFS pointer, not the file"),
    (("<!do", "<htm", "<!DO", "<HTM", "<?xm", "\n<!d"), "it is a web page: a sign-in, or /blob/ instead of /resolve/ in the link"),
    (("ggjt", "ggml", "ggmf", "ggla"), "it is in a format from before GGUF"),
    (("PK\x03\x04", "PK??", "PK"), "it is a ZIP archive (a PyTorch or safetensors bundle)"),
)


def _magic(groups: Groups) -> Groups:
    """Four characters, or the same four as hexadecimal digits in file order or reversed."""
    shown = groups["magic"].strip("'\"")
    faces = [shown]
    if re.match(r"(?:0x)?[0-9a-fA-F]{8}$", shown):
        raw = bytes.fromhex(shown[-8:])
        faces = [raw.decode("latin-1"), raw[::-1].decode("latin-1")]
    kind = next((words for starts, words in _KINDS if any(face.startswith(starts) for face in faces)), f"it begins with '{shown}'")
    return {**groups, "kind": kind}


def _opened(groups: Groups) -> Groups:
    file = groups["file"] if groups["file"] != "?" else groups["other"]
    why = next((groups[key] for key in ("why", "reason") if groups[key] != "?"), "")
    return {"file": file, "why": f" ({why})" if why else ""}


RULES: Tuple[Rule, ...] = (
    Rule(
        "build-too-old",
        r"unknown pre-tokenizer type: '?(?P<name>[^'\s]*)",
        "this build is too old for this file: it does not know the pre-tokenizer '{name}'",
        _UPGRADE,
    ),
    Rule(
        "projector-as-model",
        r"unknown model architecture: '?(?:clip|mmproj)\b",
        "the file given as the model is a projector (mmproj), which only goes beside one",
        _MODEL,
    ),
    Rule(
        "build-too-old",
        r"unknown (?:model )?architecture: '?(?P<name>[^'\s]*)",
        "this build is too old for this file: it does not know the architecture '{name}' (or the file is no language model)",
        _UPGRADE,
    ),
    Rule(
        "build-too-old",
        r"tensor '?(?P<tensor>[^'\s]*)'? has invalid ggml type (?P<name>\d+)",
        "this build is too old for this file: it does not know the tensor type {name} (of {tensor})",
        _UPGRADE,
    ),
    Rule(
        "build-too-old",
        r"GGUF file is version (?P<name>\d+) but .*only supports up to",
        "this build is too old for this file: it does not know GGUF version {name}",
        _UPGRADE,
    ),
    Rule(
        "model-endian",
        r"GGUF file version \d+ is extremely large|mismatch between the host and model endian",
        "the model was written for machines of the other byte order (big-endian)",
        "convert it with gguf-py's gguf_convert_endian.py, or fetch the little-endian file",
    ),
    Rule(
        "model-old",
        r"GGUFv1 is no longer supported",
        "the model is GGUF version 1, which this build no longer reads",
        "fetch a newer conversion of the model",
    ),
    Rule(
        "model-split",
        r"failed to load GGUF split|illegal split file|invalid split file name|must be loaded with the first split"
        r"|failed to open GGUF file '?[^']*-\d{5}-of-\d{5}\.gguf",
        "a part of a split model is missing, or a later part was named as the model",
        "all parts belong in one folder and the first one is named; the catalogue takes a split model as one unit",
    ),
    Rule(
        "adapter-failed",
        r"llama_adapter_lora_init\w*: (?P<why>.*)|failed to (?:open|load|apply|read)\b.*\b(?:lora|adapter)|LoRA tensor",
        "an adapter (LoRA) cannot be loaded: it is missing, damaged or made for another model{why}",
        "list it under the model's adapters in models.yaml, so that invoke deploy brings and checks it",
        shape=lambda groups: {"why": f" ({groups['why']})" if groups["why"] != "?" else ""},
    ),
    Rule(
        "model-missing",
        r"failed to open GGUF file '?(?P<file>[^']*)'?(?:[: (]+(?P<why>[^)]*))?"
        r"|failed to open '?(?P<other>[^']*\.gguf)'?(?:[: (]+(?P<reason>[^)]*))?",
        "a model file cannot be opened: {file}{why}",
        "invoke deploy puts it there; if it is there, compare its owner and mode with the unit's user",
        shape=_opened,
    ),
    Rule(
        "model-not-gguf",
        r"(?:invalid magic (?:characters|number):?|unknown \(magic, version\) combination:|bad magic:?)\s*"
        r"(?P<magic>'[^']*'|\"[^\"]*\"|[^,\s]+)",
        "the model file is no GGUF: {kind}",
        _FETCH,
        shape=_magic,
    ),
    Rule(
        "model-cut",
        r"data is not within the file bounds|failed to read (?:magic|header|key-value pairs|tensor data)"
        r"|failed to seek to beginning of data|exceeds remaining file size|unexpectedly reached end of file",
        "the model file is cut or damaged: a download or copy that did not end",
        _FETCH,
    ),
    Rule(
        "model-not-servable",
        r"key not found in model: [\w.-]+\.(?:context_length|embedding_length|block_count)|token_embd\.weight'? not found",
        "the file given as the model is not one that can be served: an adapter, a vocabulary or an importance matrix",
        _MODEL,
    ),
    Rule(
        "model-corrupt",
        r"tensor '?(?P<name>[^'\s]*)'? has (?:invalid data|offset|invalid number|an? )|wrong number of tensors|missing tensor"
        r"|bad GGUF version|duplicate (?:key|tensor name)|failed to read tensor info|wrong (?:shape|type)|(?:array )?key not found in model"
        r"|key '[^']*' (?:has invalid|must be of) .*type|encountered (?:length_error|bad_alloc)",
        "the model file is damaged, or not what its name says",
        _FETCH,
    ),
    Rule(
        "projector-mismatch",
        r"mismatch between text model \(n_embd = (?P<text>\d+)\) and \S*\s?mmproj \(n_embd = (?P<projector>\d+)\)",
        "model and projector do not belong together ({text} and {projector} wide)",
        "pair them in models.yaml: a projector belongs to one model of one size",
    ),
    Rule(
        "projector-failed",
        r"failed to load multimodal model,? ?'?(?P<name>[^']*)",
        "the projector {name} cannot be loaded",
        "pair model and projector in models.yaml; invoke deploy checks and copies both",
    ),
    Rule(
        "draft-failed",
        r"failed to load draft model,? ?'?(?P<name>[^']*)|draft model .*(?:not compatible|vocab)|failed to initialize speculative",
        "the draft model cannot be used with this model",
        "a draft model needs its target's vocabulary; leave draft out until one is found",
    ),
)  # fmt: skip
