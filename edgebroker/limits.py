"""All bounds of the core in one place, each with its reason. No resource of a gateway with 512 MB is practically
unlimited.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- topics ---------------------------------------------------------------------------------------------------
USER_PROPERTIES_MAX = 4_096  # of an event between gateways; a client's packet has at most 2,048, a bridge adds its own
TOPIC_BYTES_MAX = 65_535  # the length field of an MQTT string is two bytes
TOPIC_LEVELS_MAX = 256  # of clients' topics, by default; real hierarchies have 4 to 12 levels
TOPIC_LEVELS_LIMIT = 512  # of all topics, whoever sends them: some code descends a call per level

# -- content filters (docs/filters.md, "Bounds") ---------------------------------------------------------------
FILTER_BYTES_MAX = 2 * KIB  # a filter is read by people; the longest sensible one we know has 300 characters
FILTER_TERMS_MAX = 64  # one term is one comparison; 64 keep an evaluation below 10 us compiled
FILTER_DEPTH_MAX = 16  # parentheses and NOTs; bounds the parser's recursion
FILTER_CONJUNCTIONS_MAX = 64  # each is one path of the tree; `AND` over `OR`s multiplies them
LIKE_CHARS_MAX = 4_096  # of a text that is compared with patterns; 512 patterns take 4 ms, and took 32 ms with 64 KiB
PAYLOAD_DEPTH_MAX = 32  # nesting of JSON or CBOR that filters look into; a deeper payload has no attributes
PAYLOAD_COMPOSITES_MAX = 8_192  # arrays, maps, tagged values of a payload, 0.2 us each; with more: no attributes
PAYLOAD_PARSE_BYTES_MAX = 256 * KIB  # parsing costs about 4 ms per MiB; a larger payload has no attributes

# -- routing ---------------------------------------------------------------------------------------------------
LINKS_MAX = 1_024  # links of a broker: neighbours and groups; a trit is two bits at every node of the tree
ROUTES_MAX = 20_000  # cached topics, long ones count for several; 400 bytes each, 8 MiB; then the cache is cleared

# -- the overlay (docs/topology.md, "Bounds") ----------------------------------------------------------------------
CLUSTERS_MAX = 16  # sites of a federation: the cluster index vector in every header has two bytes
POSITIONS_MAX = 64  # of the factor, and so gateways of a site; with 16 sites they make GATEWAY_NUMBER_MAX
GATEWAY_NUMBER_MAX = 1_023  # the upper 10 of the 32 bits of a publisher's number

# -- the overlay -----------------------------------------------------------------------------------------------
SEEN_EVENTS = 8_192  # 8 s at 1,000 events a second, longer than a restarted link resends; 2 MiB with their sets
ADVERTISED_LEVELS = 2  # of a topic: `site/line/#`; one level more would advertise every device, one less everything
ADVERTISEMENTS_PER_CLIENT_MAX = 64  # a client with more is advertised with `#`; each goes to m-1 gateways
IDLE_ADVERTISEMENTS_MAX = 1_024  # kept without clients: 2.2 KB each, 0.8 KB at each mate; answers name all of them
WAITING_EVENTS_MAX = 1_000  # of one advertisement, for 1 s at most, until all clusters have answered
COVERED_MAX = 1_024  # interests that an answer to an advertisement is made of, 0.2 s once a second; of more only topics
COVERING_BYTES = 4_096  # of such an answer, unless the topology says otherwise: 50 filters of four ranges
COVERING_BYTES_MAX = 8 * KIB  # the same at most: so many interests are 8,192 values of 16,384 in a message
BACKPRESSURE_INTERESTS_MAX = 256  # of a neighbour whose outbox is nearly full, flooded: 10 KB, 5 s at 2,000 B/s
HELD_EVENTS_MAX = 1_000  # in the reorder buffer, of all publishers; more are delivered in order of arrival
HELD_EVENT_BYTES_MAX = 4 * MIB  # the payloads of these events: two seconds of a link of 16 Mbit/s
RETAINED_QUERIES_MAX = 1_024  # open queries for retained messages that pass through a gateway; 200 bytes each
RETAINED_REPLY_TOPICS_MAX = 16_384  # newest reply per topic of local queries, so that no older one follows; 3 MB
PEER_STRANGERS_MAX = 64  # connections that have shown neither a certificate nor a hello; with TLS 300 KB each
PEER_STRANGERS_PER_ADDRESS_MAX = 8  # the same from one address, behind which all peers may be
RETAINED_CACHE_BYTES_MAX = 8 * MIB  # answers of other gateways to such queries: 10,000 small messages
KEPT_WILLS_BYTES_MAX = 16 * MIB  # of clients of other gateways: 20,000 small ones
WAITING_BYTES_MAX = 4 << 20  # of all events that wait for answers of clusters; beyond it events are sent at once

# -- per client ------------------------------------------------------------------------------------------------
OUT_BYTES_MAX = 1 * MIB  # unsent bytes per client; 200 stalled clients occupy 200 MiB of a 512 MiB node
QUEUE_MESSAGES_MAX = 1_000_000  # QoS 1 and 2 messages that wait for a client; most of them are on the disk
QUEUE_BYTES_MAX = 64 * MIB  # the same in bytes: three weeks of a message of 200 bytes every six seconds
MEMORY_QUEUE_MESSAGES_MAX = 10_000  # of them, for a session that is in memory alone: 4 MiB with 64 bytes of payload
MEMORY_QUEUE_BYTES_MAX = 4 * MIB  # the same in bytes
INFLIGHT_MAX = 1_024  # unacknowledged QoS 1 and 2 messages for clients that state no receive maximum
RECEIVE_MAXIMUM = 1_024  # unfinished QoS 2 messages accepted from one client, announced in CONNACK
TOPIC_ALIAS_MAXIMUM = 32  # aliases that a client may set; each may stand for a topic of 64 KiB
TOPIC_ALIAS_BYTES_MAX = 72 * KIB  # of all aliases of a client in one direction: the longest topic, 31 of 100 characters
OUT_ALIASES_MAX = 32  # aliases that the broker sets for a client that allows them; 100 bytes each
LARGE_PACKET_BYTES = 1_000  # of such a packet every chunk is a sign of life: on a thin uplink it may take minutes
PACKET_BYTES_MAX = 16 * MIB  # largest packet accepted; the standard allows 256 MiB, which a Pi cannot hold
SUBSCRIPTIONS_PER_CLIENT_MAX = 100_000  # and the characters of as many of usual length: 25 million
CLIENT_ID_BYTES_MAX = 1_024
VERIFICATIONS_MAX = 128  # clients whose password is being checked: 3 s with two threads, 10 s on a Raspberry Pi 4
VERIFICATIONS_PER_ADDRESS_MAX = 96  # of those, from one address, so that it cannot block all others
VERIFICATION_TIMEOUT_S = 30  # as long as any client waits for CONNACK
CONNECT_BYTES_MAX = 64 * KIB  # memory that an unauthenticated connection may fill; a CONNECT has some hundred bytes
CONNECTS_PER_S = 1_000  # from all addresses; a gateway answers some 5,000 CONNECTs without password in a second
CONNECTS_PER_ADDRESS_PER_S = 200  # from one address, which may be the NAT of a whole site
CONNECTS_BURST_S = 10  # seconds' worth that may arrive at once: 2,000 devices after a power cut
ADDRESSES_MAX = 4_096  # addresses whose connections are counted one by one; 300 bytes each
FILTER_TESTS_PER_CLIENT_MAX = 2_000  # elementary tests in all filters of a client: 500 with 4 each; 10 ns at worst
FILTER_PATTERNS_PER_CLIENT_MAX = 64  # LIKE patterns in them except plain prefixes; each is compared, 1 us and more
FILTER_ATTRIBUTES_PER_CLIENT_MAX = 64  # attributes they name: as many as one filter may; a fleet has 10 to 50
FILTER_CLIENTS_MAX = 8  # multiple of these quotas for all clients of a user, or of an address with many behind it
MEMORY_BYTES_MAX = 256 * MIB  # input, output, queues and retained messages of all clients; half of the smallest node
CONNECT_TIMEOUT_S = 10  # a connection that has not sent CONNECT by then is closed
SESSION_EXPIRY_S_MAX = 30 * 24 * 3600  # a session without a connection is kept a month at most
CONNECTIONS_MAX = 10_000
RETAINED_MESSAGES_MAX = 100_000
RETAINED_BYTES_MAX = 64 * MIB
SESSIONS_MAX = 20_000  # sessions, connected or not; one user or address may have half of them
MOVED_CLIENTS_MAX = 4_096  # clients that were sent to another gateway and are refused here for a while: about 1 MiB
MOVE_REFUSAL_S = 30  # for so long: libraries try the next server of their list after 1 to 10 s
PACKET_BYTES_PER_S_MIN = 1_000  # of a packet that is not whole: half of a thin uplink; 64 KiB within 76 s
SHARED_GROUPS_MAX = 100  # groups that one user or address may make; a message to all takes 0.3 to 0.5 ms, uncompiled
FEDERATED_GROUPS_CHARS_MAX = 32 * KIB  # in the names of all groups that other gateways are told of, in one message
QUEUED_MESSAGES_MAX = 100_000_000  # queued for all clients together: the bytes are what counts
QUEUED_BYTES_MAX: int | None = None  # the same in bytes; None: a quarter of what is free on the disk...
QUEUED_BYTES_LEAST = 128 * MIB  # ...and this where it is less, or unknown: a quarter of a node with 512 MiB

GATHER_US = 100  # about two messages at 20,000 a second, which take little more than one

# -- the delivery log ---------------------------------------------------------------------------------------------
LOG_SEGMENT_BYTES_MAX = 4 * MIB  # about 600,000 records: a reader has one in memory, an uplink repeats one at most
LOG_SEGMENT_AGE_S_MAX = 3_600  # the analytics lag behind by this much at most
LOG_BYTES_MAX = 1024 * MIB  # finished files of one gateway: some 150 million records, and a thirtieth of a 32 GB card

# -- files (docs/files.md) ------------------------------------------------------------------------------------------
CHUNK_BYTES_MIN = 16 * KIB  # of all chunks of a file but the last; smaller ones make manifests long
CHUNK_BYTES_MAX = 256 * KIB  # 1 s of an uplink of 2 Mbit/s: what a cut at the wrong moment costs
CHUNK_CACHE_BYTES = 4 * MIB  # of chunks in memory, for devices that ask for the same chunk one after the other
CHUNK_WRITE_BYTES_MAX = 4 * MIB  # of chunks that wait to be written: 2 s of a slow card
CHUNK_REQUESTS_MAX = 64  # of one client that wait for the disk; more are refused as busy
CHUNK_FETCHES_MAX = 1_024  # chunks that a gateway wants from others; clients that want more are told to wait
CHUNK_FETCHES_UNDER_WAY = 8  # of these, asked for: half a MiB, which hides the round trip of 10 Mbit/s and 400 ms
MANIFEST_BYTES_MAX = 64 * KIB  # of a manifest; a file with more chunks has its table of chunks in chunks of their own
MANIFEST_CHUNKS_MAX = 1_680  # 36 bytes each in a table, which leaves 5 KB for the other fields; 100 MiB of a file
MANIFEST_ATTRIBUTES_MAX = 32  # a filter has at most 64 terms; usual manifests have three: hardware, region, ring
MANIFEST_TEXT_BYTES_MAX = 256  # of an attribute

# -- the journal (docs/journal.md, "Limits") ---------------------------------------------------------------------
JOURNAL_SEGMENT_BYTES = 8 * MIB  # a flash card erases 4 MiB at a time; recovery has one segment in memory
JOURNAL_SEGMENT_BYTES_MAX = 64 * MIB  # a segment that contains a single record beyond the usual size
JOURNAL_RECORD_BYTES_MAX = 32 * MIB  # a packet of PACKET_BYTES_MAX and the records of its copies
JOURNAL_BATCH_BYTES = 1 * MIB  # records of one commit: this many are written at once
JOURNAL_ENOUGH_BYTES = 8 * KIB  # a commit of this size pads a sixteenth more, so it does not wait for other records
JOURNAL_ENOUGH_RECORDS = 96  # the same: padding of the last sector adds at most 5 bytes for each
JOURNAL_BATCH_RECORDS = 2_000  # records of one commit; framing them blocks everything else for 1.5 ms
JOURNAL_LARGE_BYTES = 1 * MIB  # a larger message is accepted only if the disk has room for a segment of its size
JOURNAL_BYTES_MAX = 1024 * MIB  # beyond it no message is accepted; recovery reads 100 MB in 2 s at most
JOURNAL_PAGE_MESSAGES = 512  # of a queue, moved to the disk or back at once: 2 ms at 4 us for each
JOURNAL_PAGE_MESSAGES_MAX = 4_096  # of a queue that grows fast; more are not believed to be in a page
JOURNAL_PAGE_BYTES = 128 * KIB  # the same in bytes; a slow card takes 30 ms for it, which may delay a commit
JOURNAL_QUARANTINE_FILES_MAX = 16  # damaged segments that are kept for the operator to inspect: 128 MiB

# -- files of the operator (docs/settings.md) ------------------------------------------------------------------------
OPERATOR_FILE_BYTES_MAX = 1 * MIB  # settings, users, rules have 1 to 300 KiB; 1 MiB of hard conditions is read in 20 s
