"""Environments are code of other people: whatever they raise becomes one line that names them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from shoal.core.errors import BadField, BadInput
from shoal.core.user_code import one_line


@contextmanager
def blamed(env: str, failed: str) -> Iterator[None]:
    """Raises BadInput for every exception inside; `failed`: what the environment could not do, for the message."""
    try:
        yield
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        raise BadField("env", f"{env} {failed}: {one_line(error)}") from error


@contextmanager
def callbacks_blamed(env: str) -> Iterator[None]:
    """Raises BadInput where Python code that a compiled environment calls, by `jax.pure_callback`, fails inside."""
    raised = _Raised()
    logger = logging.getLogger("jax._src.callback")
    logger.addFilter(raised)
    try:
        yield
    except jax.errors.JaxRuntimeError:
        if not raised.errors:
            raise
        cause = raised.errors[0]
        raise BadField("env", f"{env} failed in a callback: {one_line(cause)}") from cause
    finally:
        logger.removeFilter(raised)


class _Raised(logging.Filter):
    """Keeps the errors of callbacks, which JAX only logs: what it raises holds them as text, with a long traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])
        return not record.exc_info
