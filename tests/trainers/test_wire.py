"""Frames: what is sent arrives, bit for bit, and what is no plain data is refused before anything is sent."""

from __future__ import annotations

import contextlib
import math
import socket
import threading

import numpy as np
import pytest

from shoal.trainers import wire


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("dtype", sorted(wire.DTYPES))
def test_arrays_of_every_type_arrive_bit_for_bit(pair, dtype):
    bits = np.random.default_rng(0).integers(0, 256, 16 * np.dtype(dtype).itemsize).astype(np.uint8)
    x = (bits % 2).astype(bool) if dtype == "|b1" else bits.view(dtype)
    wire.send(pair[0], {}, {"x": x.reshape(4, 4)})
    _, arrays = wire.receive(pair[1])
    assert arrays["x"].dtype == x.dtype and arrays["x"].shape == (4, 4)
    assert arrays["x"].tobytes() == x.tobytes()


def test_every_float_arrives(pair):
    data = {"x": [0.1, math.inf, -math.inf, 5e-324], "nan": math.nan, "deep": {"a": [None, True, "ü\n"]}}
    wire.send(pair[0], data, {})
    got, arrays = wire.receive(pair[1])
    assert math.isnan(got.pop("nan")) and math.isnan(data.pop("nan"))
    assert got == data and arrays == {}


def test_every_shape_arrives(pair):
    x = np.arange(24.0).reshape(2, 3, 4)
    sent = {
        "scalar": np.array(3),
        "empty": np.zeros((0, 5), np.float32),
        "turned": x.T,
        "part": x[:, ::2],
        "one": x[:1],
    }
    wire.send(pair[0], {}, sent)
    got = wire.receive(pair[1])[1]
    assert list(got) == list(sent)
    for name, array in sent.items():
        assert got[name].shape == array.shape and got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)
        got[name][...] = 1  # it is the receiver's own


def test_more_than_the_socket_holds(pair):
    sent = {"x": np.random.default_rng(0).random(1_000_000), "y": np.arange(7)}
    sender = threading.Thread(target=wire.send, args=(pair[0], {"n": 1}, sent))
    sender.start()
    data, got = wire.receive(pair[1])
    sender.join()
    assert data == {"n": 1} and all(got[name].tobytes() == x.tobytes() for name, x in sent.items())


@pytest.mark.parametrize(
    "x",
    [
        np.array([object()]),
        np.array(["a"]),
        np.array([1j]),
        np.array([b"a"]),
        np.zeros(2, [("a", "f4")]),
        np.zeros(2, ">f4"),
        np.zeros(2, "M8[s]"),
    ],
    ids=lambda x: str(x.dtype),
)
def test_what_has_no_plain_numbers_is_not_sent(pair, x, said):
    with pytest.raises(TypeError) as error:
        wire.send(pair[0], {}, {"fine": np.zeros(2), "weights": x})
    said(error.value)
    wire.send(pair[0], {"next": 1}, {})
    assert wire.receive(pair[1])[0] == {"next": 1}


def test_what_is_no_json_is_not_sent(pair):
    with pytest.raises(TypeError):
        wire.send(pair[0], {"x": object()}, {})
    wire.send(pair[0], {"next": 1}, {})
    assert wire.receive(pair[1])[0] == {"next": 1}


def test_a_type_that_is_refused_is_not_read_either(pair):
    header = b'{"data": {}, "arrays": [["x", "|O", [1]]]}'
    pair[0].sendall(wire.LENGTH.pack(len(header)) + header + bytes(8))
    with pytest.raises(ValueError, match="one of bool, integers or floats"):
        wire.receive(pair[1])


def test_any_bytes_are_a_frame_or_refused(monkeypatch):
    """Of whole frames in which bytes are changed, and of headers that are JSON of another kind."""
    monkeypatch.setattr(wire, "LONGEST", 2**20)  # room for a header is made as soon as its length is read
    random = np.random.default_rng(0)
    other, copy = socket.socketpair()
    with other, copy:
        wire.send(other, {"x": [1]}, {"w": np.zeros(3, np.float32)})
        whole = bytearray(copy.recv(10_000))
    headers = [b"3", b"[]", b"{}", b'{"data": 3, "arrays": []}', b'{"data": {}, "arrays": 3}', b"\xff", b"[" * 100_000]
    for index in ("[]", '["x"]', '["x", [], [1]]', '["x", "<f4", [-1]]', '["x", "<f4", ["a"]]', '["x", "<f4", [1e9]]'):
        headers += [f'{{"data": {{}}, "arrays": [{index}]}}'.encode()]
    headers += [b'{"data": {}, "arrays": [["x", "<f8", [4611686018427387904]]]}']
    probed = [wire.LENGTH.pack(len(header)) + header for header in headers]
    for _ in range(300):
        changed = whole.copy()
        for place in random.integers(len(whole), size=random.integers(1, 4)):
            changed[place] = random.integers(256)
        probed.append(bytes(changed))
    for content in probed:
        ours, theirs = socket.socketpair()
        with theirs:
            with ours:
                ours.sendall(content)
            with contextlib.suppress(ValueError, EOFError):
                data, arrays = wire.receive(theirs)
                assert isinstance(data, dict) and all(isinstance(x, np.ndarray) for x in arrays.values())


@pytest.mark.parametrize("part", [0, 4, 20, -1])
def test_the_end_of_the_other_side(pair, part):
    ours, theirs = pair
    other, copy = socket.socketpair()
    with other, copy:
        wire.send(other, {}, {"x": np.zeros(9)})
        whole = copy.recv(10_000)
    ours.sendall(whole[:part] if part else b"")
    ours.close()
    with pytest.raises(EOFError):
        wire.receive(theirs)


def test_a_state_is_split_as_it_was_joined():
    learned, replay_buffer = {"a/b": np.zeros(2), "replay_buffer/x": np.ones(1)}, {"a/b": np.ones(3)}
    got = wire.split(wire.join(learned, replay_buffer))
    assert [list(part) for part in got] == [["a/b", "replay_buffer/x"], ["a/b"]]
    assert got[0]["a/b"].shape == (2,) and got[1]["a/b"].shape == (3,)
    assert wire.split(wire.join({}, {})) == ({}, {})
