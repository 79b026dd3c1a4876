"""One hardened systemd unit per served instance: one model, or a router with presets; its key, its limits, and its watchdog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattherd.role import (
    CURRENT,
    KEY,
    STRIPPED,
    Directory,
    Facts,
    File,
    Flags,
    Host,
    Model,
    Problem,
    Resource,
    Server,
    Unit,
    User,
    digest_of,
    instance,
    replace,
    server_flags,
    unit_word,
)

ACCOUNT = instance.ACCOUNT
BINARY = f"{CURRENT}/bin/llama-server"
PROGRAMS = "/opt/wattherd/libexec"
NVIDIA_UNIT = "wattherd-nvidia.service"
#: A slow disk at night: 100 MB/s for the weights, after a minute for everything else.
_READ_BYTES_PER_S = 100_000_000
_BASE_S = 60
_BURST = 5
#: A cold boot may bring /dev/nvidia-uvm this late.
_DEVICES_S = 60
_STOP_S = 15
#: What else llama-server would take in silence from the manager's environment, beside what no server gets: all of it is Wattherd's to say.
_OWNED = ("LLAMA_ARG_HOST", "LLAMA_ARG_PORT", "LLAMA_ARG_MODEL", "LLAMA_ARG_MODELS_PRESET")
_UNSET = (*STRIPPED, *_OWNED)
#: By class, for their numbers are given when the driver is loaded. A name that this driver does not have is passed over by systemd.
_NVIDIA = ("char-nvidia", "char-nvidia-frontend", "char-nvidiactl", "char-nvidia-uvm", "char-nvidia-caps", "char-nvidia-modeset")
_JETSON = ("char-nvhost*", "char-nvgpu*", "char-nvmap", "char-nvsciipc", "char-drm", "/dev/nvmap", "/dev/nvsciipc")
_JETSON_NODES = ("", "-gpu", "-as-gpu", "-ctrl", "-ctrl-gpu", "-ctxsw-gpu", "-dbg-gpu", "-prof-gpu", "-prof-ctx-gpu", "-tsg-gpu")


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    servers = host.settings.serve
    if not servers:
        return
    yield User(name=ACCOUNT, comment="llama.cpp servers", home="/nonexistent")
    yield Directory(path=instance.FOLDER)
    yield from _programs(host, facts)
    for server in servers:
        _check(host, server)
        yield from _instance(host, facts, server)


def _instance(host: Host, facts: Facts, server: Server) -> Iterator[Resource]:
    here = instance.place(server, proxied=instance.is_proxied(host.settings))
    key_file = instance.key_file(server)
    started_from = [f"symlink:{CURRENT}"]
    if server.api_key is not None:
        yield host.secret(server.api_key, key_file, form=KEY)
        started_from.append(f"secret:{key_file}")
    flags = flags_of(host, facts, server, here)
    yield flags
    models = loaded_models(host, server)
    made_of = (flags.id, *dict.fromkeys(one for model in models for one in model.artifact_ids()))
    if server.router is None:
        started_from += made_of
    yield _unit(host, facts, server, here, key_file, flags, started_from)
    if server.router is not None:
        yield _presets_unit(host, facts, server, here, key_file, (*started_from, *made_of))
    for seen in host.endpoints(server):
        yield File(path=instance.client_file(server.name, seen.preset), text=host.text("server/client.env.j2", endpoint=seen))
    if server.watchdog.enabled:
        yield _watchdog(host, facts, server, here, key_file)


def loaded_models(host: Host, server: Server) -> list[Model]:
    """What it loads: its models, and the draft models of those that draft."""
    models = [host.model(name) for name in server.model_names]
    drafts = [one.draft for one, used in zip(models, server.presets, strict=True) if used.draft is not None and one.draft]
    return [*models, *(host.model(name) for name in drafts)]


def flags_of(host: Host, facts: Facts, server: Server, here: instance.Place) -> Flags:
    """The command line, and a router's presets. The tag of a preset names its files: when they change, the router loads that one anew."""
    made = server_flags(
        server,
        host.models,
        path=instance.flags_file(server.name),
        binary=BINARY,
        build="",
        listen=here.listen,
        has_gpu=bool(gpu_of(host, facts)),
    )
    if server.router is None:
        return made
    tags = {one.name: f"sha256-{'-'.join(file.sha256[:12] for file in host.model(one.model).files)}" for one in server.router.models}
    return replace(made, sections={name: (*words, ("--tags", tags[name])) for name, words in made.sections.items()})


