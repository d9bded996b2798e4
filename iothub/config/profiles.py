"""The configuration files that `iothub init` writes: one for each kind of place where a hub lives, with a word on every choice.

Knows names of settings and no default of theirs; what the settings mean is `iothub.config.sections`. Each text is a valid configuration as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

URL_FILE = "accounts.url"  # beside the configuration; holds a password

_HEAD = """\
# Settings of this hub. All of them, with defaults and meaning: `iothub config show --reference`.
# A setting can also be given as `--set section.key=value` or in the environment as IOTHUB_SECTION__KEY.
"""

_VERSION = """
config_version = 1
"""

_DOORS = """
# Without a setting the hub listens on 127.0.0.1:1883 only. To serve other machines:
# [listeners.tcp]
# bind = "0.0.0.0"
"""

_TLS = """\
#
# [listeners.tls]
# bind = "0.0.0.0"
# port = 8883
# cert_file = "cert.pem"  # file names are relative to this file
# key_file = "key.pem"
"""

_HTTP = """
# /livez, /readyz, /metrics and /status, without a login: leave it on loopback, or on a network of your own.
[http]
port = 8080
"""

_EMBEDDED = f"""\
{_HEAD}\
#
# Profile embedded: one hub, no server. Accounts, queues, retained messages, session events and states are SQLite files of this folder.
{_VERSION}{_DOORS}"""

_SINGLE_SERVER = f"""\
{_HEAD}\
#
# Profile single-server: one hub, with Kafka and Redis on the same machine. What is owed to devices is in SQLite files of this folder, which need
# nobody: without Kafka streams wait, without Redis nothing does. Python packages: pip install 'iothub[kafka,redis]'
# `iothub doctor` looks at every server that is named here.
{_VERSION}{_DOORS}{_TLS}{_HTTP}
# Streams take what devices publish to applications, and back: `iothub stream --help`.
[kafka]
brokers = ["127.0.0.1:9092"]
replication = 1  # one broker has one copy; 3 where there are three brokers

# Session events stay in events.db, which the job `compact_events` keeps short. As topics in Kafka others could read them, but they are only
# trimmed where the states are in HBase (profile cluster).
# [events]
# driver = "kafka"

[redis]
addresses = ["127.0.0.1:6379"]
# password_file = "redis-password"  # mode 0600

# Devices that come back after a restart are found in Redis, not one by one in the accounts.
[auth]
shared_cache = "redis"

# Accounts stay in accounts.db. To have them on MariaDB or PostgreSQL, see `iothub db copy --help` first.
# [sql]
# url_file = "{URL_FILE}"
"""

_CLUSTER = f"""\
{_HEAD}\
#
# Profile cluster: several hubs, everything that they share on servers: accounts on MariaDB, MySQL or PostgreSQL, session events in Kafka, queues,
# states and retained messages in HBase, the cache of accounts and the quota ledger on Redis.
# Python packages: pip install 'iothub[kafka,redis,mysql]', or postgresql in place of mysql.
#
# Put your own addresses in the place of hbase-1, kafka-1 and redis-1 here and of sql-1 in {URL_FILE}. `iothub doctor` says which of them answer;
# then `iothub init` once more makes the accounts, and `iothub hbase create-tables` the tables, once for all hubs.
#
# Every further hub: copy this file, {URL_FILE} and `pepper` (both mode 0600) into its own data directory, give it another node.name and
# node.number, and run `iothub init` there.
{_VERSION}
[node]
name = "hub-1"
number = 1  # 0..65535; no two hubs may have the same
{_DOORS}{_TLS}{_HTTP}
[sql]
url_file = "{URL_FILE}"  # one line, mode 0600: mysql+pymysql://USER:PASSWORD@HOST/DATABASE or postgresql+psycopg://...

[auth]
shared_cache = "redis"
# The key of all secrets is `pepper` beside this file, the same for every hub. Where it comes from a secret store:
# pepper_file = "..."

[quota]
ledger = "redis"  # the hubs share every limit, if each of them has this

[redis]
addresses = ["redis-1:6379"]  # a master and its replicas; or the Sentinels, usually with port 26379
# sentinel_name = "mymaster"
# password_file = "redis-password"  # mode 0600

[queues]
driver = "hbase"  # "hbase-plain" where our jar may not be loaded into HBase

[state]
driver = "hbase"

[retained]
driver = "hbase"

[hbase]
thrift = ["hbase-1:9090", "hbase-2:9090"]  # Thrift 1 gateways, framed
# namespace = "iothub"  # another one for another installation in the same HBase
# admin_program = "hbase"  # what `iothub hbase create-tables` runs, with our jar on its class path (HBASE_CLASSPATH)

# The log of session events. The job `compact_events` keeps it short: `iothub job schedule --help`.
[events]
driver = "kafka"

# [jobs]
# at = "02:30"  # UTC; when your timer starts the jobs

[kafka]
brokers = ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]
replication = 3  # copies of every record; not more than there are brokers
partitions = 16  # decides where a session's events are: never change it
# topic_prefix = "iothub"  # another one for another installation in the same Kafka
"""

_URL = "mysql+pymysql://iothub:PASSWORD@sql-1:3306/iothub\n"


@dataclass(frozen=True, slots=True)
class Profile:
    """A place to live in. `config`: the file; `url`: the line of `URL_FILE`, to be edited first, where accounts are on a server."""

    name: str
    config: str
    url: str = ""


EMBEDDED = Profile("embedded", _EMBEDDED)
PROFILES = {
    profile.name: profile
    for profile in (EMBEDDED, Profile("single-server", _SINGLE_SERVER), Profile("cluster", _CLUSTER, _URL))
}
