"""Typed options -> llama-server's options in the newest build's spelling, and the resource that turns them into a node's own.

Each option is a tuple: its name, and its value where it takes one. Which of them a binary knows, and how it spells them, is decided on
the node (resources/flags.py). Knows the keys of `serve:`, not where a server listens: its role says that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wattherd import errors, material
from wattherd.resources.flagging import manual, policy
from wattherd.resources.flags import Flags
from wattherd.serving import lint

if TYPE_CHECKING:
    from wattherd.inventory import settings

Words = tuple[str, ...]
#: A stream whose client is gone is noticed at the next ping; a stop waits for that.
_PING_S = "5"


def server_flags(
    server: settings.Serve,
    models: Mapping[str, material.Model],
    *,
    path: str,
    binary: str,
    build: str,
    listen: Sequence[Words],
    has_gpu: bool | None = None,
) -> Flags:
    """The resource for one instance. `listen` is where it listens, as options: `(("--host", …), ("--port", …))`.

    A router's presets lie beside `path`, with the ending .ini. `has_gpu` False refuses what is meant for one; None asks nothing.
    """
    label = f"serve '{server.name}'"
    for preset in server.presets:
        lint.refuse(label, preset)
        lint.refuse_gpu(label, preset, has_gpu=has_gpu is not False)
    common = (*listen, *_common(server))
    environment = devices(label, server)
    if server.router is None:
        model = models[server.model_names[0]]
        options = (*option_words(server, model, models.get(model.draft)), ("--alias", server.alias or server.name), *common)
        check_extra(label, server.extra_flags)
        return Flags(
            name=server.name,
            path=path,
            binary=binary,
            build=build,
            options=options,
            extra=server.extra_flags,
            environment=environment,
            demands=demands(server, models),
        )
    _check_router(label, server)
    preset_path = path.rpartition(".")[0] + ".ini"
    return Flags(
        name=server.name,
        path=path,
        binary=binary,
        build=build,
        options=(*common, *router_words(server.router, preset_path)),
        extra=server.extra_flags,
        environment=environment,
        demands=demands(server, models),
        preset_path=preset_path,
        sections={one.name: preset_words(one, models) for one in server.router.models},
        section_extra={one.name: one.extra_flags for one in server.router.models if one.extra_flags},
    )


def demands(server: settings.Serve, models: Mapping[str, material.Model]) -> dict[str, Words]:
    """What each model that is loaded, drafts too, asks of the llama.cpp that loads it: architecture, pre-tokenizer, tensor types."""
    loaded = [models[name] for name in server.model_names]
    drafts = [models[one.draft] for one, used in zip(loaded, server.presets, strict=True) if used.draft is not None and one.draft in models]
    found = {one.name: one.demand for one in (*loaded, *drafts)}
    return {name: (asked.architecture, asked.pre_tokenizer, *asked.tensor_types) for name, asked in found.items() if asked != type(asked)()}


def option_words(options: settings.Options, model: material.Model, draft: material.Model | None = None) -> tuple[Words, ...]:
    """One option each, its value after it. Slots and unified KV are always written out: their defaults depend on each other."""
    given: list[tuple[str, object]] = [
        ("--model", model.path),
        ("--mmproj", model.projector_path if model.projector else None),
        ("--parallel", options.slots),
        ("--cache-ram", options.cache_ram_mib),
        ("--ctx-size", options.context),
        ("--predict", options.output_cap),
        ("--batch-size", options.batch),
        ("--ubatch-size", options.ubatch),
        ("--threads", options.threads),
        ("--threads-batch", options.threads_batch),
        ("--flash-attn", options.flash_attention),
        ("--cache-type-k", options.cache_type_k),
        ("--cache-type-v", options.cache_type_v),
        ("--cache-reuse", options.cache_reuse),
        ("--load-mode", options.load_mode),
        ("--n-gpu-layers", options.gpu_layers),
        ("--split-mode", options.split_mode),
        ("--tensor-split", ",".join(f"{share:g}" for share in options.tensor_split) or None),
        ("--n-cpu-moe", options.cpu_moe if options.cpu_moe != "all" else None),
        ("--rpc", ",".join(options.rpc) or None),
        ("--sleep-idle-seconds", options.sleep_idle_s),
        ("--lora-scaled", ",".join(f"{_adapter(model, used.name)}:{used.scale:g}" for used in options.adapters) or None),
        (_template(options.chat_template), options.chat_template),
    ]
    words: list[Words] = [(name, str(value)) for name, value in given if value is not None]
    words.append(("--kv-unified",) if options.kv_unified else ("--no-kv-unified",))
    words += [("--cpu-moe",)] if options.cpu_moe == "all" else []
    words += [] if options.jinja is None else [("--jinja",) if options.jinja else ("--no-jinja",)]
    words += {"chat": [], "embedding": [("--embeddings",)], "reranking": [("--reranking",)]}[options.kind]
    return (*words, *_draft_words(options, model, draft))


def _adapter(model: material.Model, name: str) -> str:
    if name not in model.adapters:
        raise errors.Problem(
            "unknown-model",
            f"model '{model.name}' has no adapter '{name}' in the catalogue",
            hint=f"it has: {', '.join(sorted(model.adapters)) or 'none'}",
        )
    return model.adapter_path(name)


def _template(given: str | None) -> str:
    """A path is a file with a template; anything else is the name of a built-in one."""
    return "--chat-template-file" if given and given.startswith("/") else "--chat-template"


def _draft_words(options: settings.Options, model: material.Model, draft: material.Model | None) -> list[Words]:
    """A plain draft model is loaded and then never used unless the kind of speculation is named too."""
    if options.draft is None:
        return []
    if draft is None:
        raise errors.Problem(
            "unknown-model",
            f"draft: is asked for, and model '{model.name}' has no draft model in the catalogue",
            hint=f"models.yaml: {model.name}: {{draft: NAME}}, where NAME is a small model of the same family",
        )
    given: list[tuple[str, object]] = [
        ("--spec-draft-model", draft.path),
        ("--spec-type", "draft-simple"),
        ("--spec-draft-n-max", options.draft.max_tokens),
        ("--spec-draft-n-min", options.draft.min_tokens),
        ("--spec-draft-p-min", options.draft.min_probability),
        ("--spec-draft-ngl", options.draft.gpu_layers),
    ]
    return [(name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in given if value is not None]


def _common(server: settings.Serve) -> tuple[Words, ...]:
    """What every process has, router or not. Metrics are always there: who may see them is the front proxy's business."""
    return (
        ("--metrics",),
        ("--timeout", str(server.request_timeout_s)),
        ("--sse-ping-interval", _PING_S),
        ("--offline",),
        ("--no-ui",),
    )


