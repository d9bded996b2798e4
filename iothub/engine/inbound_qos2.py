"""What is known of a Packet Identifier under which a client publishes with QoS 2: the states, and what moves one to another.

Holds names and the table; `publishing` (PUBLISH), `answers` (PUBREL, removals) and `storage` (appends, claims) do what it says. A test
drives every cell. States are kept in `Session.inbound`; an identifier that is not there is FREE.

    FREE       nothing is known: a PUBLISH under it is a new message
    STORING    delivered to transient receivers, on its way to disk; PUBREC waits for the commit
    ROUTED     all receivers have it: PUBREC is sent or ready, PUBREL is awaited
    FINISHING  PUBREL is here, the identifier's removal is on its way to disk; PUBCOMP waits for it
    UNSTORED   it is not known whether the store has it: a repeated PUBLISH is stored again, and delivered to no session twice
    REFUSED    its removal is on its way to disk, and then a PUBREC that refuses

The table, of a persistent session; a dot: the state stays. The client hears PUBREC at a PUBLISH in ROUTED and FINISHING, PUBCOMP (0x92:
Packet Identifier not found) at a PUBREL in FREE.

    event                      FREE       STORING    ROUTED     FINISHING  UNSTORED   REFUSED
    -------------------------  ---------  ---------  ---------  ---------  ---------  ---------
    PUBLISH                    STORING    .          .          .          STORING    STORING
    PUBLISH, PUBREC is owed    STORING    .          .          .          .          .
    PUBREL                     .          FINISHING  FINISHING  .          FINISHING  .
    stored                     .          ROUTED     .          .          .          .
    stored, then refused       .          REFUSED    .          .          .          .
    not stored, 0x97 sent      .          FREE       .          .          .          .
    not stored, no answer      .          UNSTORED   .          .          .          .
    removed                    .          .          .          FREE       .          FREE
    removed, PUBREC not owed   .          .          .          FREE       .          UNSTORED
    claimed, recorded          ROUTED     ROUTED     ROUTED     ROUTED     ROUTED     ROUTED
    claimed, not recorded      .          .          FREE       FREE       .          UNSTORED
    session ends               .          FREE       FREE       FREE       FREE       FREE

"PUBREC is owed": a PUBLISH with this identifier waits for its answer on the same connection. "no answer": 3.x has no such answer, its client
has gone, or something may have been written; the connection ends. "claimed": the client has come again, here or after a crash.

A transient session ends with its connection, and the store does not record its identifiers: a message that needs no store goes from FREE to
ROUTED, and one that is refused, or released by PUBREL, makes its identifier FREE at once.
"""

from __future__ import annotations

FREE = 0
STORING = 1
ROUTED = 2
FINISHING = 3
UNSTORED = 4
REFUSED = 5
