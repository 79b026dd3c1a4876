"""What no server of a fleet is given, wherever it comes from, and which key of `serve:` owns a value that more than one place reads.

The one list of refused options, environment names and owned ones. Asked twice: by the controller with the words alone, and on the node
with what the binary says of each option, which also finds the ones that nobody here has heard of yet.
"""

from __future__ import annotations

import re
from typing import FrozenSet, Mapping, Optional, Sequence, Tuple

from wattherd import errors, store
from wattherd.records import dataclass
from wattherd.resources.flagging import manual, renames


@dataclass(frozen=True)
class Refusal:
    """Options, why a server does not get them, and what to do instead. A value in `harmless` is let through."""

    names: Tuple[str, ...]
    reason: str
    hint: str
    harmless: Tuple[str, ...] = ()


_OPENS = "it gives whoever reaches the server files, programs or other machines of this node's"
_FETCHES = "it lets the server load a model from the network, unverified"
_CATALOGUE = "models come from models.yaml: by digest, copied and checked before anything starts"
_ENDS = "it prints something and ends"
_WRITES = "it writes what people asked to disk, and the server may write nowhere"
_RISKS: Mapping[str, Tuple[str, str]] = {
    "untrusted": (_OPENS, "run an agent beside the server, under an account of its own"),
    "downloads": (_FETCHES, _CATALOGUE),
    "ends": (_ENDS, f"run it by hand on the node: {store.CURRENT}/bin/llama-server"),
}

REFUSALS: Tuple[Refusal, ...] = (
    Refusal(
        (
            "--tools",
            "--tools-runtime",
            "--agent",
            "-ag",
            "--mcp-servers-config",
            "--mcp-servers-json",
            "--ui-mcp-proxy",
            "--webui-mcp-proxy",
        ),
        *_RISKS["untrusted"],
    ),
    Refusal(("--media-path", "--path"), "it hands files of this node to whoever asks", "send images in the request itself"),
    Refusal(("--props",), "it lets every client change the server for all others", "set options in serve: and deploy"),
    Refusal(
        (
            *("--hf-repo", "-hf", "-hfr", "--hf-file", "-hff", "--model-url", "-mu", "--docker-repo", "-dr", "--mmproj-url", "-mmu"),
            *("--spec-draft-hf", "--hf-repo-draft", "-hfd", "-hfrd", "--hf-repo-v", "-hfv", "-hfrv", "--hf-file-v", "-hffv"),
        ),
        _FETCHES,
        _CATALOGUE,
    ),
    Refusal(("--models-dir",), "it serves whatever lies in a folder", "list the models under serve: router: {models: […]}"),
    Refusal(("--models-preset", "--models-max", "--models-autoload", "--no-models-autoload"), "Wattherd writes it", "use router:"),
    Refusal(("--api-key",), "every user of the node would read the key in the list of processes", "use api_key:"),
    Refusal(("--api-key-file",), "a file with only comments means no key at all, unnoticed", "use api_key:"),
    Refusal(("--hf-token", "-hft"), "every user of the node would read the token in the list of processes", "use token: in models.yaml"),
    Refusal(("--ssl-key-file", "--ssl-cert-file"), "with one file missing it silently serves plain HTTP", "use tls:"),
    Refusal(("--slot-save-path", "--log-prompts-dir"), _WRITES, "leave it out"),
    Refusal(("--log-file",), "the server may write nowhere", "its log is in the journal: journalctl -u llama@NAME"),
    Refusal(("--api-prefix",), "the readiness check and the front proxy know llama-server's own paths", "put a prefix into your gateway"),
    Refusal(("--reuse-port",), "two servers would share one port, and each request would meet either", "give each a port"),
    Refusal(
        ("--device", "-dev", "--main-gpu", "-mg", "--mmproj-device", "-mmdev", "--spec-draft-device", "--device-draft", "-devd"),
        "the numbers of cards differ between nvidia-smi, CUDA and llama.cpp, and change with the machine",
        "name cards by UUID: devices: [GPU-…]",
        harmless=("none",),
    ),
    Refusal(
        ("--help", "-h", "--usage", "--version", "--list-devices", "--cache-list", "-cl", "--completion-bash", "--license"),
        *_RISKS["ends"],
    ),
)

