"""Bridges to foreign brokers: each a splice of two MQTT connections, which keeps no message of its own.

    splice = Splice(terms, memory, chance)
    splice.start(now)
    for order in splice.take_orders(): ...      dial, hang up, open or close the end towards our own front end
    splice.dialled(now)                         and what the remote says: splice.heard(chunk, now)
    splice.opened(now)                          and what our front end says: splice.told(chunk, now)
    splice.take_remote(), splice.take_local()   what to write now, at either end

Towards our own front end a bridge is a client of version 5 whose session never ends: what waits for the remote waits in
that session, in the gateway's journal, with its bounds and its accounts. Towards the remote it is a client too. Every
handshake goes through from one end to the other under the same packet identifier, and is answered at one end only when
it was answered at the other. So both sessions always know how far each message is, and after a crash of either side
they go on where they were: at QoS 2 a message is neither lost nor doubled, and nothing needs to be remembered here.

Nothing in this folder reads a clock, throws dice or waits.
"""
