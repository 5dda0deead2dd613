"""Every bound of the core, in one place, each with its reason. A Pi has no "practically unlimited"."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- topics ---------------------------------------------------------------------------------------------------
USER_PROPERTIES_MAX = 4_096  # of an event between gateways; a client's packet has at most 2,048, a bridge adds its own
TOPIC_BYTES_MAX = 65_535  # the length field of an MQTT string is two bytes
TOPIC_LEVELS_MAX = 128  # deeper trees exist only in attacks; real hierarchies have 4 to 12 levels

# -- content filters (docs/filters.md, "Bounds") ---------------------------------------------------------------
FILTER_BYTES_MAX = 2 * KIB  # a filter is read by people; the longest sensible one we know has 300 characters
FILTER_TERMS_MAX = 64  # one term is one comparison; 64 keep an evaluation below 10 us compiled
FILTER_DEPTH_MAX = 16  # parentheses and NOTs; bounds the parser's recursion
FILTER_CONJUNCTIONS_MAX = 64  # each is one path of the tree; `AND` over `OR`s multiplies them
LIKE_CHARS_MAX = 4_096  # of a text that patterns are asked about; 512 of them take 4 ms, as many of 64 KiB took 32
PAYLOAD_DEPTH_MAX = 32  # nesting of JSON or CBOR that filters look into; a deeper payload has no attributes
PAYLOAD_COMPOSITES_MAX = 8_192  # arrays, maps, tagged values of a payload, 0.2 us each; with more: no attributes
PAYLOAD_PARSE_BYTES_MAX = 256 * KIB  # parsing costs about 4 ms per MiB; a larger payload has no attributes

# -- routing ---------------------------------------------------------------------------------------------------
LINKS_MAX = 1_024  # links of a broker: neighbours and groups; a trit is two bits at every node of the tree
ROUTES_MAX = 20_000  # cached topics, long ones count for several; 400 bytes each, 8 MiB; then the cache starts anew

# -- the overlay (docs/topology.md, "Bounds") ----------------------------------------------------------------------
CLUSTERS_MAX = 16  # sites of a federation: the cluster index vector in every header has two bytes
POSITIONS_MAX = 64  # of the factor, and so gateways of a site; with 16 sites they make GATEWAY_NUMBER_MAX
GATEWAY_NUMBER_MAX = 1_023  # the upper 10 of the 32 bits of a publisher's number

# -- the overlay -----------------------------------------------------------------------------------------------
SEEN_EVENTS = 8_192  # eight seconds at 1,000 a second, longer than a restarted link sends again; 2 MiB with the rest
ADVERTISED_LEVELS = 2  # of a topic: `site/line/#`; a level more would advertise every device, one less everything
ADVERTISEMENTS_PER_CLIENT_MAX = 64  # a client with more is advertised with `#`; each is told m-1 gateways
WAITING_EVENTS_MAX = 1_000  # of one advertisement, for a second at most, until all clusters have said who wants them
COVERING_MAX = 8  # interests by which a cluster says what it wants of a publisher; each is tested for each event
BACKPRESSURE_INTERESTS_MAX = 256  # of a neighbour for whom too much waits, told to everybody: 10 KB, 5 s at 2,000 B/s
HELD_EVENTS_MAX = 1_000  # sorted back into order, of all publishers; more are handed on as they come
RETAINED_QUERIES_MAX = 1_024  # questions for retained messages under way through a gateway; 200 bytes each
RETAINED_REPLY_TOPICS_MAX = (
    16_384  # answers to local ones that are remembered, so that no older one comes after them; 3 MB
)
WAITING_BYTES_MAX = 4 << 20  # of all events that wait for clusters to say who wants them; beyond it they go at once

# -- per client ------------------------------------------------------------------------------------------------
OUT_BYTES_MAX = 1 * MIB  # unsent bytes per client; 200 stalled clients hold 200 MiB of a 512 MiB node
QUEUE_MESSAGES_MAX = 1_000  # QoS 1 and 2 messages waiting for a window slot or for an absent client
QUEUE_BYTES_MAX = 4 * MIB  # the same, in payload bytes
INFLIGHT_MAX = 1_024  # unacknowledged QoS 1 and 2 messages for clients that state no receive maximum
RECEIVE_MAXIMUM = 1_024  # unfinished QoS 2 messages we take from one client, announced in CONNACK
TOPIC_ALIAS_MAXIMUM = 32  # aliases a client may set towards us; each may hold a topic of 64 KiB
OUT_ALIASES_MAX = 32  # aliases we set towards a client that takes them; 100 bytes each
PACKET_BYTES_MAX = 16 * MIB  # largest packet we take; the standard allows 256 MiB, a Pi does not
SUBSCRIPTIONS_PER_CLIENT_MAX = 100_000  # and as many characters as so many usual ones have: 25 million
CLIENT_ID_BYTES_MAX = 1_024
VERIFICATIONS_MAX = 128  # clients whose password is being checked: 3 s with two threads, 10 s on a Raspberry Pi 4
VERIFICATIONS_PER_ADDRESS_MAX = 96  # of those, of one address: it cannot keep all others out
VERIFICATION_TIMEOUT_S = 30  # as long as any client waits for CONNACK
CONNECT_BYTES_MAX = 64 * KIB  # who is not known yet may fill memory with no more; a CONNECT has some hundred bytes
CONNECTS_PER_S = 1_000  # of all addresses; a gateway answers some 5,000 CONNECTs without password in a second
CONNECTS_PER_ADDRESS_PER_S = 200  # of one address, behind which a whole site may stand
CONNECTS_BURST_S = 10  # so many seconds' worth may come at once: 2,000 devices after a power cut
ADDRESSES_MAX = 4_096  # whose connections are counted apart; 300 bytes each
FILTER_TESTS_PER_CLIENT_MAX = 2_000  # elementary tests in all filters of a client: 500 with 4 each; 10 ns at worst
FILTER_PATTERNS_PER_CLIENT_MAX = 64  # LIKE patterns in them but for plain prefixes; each is tried, at 1 us and more
FILTER_ATTRIBUTES_PER_CLIENT_MAX = 64  # names they ask for: as many as one filter may; a fleet has 10 to 50
FILTER_CLIENTS_MAX = 8  # clients' worth of these for all clients of a user, or of an address with many behind it
MEMORY_BYTES_MAX = 256 * MIB  # input, output, queues and retained messages of all clients; half of the smallest node
CONNECT_TIMEOUT_S = 10  # a connection that has not said CONNECT by then is closed
SESSION_EXPIRY_S_MAX = 30 * 24 * 3600  # a session left behind is kept a month at most
CONNECTIONS_MAX = 10_000
RETAINED_MESSAGES_MAX = 100_000
RETAINED_BYTES_MAX = 64 * MIB
SESSIONS_MAX = 20_000  # remembered sessions, connected or not
QUEUED_MESSAGES_MAX = 1_000_000  # waiting for all clients together
QUEUED_BYTES_MAX = 128 * MIB  # the same in bytes: a quarter of a 512 MiB node

AWAKE_PERCENT = 10  # a message every millisecond, and 100 us for each
GATHER_US = 100  # about two messages at 20,000 a second, which take little more than one
SPIN_US = 25  # to be woken takes 15 us of processor time on a PC, and 2 of whoever wakes

# -- the delivery log ---------------------------------------------------------------------------------------------
LOG_SEGMENT_BYTES_MAX = 4 * MIB  # about 600,000 records: a reader holds one in memory, an uplink repeats one at most
LOG_SEGMENT_AGE_S_MAX = 3_600  # what the analytics see is at most this old
LOG_BYTES_MAX = 1024 * MIB  # finished files of one gateway: some 150 million records, and a thirtieth of a 32 GB card

# -- the journal (docs/journal.md, "Limits") ---------------------------------------------------------------------
JOURNAL_SEGMENT_BYTES = 8 * MIB  # a flash card erases 4 MiB at a time; recovery holds one segment in memory
JOURNAL_SEGMENT_BYTES_MAX = 64 * MIB  # one that holds a single record beyond the usual size
JOURNAL_RECORD_BYTES_MAX = 32 * MIB  # a packet of PACKET_BYTES_MAX and what is said about its copies
JOURNAL_BATCH_BYTES = 1 * MIB  # records that wait for one commit: they go to the disk at once when there are as many
JOURNAL_ENOUGH_BYTES = 8 * KIB  # a commit of as many writes a sixteenth more than they are, so it waits for no others
JOURNAL_ENOUGH_RECORDS = 96  # the same: what fills up the last sector is 5 bytes for each of them at most
JOURNAL_BATCH_RECORDS = 2_000  # the same; framing them takes 1.5 ms, which everybody else waits
JOURNAL_LARGE_BYTES = 1 * MIB  # a larger message is taken only if the disk has room for a segment of its size
JOURNAL_BYTES_MAX = 1024 * MIB  # beyond it nothing more is taken; recovery reads 100 MB in 2 s at most
JOURNAL_QUARANTINE_FILES_MAX = 16  # damaged segments that are kept for whoever wants to look: 128 MiB
