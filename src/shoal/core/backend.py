"""JAX with Shoal's settings, whatever else in the process has set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from shoal.core.errors import BadInput

WITHOUT_DEVICES = (AssertionError, RuntimeError)  # what JAX raises then, wherever it is first used


@contextmanager
def on_jax() -> Iterator[None]:
    """Compute in 32 bits inside: agents, seeds and programs are made for them, and jax_enable_x64 may be set by the user for
    something else, also by a module that is imported only now.

    Raises BadInput where JAX has none of the devices that are asked for. That is asked where something has failed:
    asking takes the devices, which code of the user's own may still want to choose, and trainers leave alone.
    """
    with jax.enable_x64(False):
        try:
            yield
        except Exception as error:
            if isinstance(error, WITHOUT_DEVICES) or isinstance(error.__cause__, WITHOUT_DEVICES):
                _check_devices()
            raise


def _check_devices() -> None:
    try:
        jax.devices()
    except WITHOUT_DEVICES as error:
        why = f" ({' '.join(str(error).split())})" if str(error) else ""
        problem = f"JAX_PLATFORMS={getattr(jax.config, 'jax_platforms', None)}: JAX finds no such device here{why}"
        raise BadInput(f"{problem}; unset it, or set it to cpu") from error
