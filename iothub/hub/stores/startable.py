"""What keeps a hub from starting on this machine, apart from its settings: `serve` looks at it before it starts, `serve --check` looks and ends.

Opens nothing for good and changes nothing. The data directory's lock is held by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from iothub.base.errors import BackendError, ErrorList
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.from_settings import links_by_process, listener_infos
from iothub.hub.stores.choices import file_versions
from iothub.net import http
from iothub.net.filter_factory import FilterFactory
from iothub.net.sockets import try_port
from iothub.peers.link_files import LinkFiles
from iothub_services.sqlite.database import inspect_file, refuse_future


def require_startable(settings: Config, data_dir: DataDir) -> None:
    """Raises IotHubError: the first thing in the way; its `details` name the others."""
    errors = ErrorList()
    for check in _checks(settings, data_dir):
        with errors.gathering():
            check()
    errors.raise_any()


def _checks(settings: Config, data_dir: DataDir) -> Iterator[Callable[[], object]]:
    yield partial(data_dir.pepper, settings.auth.pepper_file)
    for files, node in links_by_process(settings, data_dir).values():
        yield partial(_load_certificates, files, node)
    if settings.sql.url_file is None:  # a server is waited for
        yield partial(_open_accounts, data_dir)
    for file, known in file_versions(settings, data_dir).items():
        yield partial(_require_known, file, known)
    for info in listener_infos(settings):
        yield partial(FilterFactory, info)
        yield partial(try_port, replace(info, is_port_shared=False))  # whoever shares it now is another program
    if settings.http.port is not None:
        yield partial(http.try_port, settings.http.bind, settings.http.port)


def _load_certificates(files: LinkFiles, node: int) -> None:
    from iothub.peers import certificates  # cryptography: only where links need it

    certificates.load(files, node)


def _open_accounts(data_dir: DataDir) -> None:
    from iothub_tenants.accounts.database import accounts_url  # SQLAlchemy: only where the accounts are a file
    from iothub_tenants.accounts.store import AccountStore

    with closing(AccountStore(accounts_url(None, data_dir.accounts))):
        pass


def _require_known(file: Path, known: int) -> None:
    if not file.exists():
        return  # the start makes it
    try:
        version = inspect_file(file).version
    except BackendError as error:
        if error.retryable:
            raise
        return  # damaged: the start sets it aside
    refuse_future(file, version, known)
