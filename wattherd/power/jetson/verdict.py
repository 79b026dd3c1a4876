"""What came of one change of a Jetson's settings: a kind that code can go by, and words for a person."""

from __future__ import annotations

from wattherd.records import dataclass

#: What a reboot would settle: the resource is skipped, and says so in words that begin like this.
REBOOT = "reboot required: "


@dataclass(frozen=True)
class Verdict:
    """`kind`: done (and read back), reboot (possible only while the board boots), busy (the GPU is in use; a reboot frees it), unsupported,
    no-permission, silent (no answer in time), failed. `words` say why it is not done, and what to do.
    """

    kind: str
    words: str = ""

    @property
    def done(self) -> bool:
        return self.kind == "done"


DONE = Verdict("done")
