"""`iothub doctor`: checks of everything that a hub with this configuration needs, with timing. Changes no store."""
