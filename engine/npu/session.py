"""Emulated devices inside TensorFlow's own sessions.

TensorFlow's session class keeps all of its behaviour (structures of fetches, conversion and checks of feeds, closed
sessions, errors); only the last step, running a list of tensors and ops, goes to the device where a session has one.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf.config_pb2 import RunOptions
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client.session import BaseSession

from engine.errors import UnsupportedOpError
from engine.npu.device import EmulatedDevice
from engine.npu.prune import Request

if TYPE_CHECKING:
    import tensorflow as tf

_DEVICE = "_emulated_npu"
_HOOKED = "_emulated_npu_hook"
_TOLD = "_emulated_npu_told"

_LOG = logging.getLogger(__name__)

Method = Callable[..., Any]

MakeDevice = Callable[[Any, Any], EmulatedDevice | None]
"""Makes the device of a session from its ConfigProto (or None) and its graph; None leaves the session plain."""


def install(make_device: MakeDevice) -> bool:
    """Lets new sessions run on emulated devices.

    Args:
        make_device: Decides for each new session.

    Returns:
        False if sessions were prepared already; that first preparation stays.
    """
    if getattr(BaseSession, _HOOKED, False):
        return False
    setattr(BaseSession, _HOOKED, True)
    BaseSession.__init__ = _wrapped_init(BaseSession.__init__, make_device)
    BaseSession._do_run = _wrapped_run(BaseSession._do_run)
    BaseSession.make_callable = _wrapped_make_callable(BaseSession.make_callable)
    BaseSession.partial_run_setup = _refused(BaseSession.partial_run_setup, "partial_run")
    BaseSession._make_callable_from_options = _refused(
        BaseSession._make_callable_from_options, "a callable made from CallableOptions"
    )
    BaseSession.close = _wrapped_close(BaseSession.close)
    return True


def session_device(session: tf.compat.v1.Session) -> EmulatedDevice | None:
    """Returns the emulated device of a session, None for a plain one."""
    device: EmulatedDevice | None = getattr(session, _DEVICE, None)
    return device


def _wrapped_init(original: Method, make_device: MakeDevice) -> Method:
    @functools.wraps(original)
    def init(
        self: tf.compat.v1.Session,
        target: str = "",
        graph: tf.Graph = None,
        config: tf.compat.v1.ConfigProto | None = None,
    ) -> None:
        original(self, target, graph, config)
        device = make_device(config, self.graph)
        if device is not None:
            setattr(self, _DEVICE, device)

    result: Method = init
    return result


def _wrapped_run(original: Method) -> Method:
    @functools.wraps(original)
    def _do_run(
        self: tf.compat.v1.Session,
        handle: str | None,
        target_list: Sequence[Any],
        fetch_list: Sequence[Any],
        feed_dict: Mapping[Any, Any],
        options: object,
        run_metadata: object,
    ) -> object:
        device = session_device(self)
        if device is None:
            return original(self, handle, target_list, fetch_list, feed_dict, options, run_metadata)
        _check_run_options(self, options)
        feeds = {reference.deref(): value for reference, value in feed_dict.items()}
        fed = tuple(sorted(feeds, key=lambda tensor: str(tensor.name)))
        request = Request(tuple(fetch_list), tuple(target_list), fed)
        values = device.run(request, {tensor.name: value for tensor, value in feeds.items()})
        # A plain session returns scalars as NumPy scalars and owns what it returns.
        return [value[()] if value.ndim == 0 else value.copy() for value in values]

    return _do_run


def _check_run_options(session: tf.compat.v1.Session, buffer: object) -> None:
    """Says which wishes of RunOptions are not fulfilled here.

    Args:
        session: A session with a device.
        buffer: The options as TensorFlow hands them down, None for none.

    Raises:
        UnsupportedOpError: TensorFlow's debugger watches tensors.
    """
    if buffer is None:
        return
    options = RunOptions.FromString(pywrap_tf_session.TF_GetBuffer(buffer))
    if options.debug_options.debug_tensor_watch_opts:
        raise UnsupportedOpError(
            "debug watches (TensorFlow's debugger) are not available on the emulated device; dump with"
            " action='dump' in session_dump_config, or set use_off_line to False"
        )
    if (options.trace_level or options.output_partition_graphs) and not getattr(session, _TOLD, False):
        setattr(session, _TOLD, True)
        _LOG.warning(
            "RunOptions ask for a trace or for partition graphs: the emulated device records none, RunMetadata stays"
            " empty; leave them out, or set use_off_line to False"
        )


def _wrapped_make_callable(original: Method) -> Method:
    @functools.wraps(original)
    def make_callable(
        self: tf.compat.v1.Session, fetches: object, feed_list: object = None, accept_options: bool = False
    ) -> object:
        if session_device(self) is None or feed_list is not None:
            return original(self, fetches, feed_list, accept_options)
        # With a list of feeds TensorFlow's callable goes through run(); without, it would go around it.
        return original(self, fetches, [], accept_options)

    return make_callable


def _refused(original: Method, what: str) -> Method:
    @functools.wraps(original)
    def refuse(self: tf.compat.v1.Session, *args: object, **kwargs: object) -> object:
        if session_device(self) is not None:
            raise UnsupportedOpError(
                f"{what} is not available on the emulated device; use run(), or set use_off_line to False"
            )
        return original(self, *args, **kwargs)

    return refuse


def _wrapped_close(original: Method) -> Method:
    @functools.wraps(original)
    def close(self: tf.compat.v1.Session) -> None:
        device = session_device(self)
        if device is not None:
            device.close()
        original(self)

    return close
