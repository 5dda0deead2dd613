"""Reading the files that say who may come in and do what."""

from __future__ import annotations

from collections.abc import Callable

from edgebridge.session.access import Access, CertificateUser
from edgebridge.session.passwordfile import PasswordFile
from edgebroker.world.privatefile import is_open_to_others, read_private
from edgebroker.world.settings.access import AccessSettings


def load_access(settings: AccessSettings, tell: Callable[[str], None]) -> Access:
    """What the files of *settings* say now. Raises FileRefused if one cannot be read: then nothing has changed.

    A bad line of the password file is told and lets nobody in; the rest of the file holds.
    """
    passwords = None
    if settings.password_file is not None:
        passwords = PasswordFile.parse(read_private(settings.password_file))
        for problem in passwords.problems:
            tell(f"{settings.password_file}: {problem}")
        if is_open_to_others(settings.password_file):
            tell(f"{settings.password_file}: everybody on this machine may read it; chmod o-r mends that")
    return Access(passwords, CertificateUser(settings.certificate_user))
