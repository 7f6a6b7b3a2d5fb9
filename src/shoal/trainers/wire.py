"""Frames of data and arrays over a socket: JSON and plain bytes, so that what arrives is never run.

A frame is the length of its header (8 bytes, big endian), the header {"data": ..., "arrays": [[name, dtype, shape], ...]}
as JSON, and the bytes of the arrays one after another. Needs NumPy and Python 3.8 only.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Dict, Mapping, Tuple  # noqa: UP035 (Python 3.8)

import numpy as np

Frame = Tuple[Dict[str, Any], Dict[str, np.ndarray]]  # noqa: UP006
LENGTH = struct.Struct(">Q")
DTYPES = {"|b1", "|i1", "|u1"} | {f"<{kind}{size}" for kind in "iuf" for size in (2, 4, 8)}
WANTED = ": it must be one of bool, integers or floats of at most 64 bits"
PARTS = ("learned", "replay_buffer")  # of a state
LONGEST = 2**30  # bytes of a header


def send(peer: socket.socket, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Send one frame. Raises TypeError, before anything is sent, where `data` is no JSON or an array has no plain numbers;
    OSError where the peer is gone."""
    whole = {name: np.asarray(x) for name, x in arrays.items()}
    for name, x in whole.items():
        if x.dtype.str not in DTYPES:
            raise TypeError(f"{name} is an array of {x.dtype}{WANTED}")
    index = [[name, x.dtype.str, x.shape] for name, x in whole.items()]
    header = json.dumps({"data": data, "arrays": index}).encode()
    peer.sendall(LENGTH.pack(len(header)) + header)
    for x in whole.values():
        peer.sendall(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)


def receive(peer: socket.socket) -> Frame:
    """The data and arrays of the next frame. Raises EOFError where the peer is gone, ValueError for what is no frame."""
    size = LENGTH.unpack(_read(peer, LENGTH.size))[0]
    if size > LONGEST:
        raise ValueError(f"a header of {size} bytes")
    try:
        header = json.loads(_read(peer, size).decode())
        data = dict(header["data"])
        index = [(str(name), str(dtype), tuple(shape)) for name, dtype, shape in header["arrays"]]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no header of a frame: {error!r}") from error
    arrays: dict[str, np.ndarray] = {}
    for name, dtype, shape in index:
        if dtype not in DTYPES:
            raise ValueError(f"{name} is an array of {dtype}{WANTED}")
        try:
            arrays[name] = np.empty(shape, dtype)
        except (TypeError, MemoryError, OverflowError) as error:
            raise ValueError(f"{name} is an array of shape {shape}: {error}") from error
        _fill(peer, arrays[name].reshape(-1).view(np.uint8).data)
    return data, arrays


def join(learned: Mapping[str, np.ndarray], replay_buffer: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a state under one name each."""
    return {f"{part}/{name}": x for part, arrays in zip(PARTS, (learned, replay_buffer)) for name, x in arrays.items()}  # noqa: B905


def split(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The opposite of `join`: (learned, replay_buffer)."""
    learned, replay_buffer = ({k[len(p) + 1 :]: x for k, x in arrays.items() if k.startswith(f"{p}/")} for p in PARTS)
    return learned, replay_buffer


def _read(peer: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    _fill(peer, memoryview(content))
    return content


def _fill(peer: socket.socket, view: memoryview) -> None:
    while len(view):
        count = peer.recv_into(view)
        if not count:
            raise EOFError("the other side is gone")
        view = view[count:]
