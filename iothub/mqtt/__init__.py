"""Sans-I/O MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back. Standard library only."""
