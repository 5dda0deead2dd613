"""Bytes that break one rule each, and what the two brokers say to them where that differs.

All are whole packets, so that no broker waits for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SILENCE: Final = "silence"
"""The connection is closed and nothing said."""
TAKEN: Final = "taken"
"""The connection goes on."""


@dataclass(frozen=True)
class Offence:
    """*octets* from a client that speaks *version* ("-": that has not said CONNECT yet) break a rule.

    *theirs* and *ours* are the answers of Mosquitto and of our broker if they differ: a reason code, SILENCE or TAKEN.
    """

    version: str
    octets: str
    what: str
    theirs: str = ""
    ours: str = ""

    def answer(self, answer: str) -> list[str]:
        """What the client receives."""
        if answer == TAKEN:
            return []
        if answer == SILENCE or self.version == "3.1.1":
            return ["CLOSED"]
        if answer.endswith("3.1.1"):
            return ["UNREADABLE 20 0001: CONNACK has no reason code 0x01", "CLOSED"]
        return [f"{'CONNACK' if self.version == '-' else 'DISCONNECT'} reason={answer}", "CLOSED"]


OFFENCES: Final = (
    Offence("3.1.1", "0000", "packet type 0"),
    Offence("3.1.1", "f100", "flags of AUTH"),
    Offence("3.1.1", "8006000174000100", "flags of SUBSCRIBE"),
    Offence("3.1.1", "30ffffffff01", "a remaining length of five bytes"),
    Offence("3.1.1", "36050001740001", "QoS 3"),
    Offence("3.1.1", "3803000174", "DUP at QoS 0", "taken", "silence"),
    Offence("3.1.1", "32050001740000", "PUBLISH with identifier 0"),
    Offence("3.1.1", "3003000123", "a topic with #"),
    Offence("3.1.1", "300300012b", "a topic with +"),
    Offence("3.1.1", "30020000", "no topic"),
    Offence("3.1.1", "3003000574", "a topic beyond the packet"),
    Offence("3.1.1", "30030001ff", "a topic that is no UTF-8"),
    Offence("3.1.1", "3003000100", "a topic with U+0000"),
    Offence("3.1.1", "3003000101", "a topic with U+0001"),
    Offence("3.1.1", "30050003efbfbe", "a topic with U+FFFE"),
    Offence("3.1.1", "20020000", "CONNACK"),
    Offence("3.1.1", "d000", "PINGRESP", "taken", "silence"),
    Offence("3.1.1", "b0020001", "UNSUBACK", "taken", "silence"),
    Offence("3.1.1", "9003000100", "SUBACK", "taken", "silence"),
    Offence("3.1.1", "82020001", "SUBSCRIBE without a filter"),
    Offence("3.1.1", "8206000100017403", "SUBSCRIBE at QoS 3"),
    Offence("3.1.1", "8206000100017404", "a reserved option"),
    Offence("3.1.1", "8206000000017400", "SUBSCRIBE with identifier 0"),
    Offence("3.1.1", "a2020001", "UNSUBSCRIBE without a filter"),
    Offence("3.1.1", "a2050000000174", "UNSUBSCRIBE with identifier 0"),
    Offence("3.1.1", "c100", "flags of PINGREQ", "taken", "silence"),
    Offence("3.1.1", "c00100", "PINGREQ with a body", "taken", "silence"),
    Offence("3.1.1", "e100", "flags of DISCONNECT"),
    Offence("3.1.1", "e00100", "DISCONNECT with a body"),
    Offence("3.1.1", "60020001", "flags of PUBREL"),
    Offence("3.1.1", "40020000", "PUBACK with identifier 0"),
    Offence("3.1.1", "62020000", "PUBREL with identifier 0"),
    Offence("3.1.1", "40030001ff", "a longer PUBACK", "taken", "silence"),
    Offence("5", "0000", "packet type 0", "0x82", "0x81"),
    Offence("5", "f100", "flags of AUTH", "silence", "0x81"),
    Offence("5", "800700017400000100", "flags of SUBSCRIBE"),
    Offence("5", "30ffffffff01", "a remaining length of five bytes", "silence", "0x81"),
    Offence("5", "3606000174000100", "QoS 3"),
    Offence("5", "380400017400", "DUP at QoS 0", "taken", "0x81"),
    Offence("5", "3206000174000000", "PUBLISH with identifier 0"),
    Offence("5", "300400012300", "a topic with #", "0x82", "0x90"),
    Offence("5", "300400012b00", "a topic with +", "0x82", "0x90"),
    Offence("5", "3003000000", "no topic"),
    Offence("5", "300400057400", "a topic beyond the packet"),
    Offence("5", "30040001ff00", "a topic that is no UTF-8"),
    Offence("5", "300400010000", "a topic with U+0000"),
    Offence("5", "300400010100", "a topic with U+0001", "0x81", "0x90"),
    Offence("5", "30060003efbfbe00", "a topic with U+FFFE", "0x81", "0x90"),
    Offence("5", "300b000174072600010a000161", "a user property with a line feed", "silence", "0x81"),
    Offence("5", "2003000000", "CONNACK", "silence", "0x82"),
    Offence("5", "d000", "PINGRESP", "taken", "0x82"),
    Offence("5", "b00400010000", "UNSUBACK", "taken", "0x82"),
    Offence("5", "900400010000", "SUBACK", "taken", "0x82"),
    Offence("5", "8203000100", "SUBSCRIBE without a filter", "0x81", "0x82"),
    Offence("5", "820700010000017403", "SUBSCRIBE at QoS 3", "0x81", "0x82"),
    Offence("5", "820700010000017440", "a reserved option"),
    Offence("5", "820700000000017400", "SUBSCRIBE with identifier 0", "0x81", "0x82"),
    Offence("5", "a203000100", "UNSUBSCRIBE without a filter", "0x81", "0x82"),
    Offence("5", "a206000000000174", "UNSUBSCRIBE with identifier 0", "0x81", "0x82"),
    Offence("5", "c100", "flags of PINGREQ", "taken", "0x81"),
    Offence("5", "c00100", "PINGREQ with a body", "taken", "0x81"),
    Offence("5", "e100", "flags of DISCONNECT", "silence", "0x81"),
    Offence("5", "e0010a", "DISCONNECT with an unknown reason", "silence", "0x82"),
    Offence("5", "60020001", "flags of PUBREL", "silence", "0x81"),
    Offence("5", "40020000", "PUBACK with identifier 0", "silence", "0x82"),
    Offence("5", "62020000", "PUBREL with identifier 0", "silence", "0x82"),
    Offence("5", "40030001ff", "PUBACK with an unknown reason", "taken", "0x82"),
    Offence("5", "3006000174020102", "payload format 2", "taken", "0x82"),
    Offence("5", "3006000174021100", "a property PUBLISH cannot have"),
    Offence("5", "30080001740401000100", "a property twice", "silence", "0x82"),
    Offence("5", "3006000174020b01", "a subscription identifier from a client", "taken", "0x82"),
    Offence("5", "300700017403230000", "topic alias 0", "0x81", "0x94"),
    Offence("5", "30070001740323ffff", "topic alias beyond the maximum"),
    Offence("5", "3006000003230001", "an alias for no topic"),
    Offence("5", "82090001020b0000017400", "subscription identifier 0", "0x81", "0x82"),
    Offence("5", "820700010000017430", "retain handling 3", "0x81", "0x82"),
    Offence("5", "f000", "AUTH without a method", "silence", "0x82"),
    Offence("5", "f0021900", "AUTH, again, without a method", "silence", "0x82"),
    Offence("5", "e006000511000000", "DISCONNECT with half a property", "silence", "0x81"),
    Offence("-", "100d00044d515454040200000001ff", "bytes behind the end"),
    Offence("-", "100d00044d51545404030000000161", "the reserved flag"),
    Offence("-", "100d00044d51545404220000000161", "will retain without a will"),
    Offence("-", "100d00044d515454040a0000000161", "will QoS without a will"),
    Offence("-", "101200044d515454041e00000001610001740000", "will QoS 3"),
    Offence("-", "100d00044d51545404420000000161", "a password alone"),
    Offence("-", "100d00044d51545404820000000161", "no user name"),
    Offence("-", "100d00044d51545404000000000000", "an empty identifier and a byte behind it"),
    Offence("-", "100d00044d51545407020000000161", "version 7", "0x01 of 3.1.1", "0x84"),
    Offence("-", "100d00044d51545504020000000161", "version 5 with the packet of 3.1.1"),
    Offence("-", "100e00044d5154540402000000016161", "a byte behind the identifier"),
    Offence("-", "100e00044d5154540503000000000161", "the reserved flag", "silence", "0x81"),
    Offence("-", "100e00044d5154540522000000000161", "will retain without a will", "silence", "0x81"),
    Offence("-", "101000044d51545405020000022100000161", "half a receive maximum", "silence", "0x82"),
    Offence("-", "101100044d5154540502000003210000000161", "receive maximum 0", "silence", "0x82"),
    Offence("-", "101300044d51545405020000052700000000000161", "maximum packet size 0", "silence", "0x82"),
    Offence("-", "101000044d51545405020000021702000161", "problem information 2", "silence", "0x82"),
    Offence("-", "c000", "PINGREQ first"),
    Offence("-", "3003000174", "PUBLISH first"),
    Offence("-", "8206000100017400", "SUBSCRIBE first"),
    Offence("-", "e000", "DISCONNECT first"),
)


def offence(version: str, octets: str) -> Offence | None:
    """The offence that these bytes are."""
    return next((one for one in OFFENCES if (one.version, one.octets) == (version, octets)), None)
