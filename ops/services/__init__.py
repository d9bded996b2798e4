"""Real servers for tests and for development, on one Linux machine, without containers.

Kafka and HBase (with ZooKeeper and the Thrift gateway), which are fetched with Maven; Redis, MariaDB and PostgreSQL from the distribution's
packages. Knows no hub. Needs the standard library, a JDK and Maven. `python -m ops.services --help` is the command line.
"""
