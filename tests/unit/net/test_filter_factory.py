"""Which filters a listener has, and in which order."""

from __future__ import annotations

from iothub.net.filter_factory import FilterFactory
from iothub.net.filters import ClientFacts
from iothub.net.listener_info import listener_info
from iothub.testing.certificates import Authority


def test_factory_puts_proxy_before_tls_before_websocket(tmp_path) -> None:
    """Outermost first; plain TCP has none."""
    pair = Authority(tmp_path).issue("server")
    files = {"cert_file": pair.cert_file, "key_file": pair.key_file}
    cases = [
        (listener_info("tcp"), []),
        (listener_info("tcp", proxy_trusted=("10.0.0.0/8",)), ["ProxyFilter"]),
        (listener_info("tls", **files), ["TlsFilter"]),
        (listener_info("ws"), ["WebSocketFilter"]),
        (
            listener_info("wss", proxy_trusted=("10.0.0.0/8",), **files),
            ["ProxyFilter", "TlsFilter", "WebSocketFilter"],
        ),
    ]
    for info, names in cases:
        factory = FilterFactory(info)
        assert factory.has_filters() == bool(names)
        assert [type(layer).__name__ for layer in factory.make(ClientFacts("10.0.0.1", 1))] == names
