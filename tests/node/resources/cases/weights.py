"""Cases of the weights type: a model that lies on a share of the node, under a name in Wattherd's folder."""

from __future__ import annotations

from tests.node import strict
from tests.unit.sources import gguf_files
from wattherd.resources import weights

PATH = "/var/lib/wattherd/models/big.gguf"
PLACE = "/mnt/nas/Big.Q4_1.gguf"


def absent(bench: strict.Bench) -> weights.Weights:
    """The file is there, the name is not."""
    bench.put(PLACE, gguf_files.make())
    return weights.Weights(paths=(PATH,), places=(PLACE,), architecture="llama", quantisation="Q4_1", context=8192)


def drifted(bench: strict.Bench) -> weights.Weights:
    """The name leads to where the model lay before."""
    one = absent(bench)
    bench.put("/mnt/old/Big.gguf", gguf_files.make())
    bench.link(PATH, "/mnt/old/Big.gguf")
    return one


def settled(bench: strict.Bench) -> weights.Weights:
    one = absent(bench)
    bench.link(PATH, PLACE)
    return one


def checked(bench: strict.Bench) -> weights.Weights:
    """Pinned, so that the whole file is read."""
    import hashlib

    bench.put(PLACE, gguf_files.make())
    return weights.Weights(paths=(PATH,), places=(PLACE,), digests=(hashlib.sha256(gguf_files.make()).hexdigest(),))
