"""Sans-I/O MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back. Standard library only.

Knows no socket, no session and no tenant. In reading order: `constants`, `errors`, `reason_codes`, `fields`, `properties`, `packets`;
then inwards `fixed_header`, `connect`, `decode`, `decoder`, and outwards `encoder`, `outbound`.
"""
