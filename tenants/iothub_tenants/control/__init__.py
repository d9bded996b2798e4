"""The control plane's packet handlers, one per packet: CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH."""
