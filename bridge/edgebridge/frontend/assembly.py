"""Puts the parts of a front end together, each constructed with all that it needs.

The order is that of what needs what: the retained store and queue expiry before delivery, delivery before the
handlers, the handlers before recovery. `Frontend` adds what needs the front end itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.event_buffer import EventBuffer
from edgebridge.frontend.fast_path.fan_out import FanOutCache
from edgebridge.frontend.filter_quota import FilterQuota
from edgebridge.frontend.handlers.authentication import Authenticator
from edgebridge.frontend.handlers.authorization import Authorizer
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.frontend.handlers.enhanced_auth import EnhancedAuth
from edgebridge.frontend.handlers.publish import PublishHandler
from edgebridge.frontend.handlers.publish_admission import PublishAdmission
from edgebridge.frontend.handlers.subscribe import SubscribeHandler
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.journal.restore import StateRecovery
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.memory_accounts import MemoryAccounts
from edgebridge.frontend.options import FrontendHost, FrontendOptions, Quota
from edgebridge.frontend.queue_expiry import QueueExpiry
from edgebridge.frontend.retained_replay import RetainedReplay
from edgebridge.frontend.session_quota import SessionQuota
from edgebridge.frontend.shared_subscriptions import SharedSubscriptions
from edgebridge.frontend.sparkplug_rebirth import SparkplugRebirth
from edgebridge.session.access import AccessPolicy
from edgebridge.session.retained import RetainedStore
from edgebroker.node.node import Node
from edgebroker.storage.journal.journal import Journal

if TYPE_CHECKING:
    from edgebridge.frontend.presence import ClientPresence


class FrontendParts(NamedTuple):
    """The collaborators of a front end."""

    retained: RetainedStore
    memory_accounts: MemoryAccounts
    fan_out_cache: FanOutCache
    session_journal: SessionJournal
    pager: QueuePager
    expiry: QueueExpiry
    delivery: Delivery
    events: EventBuffer
    presence: ClientPresence | None
    """Publishes which clients are connected; None if the options do not ask for it."""
    publish_handler: PublishHandler
    shared_subscriptions: SharedSubscriptions
    subscribe_handler: SubscribeHandler
    authenticator: Authenticator
    connect_handler: ConnectHandler
    enhanced_auth: EnhancedAuth
    recovery: StateRecovery
    sparkplug_rebirth: SparkplugRebirth


def assemble(
    node: Node,
    options: FrontendOptions,
    new_client_id: Callable[[], str],
    access: AccessPolicy,
    secret: bytes,
    journal: Journal | None,
    quota: Quota,
    host: FrontendHost,
) -> FrontendParts:
    """Construct the parts of one front end; the arguments are those of `Frontend`."""
    node.groups.is_sticky = options.sharing == "sticky"
    node.groups.federated = options.federated_groups
    node.routes.topic_levels_max = options.topic_levels_max
    node.groups.per_account_max = quota.shared_groups_max
    retained = RetainedStore(options.retained_messages_max, options.retained_bytes_max)
    memory_accounts = MemoryAccounts(quota.memory_bytes_max, retained)
    fan_out_cache = FanOutCache(node.routes)
    session_journal = SessionJournal(node.timers, journal)
    pager = QueuePager(node.timers, node.ledger, session_journal)
    expiry = QueueExpiry(node.timers, node.ledger, session_journal, pager)
    delivery = Delivery(node.ledger, session_journal, retained, expiry, pager)
    presence = _presence(node, options, host)
    events = EventBuffer(presence)
    admission = PublishAdmission(session_journal, retained, memory_accounts, options)
    publish_handler = PublishHandler(node, delivery, session_journal, retained, events, admission, options)
    shared_subscriptions = SharedSubscriptions(node, delivery)
    authenticator = Authenticator(node.timers, access, secret)
    authorizer = Authorizer(node.routes, authenticator)
    replay = RetainedReplay(node, delivery, session_journal, retained, authorizer)
    subscribe_handler = SubscribeHandler(
        node, session_journal, shared_subscriptions, replay, FilterQuota(quota, memory_accounts), events
    )
    connect_handler = ConnectHandler(
        node,
        delivery,
        session_journal,
        publish_handler,
        memory_accounts,
        fan_out_cache,
        shared_subscriptions,
        authenticator,
        authorizer,
        SessionQuota(quota.sessions_max),
        options,
        new_client_id,
        events,
        host,
    )
    return FrontendParts(
        retained,
        memory_accounts,
        fan_out_cache,
        session_journal,
        pager,
        expiry,
        delivery,
        events,
        presence,
        publish_handler,
        shared_subscriptions,
        subscribe_handler,
        authenticator,
        connect_handler,
        EnhancedAuth(connect_handler, authenticator, secret),
        StateRecovery(node, connect_handler, authorizer, subscribe_handler, retained, pager),
        SparkplugRebirth(node, publish_handler, options.sparkplug_rebirth_s, host),
    )


def _presence(node: Node, options: FrontendOptions, host: FrontendHost) -> ClientPresence | None:
    if not options.presence:
        return None
    from edgebridge.frontend.presence import ClientPresence  # 0.2 MiB that few options ask for

    return ClientPresence(node, host)