def _unit(host: Host, facts: Facts, server: Server, here: instance.Place, key_file: str, flags: Flags, started_from: Sequence[str]) -> Unit:
    models = loaded_models(host, server)
    gpu = gpu_of(host, facts)
    text = host.text(
        "server/llama.service.j2",
        server=server,
        served=f"model {server.model}" if server.router is None else f"a router of {len(server.router.models)} models",
        flags_file=flags.path,
        binary=BINARY,
        account=ACCOUNT,
        key_file=key_file,
        start_limit_s=start_limit_s(server, models, gpu),
        burst=_BURST,
        stop_s=stop_s(server),
        unset=_UNSET if key_file else (KEY, *_UNSET),
        gpu=gpu,
        device_classes=device_classes(gpu),
        runtime=instance.runtime(server.name) if here.socket else "",
        socket=instance.socket(server.name),
        local_only=here.local_only and not any(options.rpc for options in server.presets),
        locks_memory=any("mlock" in " ".join((options.load_mode or "", *options.extra_flags)) for options in (server, *server.presets)),
    )
    return Unit(
        name=instance.unit(server.name),
        text=text,
        # A router goes on when a preset changes: then only what it starts with itself is its own input.
        inputs=digest_of([str((flags.options, flags.extra, sorted(flags.environment.items())))]) if server.router is not None else "",
        started_from=(*started_from, *([f"file:{PROGRAMS}/await-nvidia.sh"] if gpu == "nvidia" else [])),
        ready_url=here.url("/health"),
        ready_timeout_s=_BASE_S if server.router is not None else load_limit_s(server, models),
        ports=() if here.socket else (server.port,),
        drain=drain_of(server, here, key_file),
    )


def drain_of(server: Server, here: instance.Place, key_file: str) -> dict[str, str]:
    """Before the process goes, the front proxy holds new requests and what is in flight ends. A router has no figures of its own."""
    if not here.socket:
        return {}
    own = {"metrics": here.url("/metrics")} if server.router is None and server.metrics else {}
    key = {"key_file": key_file} if own and key_file else {}
    return {"socket": instance.PROXY_MASTER, "server": f"{server.name}/llama", "limit_s": str(server.drain_s), **own, **key}


def ready_timeout_s(model: Model) -> int:
    """Seconds that a start may take: a minute, and the time to read the weights from a slow disk."""
    return _BASE_S + model.size_bytes // _READ_BYTES_PER_S


def load_limit_s(server: Server, models: Sequence[Model]) -> int:
    """For all that it loads at its start, one after the other."""
    return server.ready_timeout_s or sum(ready_timeout_s(model) for model in models)


def start_limit_s(server: Server, models: Sequence[Model], gpu: str) -> int:
    """systemd counts starts in this interval; a start that fails late must still be counted, or a crash loop never ends."""
    waits_s = _DEVICES_S if gpu == "nvidia" else 0
    return (_BURST + 1) * (server.restart_s + waits_s + load_limit_s(server, models))


def stop_s(server: Server) -> int:
    """A router's children get their own time first."""
    return _STOP_S + max((preset.stop_timeout_s for preset in server.router.models), default=0) if server.router else _STOP_S


# -- what stands beside a server


def _programs(host: Host, facts: Facts) -> Iterator[Resource]:
    servers = host.settings.serve
    wanted = [("llama_watchdog.py", any(one.watchdog.enabled for one in servers)), ("llama_presets.py", any(one.router for one in servers))]
    names = [name for name, needed in wanted if needed]
    nvidia = gpu_of(host, facts) == "nvidia"
    if not names and not nvidia:
        return
    yield Directory(path=PROGRAMS)
    for name in ("llama_door.py", *names) if names else ():
        yield File(path=f"{PROGRAMS}/{name}", text=host.text(f"server/{name}"))
    if nvidia:
        script = f"{PROGRAMS}/await-nvidia.sh"
        yield File(path=script, text=host.text("server/await-nvidia.sh"))
        yield Unit(
            name=NVIDIA_UNIT,
            text=host.text("server/nvidia.service.j2", limit_s=_DEVICES_S, script=script),
            enabled=False,
            ready_timeout_s=_DEVICES_S + _STOP_S,
            started_from=(f"file:{script}",),
        )


