"""The configuration files that `iothub init` writes: one for each profile, with a comment on every choice.

Knows names of settings but no defaults; `iothub.config.sections` has those. Each text is a valid configuration as it stands.
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

_LISTENERS = """
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
# /livez, /readyz, /metrics and /status, without a login: keep it on loopback or on a private network.
[http]
port = 8080
"""

_EMBEDDED = f"""\
{_HEAD}\
#
# Profile embedded: one hub, no servers. Accounts, queues, retained messages, session events and states are SQLite files in this folder.
{_VERSION}{_LISTENERS}"""

_SINGLE_SERVER = f"""\
{_HEAD}\
#
# Profile single-server: one hub, with Kafka and Redis on the same machine. Accounts, queues, sessions and retained messages are SQLite files in
# this folder. If Kafka stops, only streams wait; if Redis stops, nothing waits. Python packages: pip install 'iothub[kafka,redis]'
# `iothub doctor` checks every server that is named here.
{_VERSION}{_LISTENERS}{_TLS}{_HTTP}
# Streams carry messages from devices to applications and back: `iothub stream --help`.
[kafka]
brokers = ["127.0.0.1:9092"]
replication = 1  # one broker holds one copy; 3 with three brokers

# Session events are in events.db, which the job `compact_events` keeps short. In Kafka other programs can read them, but there they are trimmed
# only if the states are in HBase (profile cluster).
# [events]
# driver = "kafka"

[redis]
addresses = ["127.0.0.1:6379"]
# password_file = "redis-password"  # mode 0600

# After a restart, devices are looked up in Redis, not one by one in the accounts.
[auth]
shared_cache = "redis"

# Accounts stay in accounts.db. To have them on MariaDB or PostgreSQL, see `iothub db copy --help` first.
# [sql]
# url_file = "{URL_FILE}"
"""

_CLUSTER = f"""\
{_HEAD}\
#
# Profile cluster: several hubs with shared servers: accounts on MariaDB, MySQL or PostgreSQL; session events in Kafka; queues, states and
# retained messages in HBase; the account cache and the quota ledger in Redis.
# Python packages: pip install 'iothub[kafka,redis,mysql]', or postgresql instead of mysql.
#
# Replace hbase-1, kafka-1 and redis-1 here, and sql-1 in {URL_FILE}, by the addresses of your servers. Check with `iothub doctor` that they answer.
# Then `iothub init` creates the accounts, and `iothub hbase create-tables` the tables, once for all hubs.
#
# Every further hub: copy this file, {URL_FILE} and `pepper` (both mode 0600) to its own data directory, change node.name and
# node.number, and run `iothub init` there. Hubs that share these servers are linked: set [cluster] below at each, before the second one starts.
{_VERSION}
[node]
name = "hub-1"
number = 1  # 0..65535; different for every hub

# Links to the other hubs; TLS with certificates of your own authority: `iothub cluster init-ca`, then `iothub cluster issue NUMBER` for each hub.
# [cluster]
# listen = "0.0.0.0:7883"
# advertise = "hub-1.example.com:7883"  # where the other hubs reach this one
{_LISTENERS}{_TLS}{_HTTP}
[sql]
url_file = "{URL_FILE}"  # one line, mode 0600: mysql+pymysql://USER:PASSWORD@HOST/DATABASE or postgresql+psycopg://...

[auth]
shared_cache = "redis"
# The key of all secrets is the file `pepper` beside this one, the same for every hub. To read it from another place:
# pepper_file = "..."

[quota]
ledger = "redis"  # the hubs share every limit; set it on all of them

[redis]
addresses = ["redis-1:6379"]  # a master and its replicas; or the Sentinels, usually with port 26379
# sentinel_name = "mymaster"
# password_file = "redis-password"  # mode 0600

[queues]
driver = "hbase"  # its region servers need the iothub-hbase jar; if you cannot install it: "redis"

[state]
driver = "hbase"

[retained]
driver = "hbase"

[hbase]
thrift = ["hbase-1:9090", "hbase-2:9090"]  # Thrift 1 gateways, framed
# namespace = "iothub"  # different for another installation in the same HBase
# admin_program = "hbase"  # the program for `iothub hbase create-tables`, with the iothub-hbase jar on its class path (HBASE_CLASSPATH)

# The log of session events. The job `compact_events` keeps it short: `iothub job schedule --help`.
[events]
driver = "kafka"

# [jobs]
# at = "02:30"  # UTC; the time at which your timer starts the jobs

[kafka]
brokers = ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]
replication = 3  # copies of every record; not more than there are brokers
partitions = 16  # never change it: it determines the partition of each session
# topic_prefix = "iothub"  # different for another installation in the same Kafka
"""

_URL = "mysql+pymysql://iothub:PASSWORD@sql-1:3306/iothub\n"


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of installation. `config`: the file; `url`: the line of `URL_FILE`, to be edited first, with accounts on a server."""

    name: str
    config: str
    url: str = ""


EMBEDDED = Profile("embedded", _EMBEDDED)
PROFILES = {
    profile.name: profile
    for profile in (EMBEDDED, Profile("single-server", _SINGLE_SERVER), Profile("cluster", _CLUSTER, _URL))
}
