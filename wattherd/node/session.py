"""The node's side of one session: `hello`, then one verb after another until the stream ends.

Owns the heartbeat and the mapping of verbs to work. The controller's words are checked like any other
input. docs/protocol.md is the normative text.
"""

from __future__ import annotations

import contextlib
import threading
from typing import IO, Any, Callable, Dict, FrozenSet, Iterator, Mapping, Optional, Sequence, Tuple

from wattherd import errors, resources, store
from wattherd import machine as machines
from wattherd.node import converge, generations, probe, refused, secrets, turn
from wattherd.wire import event, facts, fields, frame, manifest

HEARTBEAT_S = 5.0
#: tuning_record.RECORD, spelled here so that only a session that finds it pays for the cards.
TUNED = "/var/lib/wattherd/power/tune.json"
_MANIFEST_LIMIT_BYTES = 64 * 1024 * 1024
_POWER_POLICY = "power-policy"


class Session:
    def __init__(self, machine: machines.Machine, source: IO[bytes], sink: IO[bytes]) -> None:
        self.machine = machine
        self.source = source
        self.writer = frame.Writer(sink)
        self.wanted: Optional[Tuple[manifest.Manifest, bytes]] = None
        self.gone = threading.Event()
        self.verbs: Mapping[str, Callable[[fields.Document], Mapping[str, Any]]] = {
            "needs": self.needs,
            "secret": self.keep_secret,
            "builds": self.builds,
            "record-build": self.record_build,
            "check": self.check,
            "apply": lambda order: self.converge(order, check=False),
            "history": self.history,
            "rollback": self.rollback,
            "remove": self.remove,
            "models-gc": self.models_gc,
            "ask": self.ask,
            "usage": self.usage,
            "doctor": self.doctor,
            "power": self.power,
            "power-confirm": self.power_confirm,
            "power-restore": self.power_restore,
            "power-tune": self.power_tune,
            "reboot": self.reboot,
        }

    def serve(self) -> int:
        """Exit status 0 when the controller said goodbye (closed the stream), whatever the verbs found."""
        self.emit(event.hello(fields.plain(probe.facts_of(self.machine))))
        with self.heartbeat():
            while True:
                line = frame.read_line(self.source)
                if not line:
                    return 0
                self.emit(self.answer(line))

    def answer(self, line: bytes) -> Mapping[str, Any]:
        """Do one verb. Every way out is an `end` event: a stream without one is a failure by definition."""
        try:
            order = frame.decode(line)
            verb = fields.text(order, "verb")
            if verb not in self.verbs:
                raise errors.Problem("protocol-mismatch", f"this node program knows no verb '{verb[:40]}'")
            if "bytes" in order and verb != "secret":
                self.receive_manifest(fields.integer(order, "bytes"))
            return event.end(**self.verbs[verb](order))
        except errors.Problem as problem:
            return event.end(problem=problem)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - a defect must come back as words, not as silence
            return event.end(problem=refused.problem(self.machine, error))

    def emit(self, message: Mapping[str, Any]) -> None:
        """Small `ok` lines gather in the buffer; everything else is seen at once."""
        if self.gone.is_set():
            raise BrokenPipeError
        self.writer.send(message, flush=message.get("event") != "ok")

    # -- verbs

    def receive_manifest(self, count: int) -> None:
        if not 0 < count <= _MANIFEST_LIMIT_BYTES:
            raise errors.Problem("manifest-invalid", f"a manifest of {count} bytes was refused")
        body = frame.read_bytes(self.source, count)
        self.wanted = (manifest.decode(body), body)

    def current(self) -> Tuple[manifest.Manifest, bytes]:
        if self.wanted is None:
            raise errors.Problem("protocol-mismatch", "a verb that needs a manifest came before one")
        return self.wanted

    def needs(self, order: fields.Document) -> Mapping[str, Any]:
        missing = resources.needs(self.machine, self.current()[0], _only(order))
        store.check_room(self.machine, {digest: size for wanted in missing.values() for digest, size in wanted.items()})
        return {"missing": missing, "secrets": secrets.lacking(self.machine, self.current()[0], _only(order))}

    def keep_secret(self, order: fields.Document) -> Mapping[str, Any]:
        """One secret of the manifest; its bytes follow the line."""
        body = secrets.receive(self.source, fields.integer(order, "bytes"))
        with self.lock():
            store.prepare(self.machine)
            secrets.keep(self.machine, self.current()[0], fields.text(order, "id"), body)
        return {}

    def builds(self, _order: fields.Document) -> Mapping[str, Any]:
        return {"builds": [fields.plain(built) for built in store.builds(self.machine).values()]}

    def record_build(self, order: fields.Document) -> Mapping[str, Any]:
        store.record_build(self.machine, fields.build(facts.Built, fields.document(order.get("build"), "build")))
        return {}

    def check(self, order: fields.Document) -> Mapping[str, Any]:
        """What `apply` would do, after the controller has sent what is missing: that must find its room too."""
        coming = fields.objects(order, "coming")
        missing = resources.needs(self.machine, self.current()[0], _only(order), _fingerprints(coming))
        sizes = {digest: size for wanted in missing.values() for digest, size in wanted.items()}
        sizes.update({fields.text(one, "digest"): fields.integer(one, "size_bytes") for one in coming if fields.text(one, "digest")})
        store.check_room(self.machine, sizes)
        return self.converge(order, check=True)

    def converge(self, order: fields.Document, *, check: bool) -> Mapping[str, Any]:
        wanted, body = self.current()
        coming = _fingerprints(fields.objects(order, "coming"))
        diff = fields.flag(order, "diff", default=False)
        roles = frozenset(fields.texts(order, "roles")) if "roles" in order else frozenset()
        job = converge.Job(wanted, body, check=check, diff=diff, only=_only(order), roles=roles, coming=coming)
        if check:
            return _result(converge.Run(self.machine, job, self.emit).converge())
        with self.lock():
            self.tell_interrupted()
            store.prepare(self.machine)
            has_power = any(entry.type == _POWER_POLICY for entry in wanted.resources)
            if has_power:
                self._hold_again()
            tally = converge.Run(self.machine, job, self.emit).converge()
            # Also after a failure: that run ended, and said why. Only one that was cut short leaves its journal.
            generations.finish(self.machine)
            secrets.prune(self.machine, wanted)
            return {**_result(tally), **(self._unconfirmed() if has_power else {})}

    def _hold_again(self) -> None:
        """What the keeper has given up to somebody else is held again: an operator applies."""
        from wattherd.power import drift  # no session without power pays for it

        drift.lift(self.machine)

    def _unconfirmed(self) -> Mapping[str, Any]:
        """The seconds that a new power policy has until somebody must have confirmed it, counted from the end of this run."""
        from wattherd.power import pending

        waiting = pending.waiting(self.machine)
        if waiting is None or waiting.why:
            return {}
        pending.renew(self.machine, waiting)
        return {"unconfirmed_s": waiting.confirm_s}

    def tell_interrupted(self) -> None:
        before = generations.interrupted(self.machine)
        if before is not None:
            where = f" at {before.resource}" if before.resource else ""
            self.emit(event.note(f"the run that began {before.started_at or 'before'} never ended{where}; converging from what is there"))

    def history(self, _order: fields.Document) -> Mapping[str, Any]:
        rows = []
        for number in generations.numbers(self.machine):
            with contextlib.suppress(errors.Problem):
                record = generations.read(self.machine, number)
                rows.append(fields.plain(generations.summary(self.machine, record)))
        return {"generations": rows}

    def rollback(self, order: fields.Document) -> Mapping[str, Any]:
        """Apply an earlier generation from this node's own records; it becomes the newest one."""
        number = fields.integer(order, "to") if "to" in order else generations.before(self.machine)
        record = generations.read(self.machine, number)
        unsettled = generations.is_unsettled(self.machine)
        wanted = fields.build(manifest.Manifest, record.manifest, "generation")
        self.wanted = (wanted, manifest.encode(wanted))
        words = "; the last run did not go through whole, so it is the one before that run" if unsettled and "to" not in order else ""
        self.emit(event.note(f"back to generation {number}, applied {record.applied_at}{words}"))
        self._need_all(wanted, number)
        return {**self.converge(order, check=fields.flag(order, "check", default=False)), "from_generation": number}

    def _need_all(self, wanted: manifest.Manifest, number: int) -> None:
        """No controller sends anything in a rollback: what is kept here must do, or nothing is touched."""
        missing = resources.needs(self.machine, wanted)
        if missing:
            raise errors.Problem(
                "artifact-missing",
                f"generation {number} names {next(iter(missing))}, and this node holds its bytes no more",
                hint="deploy instead, which brings them, or go back to another generation: invoke history",
            )
        lost = secrets.lost(self.machine, wanted)
        if lost:
            raise errors.Problem(
                "secret-missing",
                f"generation {number} names {lost[0]}, and this node holds that secret no more",
                hint="deploy instead, or go back to another generation: invoke history",
            )

    def remove(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import farewell

        host = fields.text(order, "host")
        if fields.flag(order, "check", default=False):
            return _result(farewell.leave(self.machine, host, self.emit, check=True))
        with self.lock():
            self.tell_interrupted()
            return _result(farewell.leave(self.machine, host, self.emit, check=False))

    def models_gc(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import gc

        if not fields.flag(order, "delete", default=False):
            return {"left": [fields.plain(one) for one in gc.find(self.machine)], "removed": []}
        with self.lock():
            left = gc.find(self.machine)
            return {"left": [fields.plain(one) for one in left], "removed": [one.path for one in left if gc.remove(self.machine, one)]}

    def ask(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import asking  # http.client costs 20 ms of every session that never asks

        return asking.complete(self.machine, order)

    def doctor(self, _order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import doctor  # no other session pays for what only a doctor knows

        return doctor.look(self.machine, lambda words: self.emit(event.start(words)))

    def usage(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import usage

        return usage.measure(self.machine, order)

    def power(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import power_status

        return power_status.look(self.machine, order)

    def power_confirm(self, order: fields.Document) -> Mapping[str, Any]:
        """Watch a new power policy for a while; let it stand, or put it back at once."""
        from wattherd.node import confirming

        with self.lock():
            return confirming.confirm(self.machine, order, self.emit)

    def power_restore(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import restoring

        if fields.flag(order, "check", default=False):
            return restoring.restore(self.machine, self.emit, check=True)
        with self.lock():
            return restoring.restore(self.machine, self.emit, check=False)

    def power_tune(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import tuning

        if fields.flag(order, "check", default=False):
            return tuning.tune(self.machine, order, self.emit)
        with self.lock():
            return tuning.tune(self.machine, order, self.emit)

    def reboot(self, order: fields.Document) -> Mapping[str, Any]:
        from wattherd.node import rebooting

        with self.lock():
            return rebooting.reboot(self.machine, order, self.emit)

    # -- the lock and the heartbeat

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One writer per node: whoever writes takes his turn."""
        with turn.taken(self.machine, self.emit):
            self._set_back()
            yield

    def _set_back(self) -> None:
        """Whoever writes first after a sweep of power limits that was killed sets its cards back, whatever he came for."""
        if self.machine.exists(TUNED):
            from wattherd.power import tuning_record

            for words in tuning_record.recover(self.machine):
                self.emit(event.note(words))

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """`alive` every few seconds: the controller tells silence from work, and this side notices a controller that is gone."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(HEARTBEAT_S):
                try:
                    self.writer.send(event.alive())
                except (OSError, ValueError):
                    self.gone.set()
                    return

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()


def _only(order: fields.Document) -> Optional[FrozenSet[str]]:
    return frozenset(fields.texts(order, "only")) if "only" in order else None


def _fingerprints(coming: Sequence[fields.Document]) -> FrozenSet[str]:
    return frozenset(fields.text(one, "fingerprint") for one in coming)


def _result(tally: converge.Tally) -> Dict[str, Any]:
    result: Dict[str, Any] = dict(tally.counts)
    if tally.generation is not None:
        result["generation"] = fields.plain(tally.generation)
    return result
