from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattherd.inventory import names


@pytest.mark.parametrize(
    ("text", "hosts", "port"),
    [
        ("titan", ("titan",), None),
        ("titan:2222", ("titan",), 2222),
        ("titan.lab.example:22", ("titan.lab.example",), 22),
        ("gpu1[1:1]", ("gpu11",), None),
        ("w[8:11]", ("w8", "w9", "w10", "w11"), None),
        ("w[08:11]", ("w08", "w09", "w10", "w11"), None),
        ("w[:2]", ("w0", "w1", "w2"), None),
        ("w[1:6:2]:22", ("w1", "w3", "w5"), 22),
        ("n[a:e:2]", ("na", "nc", "ne"), None),
        ("n[Y:Z]", ("nY", "nZ"), None),
        ("r[1:2]n[a:b]", ("r1na", "r1nb", "r2na", "r2nb"), None),
        ("[1:2].gpu.example", ("1.gpu.example", "2.gpu.example"), None),
        ("10.0.0.[9:10]", ("10.0.0.9", "10.0.0.10"), None),
        ("fe80::1", ("fe80::1",), None),
        ("[fe80::1]:2222", ("fe80::1",), 2222),
        ("[fe80::1]", ("fe80::1",), None),
    ],
)
def test_written(text: str, hosts: tuple[str, ...], port: int | None) -> None:
    found = names.written(text)
    assert (found.hosts, found.port) == (hosts, port)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host[0-1]", "is not a range"),
        ("host[1]", "is not a range"),
        ("host[1:2:3:4]", "is not a range"),
        ("host[01:100]", "same length"),
        ("host[5:1]", "empty range"),
        ("host[e:a]", "empty range"),
        ("host[1:9:0]", "step"),
        ("host[1:9:x]", "step"),
        ("host[1:]", "two numbers or two single letters"),
        ("host[a:10]", "two numbers or two single letters"),
        ("host[1:9999999]", "longer than"),
        ("host:", "ends with ':'"),
        ("host:70000", "port"),
        ("ops@host", "ansible_user"),
        ("-oProxyCommand=x", "no host name"),
        ("a/b", "no host name"),
        ("..", "no host name"),
        ("a b", "no host name"),
    ],
)
def test_written_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        names.written(text)


@given(begin=st.integers(0, 150), length=st.integers(0, 40), step=st.integers(1, 7), width=st.integers(0, 4))
def test_a_range_is_pythons_range_with_the_end_in_it(begin: int, length: int, step: int, width: int) -> None:
    end = begin + length
    low, high = str(begin).zfill(width), str(end).zfill(width)
    padded = low.startswith("0") and len(low) > 1
    if padded and len(low) != len(high):
        with pytest.raises(ValueError, match="same length"):
            names.written(f"n[{low}:{high}:{step}]")
        return
    wanted = tuple("n" + (str(number).zfill(len(low)) if padded else str(number)) for number in range(begin, end + 1, step))
    assert names.written(f"n[{low}:{high}:{step}]").hosts == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.[31:33]", True),
        ("n[a:c]", True),
        ("x[1:9:2]y", True),
        ("[fe80::1]:22", False),
        ("[0-9]+", False),
        ("a[1]", False),
        ("", False),
    ],
)
def test_has_range(text: str, *, expected: bool) -> None:
    assert names.has_range(text) is expected


@pytest.mark.parametrize(
    ("one", "two", "slips"),
    [("roles", "roles", 0), ("role", "roles", 1), ("rolse", "roles", 1), ("sreve", "serve", 1), ("srv", "serve", 2), ("", "ab", 2)],
)
def test_distance(one: str, two: str, slips: int) -> None:
    assert names.distance(one, two) == names.distance(two, one) == slips


@given(one=st.text("abc", max_size=6), two=st.text("abc", max_size=6), three=st.text("abc", max_size=6))
def test_distance_is_zero_for_equal_words_only_and_never_beyond_the_longer_one(one: str, two: str, three: str) -> None:
    assert (names.distance(one, two) == 0) is (one == two)
    assert abs(len(one) - len(two)) <= names.distance(one, two) <= max(len(one), len(two))
    assert names.distance(one + three, two + three) <= names.distance(one, two)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("role", "roles"),
        ("modles", "models"),
        ("llamacpp", "llama_cpp"),
        ("llama_ccp", "llama_cpp"),
        ("server", "serve"),
        ("srv", "serve"),
        ("bases", "base"),
        ("name", None),
        ("site", None),
        ("serve", None),
        ("watts", None),
    ],
)
def test_slip(name: str, near: str | None) -> None:
    assert names.slip(name, [own for own in ("roles", "base", "llama_cpp", "models", "serve") if own != name]) == near


def test_meant_names_the_nearest() -> None:
    assert names.meant("tittan", ["atlas", "titan", "orin"]) == "did you mean 'titan'?"
    assert not names.meant("zzz", ["atlas"])
