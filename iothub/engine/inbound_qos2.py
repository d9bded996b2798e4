"""What is known of a Packet Identifier under which a client publishes with QoS 2: the states.

Holds names; `publishing` (PUBLISH), `answers` (PUBREL, removals) and `storage` (appends, claims) go from one to another.
States are kept in `Session.inbound`; an identifier that is not there is FREE.

    FREE       nothing is known: a PUBLISH under it is a new message
    STORING    delivered to transient receivers, on its way to disk; PUBREC waits for the commit
    ROUTED     everybody has it: PUBREC is sent or ready, PUBREL is awaited
    FINISHING  PUBREL is here, the identifier's removal is on its way to disk; PUBCOMP waits for it
    UNSTORED   nobody knows whether the store has it: a repeated PUBLISH is stored again, and delivered to nobody twice
    REFUSED    its removal is on its way to disk, and then a PUBREC that refuses
"""

from __future__ import annotations

FREE = 0
STORING = 1
ROUTED = 2
FINISHING = 3
UNSTORED = 4
REFUSED = 5