#: Options that a key of `serve:` writes, by their newest name. The second list is also refused when that key is unset: the memory plan,
#: the client's settings or the front proxy read those values, and a raw flag would make them wrong.
KEYS: Mapping[str, str] = {
    "--batch-size": "batch",
    "--ubatch-size": "ubatch",
    "--threads": "threads",
    "--threads-batch": "threads_batch",
    "--flash-attn": "flash_attention",
    "--cache-type-k": "cache_type_k",
    "--cache-type-v": "cache_type_v",
    "--cache-reuse": "cache_reuse",
    "--load-mode": "load_mode",
    "--n-gpu-layers": "gpu_layers",
    "--split-mode": "split_mode",
    "--tensor-split": "tensor_split",
    "--cpu-moe": "cpu_moe",
    "--n-cpu-moe": "cpu_moe",
    "--jinja": "jinja",
    "--no-jinja": "jinja",
    "--chat-template": "chat_template",
    "--chat-template-file": "chat_template",
    "--embeddings": "kind",
    "--reranking": "kind",
    "--rpc": "rpc",
    "--spec-draft-n-max": "draft.max_tokens",
    "--spec-draft-n-min": "draft.min_tokens",
    "--spec-draft-p-min": "draft.min_probability",
    "--spec-draft-ngl": "draft.gpu_layers",
    "--spec-type": "draft",
}
OWNED: Mapping[str, str] = {
    "--model": "model",
    "--host": "host",
    "--port": "port",
    "--alias": "alias",
    "--ctx-size": "context",
    "--kv-unified-per-slot": "context",
    "--parallel": "slots",
    "--kv-unified": "kv_unified",
    "--no-kv-unified": "kv_unified",
    "--cache-ram": "cache_ram_mib",
    "--predict": "output_cap",
    "--timeout": "request_timeout_s",
    "--sleep-idle-seconds": "sleep_idle_s",
    "--mmproj": "projector (in models.yaml)",
    "--lora": "adapters",
    "--lora-scaled": "adapters",
    "--spec-draft-model": "draft (in models.yaml)",
}
_SHORT: Mapping[str, str] = {
    "-m": "--model",
    "-a": "--alias",
    "-c": "--ctx-size",
    "-np": "--parallel",
    "-cram": "--cache-ram",
    "-to": "--timeout",
    "-mm": "--mmproj",
}
#: Options that a binary has, or obeys, only when they were built in.
_BUILT_IN: Mapping[str, str] = {"--rpc": "build it in: llama_cpp: {rpc: true}"}
#: Names that no environment of a server may have; the unit takes them out too, whoever put them there.
STRIPPED: Tuple[str, ...] = (
    *("LLAMA_ARG_TOOLS", "LLAMA_ARG_TOOLS_RUNTIME", "LLAMA_ARG_AGENT", "LLAMA_ARG_MCP_SERVERS_CONFIG", "LLAMA_ARG_MCP_SERVERS_JSON"),
    *("LLAMA_ARG_UI_MCP_PROXY", "LLAMA_ARG_WEBUI_MCP_PROXY", "LLAMA_ARG_STATIC_PATH", "LLAMA_ARG_ENDPOINT_PROPS"),
    *("LLAMA_ARG_MODEL_URL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_HF_FILE", "LLAMA_ARG_DOCKER_REPO", "LLAMA_ARG_MMPROJ_URL"),
    *("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "LLAMA_ARG_MODELS_DIR", "LLAMA_ARG_LOG_FILE", "LLAMA_ARG_API_KEY_FILE", "LLAMA_ARG_REUSE_PORT"),
    *("LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE", "LLAMA_ARG_API_PREFIX", "AIP_MODE", "HF_TOKEN"),
)
_NEGATION = re.compile(r"--?no-")
_FOREIGN = re.compile(r"LD_\w+|PATH|HOME|XDG_\w+|WATTHERD_\w+|LLAMA_API_KEY|SYSTEMD_\w+")


def check_extra(label: str, words: renames.Words, entry: Optional[manual.Entry] = None) -> None:
    """`flag-refused` for a raw option that no server gets, or that a key of `serve:` owns. `entry` is what the binary says of it."""
    called = _called(words[0], entry)
    for one in REFUSALS:
        if called & set(one.names) and not (one.harmless and words[1:] == one.harmless):
            raise _refused(label, words[0], one.reason, one.hint)
    if entry is not None and entry.risk and not _NEGATION.match(words[0]):
        raise _refused(label, words[0], *_RISKS[entry.risk])
    owner = next((key for name, key in OWNED.items() if name in called), "")
    if owner:
        raise _refused(label, words[0], "other places read this value too, so one key of serve: holds it", f"use {owner}:")


def check_words(label: str, words: Sequence[str]) -> None:
    """A control character could end a line of the file that the words are written into."""
    for word in words:
        if not word.isprintable():
            raise errors.Problem(
                "flag-refused", f"{label}: the word {word[:60]!r} holds a control character", hint="write it in one line of plain text"
            )


def check_environment(label: str, name: str, value: str, known: Optional[manual.Manual]) -> None:
    """llama-server passes over a variable that it does not know, and ends on an empty one that it knows: both are refused here."""
    if not re.match(r"[A-Za-z_][A-Za-z0-9_]*\Z", name) or name in STRIPPED or _FOREIGN.fullmatch(name):
        raise _refused(label, name, "a server does not get this environment variable", "leave it out")
    if not value:
        raise errors.Problem("flag-value", f"{label}: the environment variable {name} is empty", hint="give it a value, or leave it out")
    if known is not None and name.startswith("LLAMA_"):
        entry = known.environment.get(name)
        if entry is None:
            raise errors.Problem("flag-unknown", f"{label}: this llama-server does not read {name}", hint="it would be ignored silently")
        check_extra(label, (max(entry.names, key=len), value), entry)


def key_of(name: str) -> str:
    """The key of `serve:` that writes this option; empty when none does."""
    first = renames.names(_SHORT.get(name, name))[0]
    return KEYS.get(first) or OWNED.get(first, "")


def remedy(name: str) -> str:
    """What makes a binary know this option, where it is not its age; empty for most."""
    return _BUILT_IN.get(renames.names(name)[0], "")


def _called(name: str, entry: Optional[manual.Entry]) -> FrozenSet[str]:
    plain = manual.plain(name)
    own = entry.names if entry is not None and not _NEGATION.match(plain) else ()  # switching off what we refuse is no harm
    return frozenset(other for one in (plain, _SHORT.get(plain, plain), *own) for other in renames.names(one))


def _refused(label: str, name: str, reason: str, hint: str) -> errors.Problem:
    return errors.Problem("flag-refused", f"{label}: {name} is refused: {reason}", hint=hint, flag=name)
