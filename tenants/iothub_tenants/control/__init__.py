"""What a client asks of the control plane, one walk per packet: CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH."""
