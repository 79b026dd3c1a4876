"""Settings of the roles `server` and `proxy`: served instances, their options, their limits, and the front proxy."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from wattherd.inventory.settings.kinds import (
    Address,
    Alias,
    Bytes,
    CacheType,
    Count,
    Endpoint,
    GpuLayers,
    GpuUuid,
    Location,
    Many,
    Name,
    Natural,
    Port,
    Seconds,
    Slug,
    Switch,
    Word,
    wrong,
)
from wattherd.inventory.settings.secret import Secret

#: Addresses that mean every one of the host, and where the host itself then reaches it.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound


def _moe(given: object) -> object:
    if given == "all" or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise wrong("a number of layers whose experts stay on the CPU, or 'all'")


class Draft(BaseModel, extra="forbid", frozen=True, strict=True):
    """Speculative decoding with the catalogue's draft model of this model."""

    max_tokens: Count | None = None
    min_tokens: Natural | None = None
    min_probability: Annotated[float, Field(ge=0, le=1, strict=False)] | None = None
    gpu_layers: GpuLayers | None = None


class UsedAdapter(BaseModel, extra="forbid", frozen=True, strict=True):
    """An adapter of the catalogue's entry; a scale of 0 loads it without applying it."""

    name: Name
    scale: Annotated[float, Field(strict=False)] = 1.0


class Options(BaseModel, extra="forbid", frozen=True, strict=True):
    """What makes a good server for one model. `context` is the total; each slot gets its share unless `kv_unified`."""

    context: Count | None = None
    slots: Count = 1
    kv_unified: bool = False
    batch: Count | None = None
    ubatch: Count | None = None
    threads: Count | None = None
    threads_batch: Count | None = None
    flash_attention: Switch | None = None
    cache_type_k: CacheType | None = None
    cache_type_v: CacheType | None = None
    cache_reuse: Natural | None = None
    cache_ram_mib: Natural = 2048
    load_mode: Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"] | None = None
    gpu_layers: GpuLayers | None = None
    devices: Many[GpuUuid] = ()
    split_mode: Literal["none", "layer", "row", "tensor"] | None = None
    tensor_split: Many[Annotated[float, Field(ge=0, strict=False)]] = ()
    cpu_moe: Annotated[int | Literal["all"], BeforeValidator(_moe)] | None = None
    draft: Draft | None = None
    adapters: Many[UsedAdapter] = ()
    rpc: Many[Endpoint] = ()
    output_cap: Count | None = None
    jinja: bool | None = None
    chat_template: Word | None = None
    kind: Literal["chat", "embedding", "reranking"] = "chat"
    alias: Alias | None = None
    sleep_idle_s: Seconds | None = None
    extra_flags: Many[str] = ()

    @model_validator(mode="after")
    def _sound(self) -> Options:
        if self.output_cap is not None and self.context is not None and self.output_cap >= self.slot_context(0):
            raise wrong(f"given an output_cap below the context of one slot ({self.slot_context(0)} tokens)")
        return self

    def slot_context(self, trained: int) -> int:
        """Tokens that one request can have, prompt and answer together: 0 when neither the inventory nor the model's header says."""
        total = self.context or trained
        if self.kv_unified or not total:
            return _padded(total)
        return _padded(_padded(total) // self.slots)


def _padded(tokens: int) -> int:
    """llama.cpp rounds a context up to a multiple of 256 cells (facts/llama-cpp.md, 6)."""
    return -(-tokens // 256) * 256


class Preset(Options):
    """One model of a router."""

    name: Slug
    model: Name
    load_on_start: bool = False
    stop_timeout_s: Seconds = 10


class Router(BaseModel, extra="forbid", frozen=True, strict=True):
    """Several models behind one port, each in a process of its own, loaded when asked for."""

    models: Many[Preset]
    max_loaded: Count = 4
    autoload: bool = True

    @model_validator(mode="after")
    def _sound(self) -> Router:
        if not self.models:
            raise wrong("given at least one model")
        called = [word for one in self.models for word in {one.name, one.alias or one.name}]
        twice = next((word for index, word in enumerate(called) if word in called[:index]), None)
        if twice is not None:
            raise wrong(f"given names and aliases that differ ('{twice}' is there twice)")
        return self


class Limits(BaseModel, extra="forbid", frozen=True, strict=True):
    """What one server may take of its machine. `cpu_percent` 100 is one core."""

    memory: Bytes | None = None
    cpu_percent: Count | None = None
    tasks: Count = 4096
    nice: Annotated[int, Field(ge=-20, le=19)] = 0


class Watchdog(BaseModel, extra="forbid", frozen=True, strict=True):
    """Restart a server that answers /health while no token advances for `stall_s` although a request is being processed."""

    enabled: bool = True
    stall_s: Annotated[int, Field(ge=30)] = 300
    interval_s: Annotated[int, Field(ge=5)] = 15


class Queue(BaseModel, extra="forbid", frozen=True, strict=True):
    """How many requests may wait in the front proxy, and how long; then they get 503 with Retry-After.

    `when_away` says what happens to a request while the server is away (restarting, loading, unloaded): hold it for up to `wait_s`,
    or refuse it at once.
    """

    length: Natural = 128
    wait_s: Seconds = 120
    when_away: Literal["hold", "refuse"] = "hold"
    retry_after_s: Seconds = 10


class Tls(BaseModel, extra="forbid", frozen=True, strict=True):
    """PEM files; both or none: with one of them llama-server alone would silently serve plain HTTP."""

    certificate: Location
    key: Secret


class Serve(Options):
    """One served instance: one model (`model`), or several behind a router (`router`)."""

    name: Slug
    model: Name | None = None
    router: Router | None = None
    host: Address = "127.0.0.1"
    port: Port
    api_key: Secret | None = None
    tls: Tls | None = None
    queue: Queue = Queue()
    metrics: bool = True
    request_timeout_s: Seconds = 3600
    ready_timeout_s: Count | None = None
    restart_s: Natural = 5
    drain_s: Seconds = 600
    limits: Limits = Limits()
    watchdog: Watchdog = Watchdog()

    @model_validator(mode="after")
    def _one_way_to_serve(self) -> Serve:
        if (self.model is None) == (self.router is None):
            raise wrong("given exactly one of model and router")
        if not self.is_local and self.api_key is None:
            raise wrong(f"given an api_key too, since {self.host} can be reached from outside (loopback needs none)")
        return self

    @property
    def is_local(self) -> bool:
        """Reached from its own host alone. By what the address is, not by how it begins: localhost.lan is another machine's name."""
        if self.host == "localhost":
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    @property
    def has_address(self) -> bool:
        """An address, not the name of one: looking that up is for whoever listens."""
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(self.own_address))
        return False

    @property
    def is_everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    @property
    def own_address(self) -> str:
        """Where the node itself reaches it: loopback for a server that listens on every address."""
        return {**_EVERYWHERE, "localhost": "127.0.0.1"}.get(self.host, self.host)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every model of the catalogue that this instance needs, in order."""
        if self.router is not None:
            return tuple(one.model for one in self.router.models)
        return (self.model,) if self.model else ()

    @property
    def presets(self) -> tuple[Options, ...]:
        return self.router.models if self.router is not None else (self,)


class Proxy(BaseModel, extra="forbid", frozen=True, strict=True):
    """The front proxy itself. Its own health and figures are on loopback alone."""

    metrics_port: Port = 8404
    max_connections: Count = 4096
