"""iothub: one multi-tenant IoT hub; every tenant gets its own MQTT broker inside one shared, fast service."""