def devices(label: str, options: settings.Options) -> dict[str, str]:
    """Cards by UUID, through the environment: their numbers differ between nvidia-smi, CUDA and llama.cpp."""
    if not options.devices:
        return {}
    slices = [uuid for uuid in options.devices if uuid.startswith("MIG-")]
    split = options.split_mode not in {None, "none"} or len(options.tensor_split) > 1
    if slices and (len(options.devices) > 1 or split):
        raise errors.Problem(
            "inventory-invalid",
            f"{label}: {slices[0]} is a MIG slice, and one process sees one slice alone",
            hint="give devices: that one UUID, without split_mode and tensor_split; a second slice needs a second instance",
        )
    if options.tensor_split and len(options.tensor_split) != len(options.devices):
        raise errors.Problem(
            "inventory-invalid",
            f"{label}: tensor_split has {len(options.tensor_split)} shares for {len(options.devices)} devices",
            hint="one share for each device, in the order of devices:",
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(options.devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def check_extra(label: str, words: Sequence[str]) -> None:
    """What no build's server gets is refused before any host is asked; the node looks again, with what its binary says."""
    policy.check_words(label, words)
    for word in words:
        if manual.is_option(word):
            policy.check_extra(label, tuple(word.replace("=", " ", 1).split(maxsplit=1)))


# -- a router and its presets


def router_words(router: settings.Router, preset_path: str) -> tuple[Words, ...]:
    return (
        ("--models-preset", preset_path),
        ("--models-max", str(router.max_loaded)),
        ("--models-autoload",) if router.autoload else ("--no-models-autoload",),
    )


def preset_words(preset: settings.Preset, models: Mapping[str, material.Model]) -> tuple[Words, ...]:
    """One section. Its name is what clients ask for, so an alias is written only where it is another word."""
    model = models[preset.model]
    check_extra(f"router model '{preset.name}'", preset.extra_flags)
    alias = [("--alias", preset.alias)] if preset.alias and preset.alias != preset.name else []
    last = (("load-on-startup", "true" if preset.load_on_start else "false"), ("stop-timeout", str(preset.stop_timeout_s)))
    return (*option_words(preset, model, models.get(model.draft)), *alias, *last)


def _check_router(label: str, server: settings.Serve) -> None:
    """What stands on a router's own command line overrules its presets, and its models share its environment."""
    from wattherd.inventory import settings  # with pydantic, which is loaded by now: the server is one of its values

    own = sorted(server.model_fields_set & set(settings.Options.model_fields) - {"devices", "extra_flags"})
    if own:
        raise errors.Problem(
            "inventory-invalid",
            f"{label}: {own[0]} is for one model, and this one is a router",
            hint=f"write it under router: models: ({own[0]}: …)",
        )
    check_extra(label, server.extra_flags)
    for one in server.router.models if server.router else ():
        if one.devices:
            raise errors.Problem(
                "inventory-invalid",
                f"{label}: devices of router model '{one.name}' cannot differ from its router's: they share one environment",
                hint="give devices: on the instance, or serve this model by an instance of its own",
            )
