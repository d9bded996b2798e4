"""One link to one incarnation of one peer, over whatever connection it has at the moment.

Knows no HELLO and no dialling: `iothub/peers/links.py` says when a connection begins.
"""