def _watchdog(host: Host, facts: Facts, server: Server, here: instance.Place, key_file: str) -> Unit:
    """A sleeping model is loaded inside the request that wakes it: that standstill is no hang, however large the model is."""
    models = [host.model(name) for name in server.model_names]
    sleeps = any(options.sleep_idle_s for options in server.presets)
    stall_s = max(server.watchdog.stall_s, load_limit_s(server, models)) if sleeps else server.watchdog.stall_s
    words = ["--unit", instance.unit(server.name), "--at", here.door, "--stall-s", str(stall_s)]
    words += ["--interval-s", str(server.watchdog.interval_s), *(["--router"] if server.router is not None else [])]
    return Unit(
        name=instance.watchdog_unit(server.name),
        text=_beside(host, facts, "server/watchdog.service.j2", server, here, key_file, words),
        started_from=(*(f"file:{PROGRAMS}/{name}" for name in ("llama_door.py", "llama_watchdog.py")), *_key(key_file)),
    )


def _presets_unit(host: Host, facts: Facts, server: Server, here: instance.Place, key_file: str, started_from: Sequence[str]) -> Unit:
    """Runs when the presets change, or the router does. It is no part of a boot: there the router loads what starts with it by itself."""
    loaded = [host.model(one.model) for one in server.router.models if one.load_on_start] if server.router else []
    limit_s = load_limit_s(server, loaded) + _BASE_S
    words = ["--unit", instance.unit(server.name), "--at", here.door, "--presets", instance.presets_file(server.name)]
    words += ["--drain-s", str(server.drain_s), "--limit-s", str(limit_s)]
    programs = (f"file:{PROGRAMS}/llama_door.py", f"file:{PROGRAMS}/llama_presets.py")
    return Unit(
        name=instance.presets_unit(server.name),
        text=_beside(host, facts, "server/presets.service.j2", server, here, key_file, words, limit_s=limit_s + server.drain_s + _STOP_S),
        enabled=False,
        ready_timeout_s=limit_s + server.drain_s + _BASE_S,
        started_from=(f"unit:{instance.unit(server.name)}", *started_from, *programs),
    )


def _beside(
    host: Host, facts: Facts, template: str, server: Server, here: instance.Place, key_file: str, words: Sequence[str], **more: object
) -> str:
    return host.text(
        template,
        server=server,
        account=ACCOUNT,
        unit=instance.unit(server.name),
        programs=PROGRAMS,
        python=unit_word(facts.python.path),
        words=[unit_word(word) for word in words],
        key_file=key_file,
        local_only=here.local_only,
        **more,
    )


def _key(key_file: str) -> tuple[str, ...]:
    return (f"secret:{key_file}",) if key_file else ()


# -- cards


def gpu_of(host: Host, facts: Facts) -> str:
    """`nvidia`, `jetson`, or empty for a server on the CPU."""
    built = host.settings.llama_cpp
    if built is not None and built.backend == "cpu":
        return ""
    if facts.jetson:
        return "jetson"
    return "nvidia" if any(card.vendor == "nvidia" for card in facts.gpus) else ""


def device_classes(gpu: str) -> tuple[str, ...]:
    if gpu != "jetson":
        return _NVIDIA if gpu else ()
    return (*_NVIDIA, *_JETSON, *(f"/dev/nvhost{name}" for name in _JETSON_NODES))


# -- what would not work


def _check(host: Host, server: Server) -> None:
    label = f"{host.name}: the server {server.name}"
    if server.tls is not None and not instance.is_proxied(host.settings):
        raise Problem("inventory-invalid", f"{label} has tls, which the front proxy ends", hint="add the role proxy, after server")
    if not instance.is_proxied(host.settings) and not server.has_address:
        words = f"{label} is to listen on the name {server.host}; without the front proxy an address is needed"
        raise Problem("inventory-invalid", words, hint="host: one of the node's addresses, or 0.0.0.0 for all of them")
    if server.router is None:
        return
    first = [one.name for one in server.router.models if one.load_on_start]
    if len(first) > server.router.max_loaded:
        raise Problem(
            "inventory-invalid",
            f"{label} starts with {len(first)} models and holds {server.router.max_loaded} at once, so they would push each other out",
            hint="raise router.max_loaded, or take load_on_start from some",
        )
