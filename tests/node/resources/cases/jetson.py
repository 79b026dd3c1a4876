"""The four cases of a Jetson's setting: its power mode."""

from __future__ import annotations

from tests.node import strict
from tests.node.power import jetson_fake
from wattherd.resources import jetson


def wanted() -> jetson.Jetson:
    return jetson.Jetson("mode", "25W")


def absent(bench: strict.Bench) -> jetson.Jetson:
    jetson_fake.Board(bench, mode="")
    return wanted()


def drifted(bench: strict.Bench) -> jetson.Jetson:
    jetson_fake.Board(bench, mode="40W")
    return wanted()


def settled(bench: strict.Bench) -> jetson.Jetson:
    jetson_fake.Board(bench, mode="25W")
    return wanted()


def checked(bench: strict.Bench) -> jetson.Jetson:
    return drifted(bench)
