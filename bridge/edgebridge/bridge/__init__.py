"""Bridges to foreign brokers: each joins two MQTT connections and stores no message of its own.

    bridge = Bridge(options, local_session, chance)
    bridge.start(now)
    for command in bridge.take_commands(): ...  dial, hang up, open or close the local end
    bridge.on_connected(now)                    bytes of the remote broker: bridge.receive_remote(chunk, now)
    bridge.on_local_open(now)                   bytes of our front end: bridge.receive_local(chunk, now)
    bridge.take_remote_output(now)              bytes to write to the remote broker
    bridge.take_local_output()                  bytes to write to our front end

Towards our front end a bridge is an MQTT 5 client whose session never expires: messages for the remote wait in that
session, in the gateway's journal, with its bounds and counters. Towards the remote broker it is a client as well.
Every handshake passes from one end to the other under the same packet identifier, and is answered at one end only
after the other end answered. So both sessions know the state of each message, and a crash of either side loses and
duplicates no QoS 2 message.

Nothing in this package reads a clock, draws random numbers or waits.
"""
